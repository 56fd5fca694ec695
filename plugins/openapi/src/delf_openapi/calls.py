"""Calls of an API's actions: validation, request and answer."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from delf.errors import ToolExecutionError
from delf_openapi.answers import failure
from delf_openapi.compiler import Argument, Entry, compile_full
from delf_openapi.homes import KeyServers
from delf_openapi.operations import read_operation
from delf_openapi.requests import FULL_RESPONSE, RequestBuilder
from delf_openapi.settings import OpenAPISettings
from delf_schemas.samples import visible_types

if TYPE_CHECKING:
    from delf.tools.context import CallContext
    from delf_openapi.answers import Answer
    from delf_openapi.loading import API
    from delf_openapi.transport import Transport
    from delf_openapi.typed import Fault, Responses, Typed
    from delf_schemas.samples import Found, Samples

CONTEXT: Final = " context"
"""The keyword that passes the task to a call. The space prevents clashes with parameters."""

_SIGNATURE_CHARS: Final = 1500
_MAX_REMEMBERED_FAULTS: Final = 1000
_MAX_LISTED_FAULTS: Final = 5

_log = logging.getLogger(__name__)


class Caller:
    """Sends the calls of one connection, and learns the results' types from the responses.

    Args:
        name: The connection's name.
        settings: Credentials, addresses and limits.
        hide_in_messages: Receives each obtained OAuth2 token, to redact the token in messages.
    """

    def __init__(
        self, name: str, settings: OpenAPISettings, hide_in_messages: Callable[[str], None]
    ) -> None:
        KeyServers(name, settings, spec="")  # raises early for an invalid address in the settings
        self.name = name
        self._hide_in_messages = hide_in_messages
        # The recorder of result types that the specification does not declare.
        self.samples: Samples | None = None
        self._settings = settings
        self._builders: dict[str, RequestBuilder] = {}
        self._transport: Transport | None = None
        self._responses: Responses | None = None
        self._logged_warnings: set[str] = set()
        # The reported faults. A fault is a pair: the label of the response, such as
        # ``GET /pets answered 200``, and the path of the fault with its kind at the end.
        self._reported_mismatches: set[tuple[str, tuple[str, ...]]] = set()
        # By action, the types that results had although the specification does not allow them.
        self._known_types: dict[str, set[Found]] = {}

    def builder(self, call: Call) -> RequestBuilder:
        """Return the request builder of an action, created on first use.

        Raises:
            SpecError: If the operation is invalid.
        """
        name = call.entry.endpoint.name
        builder = self._builders.get(name)
        if builder is None:
            document = call.api.document
            builder = RequestBuilder(
                self.name,
                document,
                read_operation(document, call.entry.endpoint),
                self._settings,
                call.signature(),
                call.hidden_arguments,
                functools.partial(self._warn_once, f"{self.name}.{name}"),
            )
            self._builders[name] = builder
        return builder

    async def send(self, call: Call, arguments: dict[str, Any]) -> Any:
        """Make a call with validated arguments.

        Raises:
            APIError: If the API answers with an error.
            ConnectionUnavailableError: If the API does not answer.
            ToolExecutionError: If the response does not match the specification and the settings
                make a mismatch an error.
        """
        from delf_openapi.transport import Transport

        context: CallContext | None = arguments.pop(CONTEXT, None)

        if self._transport is None:
            self._transport = Transport(self.name, self._settings, self._hide_in_messages)
        # If the API itself has a parameter named FULL_RESPONSE, the argument is sent to the API.
        if FULL_RESPONSE in call.names:
            is_full_response = False
        else:
            is_full_response = bool(arguments.pop(FULL_RESPONSE, False))
        builder = self.builder(call)
        request = builder.build(arguments)
        answer = await self._transport.send(request)
        if answer.status >= 400:
            raise failure(answer, request)
        body = answer.body()
        typed = await self._convert_body(call, builder, answer, body)
        self._learn_shape(call.entry.endpoint.name, body, typed)
        if typed.faults:
            self._report_mismatches(
                f"{request.label} answered {answer.status}", typed.faults, context
            )
        self._learn_types(call, typed.faults)
        return answer.as_dict(typed.value) if is_full_response else typed.value

    async def _convert_body(
        self, call: Call, builder: RequestBuilder, answer: Answer, body: Any
    ) -> Typed:
        """Convert a body to its declared types.

        A thread does the work, because the work may take seconds.
        """
        from delf_openapi.typed import Responses

        if self._responses is None:
            self._responses = Responses(call.api.document)
        responses = self._responses
        if self._settings.validate == "off" or not answer.content:
            return responses.untyped(builder.operation, answer, body)
        return await asyncio.to_thread(responses.typed, builder.operation, answer, body)

    def _learn_shape(self, action: str, body: Any, typed: Typed) -> None:
        """Learn the shape of a body if the specification does not declare it."""
        samples = self.samples
        if samples is None or typed.declared or not isinstance(body, (dict, list)):
            return
        is_in_sample = samples.count_result(action)
        if is_in_sample:
            samples.note(action, body)

    def _learn_types(self, call: Call, faults: Sequence[Fault]) -> None:
        """Record the types of response values that violate the declared schema.

        The model sees these types in the action's result type, also in later processes. A type
        that is nested too deeply to be shown there is only marked as known in this process.
        """
        name = call.entry.endpoint.name
        undeclared_types = {(fault.place, fault.value_type) for fault in faults if fault.value_type}
        known_types = self._known_types.setdefault(name, set())
        new_types = undeclared_types - known_types
        if self.samples is None or not new_types:
            return
        known_types.update(new_types)
        shown_type = compile_full(call.api.document, call.entry, call.api.full_shapes).returns
        self.samples.note_undeclared(name, visible_types(shown_type, new_types))

    def _warn_once(self, action: str, faults: list[str]) -> None:
        """Log the faults of arguments that are sent nevertheless.

        Each warning is logged once. After :data:`_MAX_REMEMBERED_FAULTS` different warnings, a new
        warning is not remembered, and may be repeated.
        """
        warning = f"{action} is called against its specification: {'; '.join(faults)}"
        if warning in self._logged_warnings:
            return
        if len(self._logged_warnings) < _MAX_REMEMBERED_FAULTS:
            self._logged_warnings.add(warning)
        _log.warning("%s", warning)

    def _report_mismatches(
        self, label: str, faults: Sequence[Fault], context: CallContext | None
    ) -> None:
        """Report the faults of a response; warn of each path and kind of fault only once.

        Args:
            label: The request and the status of the response: ``GET /pets answered 200``.
            faults: The faults.
            context: The context of the call, through which the script's output shows the faults.

        Raises:
            ToolExecutionError: If the settings make a mismatch an error.
        """
        if self._settings.validate == "raise":
            raise ToolExecutionError(
                _mismatch_text(label, faults),
                hint='the call was made; validate="warn" returns its response',
            )
        fault_by_key = {(label, (*fault.place, fault.kind)): fault for fault in faults}
        reported = self._reported_mismatches
        new_faults = [fault for key, fault in fault_by_key.items() if key not in reported]
        if not new_faults:
            return
        if len(reported) < _MAX_REMEMBERED_FAULTS:
            reported.update(fault_by_key)
        text = _mismatch_text(label, new_faults)
        _log.warning("%s: %s", self.name, text)
        if context is not None:
            context.say(f"{text}\n")

    async def aclose(self) -> None:
        """Close all connections, and finish saving the shapes of sample responses."""
        if self._transport is not None:
            await self._transport.aclose()
        if self.samples is not None:
            await self.samples.aclose()


class Call:
    """The validation and the call of one action.

    Args:
        caller: Sends requests.
        api: The specification.
        entry: The compiled action.
        hidden_arguments: The keywords whose values come from the settings.
        accepted_arguments: The arguments that scripts can pass.
    """

    def __init__(
        self,
        caller: Caller,
        api: API,
        entry: Entry,
        hidden_arguments: frozenset[str],
        accepted_arguments: Sequence[Argument],
    ) -> None:
        self.api = api
        self.entry = entry
        self.hidden_arguments = hidden_arguments
        self._caller = caller
        self._accepted_arguments = accepted_arguments

    @property
    def names(self) -> set[str]:
        """The keywords that scripts can pass."""
        return {a.arg for a in self._accepted_arguments}

    def signature(self) -> str:
        """Return the action's signature, for error messages."""
        parts: list[str] = []
        for argument in self._accepted_arguments:
            default = "" if argument.default is None else f" = {argument.default}"
            parts.append(f"{argument.arg}: {argument.type}{default}")
        text = f"{self._caller.name}.{self.entry.endpoint.name}({', '.join(parts)})"
        if len(text) <= _SIGNATURE_CHARS:
            return text
        return f"{text[:_SIGNATURE_CHARS]}…"

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Validate arguments and convert them to the values to be sent.

        Raises:
            ToolRefusedError: If an argument is invalid.
        """
        return self._caller.builder(self).check(arguments)

    async def call(self, /, **given: Any) -> Any:
        """Send the request of this operation with the script's arguments; return the result."""
        return await self._caller.send(self, given)

    def schema(self) -> dict[str, Any]:
        """Return a JSON schema of the arguments. The descriptions in the schema name the types."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        for argument in self._accepted_arguments:
            description = "; ".join(filter(None, [argument.type, argument.doc]))
            properties[argument.arg] = {"description": description}
            if argument.default is None:
                required.append(argument.arg)
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }


def _mismatch_text(label: str, faults: Sequence[Fault]) -> str:
    more = "; and more" if len(faults) > _MAX_LISTED_FAULTS else ""
    listed = "; ".join(fault.text for fault in faults[:_MAX_LISTED_FAULTS])
    return f"{label} with a body that differs from the specification: {listed}{more}"
