"""The journal ``none``: events kept in this process, the newest tasks only."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import field
from typing import Any
from weakref import WeakKeyDictionary

from delf.errors import UnknownRequestError, UnknownTaskError
from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    TaskFinished,
    TaskQueued,
    TaskResumed,
    TaskStarted,
    size_of,
)
from delf.protocols.approval import RememberedDecision
from delf.protocols.journal import TaskRecord
from delf.records import dataclass
from delf.types import TaskState


@dataclass(slots=True)
class _Entry:
    events: list[Event] = field(default_factory=list[Event])
    size: int = 0
    # The fields of the task's record that its events have set.
    record: dict[str, Any] = field(default_factory=dict[str, Any])
    is_finished: bool = False


class InProcessJournal:
    """A journal in memory. Implements :class:`delf.protocols.journal.Journal`.

    Several agents may share it.

    Args:
        max_tasks: The maximum number of tasks. Beyond it the oldest finished tasks are dropped;
            running tasks are always kept.
        max_bytes: The approximate maximum size of all tasks in bytes. Beyond it the oldest finished
            tasks are dropped, too.
    """

    def __init__(self, *, max_tasks: int = 1000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_tasks = max_tasks
        self._max_bytes = max_bytes
        self._size = 0
        self._tasks: OrderedDict[str, _Entry] = OrderedDict()
        self._remembered: dict[str, RememberedDecision] = {}
        # The queue of each subscription, with the id of the watched task; None watches all tasks.
        # Only the subscription's generator refers to the queue, so that the entry disappears with
        # the generator, even if the generator was never started.
        self._task_by_queue: WeakKeyDictionary[asyncio.Queue[Event], str | None] = (
            WeakKeyDictionary()
        )

    async def append(self, event: Event) -> None:
        """Append an event. No-op if the event is stored already."""
        entry = self._tasks.get(event.task_id)
        if entry is None:
            entry = self._tasks[event.task_id] = _Entry()
        # After a cancelled append, the log appends the same event once more. Numbers begin with 1.
        stored = entry.events[event.seq - 1 : event.seq]
        if stored == [event]:
            return
        entry.events.append(event)
        if isinstance(event, ApprovalDecided) and event.remember == "until_revoked":
            self._remember(entry, event)
        if isinstance(event, TaskFinished):
            entry.is_finished = True
        elif isinstance(event, (TaskQueued, TaskStarted, TaskResumed)):
            entry.is_finished = False
        entry.record |= TaskRecord.changes(event)
        for queue, watched_task in list(self._task_by_queue.items()):
            if watched_task is None or watched_task == event.task_id:
                queue.put_nowait(event)
        size = size_of(event)
        entry.size += size
        self._size += size
        self._forget_old()

    async def read(self, task_id: str, after: int = 0) -> Sequence[Event]:
        """Return a task's events with a sequence number above ``after``, in order."""
        entry = self._tasks.get(task_id)
        if entry is None:
            raise UnknownTaskError(
                f"no task {task_id!r} is known",
                hint="this journal keeps the last tasks of this process; the journal sql keeps all",
            )
        return tuple(event for event in entry.events if event.seq > after)

    def subscribe(self, task_id: str | None = None) -> AsyncIterator[Event]:
        """Yield the events that are appended after this call, of one task or all tasks."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._task_by_queue[queue] = task_id
        return _events_of(queue)

    async def find(self, limit: int = 100) -> Sequence[TaskRecord]:
        """Return the records of the newest tasks, newest first."""
        records: list[TaskRecord] = []
        for entry in reversed(self._tasks.values()):
            if len(records) >= limit:
                break
            first = entry.events[0]
            if isinstance(first, (TaskQueued, TaskStarted)):
                values: dict[str, Any] = {
                    **TaskRecord.beginning(first),
                    "state": TaskState.RUNNING,
                    "events": len(entry.events),
                    **entry.record,  # the changes by later events, such as another state
                }
                records.append(TaskRecord(**values))
        return records

    def _remember(self, entry: _Entry, decided: ApprovalDecided) -> None:
        """Keep a decision with its request, if the decision holds until it is revoked."""
        for event in entry.events:
            if isinstance(event, ApprovalRequested) and event.request_id == decided.request_id:
                decision = RememberedDecision.from_events(event, decided)
                if decision is not None:
                    self._remembered[event.request_id] = decision

    async def remembered(self) -> Sequence[RememberedDecision]:
        """Return the remembered approval decisions, oldest first."""
        return tuple(self._remembered.values())

    async def revoke(self, request_id: str, by: str) -> RememberedDecision:
        """Revoke a remembered decision; the person ``by`` is not recorded."""
        decision = self._remembered.pop(request_id, None)
        if decision is None:
            raise UnknownRequestError(f"no remembered decision {request_id!r} holds")
        return decision

    async def aclose(self) -> None:
        """Do nothing, because the journal is in memory."""

    def _forget_old(self) -> None:
        """Drop the oldest finished tasks until the journal is within its limits."""
        if self._is_within_limits:
            return
        *older_tasks, _newest = self._tasks.items()  # the events of the newest are still needed
        for task_id, entry in older_tasks:
            if self._is_within_limits:
                return
            if entry.is_finished:
                self._forget(task_id, entry)

    @property
    def _is_within_limits(self) -> bool:
        return len(self._tasks) <= self._max_tasks and self._size <= self._max_bytes

    def _forget(self, task_id: str, entry: _Entry) -> None:
        """Drop a task, and the remembered decisions that were made in the task."""
        self._size -= entry.size
        del self._tasks[task_id]
        for request_id, decision in [*self._remembered.items()]:
            if decision.task_id == task_id:
                del self._remembered[request_id]


async def _events_of(queue: asyncio.Queue[Event]) -> AsyncIterator[Event]:
    while True:
        yield await queue.get()
