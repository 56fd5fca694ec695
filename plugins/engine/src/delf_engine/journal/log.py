"""A task's log: numbers events, journals them in order, then passes them to listeners."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, Final

from delf.errors import (
    DelfError,
    JournalUnavailableError,
    TaskLeftError,
    UnrecordedEventError,
    describe_exception,
)
from delf.events import (
    SAFE,
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalVoted,
    CallFinished,
    ClockRead,
    Event,
    ModelCalled,
    Printed,
    StepFinished,
    StepStarted,
    TaskFinished,
    TaskPostponed,
    TaskResumed,
    TaskStarted,
    Warned,
    frozen_fields,
)
from delf.machine.contexts import in_context
from delf.messages import Message
from delf.protocols.journal import Journal
from delf.values.encoding import PLAIN
from delf.values.sizes import is_large, run_in_thread
from delf_engine.journal.replay import Replay
from delf_engine.redact import RedactedStream, Redactor

_log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
"""A callback for recorded events, which must return quickly and should not raise."""

# If the journal fails to store one of these events, the task goes on or the caller handles the
# failure.
_NOT_REQUIRED: Final = (
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalVoted,
    CallFinished,
    TaskFinished,
    TaskPostponed,
    TaskResumed,
    TaskStarted,
    Warned,
)


class TaskLog:
    """Records the events of one task: numbers, redacts and journals them in order.

    Args:
        task_id: The id of the task.
        journal: The journal; None if events are not kept.
        listeners: Functions called with each event after the journal has stored it.
        redactor: Redacts secrets in events.
        replay: The replay of a resumed task. Recorded events are not written again.
    """

    def __init__(
        self,
        task_id: str,
        journal: Journal | None,
        listeners: Sequence[Listener],
        redactor: Redactor | None = None,
        replay: Replay | None = None,
    ) -> None:
        self.task_id = task_id
        self.context = copy_context()
        """The context variables of the task's caller; work for the task runs in copies of them."""
        self._journal = journal
        self._listeners = tuple(listeners)
        self.redactor = Redactor() if redactor is None else redactor
        self._replay = Replay() if replay is None else replay
        self.events: list[Event] = list(self._replay.events)
        """The recorded events, in the order of their numbers."""
        self._lock = asyncio.Lock()  # held while events are numbered and appended
        # The buffered printed text of the script, redacted.
        self._printed: list[str] = []
        # Redacts printed text; holds back its end if it may be the beginning of a secret.
        self._print_stream = RedactedStream(self.redactor)
        # The buffered clock reads of the script, in nanoseconds.
        self._clock_reads: list[int] = []
        # The buffered turns of the script's event loop, as buffer_loop_turns() gets them.
        self._loop_turns: list[int] = []
        # Queued events have no numbers yet. An event gets its number when it is written, so that a
        # cancelled event leaves no gap.
        self._queued_events: list[tuple[type[Event], dict[str, Any]]] = []
        # The event whose append has begun, until the append ends. After a cancelled append, the
        # journal may or may not have stored the event, so the next write appends it once more.
        self._unconfirmed_event: Event | None = None
        # True after accept_only_outcomes() or aclose(), when this process gives the task up.
        self._accepts_only_outcomes = False
        # True after aclose() or the task's last event: no event is recorded any more.
        self._is_ended = False
        self.write_failure: UnrecordedEventError | None = None
        """The error of the first required event that the journal did not store, if any.

        Further events are not recorded then, and the task has to stop.
        """
        # The time, on the event loop's clock, until which record() waits for the journal; None for
        # no limit. Set by limit_waits().
        self._deadline: float | None = None
        self._model_calls = sum(isinstance(event, ModelCalled) for event in self.events)
        self.last_prompts: dict[str, tuple[Message, ...]] = {}
        """By purpose, the messages of the latest model request for that purpose.

        The event of the next request records only messages that differ from these.
        """
        # The latest background flush of buffered events, if any.
        self._flushing: asyncio.Task[None] | None = None

    def restart(self, replay: Replay) -> None:
        """Replay the task from its beginning, after its sandbox died.

        Args:
            replay: The replay of the events recorded so far.
        """
        self._replay = replay
        # Drop text that was held back as a possible beginning of a secret: the script prints it
        # again when it is replayed.
        self._print_stream.end()

    def new_model_call_number(self) -> int:
        """Return a new number for a model call."""
        self._model_calls += 1
        return self._model_calls

    async def record(
        self,
        kind: type[Event],
        *,
        unredacted_fields: Collection[str] = SAFE,
        is_outcome: bool = False,
        **fields: Any,
    ) -> None:
        """Record an event, and wait until the journal has stored it.

        If the caller is cancelled, the event is recorded in the background before all later events.

        Args:
            kind: The event's class.
            unredacted_fields: The names of fields that need no redaction.
            is_outcome: Whether the event is the certain outcome of a call, which is recorded even
                after :meth:`accept_only_outcomes`.
            fields: The fields of the event, except task, sequence number and time, which are added.

        Raises:
            TaskLeftError: If the task has already ended in this process, or only outcomes are
                accepted.
            UnrecordedEventError: If the task cannot go on without the event, and the journal does
                not store the event or has failed to store an earlier one.
            DelfError: If the journal does not store an event without which the task can go on.
        """
        if self._is_ended or (self._accepts_only_outcomes and not is_outcome):
            raise self._ended_error(kind)
        if self.write_failure is not None and not issubclass(kind, _NOT_REQUIRED):
            raise self.write_failure
        if self.redactor.knows_any:
            fields = self._without_secrets(fields, unredacted_fields)
        # Record copies of the fields, because the caller may change its objects later. A thread
        # copies large values, which would block the event loop.
        has_large_value = any(
            type(value) not in PLAIN and is_large(value) for value in fields.values()
        )
        if has_large_value:
            fields = await run_in_thread(frozen_fields, kind, fields)
        else:
            fields = frozen_fields(kind, fields)
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._record(kind, fields)
        except TimeoutError as error:
            raise JournalUnavailableError(
                "the journal does not answer", hint="once it does, delf runs list shows the task"
            ) from error

    def _ended_error(self, kind: type[Event]) -> TaskLeftError:
        return TaskLeftError(
            f"task {self.task_id} has ended in this process: no {kind.__name__} is kept"
        )

    def limit_waits(self, seconds: float) -> None:
        """Set a deadline for all further waits for the journal; no-op after the first call."""
        # Several steps at the end of a task call this; all of them together share one deadline.
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + seconds

    async def _record(self, kind: type[Event], fields: dict[str, Any]) -> None:
        """Write an event after all queued events; if cancelled, let a later flush write it."""
        has_write_begun = False
        try:
            async with self._lock:
                if self._has_queued:
                    await self._write_queued()
                has_write_begun = True
                await self._write(kind, fields)
        except asyncio.CancelledError:
            # If _write() was cancelled, ``_unconfirmed_event`` keeps the event for the next flush.
            if not has_write_begun:
                self._queued_events.append((kind, fields))
            self._flush_soon()
            raise
        except TaskLeftError:  # the task has been left, so the event is refused, not lost
            raise
        except Exception as failure:
            if issubclass(kind, _NOT_REQUIRED):
                raise
            reason = (
                failure.message if isinstance(failure, DelfError) else describe_exception(failure)
            )
            message = f"the journal did not store {kind.__name__}: {reason}"
            self.write_failure = UnrecordedEventError(message)
            raise self.write_failure from failure

    @asynccontextmanager
    async def step(self, name: str, attempt: int = 1) -> AsyncGenerator[None]:
        """Record the start of a step, and its end if the ``with`` block does not raise.

        Args:
            name: The step's name, as shown to people.
            attempt: The number of the iteration of the task's loop, from 1.
        """
        started = time.perf_counter()
        name = str(name)  # a plain text as in the journal, not a member of Step
        await self.record(StepStarted, step=name, attempt=attempt)
        yield
        elapsed = (time.perf_counter() - started) * 1000
        await self.record(StepFinished, step=name, attempt=attempt, duration_ms=elapsed)

    def record_soon(self, kind: type[Event], **fields: Any) -> None:
        """Record an event in the background, before all later events.

        Best effort: the event is dropped if the task has ended.

        Args:
            kind: The event's class.
            fields: The event's own fields.
        """
        if self.redactor.knows_any:
            # SAFE names the fields whose values are only numbers and fixed words.
            fields = self._without_secrets(fields, SAFE)
        # Text that was printed before the event comes first.
        self._queue_output()
        self._queued_events.append((kind, frozen_fields(kind, fields)))
        self._flush_soon()

    def _without_secrets(
        self, fields: dict[str, Any], unredacted_fields: Collection[str]
    ) -> dict[str, Any]:
        """Redact the secrets in an event's fields, except in the fields with the given names."""
        redact = self.redactor.redact_value
        return {
            name: value if name in unredacted_fields else redact(value)
            for name, value in fields.items()
        }

    def accept_only_outcomes(self) -> None:
        """Refuse all further events except outcomes of calls, so that the task can be resumed."""
        self._accepts_only_outcomes = True

    async def aclose(self) -> None:
        """Flush buffered events, then refuse all further events."""
        self.accept_only_outcomes()
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._flush()
        finally:
            # Refuse events even if the flush failed: another process may continue the task, and its
            # events must not mix with events of this process.
            self._is_ended = True

    def buffer_output(self, text: str) -> None:
        """Buffer text that a script printed; the text is recorded before the next event.

        A possible beginning of a secret is held back until more text arrives or the script ends.
        """
        self._print(self._print_stream.feed(text))

    def flush_held_back_output(self) -> None:
        """Record text that was held back as a possible beginning of a secret."""
        self._print(self._print_stream.end())

    def _print(self, text: str) -> None:
        """Buffer redacted text that a script printed, except text that is recorded already."""
        text = self._replay.skip_recorded_part(text)
        if text and not self._accepts_only_outcomes:
            self._printed.append(text)
            self._flush_soon()

    def buffer_clock_reads(self, readings: Sequence[int]) -> None:
        """Buffer clock reads of a script; the reads are recorded before the next event.

        Args:
            readings: The returned Unix times in nanoseconds.
        """
        if not self._accepts_only_outcomes:
            self._clock_reads += readings
            self._flush_soon()

    def buffer_loop_turns(self, turns: Sequence[int]) -> None:
        """Buffer event-loop turns of a script; the turns are recorded before the next event.

        Args:
            turns: Pairs of numbers in one list. ``[7, 2, 8, -1]`` means: in iteration 7 of the
                script's event loop, call 2 was answered; in iteration 8, timer 1 fired.
        """
        if not self._accepts_only_outcomes:
            self._loop_turns += turns
            self._flush_soon()

    def _flush_soon(self) -> None:
        """Start a flush in the background, unless one is running."""
        if self._flushing is None or self._flushing.done():
            loop = asyncio.get_running_loop()
            # Run the flush in the context of the task's caller. By default, an asyncio task runs in
            # the context of the code that starts it, which may be any tool of the task.
            self._flushing = loop.create_task(self._flush(), context=self.context.copy())
            self._flushing.add_done_callback(self._log_failure)

    def _log_failure(self, flushing: asyncio.Task[None]) -> None:
        """Log a failed background flush. The next event repeats the flush and raises the error."""
        error = None if flushing.cancelled() else flushing.exception()
        if error is not None:
            message = f"the journal did not take an event of task {self.task_id}"
            self.redactor.log_failure(_log, message, error)

    @property
    def _has_queued(self) -> bool:
        """True if buffered events, or an event of a cancelled append, must be written first."""
        queued = self._clock_reads or self._loop_turns or self._printed or self._queued_events
        return bool(queued) or self._unconfirmed_event is not None

    async def _flush(self) -> None:
        while self._has_queued:  # release the lock between batches, for other events
            async with self._lock:
                await self._write_queued()

    def _queue_output(self) -> None:
        """Convert buffered output and clock reads to events at the end of the queue."""
        if self._clock_reads or self._loop_turns:
            observations = {"readings": tuple(self._clock_reads), "turns": tuple(self._loop_turns)}
            self._queued_events.append((ClockRead, observations))
            self._clock_reads.clear()
            self._loop_turns.clear()
        if self._printed:  # as one event: a script may print thousands of short texts
            self._queued_events.append((Printed, {"text": "".join(self._printed)}))
            self._printed.clear()

    async def _write_queued(self) -> None:
        """Write the queued events in order; events that the journal fails to store stay queued."""
        # The journal may have stored the event of a cancelled append. Append that event again
        # before any other event gets the same number.
        if self._unconfirmed_event is not None:
            await self._append_unconfirmed(self._unconfirmed_event)
        self._queue_output()
        while self._queued_events:
            if self._is_ended:
                dropped_count = len(self._queued_events)
                _log.debug("task %s is over: %d events are dropped", self.task_id, dropped_count)
                self._queued_events.clear()
                return
            queued_event = self._queued_events.pop(0)
            try:
                await self._write(*queued_event)
            except Exception:
                self._queued_events.insert(0, queued_event)
                raise
            # A cancellation is not caught above: ``_unconfirmed_event`` then has the event.

    async def _write(self, kind: type[Event], fields: dict[str, Any]) -> None:
        """Number an event and append it to the journal, unless a replay finds it recorded."""
        # Match first: an event that the journal already has is accepted even after the end.
        if self._replay.match(kind, fields):
            return
        if self._is_ended:
            raise self._ended_error(kind)
        # The caller holds the lock, so that the journal gets the events in the order of the
        # numbers.
        seq = len(self.events) + 1
        event = kind(task_id=self.task_id, seq=seq, at=time.time(), **fields)
        self._unconfirmed_event = event  # _append_unconfirmed() clears this
        try:
            await self._append_unconfirmed(event)
        except Exception:
            # The append failed, so the event is given up. After a cancellation, in contrast, the
            # journal may have stored the event, so it stays unconfirmed.
            self._unconfirmed_event = None
            raise

    async def _append_unconfirmed(self, event: Event) -> None:
        """Append ``_unconfirmed_event`` to the journal, after which the event is confirmed.

        The journal ignores an event that it has already, from an append that was cancelled.
        """
        if self._journal is not None:
            await self._journal.append(event)
        self._unconfirmed_event = None
        self._append_recorded(event)

    def _append_recorded(self, event: Event) -> None:
        # A postponement also ends the log, because any process may continue the task afterwards.
        self._is_ended = self._is_ended or isinstance(event, (TaskFinished, TaskPostponed))
        self.events.append(event)
        self.notify_listeners(event)

    def notify_listeners(self, event: Event) -> None:
        """Pass a recorded event to the listeners; log exceptions of listeners."""
        for listener in self._listeners:
            try:
                in_context(self.context, listener, event)
            except Exception as error:
                message = f"a listener failed on {type(event).__name__}"
                self.redactor.log_failure(_log, message, error)
