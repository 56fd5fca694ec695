"""``CallMaker``: executes approved calls and words their results and failures."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import Coroutine, Iterable
from typing import Any, cast

from delf.errors import (
    BudgetExceededError,
    DelfError,
    OutcomeUnknownError,
    TaskLeftError,
    TaskLimitError,
    ToolException,
    describe_exception,
)
from delf.events import SAFE, Warned
from delf.notes import notes_of_call
from delf.protocols.sandbox import CallAnswer, Raised, Returned, ToolMessage
from delf.values.encoding import UnsupportedValueError
from delf_engine.calls.call import Call
from delf_engine.calls.contexts import CallContexts
from delf_engine.calls.records import CallRecords
from delf_engine.calls.results import Results
from delf_engine.calls.threads import ToolThreads
from delf_engine.changes import unknown_outcomes
from delf_engine.journal.log import TaskLog
from delf_engine.redact import Redactor
from delf_engine.waiting import is_cancelled

_log = logging.getLogger(__name__)
# The fields of a successful call's ``CallFinished`` event that are not redacted. The result is
# among them, because its secrets were removed before the script got it.
_FIELDS_WITHOUT_SECRETS = SAFE | {"result"}


class CallMaker:
    """Executes approved calls, and records their ends.

    Args:
        log: The log that records every call.
        records: Records the starts and ends of calls.
        threads: The thread pool for actions that are not async.
        results: Converts results for scripts.
        redactor: Redacts secrets in error messages, and in the result that a person enters for a
            call whose outcome is unknown.
        contexts: Creates the contexts of calls.
    """

    def __init__(
        self,
        log: TaskLog,
        records: CallRecords,
        threads: ToolThreads,
        results: Results,
        redactor: Redactor,
        contexts: CallContexts,
    ) -> None:
        self._log = log
        self._records = records
        self._threads = threads
        self._results = results
        self._redactor = redactor
        self._contexts = contexts
        self.unknown_outcomes: set[str] = unknown_outcomes(log.events)
        """The digests of this task's calls that may have taken effect, also before a resume."""

    async def make(self, call: Call) -> CallAnswer:
        """Execute a call whose start is recorded, record the call's end, and return the outcome.

        The outcome is the result or the error that the script gets.

        Raises:
            UnrecordedCallError: If the end could not be recorded.
            TaskLeftError: If a child task of the call was left unfinished.
        """
        started = time.perf_counter()
        try:
            result, notes = await self._run_action(call)
            result, encoded, conversion_note = await self._results.take(result)
        except asyncio.CancelledError:
            if not is_cancelled():
                return await self._fail(call, started, f"{call.bound.name} cancelled itself")
            await self._records.cancel(call, "cancelled", started)
            raise
        except ToolException as error:
            return await self._handle_tool_exception(call, started, error)
        except BaseException as error:  # pytest's outcomes and SystemExit are not Exceptions
            if _leaves_call_open(error):
                raise
            return await self._handle_failure(call, started, error)
        await self._records.end(
            call, "ok", started, result=result, unredacted_fields=_FIELDS_WITHOUT_SECRETS
        )
        # Warnings are recorded after the end of the call: if one fails, the journal has the end.
        for warning in filter(None, [*notes, conversion_note]):
            await self._log.record(Warned, message=f"{call.bound.name}: {warning}")
        return Returned(result, encoded)

    async def _handle_failure(self, call: Call, started: float, error: BaseException) -> Raised:
        """Record a call whose tool failed, and return the error for the script."""
        message = f"{call.bound.name} failed"
        self._redactor.log_failure(_log, message, error, logging.DEBUG)
        if isinstance(error, (TaskLimitError, BudgetExceededError)):
            # This failure may end the script, which would cancel the script's other calls.
            try:
                await self._records.let_other_calls_end(call)
            except asyncio.CancelledError:  # this call is cancelled
                await self._records.cancel(call, "cancelled", started)
                raise
        return await self._fail(call, started, describe_failure(error), cause=error)

    async def _run_action(self, call: Call) -> tuple[Any, Iterable[str]]:
        """Run the function of a call's action, and end the call's context; return result and notes.

        An exception of the function is raised here.
        """
        action = call.bound.action
        arguments = call.arguments
        if action.context is not None:
            context = self._contexts.of(call, is_repeated=call.was_begun_before)
            arguments = {**arguments, action.context: context}
        try:
            with notes_of_call() as notes:
                if action.is_async:
                    return await action.call(**arguments), notes
                call_action = functools.partial(action.call, **arguments)
                result = await self._threads.run(call_action, lambda: call.abandoned)
                if isinstance(result, Coroutine):
                    result = await cast("Coroutine[Any, Any, Any]", result)
                return result, notes
        finally:
            # If the sandbox died, the script is run again, and the repeated call waits for the same
            # child tasks. If the script abandoned the call, the child tasks end.
            is_cut_off = is_cancelled() and not call.abandoned
            await self._contexts.end_call(call, is_cut_off=is_cut_off)

    async def _fail(
        self,
        call: Call,
        started: float,
        message: str,
        kind: str = "ToolError",
        cause: BaseException | None = None,
    ) -> Raised:
        """Record a failed call, and return the error for the script."""
        message = self._redactor.redact_text(message)
        can_retry = not isinstance(cause, DelfError) or cause.can_retry
        status = _http_status(cause)
        can_change = call.bound.action.effect != "read"
        outcome_unknown = can_change and isinstance(cause, OutcomeUnknownError)
        if outcome_unknown:
            self.unknown_outcomes.add(call.digest)
        await self._records.end(
            call,
            "error",
            started,
            error=message,
            error_name=kind,
            can_retry=can_retry,
            outcome_unknown=outcome_unknown,
            http_status=status,
        )
        return Raised(kind, message, cause, can_retry, status)

    async def _handle_tool_exception(
        self, call: Call, started: float, error: ToolException
    ) -> CallAnswer:
        """Record a call whose tool raised ``ToolException``; return the answer for the script.

        The action's ``handle_error`` converts the exception to a text. An action without
        ``handle_error`` fails.
        """
        handler = call.bound.action.handle_error
        if handler is None:
            return await self._fail(call, started, error.message, "ToolException", error)
        try:
            text = str(handler(error)) if callable(handler) else handler
        except BaseException as failure:  # pytest's outcomes and SystemExit are not Exceptions
            if _leaves_call_open(failure):
                raise
            message = f"{error.message} (handle_error failed: {failure})"
            return await self._fail(call, started, message)
        text = self._redactor.redact_text(text)
        await self._records.end(call, "error", started, error=error.message, result=text)
        return ToolMessage(text)

    async def record_stated_result(self, call: Call, result: Any) -> CallAnswer:
        """Record a call as done with the result that a person stated.

        Returns:
            The answer for the script, with this result.

        Raises:
            UnsupportedValueError: If the result cannot be encoded.
        """
        result = self._redactor.redact_value(result)
        encoded = self._results.encode(result)
        await self._records.end(call, "ok", result=result)
        return Returned(result, encoded)


def _leaves_call_open(error: BaseException) -> bool:
    """Return True for an error after which the end of a call must not be recorded."""
    match error:
        case TaskLeftError():
            return True  # a child task has not ended; a resume continues the child and the call
        case GeneratorExit():
            return True  # the coroutine is destroyed, and may not await the record of an end
        case KeyboardInterrupt():  # in the main thread, somebody pressed Ctrl-C
            return threading.current_thread() is threading.main_thread()
        case _:
            return False


def describe_failure(error: BaseException) -> str:
    """Return the error message of a failed tool for the script and the model."""
    if isinstance(error, DelfError):
        text = error.for_model()
        return f"{text} ({error.hint})" if error.hint else text
    if isinstance(error, UnsupportedValueError):
        return str(error)
    return describe_exception(error)


def _http_status(error: BaseException | None) -> int | None:
    """Return the HTTP error status of an HTTP client's exception; None for other errors."""
    response = _attribute(error, "response")
    for value in (
        _attribute(error, "status"),
        _attribute(error, "status_code"),
        _attribute(response, "status_code"),
    ):
        if isinstance(value, int) and 400 <= value < 600:
            return int(value)  # converts an ``HTTPStatus``, too
    return None


def _attribute(item: object, name: str) -> Any:
    """Return an attribute; None if it is missing, or is a property that raises any exception."""
    try:
        return getattr(item, name, None)
    except Exception:
        return None
