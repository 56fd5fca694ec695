"""Event streams: one for the events of a task, one for the changes of the task list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

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
from delf.protocols.states import StateTracker
from delf.types import TaskState
from delf_serve.keys import Key
from delf_serve.plain import json_bytes
from delf_serve.tasks import Tasks, Waiting, task_view

_log = logging.getLogger(__name__)

BEAT: Final = b": still here\n\n"
END: Final = b"event: end\ndata: {}\n\n"
HELLO: Final = b"retry: 1000\n\n"
BEAT_SECONDS: Final = 15.0
_AT_ONCE: Final = 100
_FEW: Final = 5
"""The number of events that are encoded without a thread."""
_MAX_WAITING: Final = 2000
_CHANGES: Final = (
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
"""Kinds of events that change a task's entry in lists."""
GATHER_SECONDS: Final = 0.2


def frame(event: Event, state: TaskState) -> bytes:
    """Encode an event for a stream, with its number as the id, so that clients can reconnect.

    Args:
        event: The event.
        state: The task's state after the event.
    """
    if isinstance(event, ModelCalled) and event.prompt is not None:
        event = replace(event, prompt=None)  # GET /tasks/{id}/prompts has it
    data = encode(event)
    if isinstance(event, ApprovalRequested):
        data["data"]["facts"] = facts_data(event)  # clients get the facts in words
    elif (fact := reaction_fact(event)) is not None:
        data["data"]["fact"] = fact.data()
    if event.headline:
        data["headline"] = event.headline
    if event.rewrite_reason is not None:
        data["rewrite_reason"] = event.rewrite_reason
    data["state"] = state
    return b"id: %d\ndata: %b\n\n" % (event.seq, json_bytes(data))


Listed = tuple[TaskRecord, Waiting]
"""A changed task and the pending requests."""


class Streams:
    """The open event streams.

    Args:
        tasks: The tasks and their journal.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._readers: set[asyncio.Queue[Listed | None]] = set()
        """The readers of the task list, which share one subscription to all events."""
        self._watching: asyncio.Task[None] | None = None
        self.open = 0

    def stop(self) -> None:
        """End the streams of the task list; clients reconnect to another process."""
        if self._watching is not None:
            self._watching.cancel()

    async def events(self, task_id: str, after: int) -> AsyncGenerator[bytes]:
        """Yield the frames of a task's events, from the past to its end.

        Args:
            task_id: The task.
            after: The number of the last event that the client has.
        """
        journal = self._tasks.journal
        live = journal.subscribe(task_id)  # before reading, to miss no event
        coming: asyncio.Future[Event | None] | None = None
        # All events are read, since the state after an event depends on those before it.
        last, is_over, is_behind, tracker = 0, False, True, StateTracker()
        self.open += 1
        try:
            yield HELLO
            while not is_over:
                if is_behind:
                    is_behind = False
                    is_over = (
                        await journal.task(task_id)
                    ).state.is_terminal  # the journal has all events
                    events = await journal.read(task_id, last)
                    for start in range(0, len(events), _AT_ONCE):
                        batch = events[start : start + _AT_ONCE]
                        is_long = len(events) > _FEW
                        encode_batch = partial(_frames, batch, after, tracker)
                        yield await asyncio.to_thread(encode_batch) if is_long else encode_batch()
                        last = batch[-1].seq
                    is_over = is_over or end_event(events) is not None
                    continue
                coming = coming or asyncio.ensure_future(anext(live, None))
                # No timeout around anext(): its cancellation could lose a received event.
                await asyncio.wait({coming}, timeout=BEAT_SECONDS)
                if not coming.done():
                    yield BEAT
                    is_behind = True
                    continue
                event, coming = coming.result(), None
                if event is None:
                    return  # the journal was closed
                # The subscription repeats what was just read from the journal, and may have missed
                # events; only the next number is passed on, and a gap is read from the journal.
                if event.seq == last + 1:
                    yield _frames([event], after, tracker)
                    last, is_over = event.seq, isinstance(event, TaskFinished)
                is_behind = event.seq > last
            yield END
        except DelfError as error:  # the response has begun; the client reconnects
            _log.warning("events cannot be read: %s", error.message)
        finally:
            self.open -= 1
            if coming is not None:
                coming.cancel()

    async def changes(self, key: Key) -> AsyncGenerator[bytes]:
        """Yield a visible task whenever it starts, waits, continues or ends."""
        if self._watching is None or self._watching.done():
            self._watching = shared_task(self._watch())
        queue: asyncio.Queue[Listed | None] = asyncio.Queue()
        self._readers.add(queue)
        self.open += 1
        try:
            yield HELLO
            while True:
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        listed = await queue.get()
                except TimeoutError:
                    yield BEAT
                    continue
                if listed is None:
                    return
                if key.sees(listed[0].key):
                    data = json_bytes(task_view(*listed, key).model_dump(mode="json"))
                    yield b"event: task\ndata: %b\n\n" % data
        finally:
            self.open -= 1
            self._readers.discard(queue)
            if not self._readers:
                self.stop()

    async def _watch(self) -> None:
        """Pass each changed task to the readers of the list."""
        changed: set[str] = set()
        wake = asyncio.Event()

        async def follow() -> None:
            async for event in self._tasks.journal.subscribe():
                if isinstance(event, _CHANGES):  # lists show no prints and calls
                    changed.add(event.task_id)
                    wake.set()

        async def tell() -> None:
            while True:
                await wake.wait()
                await asyncio.sleep(GATHER_SECONDS)  # to read a busy task only once
                wake.clear()
                names = list(changed)
                changed.clear()
                for name in names:
                    try:
                        self._put(await self._tasks.listed(name))
                    except DelfError as error:  # removed, or the journal is unavailable
                        _log.warning("a change of a task is not streamed: %s", error.message)

        telling = asyncio.create_task(tell())
        try:
            await follow()
        except DelfError as error:
            _log.warning("events cannot be read: %s", error.message)
        finally:
            telling.cancel()
            self._put(None)

    def _put(self, listed: Listed | None) -> None:
        for queue in list(self._readers):
            if listed is not None and queue.qsize() >= _MAX_WAITING:
                self._readers.discard(queue)  # too slow: the client reconnects
                queue.put_nowait(None)
            else:
                queue.put_nowait(listed)


def _frames(events: Sequence[Event], after: int, tracker: StateTracker) -> bytes:
    """Encode the events with numbers greater than ``after``; follow the state in all of them."""
    frames: list[bytes] = []
    for event in events:
        tracker.add(event)
        if event.seq > after:
            frames.append(frame(event, tracker.state))
    return b"".join(frames)
