"""A journal that several processes share, and what such a journal need not be able to do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Never, Protocol, TypedDict, Unpack, runtime_checkable

from delf.errors import ConfigurationError
from delf.events import Event, StoppedBy
from delf.protocols.conversation import ConversationStore
from delf.protocols.journal import (
    Ages,
    Journal,
    JournalSize,
    ListPlace,
    Note,
    PerhapsAlive,
    Pruned,
    RequestRecord,
    SupportsRemembered,
    TaskRecord,
)
from delf.protocols.people import Person
from delf.protocols.search import FigureBy, Figures, Found, TaskFilter
from delf.protocols.sessions import SessionRecord
from delf.types import TaskState


class Conditions(TypedDict, total=False):
    """Conditions of tasks in a list; None stands for any.

    ``state`` is the state of a task. ``text`` stands in its words, in any case. ``since`` is the
    Unix time at which it started, or later. ``keys`` are those on whose behalf it is done: one of
    them. ``after`` is the place of the last task of a page that was read before; the last page of a
    list costs as much as the first.
    """

    state: TaskState | None
    text: str | None
    since: float | None
    keys: Collection[str] | None
    after: ListPlace | None


@runtime_checkable
class SharedJournal(Journal, SupportsRemembered, Protocol):
    """A journal that outlives its process and that several processes share.

    Commands look through it, other processes answer and stop tasks through it, and it knows which
    process works on a task. Claims can lapse while their process lives, as that of a stopped one:
    the journal refuses the events of a task of a process that lost it, so that no call is begun.

    What a journal cannot do beyond that, it refuses: :class:`PartialJournal` has these methods.
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
        **conditions: Unpack[Conditions],
    ) -> Sequence[TaskRecord]:
        """Find the newest tasks first.

        Args:
            limit: The most tasks to return.
            conditions: All that a task has to meet.
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

    # -- its size, and copies while tasks run --------------------------------------------

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

    # -- tasks that failed and can go on -------------------------------------------------

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

    # -- search and figures, by an index beside the events -------------------------------

    async def index(self, seconds: float) -> int:
        """Bring the index up to date, for so many seconds at the most.

        Returns:
            How many events are still to be read.
        """
        ...

    async def search(self, wanted: TaskFilter, limit: int = 50, before: str | None = None) -> Found:
        """The newest tasks that meet a filter.

        Args:
            wanted: The filter.
            limit: How many at the most.
            before: Only those older than the task with this id.

        Raises:
            UnknownTaskError: When ``before`` is not known.
        """
        ...

    async def figures(
        self, by: FigureBy, wanted: TaskFilter, zone: str = "UTC"
    ) -> Sequence[Figures]:
        """The figures of the tasks that meet a filter, by group; days without tasks are left out.

        Args:
            by: The kind of group. Days are those on which tasks started.
            wanted: The filter.
            zone: The time zone of the days, by its IANA name.

        Raises:
            DelfError: When the zone is unknown.
        """
        ...

    # -- the people of a server, and who is logged in ------------------------------------

    async def people(self) -> list[Person]:
        """Everybody, by their names, those who were revoked, too."""
        ...

    async def keep_person(self, person: Person, instead_of: Person | None) -> bool:
        """Keep a person.

        Args:
            person: As it is from now on.
            instead_of: As it was known; None for somebody new.

        Returns:
            False, and nothing changes, if somebody else was quicker.
        """
        ...

    async def begin_login(self, session: SessionRecord) -> None:
        """Keep a session; those that are over are forgotten."""
        ...

    async def end_login(self, digest: str) -> None:
        """Forget a session."""
        ...

    async def logins(self, digests: Collection[str] | None = None) -> list[SessionRecord]:
        """The sessions that are not over.

        Args:
            digests: Only these.
        """
        ...

    # -- conversations -------------------------------------------------------------------

    def conversations(self, namespace: str) -> ConversationStore:
        """The conversations of a namespace. They are closed with the journal."""
        ...

    async def namespaces(self) -> Sequence[str]:
        """The namespaces that have conversations, by their names.

        One whose conversations were all forgotten may be among them.
        """
        ...


class PartialJournal:
    """Refuses what a shared journal need not be able to do; a journal inherits from it.

    Every method that a journal can carry out replaces the one from here.
    """

    @property
    def keep(self) -> Ages:
        """Tasks stay forever."""
        return {}

    async def size(self) -> JournalSize:
        """Refuse to tell its size."""
        self._refuse("tell its size")

    async def back_up(self, path: Path) -> None:
        """Refuse to be copied."""
        self._refuse("be copied")

    async def restore(self, path: Path) -> int:
        """Refuse to be filled from a copy."""
        self._refuse("be filled from a copy")

    def read_all(self) -> AsyncIterator[Sequence[Event]]:
        """Refuse to be read as a whole."""
        self._refuse("be read as a whole")

    async def reopen(self, task_id: str) -> PerhapsAlive | None:
        """Refuse to let a task go on after its end."""
        self._refuse("let a task go on after its end")

    async def index(self, seconds: float) -> int:
        """Refuse to search."""
        self._refuse("search")

    async def search(self, wanted: TaskFilter, limit: int = 50, before: str | None = None) -> Found:
        """Refuse to search."""
        self._refuse("search")

    async def figures(
        self, by: FigureBy, wanted: TaskFilter, zone: str = "UTC"
    ) -> Sequence[Figures]:
        """Refuse to add up figures."""
        self._refuse("add up figures")

    async def people(self) -> list[Person]:
        """Refuse to keep people."""
        self._refuse("keep people")

    async def keep_person(self, person: Person, instead_of: Person | None) -> bool:
        """Refuse to keep people."""
        self._refuse("keep people")

    async def begin_login(self, session: SessionRecord) -> None:
        """Refuse to keep sessions."""
        self._refuse("keep sessions")

    async def end_login(self, digest: str) -> None:
        """Refuse to keep sessions."""
        self._refuse("keep sessions")

    async def logins(self, digests: Collection[str] | None = None) -> list[SessionRecord]:
        """Refuse to keep sessions."""
        self._refuse("keep sessions")

    def conversations(self, namespace: str) -> ConversationStore:
        """Refuse to keep conversations."""
        self._refuse("keep conversations")

    async def namespaces(self) -> Sequence[str]:
        """Refuse to keep conversations."""
        self._refuse("keep conversations")

    def _refuse(self, what: str) -> Never:
        raise ConfigurationError(
            f"the journal {type(self).__name__} cannot {what}",
            hint="choose another journal; delf plugins list shows those that are installed",
        )
