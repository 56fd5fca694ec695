"""The journal's records of calls: the start and the end of each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Sequence
from typing import Any

from delf.errors import DelfError, TaskLeftError, UnrecordedCallError
from delf.events import (
    SAFE,
    CallAbandoned,
    CallFinished,
    CallStarted,
    CallStatus,
    Cancellation,
)
from delf_engine.calls.call import Call
from delf_engine.journal.log import TaskLog


class CallRecords:
    """Records the starts and ends of a task's calls as events.

    Args:
        log: The task's log.
    """

    def __init__(self, log: TaskLog) -> None:
        self._log = log
        # The started calls that have not ended, by call number.
        self._under_way: dict[int, Call] = {}
        # The registered calls by their number in the sandbox session, until the next script begins.
        self._calls_by_id: dict[int, Call] = {}
        # The numbers of the calls that wait in let_other_calls_end().
        self._waiting: set[int] = set()
        # Set when a call leaves ``_under_way``, to wake the calls in let_other_calls_end().
        self._call_ended = asyncio.Event()
        self.unrecorded_error: UnrecordedCallError | None = None
        """The error of the first started call whose end could not be recorded, if any."""

    @property
    def under_way(self) -> Sequence[Call]:
        """The calls that this process has started and not ended."""
        return tuple(self._under_way.values())

    async def let_other_calls_end(self, call: Call) -> None:
        """Wait for the other calls in flight.

        A call that exceeds a limit waits here before it fails, because the failure may end the
        script, which would cancel the script's other calls. Several calls that wait in this method
        do not wait for each other.

        Args:
            call: The call that exceeds a limit.
        """
        self._waiting.add(call.number)
        try:
            while self._under_way.keys() - self._waiting:
                # Cleared before the wait and set by any end, so that the condition is checked after
                # each end.
                self._call_ended.clear()
                await self._call_ended.wait()
        finally:
            self._waiting.discard(call.number)

    def register(self, call_id: int, call: Call) -> None:
        """Register a call under its number in the sandbox session, for :meth:`abandon`.

        Args:
            call_id: The number of the call in the sandbox session.
            call: The call. A call that is answered from the journal need not be registered.
        """
        self._calls_by_id[call_id] = call

    def unregister_calls(self) -> None:
        """Unregister all calls, because their script has ended."""
        self._calls_by_id.clear()

    def abandon(self, call_id: int) -> None:
        """Record that the script stopped waiting for a call.

        The tool continues, so the end of the call may be recorded before or after this event.

        Args:
            call_id: The number of the call in the sandbox session.
        """
        call = self._calls_by_id.pop(call_id, None)
        if call is not None:
            call.abandoned = True
            self._log.record_soon(CallAbandoned, call_id=call.number, action=call.bound.name)

    async def begin(self, call: Call) -> None:
        """Record the start of a call, unless an earlier process recorded it.

        Raises:
            DelfError: If the journal failed to store the start; the call must not be made.
        """
        # Set before the start is stored: a task that ends meanwhile must wait for this call.
        self._under_way[call.number] = call
        if call.has_start_event:
            return
        try:
            await self._log.record(
                CallStarted,
                call_id=call.number,
                action=call.bound.name,
                arguments=call.arguments,
                effect=call.bound.action.effect,
                digest=call.digest,
                description=call.description,
                line=call.line,
            )
        except asyncio.CancelledError:
            # The journal may have stored the start all the same. Then the call needs an end, which
            # says that the action was not run.
            call.has_start_event = True
            await self._end_not_started(call)
            raise
        except Exception:
            self._remove_from_under_way(call)
            raise
        call.has_start_event = True

    async def record_not_started(self, call: Call) -> None:
        """Record a call that was cancelled before it could have any effect, unless it has ended."""
        if call.ended:
            return
        if call.was_begun_before:
            # In an earlier process, the call may have had an effect.
            await self.cancel(call, "cancelled before it was made again")
            return
        if not call.has_start_event:
            # In the journal, an end without a start means an invalid call. So record a start, too.
            # If another cancellation interrupts begin(), begin() has recorded the end. The caller
            # raises the error of the first cancellation.
            with contextlib.suppress(asyncio.CancelledError):
                await self.begin(call)
        await self._end_not_started(call)  # no-op if begin() has recorded the end

    async def _end_not_started(self, call: Call) -> None:
        reason = "cancelled before it was made"
        await self.end(call, "cancelled", error=reason, cancellation="not_started")

    async def cancel(self, call: Call, reason: str, started: float = 0.0) -> None:
        """Record that a call was cancelled, because the script abandoned it or the sandbox died."""
        cancellation: Cancellation = "abandoned" if call.abandoned else "cut_off"
        with contextlib.suppress(TaskLeftError):  # a task that will be resumed records no end
            await self.end(call, "cancelled", started, error=reason, cancellation=cancellation)

    async def end(
        self,
        call: Call,
        status: CallStatus,
        started: float = 0.0,
        *,
        result: Any = None,
        error: str | None = None,
        error_name: str | None = None,
        cancellation: Cancellation | None = None,
        can_retry: bool = True,
        outcome_unknown: bool = False,
        http_status: int | None = None,
        unredacted_fields: Collection[str] = SAFE,
    ) -> None:
        """Record the end of a call. No-op for a call that has ended.

        Args:
            call: The call.
            status: The final status.
            started: The start on the clock of ``time.perf_counter()``; 0 if the call was not made.
            result: The result that the script gets.
            error: The error message.
            error_name: The name of the exception that the script gets.
            cancellation: The kind of cancellation, for the status ``cancelled``.
            can_retry: Whether another script could succeed after this error.
            outcome_unknown: Whether the failed call may have taken effect.
            http_status: The HTTP status of the service's error response, if any.
            unredacted_fields: The names of event fields that need no redaction.

        Raises:
            UnrecordedCallError: If the journal fails to store the end of a started call.
        """
        if call.ended:
            return
        # Set before the journal stores the end: a second end, such as a cancellation, is a no-op.
        call.ended = True
        self._remove_from_under_way(call)
        elapsed = (time.perf_counter() - started) * 1000 if started else 0.0
        try:
            await self._log.record(
                CallFinished,
                unredacted_fields=unredacted_fields,
                is_outcome=not _may_be_caused_by_leaving(call, status, cancellation),
                call_id=call.number,
                action=call.bound.name,
                status=status,
                duration_ms=elapsed,
                result=result,
                error=error,
                description=call.description,
                raised=error_name,
                # A refused or rejected call may have no earlier event, which would have the digest.
                digest=call.digest if status in ("refused", "rejected") else None,
                cancellation=cancellation,
                can_retry=can_retry,
                outcome_unknown=outcome_unknown,
                http_status=http_status,
                line=None if started else call.line,  # a start event has the line already
            )
        except Exception as failure:
            if not call.has_start_event:
                raise
            raise self._unrecorded_call_error(call, failure) from failure

    def _remove_from_under_way(self, call: Call) -> None:
        """Remove an ended call from the calls in flight, and wake the calls that wait for it."""
        self._under_way.pop(call.number, None)
        self._call_ended.set()

    def _unrecorded_call_error(self, call: Call, failure: Exception) -> UnrecordedCallError:
        """Return the error for a call whose end could not be recorded.

        Store the first error of this kind in ``unrecorded_error``.
        """
        cause = failure.message if isinstance(failure, DelfError) else repr(failure)
        error = UnrecordedCallError(
            f"{call.bound.name} (call {call.number}) was begun, and its end could not be recorded: "
            f"{cause}"
        )
        # Keep the first error, which the gate raises for each new call: later errors follow from
        # it.
        self.unrecorded_error = self.unrecorded_error or error
        return error


def _may_be_caused_by_leaving(
    call: Call, status: CallStatus, cancellation: Cancellation | None
) -> bool:
    """Return whether a call may have ended only because this process stops working on the task."""
    # Plain functions run in threads, which cannot be cancelled.
    has_run_in_thread = status in ("ok", "error") and not call.bound.action.is_async
    return cancellation != "not_started" and not has_run_in_thread
