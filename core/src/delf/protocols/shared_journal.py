"""A journal shared by several processes, and its optional methods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Never, Protocol, TypedDict, Unpack, runtime_checkable

from delf.errors import ConfigurationError
from delf.events import Event, StoppedBy
from delf.members import ProtocolMeta
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
    """Conditions for tasks in a list; None matches any.

    ``state`` is the state of a task. ``text`` is contained in the task's words, ignoring case.
    ``since`` is the earliest start as Unix time. ``users`` are the accepted users. ``fields`` are
    the values of fields of the record, by their names in
    :func:`delf.protocols.journal.filterable_fields`. ``after`` is the position of the last task of
    the previous page; all pages cost the same to read.
    """

    state: TaskState | None
    text: str | None
    since: float | None
    users: Collection[str] | None
    fields: Mapping[str, str] | None
    after: ListPlace | None


@runtime_checkable
class SharedJournal(Journal, SupportsRemembered, Protocol, metaclass=ProtocolMeta):
    """A persistent journal that several processes share.

    Commands search the journal, other processes answer requests and stop tasks through the journal,
    and the journal knows which process works on a task. A process claims each task that it works
    on. The claim can expire while the process is alive but suspended. The journal then refuses
    further events of the task from that process, so that the process starts no call.

    A journal without optional methods inherits from :class:`PartialJournal`, where each of these
    methods raises an error.
    """

    async def open(self) -> None:
        """Open the journal for writing now instead of with the first event.

        Raises:
            JournalUnavailableError: If the journal cannot be written.
        """
        ...

    @property
    def place(self) -> str:
        """The path or address of the journal, without credentials, to show to people."""
        ...

    async def find(
        self,
        limit: int = 100,
        **conditions: Unpack[Conditions],
    ) -> Sequence[TaskRecord]:
        """Return the newest tasks that meet all conditions, newest first.

        Args:
            limit: The maximum number of tasks to return.
            conditions: The conditions that a task has to meet, all of them.
        """
        ...

    async def count(self) -> Mapping[TaskState, int]:
        """Count the tasks by state, omitting states without tasks."""
        ...

    async def resolve(self, text: str, users: Collection[str] | None = None) -> str:
        """Return the full id of a task from a unique prefix.

        Args:
            text: A prefix of an id, or a full id.
            users: The users whose tasks may be found; None for all tasks. Tasks of other users
                are reported as unknown, with the same timing.

        Raises:
            UnknownTaskError: If no id, or more than one, has this prefix.
        """
        ...

    async def prune(
        self, older_than: float | Ages | None = None, keep: int = 0, *, dry_run: bool = False
    ) -> Pruned:
        """Remove old tasks with all events, except running and queued tasks.

        Args:
            older_than: The minimum number of seconds since the end of a task; None removes tasks of
                any age. With a mapping from state to seconds, only tasks in these states are
                removed.
            keep: The number of newest tasks to keep in any case.
            dry_run: Return the tasks without removing them.
        """
        ...

    async def remove(self, task_ids: Collection[str]) -> Pruned:
        """Remove tasks with all their events, except running tasks.

        Args:
            task_ids: Full ids.
        """
        ...

    async def was_removed(self, task_id: str) -> bool:
        """Return True if a task with this id was removed. Journals may forget old removals.

        A program that derives task ids from messages can check this before it starts a task,
        because a message may arrive twice.
        """
        ...

    async def task(self, task_id: str) -> TaskRecord:
        """Return one task.

        Raises:
            UnknownTaskError: If no such task is known.
        """
        ...

    async def claim(self, task_id: str) -> PerhapsAlive | None:
        """Claim a task that no process works on, to resume the task.

        Returns:
            The previous owner if that process may still be alive, although its lease has expired;
            else None. The task is claimed in both cases.

        Raises:
            UnknownTaskError: If no such task is known.
            DelfError: If a process that is alive, or another agent of this process, works on the
                task.
        """
        ...

    async def release(self, task_id: str) -> None:
        """Release the claim on a task. Unknown tasks are ignored."""
        ...

    def lease(self, seconds: float) -> None:
        """Set the duration of this process's lease on its tasks, in seconds.

        The process renews the lease while it works. Other processes may claim the tasks once the
        lease has expired or, without a lease, once the process has ended. Call this method before
        the first event.
        """
        ...

    async def post(self, task_id: str, kind: str, data: Mapping[str, Any]) -> int:
        """Append a note for the process that works on a task; return the position.

        Raises:
            UnknownTaskError: If no such task is known.
        """
        ...

    def subscribe_notes(
        self, task_id: str | None = None, after: int | None = None
    ) -> AsyncIterator[Note]:
        """Yield the notes of one task or of all tasks as any process posts notes.

        Args:
            task_id: Only notes of this task.
            after: A position; existing notes after that position are yielded first. If omitted,
                only new notes are yielded.

        Without ``after``, the subscription may miss notes that other processes post before this
        process's next operation, such as ``await journal.notes()``. Later notes are not missed.
        """
        ...

    async def notes(self, task_id: str | None = None, after: int = 0) -> Sequence[Note]:
        """Return the notes that have been posted so far, in order.

        Args:
            task_id: Only notes of this task.
            after: Only notes after this position.
        """
        ...

    async def find_requests(
        self, start: str = "", *, waiting: bool = False, limit: int = 1000
    ) -> Sequence[RequestRecord]:
        """Return requests for approval, the oldest first.

        Args:
            start: Only requests whose id has this prefix, with or without ``req_``.
            waiting: Only pending requests.
            limit: The maximum number of requests to return; the newest are kept.
        """
        ...

    async def stop(self, task_id: str, by: str, via: str = "") -> bool:
        """Ask the process that works on a task to stop it, and wait until it has stopped.

        A task that no process works on is ended directly.

        Args:
            task_id: The task.
            by: The person who stops the task.
            via: The channel or address.

        Returns:
            False if the task had already ended.

        Raises:
            UnknownTaskError: If no such task is known.
            DelfError: If the task does not stop in time.
        """
        ...

    async def asked_to_stop(self, task_ids: Collection[str]) -> Mapping[str, StoppedBy]:
        """Return the people who asked to stop some of the given tasks, by task id."""
        ...

    async def check(self) -> None:
        """Check the integrity of the whole journal, which takes seconds for gigabytes.

        Raises:
            DelfError: If the journal is damaged.
        """
        ...

    # -- its size, and copies while tasks run --------------------------------------------

    @property
    def keep(self) -> Ages:
        """The retention time of tasks by state; tasks in other states are kept forever.

        Servers and runners remove older tasks with ``prune`` from time to time.
        """
        ...

    async def size(self) -> JournalSize:
        """Return the size of the journal."""
        ...

    async def back_up(self, path: Path) -> None:
        """Copy a consistent snapshot of the journal into a new file.

        Raises:
            DelfError: If the journal cannot be copied.
        """
        ...

    async def append_all(self, events: Sequence[Event]) -> None:
        """Append the events of whole tasks, in one transaction.

        With several transactions, a runner could begin an imported, queued task before the other
        events of the task are stored.

        Raises:
            DelfError: If an event cannot follow the stored events of its task.
        """
        ...

    async def restore(self, path: Path) -> int:
        """Fill this empty journal from a backup; return the number of tasks.

        Raises:
            DelfError: If this journal is not empty, or the file is not a backup.
        """
        ...

    def read_all(self) -> AsyncIterator[Sequence[Event]]:
        """Yield the events of each task in one consistent snapshot, oldest task first.

        Raises:
            UnreadableEventError: After all other tasks, if events of a task cannot be read.
        """
        ...

    # -- tasks that failed and can go on -------------------------------------------------

    async def reopen(self, task_id: str) -> PerhapsAlive | None:
        """Claim a failed task, and accept further events after its end.

        Returns:
            The previous owner of the task if that process may still be alive; else None. The task
            is claimed in both cases.

        Raises:
            UnknownTaskError: If no such task is known.
            DelfError: If a live process or another agent of this process works on the task.
        """
        ...

    # -- search and figures, by an index beside the events -------------------------------

    async def index(self, seconds: float) -> int:
        """Update the search index for at most ``seconds``.

        Returns:
            Number of events that are still not indexed.
        """
        ...

    async def search(self, wanted: TaskFilter, limit: int = 50, before: str | None = None) -> Found:
        """Return the newest tasks that meet a filter.

        Args:
            wanted: The filter.
            limit: The maximum number of tasks to return.
            before: Only tasks older than the task with this id.

        Raises:
            UnknownTaskError: If the task ``before`` is unknown.
        """
        ...

    async def figures(
        self, by: FigureBy, wanted: TaskFilter, zone: str = "UTC"
    ) -> Sequence[Figures]:
        """Return statistics about the tasks that meet a filter, one for each group of tasks.

        Days without tasks are omitted.

        Args:
            by: The kind of group. Groups by day count tasks by the day on which they started.
            wanted: The filter.
            zone: The time zone of the days, by its IANA name.

        Raises:
            DelfError: If the zone is unknown.
        """
        ...

    # -- the people of a server, and who is logged in ------------------------------------

    async def people(self) -> list[Person]:
        """Return all people, ordered by name, including revoked people."""
        ...

    async def keep_person(self, person: Person, instead_of: Person | None) -> bool:
        """Store a person unless another process changed the person meanwhile.

        Args:
            person: The new version.
            instead_of: The previous version; None for a new person.

        Returns:
            False, without a change, if the stored person is not ``instead_of``.
        """
        ...

    async def begin_login(self, session: SessionRecord) -> None:
        """Store a login session, and remove the records of sessions that ended months ago."""
        ...

    async def end_login(self, digest: str) -> None:
        """End the login session with this digest; its record is kept for some months."""
        ...

    async def logins(
        self, digests: Collection[str] | None = None, *, ended: bool = False
    ) -> list[SessionRecord]:
        """Return the login sessions, oldest first.

        Args:
            digests: Return only the sessions whose token has one of these digests; None for all.
            ended: Whether to return also the recent sessions that have expired or were ended.
        """
        ...

    # -- conversations -------------------------------------------------------------------

    def conversations(self, namespace: str) -> ConversationStore:
        """Return the conversations of a namespace, which are closed with the journal."""
        ...

    async def namespaces(self) -> Sequence[str]:
        """Return the namespaces that have conversations.

        A namespace whose conversations were all removed may be included.
        """
        ...


class PartialJournal:
    """Base class that refuses the optional methods of a shared journal.

    A journal overrides every method that it supports.
    """

    @property
    def keep(self) -> Ages:
        """No retention times: tasks are kept forever."""
        return {}

    async def size(self) -> JournalSize:
        """Raise an error: the journal does not know its size."""
        self._refuse("tell its size")

    async def back_up(self, path: Path) -> None:
        """Raise an error: the journal has no backups."""
        self._refuse("be copied")

    async def append_all(self, events: Sequence[Event]) -> None:
        """Raise an error: the journal takes no tasks of other journals."""
        self._refuse("take tasks of other journals")

    async def restore(self, path: Path) -> int:
        """Raise an error: the journal has no backups."""
        self._refuse("be filled from a copy")

    async def was_removed(self, task_id: str) -> bool:
        """Return False for every task, because this journal does not record removals."""
        _ = task_id
        return False

    def read_all(self) -> AsyncIterator[Sequence[Event]]:
        """Raise an error: the journal cannot be read as a whole."""
        self._refuse("be read as a whole")

    async def reopen(self, task_id: str) -> PerhapsAlive | None:
        """Raise an error: the journal cannot reopen ended tasks."""
        self._refuse("let a task go on after its end")

    async def index(self, seconds: float) -> int:
        """Raise an error: the journal has no search."""
        self._refuse("search")

    async def search(self, wanted: TaskFilter, limit: int = 50, before: str | None = None) -> Found:
        """Raise an error: the journal has no search."""
        self._refuse("search")

    async def figures(
        self, by: FigureBy, wanted: TaskFilter, zone: str = "UTC"
    ) -> Sequence[Figures]:
        """Raise an error: the journal has no statistics."""
        self._refuse("add up figures")

    async def people(self) -> list[Person]:
        """Return no people: the journal stores none."""
        return []

    async def keep_person(self, person: Person, instead_of: Person | None) -> bool:
        """Raise an error: the journal does not store people."""
        self._refuse("keep people")

    async def begin_login(self, session: SessionRecord) -> None:
        """Raise an error: the journal does not store sessions."""
        self._refuse("keep sessions")

    async def end_login(self, digest: str) -> None:
        """Raise an error: the journal does not store sessions."""
        self._refuse("keep sessions")

    async def logins(
        self, digests: Collection[str] | None = None, *, ended: bool = False
    ) -> list[SessionRecord]:
        """Return no sessions: the journal stores none."""
        _ = digests, ended
        return []

    def conversations(self, namespace: str) -> ConversationStore:
        """Raise an error: the journal does not store conversations."""
        self._refuse("keep conversations")

    async def namespaces(self) -> Sequence[str]:
        """Return no namespaces: the journal stores no conversations."""
        return []

    def _refuse(self, what: str) -> Never:
        raise ConfigurationError(
            f"the journal {type(self).__name__} cannot {what}",
            hint="choose another journal; delf plugins list shows those that are installed",
        )
