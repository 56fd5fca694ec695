"""A journal: the append-only record of everything that happened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, runtime_checkable

from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    ApprovalVoted,
    Event,
    TaskQueued,
    TaskStarted,
)
from delf.protocols.approval import RememberedDecision
from delf.records import dataclass
from delf.types import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task in a list of tasks.

    Args:
        task_id: The task's id.
        task: The task in plain words.
        started_at: The Unix time at which it began.
        state: The task's state. In a journal, a task that waits for a person is running;
            :func:`delf.protocols.states.state_of` tells these apart.
        origin: The agent's id.
        finished_at: The Unix time at which it ended.
        duration_ms: The time from acceptance to the end.
        cost_usd: The cost of its models; None while it runs, and where a price is not known.
        error: The reason for which it failed.
        events: The number of its events.
        owner: The process that works on it, as ``pid 7 on host``.
        queue: The queue in which it waits, or waited, for a runner.
        key: The person for whom it is done, if not the local user.
        losses: The number of its processes that died, or were silent for too long.
        tries: The number of tries that failed and put it back into its queue; ``error`` has the
            latest reason then.
        not_before: The Unix time from which on a runner may take it.
        folder: The folder in which it was started, if a command or a server started it.
    """

    task_id: str
    task: str
    started_at: float
    state: TaskState
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
    folder: str | None = None

    @classmethod
    def beginning(cls, event: Event) -> dict[str, Any]:
        """Return the fields that the first event of a task tells: those of the same names.

        Args:
            event: The first event, whatever it is.
        """
        found: dict[str, Any] = {"task_id": event.task_id, "task": "", "started_at": event.at}
        if isinstance(event, (TaskQueued, TaskStarted)):
            names = {item.name for item in fields(cls)} & {item.name for item in fields(event)}
            found |= {name: getattr(event, name) for name in sorted(names)}
        return found

    @property
    def place(self) -> ListPlace:
        """The task's place in a list of tasks, from which ``find`` continues."""
        return self.started_at, self.task_id


ListPlace = tuple[float, str]
"""The start of a task, and its id: the place where a list of tasks continues."""
Ages = Mapping[TaskState, float]
"""Seconds by the states of tasks that are not at work: how long they stay."""


class Journal(Protocol):
    """Keeps events in order, once each, before anyone acts on them."""

    async def append(self, event: Event) -> None:
        """Append an event. The event is stored when this returns.

        A cancelled caller leaves a begun append running, ahead of later appends. The caller appends
        the same event again to be sure: a stored event is not stored twice.
        """
        ...

    async def read(self, task_id: str, after: int = 0) -> Sequence[Event]:
        """Return a task's events with ``seq`` greater than ``after``, in order.

        Raises:
            UnknownTaskError: When no such task is known.
        """
        ...

    def subscribe(self, task_id: str | None = None) -> AsyncIterator[Event]:
        """Yield events as they are appended, of one task or of all, from now on.

        A ``read`` of this journal after the call leaves no gap: an event of another process is in
        the ``read``, in the subscription, or in both.
        """
        ...

    async def find(self, limit: int = 100) -> Sequence[TaskRecord]:
        """Return the newest tasks first."""
        ...

    async def aclose(self) -> None:
        """Release all resources. Idempotent."""
        ...


@runtime_checkable
class SupportsJournal(Protocol):
    """An approval channel that answers through the journal, for other processes, too."""

    def use_journal(self, journal: Journal) -> None:
        """Use a journal from now on. Called as the agent starts, before any request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A message between processes, to the process that works on a task.

    Args:
        position: Grows with each note.
        task_id: The task.
        at: Unix time in seconds.
        kind: The subject, as ``approval``.
        data: Plain data.
    """

    position: int
    task_id: str
    at: float
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerhapsAlive:
    """The previous process of a task, if its death is not certain.

    That process may be stopped or cut off from the journal, and still be making its call.

    Args:
        process: As ``pid 7 on host``.
        lease: The seconds of silence after which its tasks are others'.
    """

    process: str
    lease: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """The tasks that were removed, or would be.

    Args:
        tasks: Their ids, the oldest first.
        events: How many events they have.
        files: The paths of the files that they wrote; they are still there.
        inputs: The paths of the files that they were given, and no task that is left.
    """

    tasks: tuple[str, ...] = ()
    events: int = 0
    files: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request for approval in a journal.

    Args:
        requested: The request.
        decided: How it was decided, if it was.
        task: The task; running only while a live process works on it.
        votes: While it waits for a second approval, the first one.
    """

    requested: ApprovalRequested
    decided: ApprovalDecided | None
    task: TaskRecord
    votes: Sequence[ApprovalVoted] = ()

    @property
    def waits(self) -> bool:
        """True if a person's answer would still count."""
        is_open = self.decided is None and not self.requested.by_policy
        return is_open and self.task.state is TaskState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSize:
    """The size of a journal.

    Args:
        place: Where it is, without a password.
        bytes: The size on disk.
        free_bytes: The unused part of that size.
        events: How many events it has.
    """

    place: str
    bytes: int
    free_bytes: int
    events: int


@runtime_checkable
class SupportsRemembered(Protocol):
    """A journal that finds decisions which hold until they are revoked.

    These are the ``ApprovalDecided`` with ``remember="until_revoked"``, as
    :meth:`delf.protocols.approval.RememberedDecision.of_events` reads them.
    """

    async def remembered(self) -> Sequence[RememberedDecision]:
        """Return the decisions that hold, oldest first, without revoked ones."""
        ...

    async def revoke(self, request_id: str, by: str) -> RememberedDecision:
        """Revoke a decision for every process. No call passes by it once this returns.

        Args:
            request_id: The request that was approved.
            by: The person who revokes.

        Raises:
            UnknownRequestError: When no such decision holds.
        """
        ...
