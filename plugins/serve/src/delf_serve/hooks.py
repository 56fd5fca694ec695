"""Incoming webhooks: another service's message starts a task or a routine, once."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final, cast

from delf.errors import ConfigurationError, DelfError
from delf.protocols.people import LOCAL
from delf.tools.json_schema import Checker
from delf_cli.routine_calls import ITEM
from delf_cli.routines import ROUTINE
from delf_engine.variables import given_variables
from delf_serve.keys import ANYBODY, Caller, Keys
from delf_serve.problems import ProblemError
from delf_serve.routines import Routines
from delf_serve.schemas import RunRequest
from delf_serve.settings import HookSettings
from delf_serve.signatures import verify
from delf_serve.tasks.submissions import Submissions, Submitted

_RIGHTS: Final = frozenset({"run"})


class Hooks:
    """The incoming webhooks of a server, which start tasks.

    Args:
        hooks: The settings, by name.
        keys: Finds the user of a webhook's tasks.
        submissions: Submits the tasks.
        routines: The project's routines.

    Raises:
        DelfError: If the body schema of a webhook is invalid.
    """

    def __init__(
        self,
        hooks: Mapping[str, HookSettings],
        keys: Keys,
        submissions: Submissions,
        routines: Routines,
    ) -> None:
        self._hooks = hooks
        self._keys = keys
        self._submissions = submissions
        self._routines = routines
        self._checkers = {
            name: Checker(hook.body_schema, f"the hook {name}")
            for name, hook in hooks.items()
            if hook.body_schema is not None
        }

    async def receive(
        self, name: str, headers: Mapping[str, str], body: bytes, client: str
    ) -> Submitted:
        """Start the task of a webhook message. A repeated message id starts no second task.

        Args:
            name: The webhook's name.
            headers: The headers of the request, by name in lower case.
            body: The unparsed message.
            client: The address of the sender.

        Returns:
            The submitted task.

        Raises:
            ProblemError: If the webhook is unknown, if the signature is wrong, if the message
                violates the webhook's schema, or if the webhook's user may not run tasks.
        """
        hook = self._hooks.get(name)
        # An unknown webhook gets a random secret: the sender then gets the same error as for a
        # wrong signature, and does not learn which webhooks exist.
        secret = secrets.token_hex() if hook is None else hook.secret.get_secret_value()
        # Verify the signature before parsing the message.
        message_id = verify(secret, headers, body)
        assert hook is not None  # noqa: S101 - no message has a signature of the random secret
        message = self._parse_message(name, body)
        caller = self._find_caller(name, hook)
        try:
            variables = given_variables({ITEM: message})
        except ConfigurationError as error:
            raise ProblemError(413, error.message) from None
        return await self._submissions.submit(
            # Not validated, because the task comes from the settings. Only a routine's inputs come
            # from the sender, and the routine checks them.
            RunRequest.model_construct(task=await self._task_text(hook, message)),
            caller,
            idempotency_key=message_id,
            # The message ids of a hook are unique within the hook. The scope does not depend on the
            # user, because the settings may name another user before the sender repeats a message.
            key_scope=f"hook\n{name}",
            strategy=ROUTINE if hook.routine else None,
            client=client,
            external_variables=variables,
        )

    def _parse_message(self, name: str, body: bytes) -> Any:
        """Parse a message as JSON, and validate it against the webhook's schema."""
        try:
            message = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise ProblemError(422, "the body is not JSON") from None
        checker = self._checkers.get(name)
        fault = None if checker is None else checker.fault(message)
        if fault is not None:
            raise ProblemError(422, f"the body is not as the hook's schema says: {fault}")
        return message

    def _find_caller(self, name: str, hook: HookSettings) -> Caller:
        """Return the caller whose tasks a hook starts."""
        if not hook.person:
            if not self._keys:
                return ANYBODY  # everybody may use a server without keys
            # The empty digest belongs to no key, so that no person owns the hook's tasks.
            return Caller(f"{LOCAL} hook {name}", _RIGHTS, digest=b"")
        caller = self._keys.find_person(hook.person, by_mail=True)
        if caller is None or "run" not in caller.rights:
            raise ProblemError(409, "the person of this hook may not run tasks here")
        return caller

    async def _task_text(self, hook: HookSettings, message: Any) -> str:
        """Return the webhook's task, or a routine call with values from the message."""
        if not hook.routine:
            return hook.task
        inputs = {name: _value_at(path, message) for name, path in hook.inputs.items()}
        try:
            bound = await asyncio.to_thread(self._routines.of_agent().find, hook.routine)
            return bound.task(inputs)
        except DelfError as error:
            raise ProblemError(422, error.message) from None


def _refuse_constant(constant: str) -> None:
    """Raise an error for NaN and infinity, which JSON does not have."""
    raise ValueError(constant)


def _value_at(pointer: str, message: Any) -> Any:
    """Return the value at a JSON pointer in a message.

    Args:
        pointer: The JSON pointer (RFC 6901), such as ``/order/id``.
        message: The parsed message.

    Raises:
        ProblemError: If the message has no value there.
    """
    value = message
    for escaped in pointer.split("/")[1:]:  # "/order/id" -> "order", "id"
        name = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = cast("dict[str, Any]", value)[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(cast("Any", value)):
            value = cast("list[Any]", value)[int(name)]
        else:
            raise ProblemError(422, f"the body has nothing at {pointer}")
    return value
