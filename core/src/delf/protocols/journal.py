"""A journal: the append-only record of everything that happened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from delf.events import Event
from delf.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task in a list of tasks.

    Args:
        task_id: Its id.
        task: What was asked.
        started_at: Unix time in seconds.
        state: ``queued`` (a worker will take it), ``running``, ``interrupted`` (its process is
            gone), ``done``, ``failed``, or ``stopped`` (somebody cancelled it).
        origin: The agent's id.
        finished_at: Unix time in seconds.
        duration_ms: From acceptance to the end.
        cost_usd: None while it runs, and where a price is not known.
        error: Why it failed.
        events: How many events there are.
        owner: The process that works on it, as ``pid 7 on host``.
        queue: Where it waits, or waited, for a worker.
        key: On whose behalf it is done there: limits of a key hold for all tasks of it.
        losses: How many processes died, or were silent for too long, with it in hand.
        tries: How often it failed and was put back to be tried again; ``error`` says why then.
        not_before: The Unix time from which on a worker may take it.
    """

    task_id: str
    task: str
    started_at: float
    state: str
    origin: str = ""
    finished_at: float | None = None
    duration_ms: float | None = None
    cost_usd: float | None = None
    error: str | None = None
    events: int = 0
    owner: str | None = None
    queue: str | None = None
    key: str | None = None
    losses: int = 0
    tries: int = 0
    not_before: float | None = None


class Journal(Protocol):
    """Keeps events in order, once each, before anyone acts on them."""

    async def append(self, event: Event) -> None:
        """Keep an event. When this returns, it is kept.

        Whoever waits may be cancelled: an event that was begun to be kept is kept all the
        same, before those that are appended later.
        """
        ...

    async def read(self, task_id: str, after: int = 0) -> Sequence[Event]:
        """A task's events with ``seq`` greater than ``after``, in order.

        Raises:
            UnknownTaskError: When no such task is known.
        """
        ...

    def subscribe(self, task_id: str | None = None) -> AsyncIterator[Event]:
        """Events as they are appended, of one task or of all, from now on.

        What this journal is asked for after the call leaves no gap: what another process
        appends is in a later ``read``, or comes here, or both.
        """
        ...

    async def find(self, limit: int = 100) -> Sequence[TaskRecord]:
        """The newest tasks first."""
        ...

    async def aclose(self) -> None:
        """Free what is held. Safe to call twice."""
        ...


@runtime_checkable
class SupportsRecords(Protocol):
    """A journal that knows how a single task stands."""

    async def task(self, task_id: str) -> TaskRecord:
        """One task.

        Raises:
            UnknownTaskError: When it is not known.
        """
        ...


@runtime_checkable
class SupportsClaims(Protocol):
    """A journal that several processes or agents share: it knows who works on a task."""

    async def claim(self, task_id: str) -> None:
        """Make a task on which nobody works any more the caller's own, to resume it.

        Raises:
            UnknownTaskError: When no such task is known.
            DelfError: When a process that lives works on it, or another agent of this one.
        """
        ...

    async def release(self, task_id: str) -> None:
        """Let somebody claim a task, from the return on. One that is unknown is passed over."""
        ...


@runtime_checkable
class SupportsLeases(Protocol):
    """A journal whose claims can lapse while their process lives, as that of a stopped one.

    It refuses the events of a task of whoever has lost it, so that no call of it is begun.
    """

    def lease(self, seconds: float) -> None:
        """Let others claim the tasks of this process where it says nothing for so long.

        Before the first event; without it, a process of this machine keeps its tasks until it ends.
        """
        ...


@runtime_checkable
class SupportsOpen(Protocol):
    """A journal that can say ahead of the first event that it cannot be written."""

    async def open(self) -> None:
        """Open it for writing now rather than with the first event.

        Raises:
            JournalUnavailableError: When it cannot be written.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What a process says to the one that works on a task.

    Args:
        position: Grows with each note.
        task_id: The task.
        at: Unix time in seconds.
        kind: What it is about, as ``approval``.
        data: Plain data.
    """

    position: int
    task_id: str
    at: float
    kind: str
    data: Mapping[str, Any]


@runtime_checkable
class SupportsInbox(Protocol):
    """A journal through which other processes reach the one that works on a task."""

    async def post(self, task_id: str, kind: str, data: Mapping[str, Any]) -> int:
        """Leave a note for the process that works on a task; its position.

        Raises:
            UnknownTaskError: When no such task is known.
        """
        ...

    def subscribe_notes(
        self, task_id: str | None = None, after: int | None = None
    ) -> AsyncIterator[Note]:
        """Notes as any process leaves them, of one task or of all.

        Args:
            task_id: Only this task's.
            after: Those after this position that are there already come first; without it,
                only those that are left from this call on. For those of other processes
                this holds from the next answer of this journal on, as for ``subscribe``.
        """
        ...

    async def notes(self, task_id: str | None = None, after: int = 0) -> Sequence[Note]:
        """The notes that are there, in order, for whoever was not there when they were left.

        Args:
            task_id: Only this task's.
            after: Only those after this position.
        """
        ...


@runtime_checkable
class SupportsStops(Protocol):
    """A journal through which a task is stopped, whoever works on it."""

    async def stop(self, task_id: str, by: str) -> bool:
        """Ask whoever works on a task to stop it, and wait for that; end it where nobody does.

        Args:
            task_id: The task.
            by: Who wants it.

        Returns:
            False when it was over already.

        Raises:
            UnknownTaskError: When no such task is known.
            DelfError: When it is not stopped in time.
        """
        ...

    async def asked_to_stop(self, task_ids: Collection[str]) -> Collection[str]:
        """Those of these tasks that somebody has asked to stop."""
        ...
