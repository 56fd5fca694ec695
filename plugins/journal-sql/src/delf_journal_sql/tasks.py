"""The tasks that this process writes to, with their next positions and owners."""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from delf.events import Event, TaskFinished, TaskPostponed, TaskQueued
from delf.protocols.journal import PerhapsAlive, TaskRecord
from delf.types import TaskState
from delf_journal_sql.codec import Packed, plain_text
from delf_journal_sql.database import Connection
from delf_journal_sql.errors import JournalConflictError
from delf_journal_sql.owners import (
    COLUMNS,
    Owner,
    Process,
    is_alive,
    owner_of,
    silent_owner_of,
)
from delf_journal_sql.schema import OTHER_NAMES

_EVENT_COLUMNS: Final = ("task", "seq", "at", "type", "v", "data", "blobs")
_TASK_FIELDS: Final = tuple(item.name for item in fields(TaskRecord) if item.name != "events")
_TASK_COLUMNS: Final = tuple(OTHER_NAMES.get(name, name) for name in _TASK_FIELDS)
# Fields of a task that are identifiers, and must be stored unchanged.
_IDENTIFIERS: Final = frozenset({"task_id", "queue", "key"})


@dataclass(slots=True)
class _Task:
    key: int  # the database key
    last: int  # the number of the last event that was added; 0 for a task without events


@dataclass
class Tasks:
    """Validates events and collects their rows for a transaction. Used only in the writer's thread.

    Args:
        owner: This process as an owner of tasks.
        cached_tasks: The cached state of the tasks that this process writes to, by id.
        claimed_tasks: The ids of the tasks that this process has claimed.
        tasks_of_other_processes: The ids of tasks that other processes have claimed from this
            process. Events of these tasks are refused until this process claims them again.
    """

    owner: Owner
    cached_tasks: dict[str, _Task] = field(default_factory=dict[str, _Task])
    claimed_tasks: set[str] = field(default_factory=set[str])
    tasks_of_other_processes: set[str] = field(default_factory=set[str])
    _rows: list[tuple[Any, ...]] = field(default_factory=list["tuple[Any, ...]"])
    # The tasks that this process does not continue, so that their cached state is dropped after the
    # commit: finished, postponed and queued tasks.
    _tasks_to_uncache: list[str] = field(default_factory=list[str])

    def mark_lost_tasks(self, connection: Connection, task_ids: Iterable[str]) -> None:
        """Mark the tasks that this process no longer owns, so that their events are refused.

        Called in the transaction that stores events of these tasks. The owner's key is a fencing
        token: a process that lost a task, because its lease expired, cannot store further events of
        that task, and so starts no further call. The same is true for a removed task.
        """
        id_by_key: dict[int, str] = {}
        for task_id in task_ids:
            if task_id in self.cached_tasks:
                id_by_key[self.cached_tasks[task_id].key] = task_id
        if not id_by_key:
            return
        for key in self._lost_keys(connection, id_by_key.keys()):
            lost_id = id_by_key[key]
            self.cached_tasks.pop(lost_id, None)
            self.claimed_tasks.discard(lost_id)
            self.tasks_of_other_processes.add(lost_id)

    def _lost_keys(self, connection: Connection, keys: KeysView[int]) -> set[int]:
        """Return the database keys of the tasks that were removed or that other processes own."""
        # An owner is stored only for a running task, so a task in another state is not lost.
        kept_tasks = (
            f"FROM delf_tasks WHERE id IN ({', '.join(map(str, keys))}) "
            f"AND (owner = :owner OR state <> '{TaskState.RUNNING}')"
        )
        parameters = {"owner": self.owner.key}
        # In the usual case, counting is enough. Reading the rows is slower, because the thread may
        # have to wait for the GIL after each row.
        ((kept_count,),) = connection.execute(f"SELECT COUNT(*) {kept_tasks}", parameters)
        if kept_count == len(keys):
            return set()
        return keys - {row.id for row in connection.execute(f"SELECT id {kept_tasks}", parameters)}

    def create(self, connection: Connection, events: Iterable[Packed]) -> None:
        """Insert each task whose first event is in ``events``, unless the task exists.

        The state of the existing tasks is loaded later, by :meth:`add`.
        """
        new_rows: dict[str, dict[str, Any]] = {}
        for packed in events:
            name = packed.event.task_id
            if (
                packed.event.seq == 1
                and name not in self.cached_tasks
                and name not in self.tasks_of_other_processes
            ):
                new_rows[name] = self._row_of(packed.event)
        rows = [[record.get(field) for field in _TASK_FIELDS] for record in new_rows.values()]
        inserted = connection.insert("delf_tasks", _TASK_COLUMNS, rows, unique="task_id")
        for row in inserted:  # without the tasks that exist already
            self.cached_tasks[row.task_id] = _Task(int(row.id), last=0)
            if new_rows[row.task_id]["owner"] is not None:
                self.claimed_tasks.add(row.task_id)

    def add(self, connection: Connection, packed: Packed) -> None:
        """Validate an event, and collect its row for :meth:`flush`.

        Called in a transaction after :meth:`mark_lost_tasks` and :meth:`create`.

        Raises:
            JournalConflictError: If the event cannot follow the stored events of its task, or
                another process owns the task.
        """
        event = packed.event
        if event.task_id in self.tasks_of_other_processes:
            raise _lost_claim_error(event.task_id)
        task = self.cached_tasks.get(event.task_id)
        if task is None:  # the first event of the task that this process appends
            task = self._load_or_claim(connection, event)
            self.cached_tasks[event.task_id] = task
        if event.seq <= task.last:
            # A transaction is retried if its connection broke, although it may have been
            # committed. An equal event is therefore no conflict.
            self._require_equal(connection, task, packed)
            return
        if event.seq != task.last + 1:
            raise _gap_error(event, task.last)
        for blob in packed.blobs:
            connection.execute(
                "INSERT INTO delf_blobs (task, digest, size, data) "
                "VALUES (:task, :digest, :size, :data) ON CONFLICT DO NOTHING",
                {"task": task.key, "digest": blob.digest, "size": blob.size, "data": blob.data},
            )
        # The values have the order of _EVENT_COLUMNS. 1 is the version of the row's format.
        row = (task.key, event.seq, event.at, packed.type, 1, packed.data, packed.blob_digests)
        self._rows.append(row)
        task.last = event.seq
        if isinstance(event, (TaskFinished, TaskPostponed)):
            self._release(connection, task, event)
        elif isinstance(event, TaskQueued) and event.queue is not None:
            # The runner that claims the task continues it.
            self._tasks_to_uncache.append(event.task_id)

    def flush(self, connection: Connection) -> None:
        """Insert the collected rows."""
        if self._rows:
            connection.insert("delf_events", _EVENT_COLUMNS, self._rows)
            self._rows.clear()

    def forget(self, task_ids: Iterable[str]) -> None:
        """Drop all rows that wait to be written, and the cached state of the given tasks.

        Called after a rollback.
        """
        # The collected rows belong to the transaction that was rolled back, and to no other.
        self._rows.clear()
        self._tasks_to_uncache.clear()
        # The cached positions are too high now, so that the next event would leave a gap.
        for task_id in task_ids:
            self.cached_tasks.pop(task_id, None)

    def drop_finished(self) -> None:
        """Drop the cached state of finished, postponed and queued tasks after a commit."""
        for task_id in self._tasks_to_uncache:
            self.cached_tasks.pop(task_id, None)
            self.claimed_tasks.discard(task_id)
        self._tasks_to_uncache.clear()

    def claim(
        self, connection: Connection, task_id: str, *, may_be_failed: bool = False
    ) -> PerhapsAlive | None:
        """Claim an existing task for one agent of this process, within a transaction.

        After the commit, the caller adds the task to ``claimed_tasks``.

        Args:
            connection: A connection in the transaction.
            task_id: The id of the task.
            may_be_failed: Whether a failed task may be claimed, too, and is then running again.

        Returns:
            The previous owner if it stopped sending heartbeats, but may still be alive, such as a
            process on another machine; otherwise None.

        Raises:
            JournalConflictError: If another agent of this process has claimed the task, or the
                owner is alive or its lease has not expired.
        """
        if task_id in self.claimed_tasks:
            raise _held_here_error(task_id)
        former_owner = self._own(connection, task_id, may_be_failed=may_be_failed)
        self.tasks_of_other_processes.discard(task_id)
        return former_owner

    def _own(
        self, connection: Connection, task_id: str, *, may_be_failed: bool = False
    ) -> PerhapsAlive | None:
        """Make this process the owner of an existing task, unless the task is over.

        For the arguments, the result and the errors see :meth:`claim`.
        """
        # The former owner may have appended events since this process read the task's position.
        self.cached_tasks.pop(task_id, None)
        (row,) = connection.execute(
            f"SELECT t.id, t.state, t.owner, {COLUMNS} FROM delf_tasks AS t "  # noqa: S608 - only names of this module
            "LEFT JOIN delf_owners AS o ON o.owner = t.owner WHERE t.task_id = :id",
            {"id": task_id},
        )
        if may_be_failed and row.state == TaskState.FAILED:
            self._reopen(connection, row.id)
            return None
        is_over = row.state not in (TaskState.RUNNING, TaskState.QUEUED)
        is_own = row.owner == self.owner.key
        if is_over or is_own:
            return None
        previous_owner = owner_of(row)
        if row.owner is not None:
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
        self.cached_tasks.pop(task_id, None)
        self.claimed_tasks.discard(task_id)

    def _load_or_claim(self, connection: Connection, event: Event) -> _Task:
        """Load the stored state of an event's task; claim the task if the event continues it."""
        rows = connection.execute(
            "SELECT t.id, t.state, (SELECT MAX(seq) FROM delf_events AS e WHERE e.task = t.id) "
            "FROM delf_tasks AS t WHERE t.task_id = :id",
            {"id": event.task_id},
        )
        if not rows:
            raise _gap_error(event, 0)
        key, state, last = rows[0]
        # A task that was queued with TaskQueued is begun by a runner's next event.
        begins_queued_task = state == TaskState.QUEUED and not isinstance(event, TaskQueued)
        if state == TaskState.RUNNING or begins_queued_task:
            # From now on, no other process can append to the task.
            try:
                self._own(connection, event.task_id)
            except JournalConflictError:
                self.tasks_of_other_processes.add(event.task_id)
                raise
            self.claimed_tasks.add(event.task_id)
        return _Task(key, last or 0)

    def _row_of(self, event: Event) -> dict[str, Any]:
        """Return the row of a new task as a mapping, from the task's first event."""
        values: dict[str, Any] = {"origin": "", **TaskRecord.beginning(event)}
        waits = isinstance(event, TaskQueued) and event.queue is not None
        if waits:
            values |= {"state": TaskState.QUEUED, "owner": None}
        else:
            values |= {"state": TaskState.RUNNING, "owner": self.owner.key}
        return _storable(values)

    def _release(
        self, connection: Connection, task: _Task, event: TaskFinished | TaskPostponed
    ) -> None:
        """Store the end or the postponement of a task, and clear the process that owns the task.

        A postponed task returns to its queue. Without a queue it stays running without an owner, so
        that it is interrupted.
        """
        # The process that claims a postponed task next continues it.
        self._tasks_to_uncache.append(event.task_id)
        values = _storable(TaskRecord.changes(event))
        columns = ", ".join(f"{OTHER_NAMES.get(name, name)} = :{name}" for name in values)
        connection.execute(
            f"UPDATE delf_tasks SET {columns}, owner = NULL WHERE id = :task_key",  # noqa: S608 - names of fields
            {**values, "task_key": task.key},
        )
        if isinstance(event, TaskPostponed):
            connection.execute(
                "UPDATE delf_tasks SET state = :queued WHERE id = :key AND queue IS NOT NULL",
                {"queued": TaskState.QUEUED.value, "key": task.key},
            )

    def _require_equal(self, connection: Connection, task: _Task, packed: Packed) -> None:
        """Check that an event equals the event that is stored with the same number.

        Raises:
            JournalConflictError: If the stored event is different.
        """
        self.flush(connection)
        event = packed.event
        rows = connection.execute(
            "SELECT at, type, data, blobs FROM delf_events WHERE task = :task AND seq = :seq",
            {"task": task.key, "seq": event.seq},
        )
        if [tuple(row) for row in rows] != [
            (event.at, packed.type, packed.data, packed.blob_digests)
        ]:
            raise JournalConflictError(
                f"task {event.task_id} has another event {event.seq} already",
                hint="two processes work on the same task",
            )


def _storable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a task as databases store them: texts without NUL characters.

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
