"""Event streams: one for the events of a task, one for the changes of the task list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from delf.errors import DelfError
from delf.events import (
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalDecided,
    ApprovalRequested,
    ApprovalVoted,
    Event,
    ModelCalled,
    TaskFinished,
    TaskQueued,
    TaskResumed,
    TaskStarted,
    encode,
    end_event,
)
from delf.machine.contexts import shared_task
from delf.protocols.facts import facts_data, reaction_fact
from delf.protocols.journal import TaskRecord
from delf.protocols.shared_journal import SharedJournal
from delf.protocols.states import StateTracker
from delf.types import TaskState
from delf_serve.keys import Caller
from delf_serve.plain import json_bytes
from delf_serve.tasks.pending_requests import PendingRequests, Waiting
from delf_serve.tasks.views import TaskViews

_log = logging.getLogger(__name__)

BEAT: Final = b": still here\n\n"
END: Final = b"event: end\ndata: {}\n\n"
HELLO: Final = b"retry: 1000\n\n"
BEAT_SECONDS: Final = 15.0
_BATCH_SIZE: Final = 100
# The maximum number of events that are encoded in the event loop's thread.
_MAX_INLINE_EVENTS: Final = 5
_MAX_WAITING: Final = 2000
# The kinds of events after which the task list shows a task differently.
_LIST_EVENTS: Final = (
    TaskQueued,
    TaskStarted,
    TaskResumed,
    ApprovalRequested,
    ApprovalVoted,
    ApprovalCommented,
    ApprovalAssigned,
    ApprovalDecided,
    TaskFinished,
)
GATHER_SECONDS: Final = 0.2


def frame(event: Event, state: TaskState) -> bytes:
    """Encode an event as a server-sent event with the event's number as the id.

    A client that reconnects sends the last id, and gets the events after that number.

    Args:
        event: The event.
        state: The task's state after the event.
    """
    if isinstance(event, ModelCalled) and event.prompt is not None:
        event = replace(event, prompt=None)  # long; clients get prompts at GET /tasks/{id}/prompts
    data = encode(event)
    if isinstance(event, ApprovalRequested):
        # The facts about the request as sentences, which clients show to the person who decides.
        data["data"]["facts"] = facts_data(event)
    # A sentence about a vote, a comment or an assignment.
    elif (fact := reaction_fact(event)) is not None:
        data["data"]["fact"] = fact.data()
    if event.headline:
        data["headline"] = event.headline
    if event.rewrite_reason is not None:
        data["rewrite_reason"] = event.rewrite_reason
    data["state"] = state
    return b"id: %d\ndata: %b\n\n" % (event.seq, json_bytes(data))


ListChange = tuple[TaskRecord, Waiting]
"""A changed task, and all pending requests: the arguments of :meth:`TaskViews.view_of`."""


class LiveEvents:
    """A subscription to events. A caller can await the next event with a timeout.

    Args:
        subscription: The events.
    """

    def __init__(self, subscription: AsyncIterator[Event]) -> None:
        self._subscription = subscription
        self._next_event: asyncio.Future[Event | None] | None = None
        self.is_closed = False
        """True after the journal was closed, so that no further event comes."""

    async def next(
        self, seconds: float, *, until: asyncio.Future[Any] | None = None
    ) -> Event | None:
        """Return the next event.

        Return None after ``seconds`` without an event, as soon as ``until`` is done, or if the
        subscription has ended.
        """
        # The future is kept after a timeout: the cancellation of anext() could lose an event.
        if self._next_event is None:
            self._next_event = asyncio.ensure_future(anext(self._subscription, None))
        awaited = {self._next_event} if until is None else {self._next_event, until}
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not self._next_event.done():
            return None
        event = self._next_event.result()
        self._next_event = None
        self.is_closed = event is None
        return event

    def close(self) -> None:
        """Stop waiting for the next event."""
        if self._next_event is not None:
            self._next_event.cancel()


class Streams:
    """The open event streams.

    Args:
        journal: Returns the journal.
        pending_requests: The requests for which tasks wait.
        views: Shows a task to a caller.
    """

    def __init__(
        self,
        journal: Callable[[], SharedJournal],
        pending_requests: PendingRequests,
        views: TaskViews,
    ) -> None:
        self._journal = journal
        self._pending_requests = pending_requests
        self._views = views
        # The queues of the open task list streams, which share one subscription to all events.
        self._readers: set[asyncio.Queue[ListChange | None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self.open_count = 0
        """The number of open streams."""

    def stop(self) -> None:
        """End the streams of the task list. Clients then reconnect to another process."""
        if self._watching is not None:
            self._watching.cancel()

    async def events(self, task_id: str, after: int) -> AsyncGenerator[bytes]:
        """Yield a task's events as server-sent events, until the task ends.

        Args:
            task_id: The id of the task.
            after: The number of the last event that the client has.
        """
        # Subscribe before the events are read, so that no event is missed.
        live = LiveEvents(self._journal().subscribe(task_id))
        # The client has the events until ``after``, but the tracker needs all earlier events, too.
        last_read = 0
        tracker = StateTracker()
        self.open_count += 1
        try:
            yield HELLO
            events, is_over = await self._unread_events(task_id, last_read)
            while True:
                async for frames in _encoded(events, after, tracker):
                    yield frames
                if events:
                    last_read = events[-1].seq
                if is_over:
                    yield END
                    return
                event = await live.next(BEAT_SECONDS)
                if live.is_closed:
                    return
                if event is None:  # none came in time
                    yield BEAT
                events, is_over = await self._new_events(task_id, event, last_read)
        except DelfError as error:  # the response has begun; the client reconnects
            _log.warning("events cannot be read: %s", error.message)
        finally:
            self.open_count -= 1
            live.close()

    async def _new_events(
        self, task_id: str, event: Event | None, last: int
    ) -> tuple[Sequence[Event], bool]:
        """Return the events after the event ``last``, and whether the task is over.

        Args:
            task_id: The id of the task.
            event: The event that a subscription to the task has received; None after a timeout.
            last: The number of the last event that was read.
        """
        # The subscription may repeat events, and may miss events.
        if event is not None and event.seq <= last:
            return [], False
        if event is not None and event.seq == last + 1:
            return [event], isinstance(event, TaskFinished)
        return await self._unread_events(task_id, last)

    async def _unread_events(self, task_id: str, last: int) -> tuple[Sequence[Event], bool]:
        """Return the events of a task after the event ``last``, and whether the task is over."""
        journal = self._journal()
        # Read the state before the events: if it is terminal, the journal has all events by now.
        record = await journal.task(task_id)
        events = await journal.read(task_id, last)
        return events, record.state.is_terminal or end_event(events) is not None

    async def changes(self, caller: Caller) -> AsyncGenerator[bytes]:
        """Yield a task as a server-sent event whenever it changes, if the caller may see it."""
        if self._watching is None or self._watching.done():
            self._watching = shared_task(self._watch())
        queue: asyncio.Queue[ListChange | None] = asyncio.Queue()
        self._readers.add(queue)
        self.open_count += 1
        try:
            yield HELLO
            while True:
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        change = await queue.get()
                except TimeoutError:
                    yield BEAT
                    continue
                if change is None:
                    return  # the stream ends, and the client reconnects
                record, pending_requests = change
                if caller.sees(record.user):
                    view = self._views.view_of(record, pending_requests, caller)
                    data = json_bytes(view.model_dump(mode="json"))
                    yield b"event: task\ndata: %b\n\n" % data
        finally:
            self.open_count -= 1
            self._readers.discard(queue)
            if not self._readers:
                self.stop()

    async def _watch(self) -> None:
        """Read each changed task once, and put the task into the queues of all open streams."""
        changed: set[str] = set()
        wake = asyncio.Event()

        async def collect_changes() -> None:
            async for event in self._journal().subscribe():
                # Printed text and calls do not change what a list of tasks shows.
                if isinstance(event, _LIST_EVENTS):
                    changed.add(event.task_id)
                    wake.set()

        async def send_changes() -> None:
            while True:
                await wake.wait()
                await asyncio.sleep(GATHER_SECONDS)  # to read a busy task only once
                wake.clear()
                task_ids = list(changed)
                changed.clear()
                for task_id in task_ids:
                    try:
                        self._send_to_readers(await self._read_change(task_id))
                    except DelfError as error:  # removed, or the journal is unavailable
                        _log.warning("a change of a task is not streamed: %s", error.message)

        sending = asyncio.create_task(send_changes())
        try:
            await collect_changes()
        except DelfError as error:
            _log.warning("events cannot be read: %s", error.message)
        finally:
            sending.cancel()
            self._send_to_readers(None)

    async def _read_change(self, task_id: str) -> ListChange:
        """Return a changed task and the pending requests, for :meth:`TaskViews.view_of`."""
        record = await self._journal().task(task_id)
        return record, await self._pending_requests.by_task()

    def _send_to_readers(self, change: ListChange | None) -> None:
        """Send a changed task to all open streams of the task list; None ends the streams."""
        for queue in list(self._readers):
            if change is not None and queue.qsize() >= _MAX_WAITING:
                # The client reads too slowly: end its stream, so that the client reconnects.
                self._readers.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(change)


async def _encoded(
    events: Sequence[Event], after: int, tracker: StateTracker
) -> AsyncGenerator[bytes]:
    """Yield the frames of events in batches, encoding many events in a thread."""
    for start in range(0, len(events), _BATCH_SIZE):
        batch = events[start : start + _BATCH_SIZE]
        if len(events) > _MAX_INLINE_EVENTS:
            yield await asyncio.to_thread(_frames, batch, after, tracker)
        else:
            yield _frames(batch, after, tracker)


def _frames(events: Sequence[Event], after: int, tracker: StateTracker) -> bytes:
    """Encode the events with numbers greater than ``after``, each with the task's state.

    The earlier events only update the tracker, which determines the state.
    """
    frames: list[bytes] = []
    for event in events:
        tracker.add(event)
        if event.seq > after:
            frames.append(frame(event, tracker.state))
    return b"".join(frames)
