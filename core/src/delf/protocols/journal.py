"""A journal: the append-only record of everything that happened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from delf.events import ApprovalDecided, ApprovalRequested, ApprovalVoted, Event, StoppedBy
from delf.protocols.approval import RememberedDecision
from delf.records import dataclass
from delf.types import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task in a list of tasks.

    Args:
        task_id: Its id.
        task: What was asked.
        started_at: Unix time in seconds.
        state: The state as far as a journal tells it: a task that waits for a person is
            running here. :func:`delf.protocols.states.state_of` tells these apart.
        origin: The agent's id.
        finished_at: Unix time in seconds.
        duration_ms: From acceptance to the end.
        cost_usd: None while it runs, and where a price is not known.
        error: Why it failed.
        events: How many events there are.
        owner: The process that works on it, as ``pid 7 on host``.
        queue: Where it waits, or waited, for a runner.
        key: On whose behalf it is done, if not for the local user.
        losses: How many processes died, or were silent for too long, with it in hand.
        tries: How often it failed and was put back to be tried again; ``error`` says why then.
        not_before: The Unix time from which on a runner may take it.
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

    @property
    def place(self) -> ListPlace:
        """The task's place in a list of tasks: ``find`` goes on after it."""
        return self.started_at, self.task_id


ListPlace = tuple[float, str]
"""The start of a task, and its id: the place where a list of tasks continues."""
Ages = Mapping[TaskState, float]
"""Seconds by the states of tasks that are not at work: how long they stay."""


class Journal(Protocol):
    """Keeps events in order, once each, before anyone acts on them."""

    async def append(self, event: Event) -> None:
        """Keep an event. When this returns, it is kept.

        Whoever waits may be cancelled: an event that was begun to be kept is kept all the
        same, before those that are appended later. Whoever was cancelled appends the same event
        once more to know: that changes nothing where it is kept already.
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
class SupportsJournal(Protocol):
    """An approval channel that answers through the journal, for other processes, too."""

    def use_journal(self, journal: Journal) -> None:
        """Use it from now on. Called as the agent starts, before any request."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A message of one process to the one that works on a task.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PerhapsAlive:
    """The process that worked on a task before, where nobody knows that it is gone.

    It may be stopped, or cut off from the journal, and still be making the call that it began.

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
    """A request for approval, as a journal knows it.

    Args:
        requested: What was asked.
        decided: How it was decided, if it was.
        task: Its task; running only while a process that lives works on it.
        votes: While it waits for a second approval, the first one.
    """

    requested: ApprovalRequested
    decided: ApprovalDecided | None
    task: TaskRecord
    votes: Sequence[ApprovalVoted] = ()

    @property
    def waits(self) -> bool:
        """True if an answer would still count."""
        return self.decided is None and self.task.state is TaskState.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSize:
    """The size of a journal.

    Args:
        place: Where it is, without a password.
        bytes: What it takes there.
        free_bytes: What of that holds nothing any more.
        events: How many events it has.
    """

    place: str
    bytes: int
    free_bytes: int
    events: int


@runtime_checkable
class SupportsUpkeep(Protocol):
    """A journal that says how large it is, and can be copied while tasks run."""

    @property
    def keep(self) -> Ages:
        """The time for which tasks stay; those of other states stay forever.

        Servers and runners remove older ones with ``prune`` from time to time.
        """
        ...

    async def size(self) -> JournalSize:
        """Return its size."""
        ...

    async def back_up(self, path: Path) -> None:
        """Copy it into a new file, as it is at one moment.

        Raises:
            DelfError: When it cannot be copied.
        """
        ...

    async def restore(self, path: Path) -> int:
        """Fill this journal, which is empty, from what ``back_up`` wrote; the number of tasks.

        Raises:
            DelfError: When it is not empty, or the file is not a backup.
        """
        ...

    def read_all(self) -> AsyncIterator[Sequence[Event]]:
        """The events of each task, the oldest first, all as they are at one moment."""
        ...


@runtime_checkable
class SupportsRemembered(Protocol):
    """A journal in which decisions are found that hold until they are revoked.

    They are those of ``ApprovalDecided`` with ``remember="until_revoked"``, as
    :meth:`delf.protocols.approval.RememberedDecision.of` reads them.
    """

    async def remembered(self) -> Sequence[RememberedDecision]:
        """The decisions that hold, the oldest first; what any process has revoked is left out."""
        ...

    async def revoke(self, request_id: str, by: str) -> RememberedDecision:
        """Make a decision void, for every process. Once this returns, no call passes by it.

        Args:
            request_id: The request that was approved.
            by: Who revokes it.

        Raises:
            UnknownRequestError: When no such decision holds.
        """
        ...


@runtime_checkable
class SupportsReopening(Protocol):
    """A shared journal in which a task that failed can go on."""

    async def reopen(self, task_id: str) -> PerhapsAlive | None:
        """Claim a task that has failed, and let more events follow its end.

        Returns:
            None: nobody works on a task that has an end. A task that somebody has reopened is
            claimed as :meth:`SharedJournal.claim` does.

        Raises:
            UnknownTaskError: When no such task is known.
            DelfError: When a process that lives works on it, or another agent of this one.
        """
        ...


@runtime_checkable
class SharedJournal(Journal, Protocol):
    """A journal that outlives its process and that several processes share.

    Commands look through it, other processes answer and stop tasks through it, and it knows which
    process works on a task. Claims can lapse while their process lives, as that of a stopped one:
    the journal refuses the events of a task of a process that lost it, so that no call is begun.
    """

    async def open(self) -> None:
        """Open it for writing now rather than with the first event.

        Raises:
            JournalUnavailableError: When it cannot be written.
        """
        ...

    @property
    def place(self) -> str:
        """The place of it, for people; no login."""
        ...

    async def find(
        self,
        limit: int = 100,
        *,
        state: TaskState | None = None,
        text: str | None = None,
        since: float | None = None,
        keys: Collection[str] | None = None,
        after: ListPlace | None = None,
    ) -> Sequence[TaskRecord]:
        """The newest tasks first.

        Args:
            limit: How many at the most.
            state: Only those in this state.
            text: Only those whose task holds this text, in any case.
            since: Only those that started at this Unix time or later.
            keys: Only those that are done on behalf of one of these.
            after: Only those that come after this place in the list, as the last one of a page
                that was read before. It costs the same for the last page as for the first.
        """
        ...

    async def count(self) -> Mapping[TaskState, int]:
        """Count the tasks in each state that some are in."""
        ...

    async def resolve(self, text: str, keys: Collection[str] | None = None) -> str:
        """The id that a text abbreviates.

        Args:
            text: The beginning of an id, or a whole one.
            keys: Only tasks that are done on behalf of one of these. Others are refused as what
                does not exist, and in the same time.

        Raises:
            UnknownTaskError: When no id or more than one begins so.
        """
        ...

    async def prune(
        self, older_than: float | Ages | None = None, keep: int = 0, *, dry_run: bool = False
    ) -> Pruned:
        """Remove old tasks with all their events; never one that runs or waits for a runner.

        Args:
            older_than: Only those that ended so many seconds ago; by state, only those in one
                of these states.
            keep: How many of the newest stay in any case.
            dry_run: Only say which.
        """
        ...

    async def remove(self, task_ids: Collection[str]) -> Pruned:
        """Remove tasks with all their events; those that were there, and did not run.

        Args:
            task_ids: Their whole ids.
        """
        ...

    async def task(self, task_id: str) -> TaskRecord:
        """One task.

        Raises:
            UnknownTaskError: When it is not known.
        """
        ...

    async def claim(self, task_id: str) -> PerhapsAlive | None:
        """Make a task on which nobody works any more the caller's own, to resume it.

        Returns:
            Who worked on it before, if that process may be alive.

        Raises:
            UnknownTaskError: When no such task is known.
            DelfError: When a process that lives works on it, or another agent of this one.
        """
        ...

    async def release(self, task_id: str) -> None:
        """Let somebody claim a task, from the return on. One that is unknown is passed over."""
        ...

    def lease(self, seconds: float) -> None:
        """Let others claim the tasks of this process where it says nothing for so long.

        Before the first event; without it, a process of this machine keeps its tasks until it ends.
        """
        ...

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

    async def find_requests(
        self, start: str = "", *, waiting: bool = False, limit: int = 1000
    ) -> Sequence[RequestRecord]:
        """Requests for approval, the oldest first.

        Args:
            start: Only those whose id begins so, with or without its ``req_``.
            waiting: Only those that wait for an answer.
            limit: How many at the most; the newest.
        """
        ...

    async def stop(self, task_id: str, by: str, via: str = "") -> bool:
        """Ask whoever works on a task to stop it, and wait for that; end it where nobody does.

        Args:
            task_id: The task.
            by: Who wants it.
            via: From where.

        Returns:
            False when it was over already.

        Raises:
            UnknownTaskError: When no such task is known.
            DelfError: When it is not stopped in time.
        """
        ...

    async def asked_to_stop(self, task_ids: Collection[str]) -> Mapping[str, StoppedBy]:
        """Those of these tasks that somebody has asked to stop, with the name of who did."""
        ...

    async def check(self) -> None:
        """Read all of it; that takes seconds for gigabytes.

        Raises:
            DelfError: When some of it is damaged.
        """
        ...
