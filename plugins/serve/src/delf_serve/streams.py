"""Events as they happen, to as many as look on: one subscription for a task, not for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delf.errors import DelfError
from delf.events import (
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalRequested,
    ApprovalVoted,
    Event,
    ModelCalled,
    TaskFinished,
    TaskQueued,
    TaskResumed,
    TaskStarted,
    encode,
)
from delf.protocols.journal import TaskRecord
from delf_serve.keys import Key
from delf_serve.plain import json_bytes
from delf_serve.tasks import OVER, Tasks, Waiting, task_view

_log = logging.getLogger(__name__)

BEAT: Final = b": still here\n\n"
END: Final = b"event: end\ndata: {}\n\n"
HELLO: Final = b"retry: 1000\n\n"
BEAT_SECONDS: Final = 15.0
_AT_ONCE: Final = 100
_MOST_WAITING: Final = 2000
_ASKED: Final = (ApprovalRequested, ApprovalVoted, ApprovalEscalated, ApprovalDecided)
"""The events after which others may wait for somebody than before."""
_CHANGES: Final = (TaskQueued, TaskStarted, TaskResumed, *_ASKED, TaskFinished)
GATHER_SECONDS: Final = 0.2


def frame(event: Event) -> bytes:
    """An event as it is sent: its number is the id, so that a client goes on where it was."""
    if isinstance(event, ModelCalled) and event.prompt is not None:
        event = replace(event, prompt=None)  # GET /tasks/{id}/prompts has it
    return b"id: %d\ndata: %b\n\n" % (event.seq, json_bytes(encode(event)))


@dataclass(frozen=True, slots=True)
class Item:
    """A frame for all readers.

    Args:
        seq: The event's number.
        chunk: The frame.
        over: Whether it is the end.
        listed: In a list, the task that has changed, with all that waits.
    """

    seq: int
    chunk: bytes
    over: bool = False
    listed: tuple[TaskRecord, Waiting] | None = None


@dataclass(eq=False)
class _Feed:
    """The frames of one task, for all readers."""

    readers: set[asyncio.Queue[Item | None]] = field(
        default_factory=set[asyncio.Queue[Item | None]]
    )
    work: asyncio.Task[None] | None = None

    def put(self, item: Item | None) -> None:
        for queue in list(self.readers):
            if item is not None and queue.qsize() >= _MOST_WAITING:
                self.readers.discard(queue)  # too slow: it comes back, and reads the journal
                queue.put_nowait(None)
            else:
                queue.put_nowait(item)


@dataclass
class _Place:
    """The position of a client.

    Args:
        last: The number of the last event that it has.
        over: Whether that is the end of the task.
    """

    last: int
    over: bool = False


class Streams:
    """The streams that are open.

    Args:
        tasks: The tasks and their journal.
    """

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._feeds: dict[str, _Feed] = {}
        self._list = _Feed()
        self.open = 0

    def stop(self) -> None:
        """End all streams; clients come back to whoever is there then."""
        for feed in (*self._feeds.values(), self._list):
            feed.put(None)
            if feed.work is not None:
                feed.work.cancel()

    async def events(self, task_id: str, after: int) -> AsyncGenerator[bytes]:
        """The frames of a task's events, those that are there first, to its end.

        Args:
            task_id: The task.
            after: The number of the last event that the client has.
        """
        async with self._reading(self._feed(task_id)) as queue:
            yield HELLO
            place = _Place(after)
            async for chunk in self._past(task_id, place):
                yield chunk
            while not place.over:
                item = await _next(queue)
                if item is None:
                    return
                seq, chunk, over = item.seq, item.chunk, item.over
                if not chunk:
                    # The last event may have been written before the subscription was heard.
                    async for past in self._past(task_id, place):
                        yield past
                    yield BEAT
                elif seq == place.last + 1:
                    place.last, place.over = seq, over
                    yield chunk
                elif seq > place.last + 1:  # written before the subscription was heard
                    async for past in self._past(task_id, place):
                        yield past
            yield END

    async def _past(self, task_id: str, place: _Place) -> AsyncIterator[bytes]:
        """The frames of what the journal has after a place, which moves on."""
        events = await self._tasks.journal.read(task_id, place.last)
        if not events:
            known = await self._tasks.journal.task(task_id)
            place.over = known.state in OVER
        for start in range(0, len(events), _AT_ONCE):
            some = events[start : start + _AT_ONCE]
            chunk = await asyncio.to_thread(_frames, some) if len(events) > 5 else _frames(some)
            place.last, place.over = some[-1].seq, isinstance(some[-1], TaskFinished)
            yield chunk

    async def changes(self, key: Key) -> AsyncGenerator[bytes]:
        """Tasks as lists show them to somebody, when one begins, waits, goes on or ends."""
        if self._list.work is None or self._list.work.done():
            self._list.work = asyncio.create_task(self._watch_all())
        async with self._reading(self._list) as queue:
            yield HELLO
            while True:
                item = await _next(queue)
                if item is None:
                    return
                if item.listed is None:
                    yield BEAT
                elif key.sees(item.listed[0].key):
                    view = task_view(*item.listed, key)
                    data = json_bytes(view.model_dump(mode="json"))
                    yield b"event: task\ndata: %b\n\n" % data

    @asynccontextmanager
    async def _reading(self, feed: _Feed) -> AsyncGenerator[asyncio.Queue[Item | None]]:
        queue: asyncio.Queue[Item | None] = asyncio.Queue()
        feed.readers.add(queue)
        self.open += 1
        try:
            yield queue
        finally:
            self.open -= 1
            feed.readers.discard(queue)
            if not feed.readers and feed.work is not None:
                feed.work.cancel()
                feed.work = None
                for name in [name for name, known in self._feeds.items() if known is feed]:
                    del self._feeds[name]

    def _feed(self, task_id: str) -> _Feed:
        feed = self._feeds.get(task_id)
        if feed is None:
            feed = self._feeds[task_id] = _Feed()
            feed.work = asyncio.create_task(self._watch(task_id, feed))
        return feed

    async def _watch(self, task_id: str, feed: _Feed) -> None:
        async def follow() -> None:
            async for event in self._tasks.journal.subscribe(task_id):
                feed.put(Item(event.seq, frame(event), isinstance(event, TaskFinished)))

        await self._follow(follow)
        feed.put(None)

    async def _watch_all(self) -> None:
        changed: set[str] = set()
        wake = asyncio.Event()

        async def follow() -> None:
            async for event in self._tasks.journal.subscribe():
                if isinstance(event, _ASKED):
                    self._tasks.heed_request()
                if isinstance(event, _CHANGES):
                    changed.add(event.task_id)
                    wake.set()

        async def tell() -> None:
            while True:
                await wake.wait()
                await asyncio.sleep(GATHER_SECONDS)
                wake.clear()
                names, _ = list(changed), changed.clear()
                for name in names:
                    self._list.put(Item(0, b"", listed=await self._tasks.listed(name)))

        telling = asyncio.create_task(self._follow(tell))
        try:
            await self._follow(follow)
        finally:
            telling.cancel()
            self._list.put(None)

    @staticmethod
    async def _follow(work: Callable[[], Any]) -> None:
        try:
            await work()
        except DelfError as error:
            _log.warning("events cannot be read: %s", error.message)


def _frames(events: Sequence[Event]) -> bytes:
    return b"".join(map(frame, events))


async def _next(queue: asyncio.Queue[Item | None]) -> Item | None:
    """Return the next frame; an empty one where nothing came for a while."""
    try:
        async with asyncio.timeout(BEAT_SECONDS):
            return await queue.get()
    except TimeoutError:
        return Item(0, b"")
