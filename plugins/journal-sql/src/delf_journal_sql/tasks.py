"""The tasks that this process owns, and the transactions that append events to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from delf.events import (
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalDecided,
    ApprovalVoted,
    Event,
    TaskFinished,
    TaskPostponed,
    TaskQueued,
)
from delf.protocols.journal import PerhapsAlive, TaskRecord
from delf.types import TaskState
from delf_journal_sql.codec import Packed, plain_text
from delf_journal_sql.database import Connection
from delf_journal_sql.errors import JournalConflictError
from delf_journal_sql.inbox import empty_note
from delf_journal_sql.owners import (
    COLUMNS,
    Owner,
    Process,
    is_alive,
    owner_of,
    silent_owner_of,
)
from delf_journal_sql.schema import column_of
from delf_journal_sql.store import placeholders_for

_EVENT_COLUMNS: Final = ("task", "seq", "at", "type", "v", "data", "blobs")
_TASK_FIELDS: Final = tuple(item.name for item in fields(TaskRecord) if item.name != "events")
_TASK_COLUMNS: Final = tuple(map(column_of, _TASK_FIELDS))
# Fields of a task that are identifiers, and must be stored unchanged.
_IDENTIFIERS: Final = frozenset({"task_id", "queue", "user"})


@dataclass
class Claims:
    """The tasks that this process owns. Used only in the writer's thread.

    Args:
        owner: This process as an owner of tasks.
        held: The ids of the tasks that this process has claimed.
        lost: The ids of the tasks that this process has lost to others. Events of these tasks are
            refused until this process claims them again.
        unreleased: The ids of the tasks that this process may own and does not work on, because
            their claim or their release failed. The next heartbeat releases these tasks.
    """

    owner: Owner
    held: set[str] = field(default_factory=set[str])
    lost: set[str] = field(default_factory=set[str])
    unreleased: set[str] = field(default_factory=set[str])

    def claim(
        self, connection: Connection, task_id: str, *, may_be_failed: bool = False
    ) -> PerhapsAlive | None:
        """Claim an existing task for one agent of this process, within a transaction.

        The caller calls :meth:`hold` after the commit.

        Args:
            connection: A connection in the transaction.
            task_id: The id of the task.
            may_be_failed: Whether a failed task may be claimed, too. The claim sets it to running.

        Returns:
            The previous owner if that process sends no heartbeats any more, but may still be alive,
            for example on another machine; otherwise None.

        Raises:
            JournalConflictError: If another agent of this process has claimed the task; or if the
                task's owner counts as alive, because the process runs or its lease has not expired.
        """
        if task_id in self.held:
            raise _held_here_error(task_id)
        return self.take_ownership(connection, task_id, may_be_failed=may_be_failed)

    def hold(self, task_id: str) -> None:
        """Record that a claim of a task was committed."""
        self.held.add(task_id)
        self.lost.discard(task_id)
        self.unreleased.discard(task_id)

    def take_ownership(
        self, connection: Connection, task_id: str, *, may_be_failed: bool = False
    ) -> PerhapsAlive | None:
        """Make this process the owner of an existing task, unless the task has ended.

        With ``may_be_failed``, a failed task does not count as ended. For the arguments, the result
        and the errors see :meth:`claim`.
        """
        (row,) = connection.execute(
            f"SELECT t.id, t.state, t.owner, {COLUMNS} FROM delf_tasks AS t "  # noqa: S608 - only names of this module
            "LEFT JOIN delf_owners AS o ON o.owner = t.owner WHERE t.task_id = :id",
            {"id": task_id},
        )
        if may_be_failed and row.state == TaskState.FAILED:
            self._reopen(connection, row.id)  # a failed task has no owner who could be alive
            return None
        is_over = row.state not in (TaskState.RUNNING, TaskState.QUEUED)
        is_own = row.owner == self.owner.key
        if is_over or is_own:  # no other process works on the task
            return None
        previous_owner = owner_of(row)
        if row.owner is not None:  # otherwise the task waits in a queue, or was postponed
            self._require_dead(connection, task_id, previous_owner)
        self._become_owner(connection, row.id)
        return silent_owner_of(previous_owner)

    def _reopen(self, connection: Connection, key: int) -> None:
        """Set a failed task to running, with this process as the owner."""
        connection.execute(
            "UPDATE delf_tasks SET state = :running, owner = :owner, "
            "error = NULL, finished_at = NULL WHERE id = :key",
            {"running": TaskState.RUNNING.value, "owner": self.owner.key, "key": key},
        )

    def _require_dead(self, connection: Connection, task_id: str, owner: Process) -> None:
        """Raise JournalConflictError if the owner of a task is alive."""
        if not is_alive(owner, connection.now()):
            return
        # Each agent of this process has a journal object of its own, with another key.
        this_process = (self.owner.pid, self.owner.birth, self.owner.machine)
        if (owner.pid, owner.birth, owner.machine) == this_process:
            raise _held_here_error(task_id)
        raise JournalConflictError(
            f"task {task_id} is being worked on by process {owner.pid} on {owner.host}",
            hint="wait for it, or end that process first",
        )

    def _become_owner(self, connection: Connection, key: int) -> None:
        """Set a running or queued task to running, with this process as the owner."""
        # ``losses`` counts how often a process lost the task. A queued task has no owner yet.
        connection.execute(
            "UPDATE delf_tasks SET losses = COALESCE(losses, 0) + CASE WHEN owner IS NULL "
            "THEN 0 ELSE 1 END, owner = :owner, state = :running WHERE id = :key",
            {"running": TaskState.RUNNING.value, "owner": self.owner.key, "key": key},
        )

    def release(self, connection: Connection, task_id: str) -> None:
        """Release this process's claim on an unfinished task, within a transaction."""
        connection.execute(
            "UPDATE delf_tasks SET owner = NULL "
            "WHERE task_id = :id AND owner = :owner AND state = :running",
            {"id": task_id, "owner": self.owner.key, "running": TaskState.RUNNING.value},
        )
        self.held.discard(task_id)

    def lose(self, task_id: str) -> None:
        """Refuse further events of a task that another process has claimed or removed."""
        self.held.discard(task_id)
        self.lost.add(task_id)


@dataclass(slots=True)
class _Task:
    """A stored task to which a transaction appends events.

    Args:
        key: The database key.
        last: The number of the last event, stored or added by the transaction; 0 without events.
        state: The stored state.
        owner: The key of the owner; None if no process owns the task.
    """

    key: int
    last: int
    state: str
    owner: str | None


# The events that other processes cause by notes.
_CAUSED_BY_NOTES: Final = (ApprovalAssigned, ApprovalCommented, ApprovalDecided, ApprovalVoted)


class Appending:
    """A transaction that appends events. Used only in the writer's thread.

    Args:
        connection: A connection in the transaction.
        claims: The tasks that this process owns.
        events: The events that :meth:`add` will get.
    """

    def __init__(self, connection: Connection, claims: Claims, events: Sequence[Packed]) -> None:
        self._connection = connection
        self._claims = claims
        self._rows: list[tuple[Any, ...]] = []
        # The tasks that this transaction claims, and the tasks that it releases.
        self._claimed: set[str] = set()
        self._released: set[str] = set()
        self._create_tasks(events)
        self._tasks = self._load_tasks({packed.event.task_id for packed in events})

    def _create_tasks(self, events: Iterable[Packed]) -> None:
        """Insert each new task: a task with its first event among ``events``.

        A task that this process has lost gets no row, because :meth:`add` refuses its events.
        """
        new_rows: dict[str, dict[str, Any]] = {}
        for packed in events:
            task_id = packed.event.task_id
            if packed.event.seq == 1 and task_id not in self._claims.lost:
                new_rows[task_id] = self._row_of(packed.event)
        rows = [[row.get(field) for field in _TASK_FIELDS] for row in new_rows.values()]
        self._connection.insert("delf_tasks", _TASK_COLUMNS, rows, unique="task_id")

    def _load_tasks(self, task_ids: Iterable[str]) -> dict[str, _Task]:
        """Return the stored tasks by id; a task without a row, such as a removed one, is absent."""
        placeholders, values = placeholders_for(task_ids, "id")
        rows = self._connection.execute(
            "SELECT t.task_id, t.id, "  # noqa: S608 - only names of this module
            "COALESCE((SELECT MAX(seq) FROM delf_events AS e WHERE e.task = t.id), 0), "
            f"t.state, t.owner FROM delf_tasks AS t WHERE t.task_id IN ({placeholders})",
            values,
        )
        return {task_id: _Task(*stored) for task_id, *stored in rows}

    def add(self, packed: Packed) -> None:
        """Validate an event, and collect its row for :meth:`flush`.

        Raises:
            JournalConflictError: If the event cannot follow the stored events of its task, or
                another process owns the task.
        """
        event = packed.event
        stored = self._tasks.get(event.task_id)
        is_end = isinstance(event, (TaskFinished, TaskPostponed))
        if is_end and stored is not None and event.seq == stored.last:
            # An earlier attempt was committed although its connection broke. It released the task,
            # so this process does not own the task any more.
            self._require_equal(stored, packed)
            self._released.add(event.task_id)
            return
        task = self._owned_task(event)
        if event.seq <= task.last:
            # A transaction is retried if its connection broke, although it may have been
            # committed. An equal event is therefore no conflict.
            self._require_equal(task, packed)
            return
        if event.seq != task.last + 1:
            raise _gap_error(event, task.last)
        for blob in packed.blobs:
            self._connection.execute(
                "INSERT INTO delf_blobs (task, digest, size, data) "
                "VALUES (:task, :digest, :size, :data) ON CONFLICT DO NOTHING",
                {"task": task.key, "digest": blob.digest, "size": blob.size, "data": blob.data},
            )
        # The values have the order of _EVENT_COLUMNS. 1 is the version of the row's format.
        row = (task.key, event.seq, event.at, packed.type, 1, packed.data, packed.blob_digests)
        self._rows.append(row)
        task.last = event.seq
        if isinstance(event, _CAUSED_BY_NOTES) and event.note is not None:
            # The event has the content of the note now, without the secrets.
            empty_note(self._connection, task.key, event.note)
        if is_end:
            self._release(task, event)

    def _owned_task(self, event: Event) -> _Task:
        """Return the task of an event; claim a task that the event begins or continues.

        The owner's key is a fencing token: a process that lost a task, because its lease expired,
        cannot store further events of that task, and so starts no further call. The same is true
        for a removed task.

        Raises:
            JournalConflictError: If another process owns the task, or the task does not exist.
        """
        task_id = event.task_id
        task = self._tasks.get(task_id)
        is_held = task_id in self._claims.held or task_id in self._claimed
        if is_held and self._is_taken(task):
            self._claims.lose(task_id)
        if task_id in self._claims.lost:
            raise _lost_claim_error(task_id)
        if task is None:
            raise _gap_error(event, 0)
        # TaskQueued leaves a task in the queue, without an owner. The next event is of the runner
        # that takes the task out of the queue.
        begins_queued_task = task.state == TaskState.QUEUED and not isinstance(event, TaskQueued)
        needs_owner = begins_queued_task or task.state == TaskState.RUNNING
        if needs_owner and not is_held:
            # _create_tasks() has made this process the owner of a new task already.
            if task.owner != self._claims.owner.key:
                self._claim(task_id)
                task.owner = self._claims.owner.key
            self._claimed.add(task_id)
        return task

    def _is_taken(self, task: _Task | None) -> bool:
        """Return True if another process has claimed or removed a task of this process."""
        if task is None:
            return True
        # An owner is stored only for a running task.
        return task.state == TaskState.RUNNING and task.owner != self._claims.owner.key

    def _claim(self, task_id: str) -> None:
        try:
            self._claims.take_ownership(self._connection, task_id)
        except JournalConflictError:
            self._claims.lose(task_id)
            raise

    def flush(self) -> None:
        """Insert the collected rows."""
        if self._rows:
            self._connection.insert("delf_events", _EVENT_COLUMNS, self._rows)
            self._rows.clear()

    def after_commit(self) -> None:
        """Update the tasks that this process owns."""
        self._claims.held |= self._claimed
        self._claims.unreleased -= self._claimed
        # Remove the released tasks last: a task may be claimed and ended in the same transaction.
        self._claims.held -= self._released

    def _row_of(self, event: Event) -> dict[str, Any]:
        """Return the row of a new task as a mapping, from the task's first event."""
        # The column ``origin`` cannot be NULL, and not every task has an origin.
        values: dict[str, Any] = {"origin": "", **TaskRecord.beginning(event)}
        is_queued = isinstance(event, TaskQueued) and event.queue is not None
        if is_queued:
            values |= {"state": TaskState.QUEUED, "owner": None}
        else:
            values |= {"state": TaskState.RUNNING, "owner": self._claims.owner.key}
        return _storable(values)

    def _release(self, task: _Task, event: TaskFinished | TaskPostponed) -> None:
        """Store the end or the postponement of a task, after which no process owns the task.

        A postponed task returns to its queue. Without a queue, the task stays stored as running. As
        no process owns the task, it then counts as interrupted; see :func:`in_state`.
        """
        self._released.add(event.task_id)
        values = _storable(TaskRecord.changes(event))
        assignments = ", ".join(f"{column_of(name)} = :{name}" for name in values)
        self._connection.execute(
            f"UPDATE delf_tasks SET {assignments}, owner = NULL WHERE id = :task_key",  # noqa: S608 - names of fields
            {**values, "task_key": task.key},
        )
        if isinstance(event, TaskPostponed):
            self._connection.execute(
                "UPDATE delf_tasks SET state = :queued WHERE id = :key AND queue IS NOT NULL",
                {"queued": TaskState.QUEUED.value, "key": task.key},
            )

    def _require_equal(self, task: _Task, packed: Packed) -> None:
        """Check that an event equals the event that is stored with the same number.

        Raises:
            JournalConflictError: If the stored event is different.
        """
        self.flush()  # the stored event may be of this transaction, too
        event = packed.event
        rows = self._connection.execute(
            "SELECT at, type, data, blobs FROM delf_events WHERE task = :task AND seq = :seq",
            {"task": task.key, "seq": event.seq},
        )
        expected = (event.at, packed.type, packed.data, packed.blob_digests)
        if [tuple(row) for row in rows] != [expected]:
            raise JournalConflictError(
                f"task {event.task_id} has another event {event.seq} already",
                hint="two processes work on the same task",
            )


def _storable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Replace NUL characters in the fields of a task, except in identifiers.

    PostgreSQL refuses these characters, and the refused row would fail all events of its batch.
    """
    texts = {
        name: plain_text(str(value))
        for name, value in values.items()
        if isinstance(value, str) and name not in _IDENTIFIERS
    }
    return {**values, **texts}


def _gap_error(event: Event, last: int) -> JournalConflictError:
    return JournalConflictError(
        f"task {event.task_id}: event {event.seq} was to follow event {last}"
    )


def _lost_claim_error(task_id: str) -> JournalConflictError:
    return JournalConflictError(
        f"task {task_id} belongs to another process now",
        hint="it was claimed while this process was silent, and continues there",
    )


def _held_here_error(task_id: str) -> JournalConflictError:
    return JournalConflictError(
        f"task {task_id} is being worked on by another agent of this process",
        hint="wait for it, or stop that agent first",
    )
