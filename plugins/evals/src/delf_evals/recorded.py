"""Connections whose calls return recorded results, so that no effect happens in an evaluation."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from delf.errors import ToolExecutionError
from delf.events import ASK, ApprovalRequest
from delf.protocols.approval import Answered, Decision, Rejected
from delf.protocols.connection import Allowed, ConnectionLike, ProposedCall
from delf.tools.action import Action
from delf.tools.permissions import needs_confirmation
from delf_engine.past_calls import is_same

# The optional arguments of ``ask`` with their defaults.
_ASK_DEFAULTS: Final = {"options": (), "answer": "text", "default": None}
# Optional methods of connections that are hidden because they could reach a service or a model.
_HIDDEN_METHODS: Final = frozenset({"check", "setup", "needs_setup", "learn"})


class RecordedResult(BaseModel):
    """A recorded call of an evaluation case with its result.

    Args:
        action: The action, such as ``gmail.send``, or a pattern such as ``gmail.*``.
        arguments: The arguments by name; None for a stub, which matches calls with any arguments.
        result: The result.
        error: The error message, if the tool raised an error.
    """

    model_config = ConfigDict(extra="forbid")

    action: str
    arguments: dict[str, Any] | None = None
    result: Any = None
    error: str | None = None

    @property
    def failure(self) -> str | None:
        """The error message that the script gets; None if the script gets the result.

        With both an error and a result, the script gets the result: the tool's ``handle_error`` has
        turned the error into this result.
        """
        return self.error if self.result is None else None


class RecordedEnvironment:
    """The recorded environment of one run of an evaluation case: results and prompt facts.

    Args:
        results: The recorded calls and stubs, in the order in which they are used.
        context: Facts for the prompt by connection name, used instead of the facts that the real
            connections would add.
        live_reads: Whether to really make calls that only read and have no recorded result.
    """

    def __init__(
        self,
        results: Sequence[RecordedResult] = (),
        context: Mapping[str, str] | None = None,
        *,
        live_reads: bool = False,
    ) -> None:
        self._unused = list(results)
        self._used: list[RecordedResult] = []
        self.context = dict(context or {})
        self.live_reads = live_reads
        self.unrecorded: list[str] = []
        """The calls without a recorded result, as text."""

    def take(
        self,
        name: str,
        arguments: Mapping[str, Any],
        defaults: Mapping[str, Any],
        *,
        may_repeat: bool,
    ) -> RecordedResult | None:
        """Return the recorded result for a call; None if there is none.

        Unused results come first, in order. A used result is returned again only if ``may_repeat``
        is True, or if the result was recorded without arguments and so fits every call of its
        action.

        Args:
            name: The full name of the action.
            arguments: The arguments.
            defaults: The default values of optional arguments.
            may_repeat: Whether equal calls may get the same result, because the action only reads.
        """
        # _matches() adds the defaults to the recorded arguments, too, so that a call that passes a
        # default value equals a call that omits it.
        all_arguments = {**defaults, **arguments}
        for index, result in enumerate(self._unused):
            if _matches(result, name, defaults, all_arguments):
                self._used.append(result)
                del self._unused[index]
                return result
        for result in reversed(self._used):
            is_stub = result.arguments is None
            if (is_stub or may_repeat) and _matches(result, name, defaults, all_arguments):
                return result
        return None

    def note_unrecorded(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Add a call without recorded result to ``unrecorded``; return an error message."""
        arguments_text = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        text = f"{name}({arguments_text})"
        if len(text) > 300:
            text = f"{text[:299]}…"
        self.unrecorded.append(text)
        return f"the case has no result for {text}"

    def answer(self, request: ApprovalRequest) -> Decision:
        """Return the recorded answer to a script's question; a rejection if there is none."""
        # An equal question gets the same recorded answer again, because a question changes nothing.
        recorded = self.take(ASK, request.arguments, _ASK_DEFAULTS, may_repeat=True)
        if recorded is None:
            asked_arguments = {
                key: value for key, value in request.arguments.items() if value is not None
            }
            return Rejected(reason=self.note_unrecorded(ASK, asked_arguments))
        if recorded.failure is not None:
            return Rejected(reason=recorded.failure)
        return Answered(recorded.result)


def _matches(
    recorded: RecordedResult,
    name: str,
    defaults: Mapping[str, Any],
    all_arguments: Mapping[str, Any],
) -> bool:
    """Return True if a recorded result fits a call.

    Args:
        recorded: The recorded result.
        name: The full name of the called action.
        defaults: The default values of optional arguments.
        all_arguments: The arguments of the call, with the defaults of omitted arguments.
    """
    if not fnmatchcase(name, recorded.action):
        return False
    if recorded.arguments is None:
        return True
    return is_same({**defaults, **recorded.arguments}, all_arguments)


CURRENT_ENVIRONMENT: Final[ContextVar[RecordedEnvironment]] = ContextVar("delf_evals_environment")
"""The recorded data of the evaluation case that the current asyncio task runs."""


async def recorded_answer(request: ApprovalRequest) -> Decision:
    """Answer a script's question with the answer recorded in the current case."""
    return CURRENT_ENVIRONMENT.get().answer(request)


class RecordedConnection:
    """A connection whose calls return the recorded results of the current evaluation case.

    Implements :class:`delf.protocols.connection.ConnectionLike`. Its actions are described to the
    model exactly as those of the real connection.

    Args:
        inner: The real connection.
    """

    def __init__(self, inner: ConnectionLike) -> None:
        self._inner = inner
        self.name = inner.name
        self.summary = inner.summary
        self.allow = inner.allow
        self.confirm = inner.confirm
        self.is_function = inner.is_function
        self.names: set[str] = set()
        """The full names of the actions; empty until :meth:`actions` is called."""

    def __getattr__(self, name: str) -> Any:
        """Return a member of the real connection that this class does not define.

        The optional methods ``check``, ``setup``, ``needs_setup`` and ``learn`` are left out,
        because they could reach a service or a model. The method ``context``, whose text is for the
        prompt, is replaced by a method that returns the recorded text.
        """
        if name in _HIDDEN_METHODS or name.startswith("_"):
            raise AttributeError(name)
        # Get the member first: a connection without context() must raise AttributeError for it.
        member = getattr(self._inner, name)
        return self._recorded_context if name == "context" else member

    async def actions(self) -> Sequence[Action]:
        """Return the actions of the real connection, with calls that return recorded results."""
        recorded_actions = [
            self._with_recorded_results(action) for action in await self._inner.actions()
        ]
        self.names = {self._name_of(action) for action in recorded_actions}
        return recorded_actions

    def _name_of(self, action: Action) -> str:
        return self.name if self.is_function else f"{self.name}.{action.name}"

    async def _recorded_context(self, task: str) -> str | None:
        """Return the text for the prompt that was recorded with the evaluation case.

        Without a recorded text, return the text of the real connection.
        """
        context = CURRENT_ENVIRONMENT.get().context.get(self.name)
        if context is not None:
            return context
        inner: Any = self._inner
        live: str | None = await inner.context(task)
        return live

    def _with_recorded_results(self, action: Action) -> Action:
        """Return a copy of an action whose calls return recorded results."""

        async def call(**given_arguments: Any) -> Any:
            return await self._recorded_result(action, given_arguments)

        # ``resumes`` is for actions that work in child tasks, and a recorded call starts none.
        # ``handle_error`` is left out, because it was applied before the recording.
        return replace(action, call=call, resumes=False, handle_error=None)

    async def _recorded_result(self, action: Action, given_arguments: Mapping[str, Any]) -> Any:
        """Return the recorded result of a call.

        If the run allows ``live_reads``, a call that only reads and has no recorded result is
        really made.

        Raises:
            ToolExecutionError: If the recorded call failed, or if there is no result.
        """
        name = self._name_of(action)
        # Recorded calls do not include the CallContext among their arguments.
        arguments = {key: given_arguments[key] for key in given_arguments if key != action.context}
        environment = CURRENT_ENVIRONMENT.get()
        only_reads = action.effect == "read"
        recorded = environment.take(name, arguments, action.defaults, may_repeat=only_reads)
        if recorded is not None:
            if recorded.failure is not None:
                raise ToolExecutionError(recorded.failure)
            return recorded.result
        if environment.live_reads and await self._may_read_live(action, arguments):
            if action.is_async:
                return await action.call(**given_arguments)
            return await asyncio.to_thread(action.call, **given_arguments)
        message = environment.note_unrecorded(name, arguments)
        raise ToolExecutionError(message, can_retry=False)

    async def _may_read_live(self, action: Action, arguments: Mapping[str, Any]) -> bool:
        """Return True if a call only reads, sends no data out, and may be made without approval."""
        if action.effect != "read" or action.egress:
            return False
        if needs_confirmation(self.confirm, action):
            return False
        check: Any = getattr(self._inner, "check", None)
        if check is None:
            return True
        proposed = ProposedCall(action=action.name, arguments=arguments)
        verdict = check(proposed)
        verdict = await verdict if inspect.isawaitable(verdict) else verdict
        return isinstance(verdict, Allowed)
