"""Queries of the journal's tables. All functions block; call them in threads."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from delf.errors import DelfError, UnknownTaskError, UnreadableEventError
from delf.events import Event
from delf.protocols.journal import Ages, ListPlace, Pruned, TaskRecord, filterable_fields
from delf.types import TaskState
from delf_journal_sql import index
from delf_journal_sql.blobs import blob_data
from delf_journal_sql.codec import DAMAGE, unpack, warn_of_unreadable
from delf_journal_sql.database import Connection
from delf_journal_sql.owners import COLUMNS, IsAlive, cached_is_alive, live_owners, owner_of
from delf_journal_sql.schema import INPUTS, column_of
from delf_journal_sql.settings import AT_REST
from delf_journal_sql.statements import SqlRow

EVENT: Final = "e.seq, e.at, e.type, e.v, e.data, e.blobs"
# A mapping from each field of ``TaskRecord``, except ``owner``, to its column.
_FIELDS: Final = {
    item.name: column_of(item.name) for item in fields(TaskRecord) if item.name != "owner"
}
_EVENTS: Final = "(SELECT MAX(seq) FROM delf_events AS e WHERE e.task = t.id) AS events"
TASK: Final = ", ".join(_EVENTS if c == "events" else f"t.{c}" for c in _FIELDS.values())
# The maximum number of tasks in one statement, because databases limit its parameters.
_BATCH_SIZE: Final = 200
# The number of ids in the message about an ambiguous prefix.
_MAX_LISTED_IDS: Final = 5
# The time for which the ids of removed tasks are remembered, in seconds.
_REMOVED_SECONDS: Final = 90 * 86_400.0


def key_of(connection: Connection, task_id: str) -> int:
    """Return the database key of a task.

    Raises:
        UnknownTaskError: If no such task is known.
    """
    sql = "SELECT id FROM delf_tasks WHERE task_id = :task_id"
    rows = connection.execute(sql, {"task_id": task_id})
    if not rows:
        raise _unknown_task_error(task_id)
    return int(rows[0][0])


def _unknown_task_error(task_id: str) -> UnknownTaskError:
    """Create the error for an unknown task."""
    return UnknownTaskError(f"no task {task_id!r} is known", hint="delf runs list shows them all")


def read_events(connection: Connection, task_id: str, after: int) -> list[Event]:
    """Return a task's events with a sequence number above ``after``, in order.

    Raises:
        UnknownTaskError: If no such task is known.
        UnreadableEventError: If an event is damaged, or a newer version of delf wrote it.
    """
    key = key_of(connection, task_id)
    rows = connection.execute(
        f"SELECT {EVENT} FROM delf_events AS e "  # noqa: S608 - only names of this module
        "WHERE e.task = :task AND e.seq > :after ORDER BY e.seq",
        {"task": key, "after": after},
    )
    load_blob = functools.cache(functools.partial(blob_data, connection, key))
    return [unpack(task_id, row, load_blob) for row in rows]


def task_ids(connection: Connection) -> list[str]:
    """Return the ids of all tasks, oldest first."""
    rows = connection.execute("SELECT task_id FROM delf_tasks ORDER BY started_at, id")
    return [str(row.task_id) for row in rows]


def newest_position(connection: Connection) -> int:
    """Return the position of the newest event among all events; 0 without events."""
    return int(connection.execute("SELECT COALESCE(MAX(pos), 0) FROM delf_events")[0][0])


def events_after(
    connection: Connection, position: int, task_id: str | None, limit: int
) -> list[tuple[int, Event | None]]:
    """Return the next (position, event) pairs of a task after a position, at most ``limit``.

    Without ``task_id``, return pairs of all tasks, in which None replaces each unreadable event.

    Raises:
        UnreadableEventError: If ``task_id`` is given, and an event of this task is unreadable.
    """
    condition = ""
    values: dict[str, Any] = {"pos": position, "limit": limit}
    if task_id is not None:
        condition = "AND t.task_id = :task_id "
        values["task_id"] = task_id
    rows = connection.execute(
        f"SELECT e.pos, t.id, t.task_id, {EVENT} FROM delf_events AS e "  # noqa: S608 - only names of this module
        f"JOIN delf_tasks AS t ON t.id = e.task WHERE e.pos > :pos {condition}ORDER BY e.pos "
        "LIMIT :limit",
        values,
    )
    events: list[tuple[int, Event | None]] = []
    for row in rows:
        try:
            event = unpack(row.task_id, row, functools.partial(blob_data, connection, row.id))
        except UnreadableEventError as error:
            if task_id is not None:
                raise
            warn_of_unreadable("an event is not passed on to subscribers", error.message)
            event = None
        events.append((row.pos, event))
    return events


def changed_since(connection: Connection, position: int) -> tuple[int, set[str]]:
    """Return the newest event's position, and the ids of tasks with events after ``position``."""
    rows = connection.execute(
        "SELECT MAX(e.pos) AS pos, t.task_id FROM delf_events AS e "
        "JOIN delf_tasks AS t ON t.id = e.task WHERE e.pos > :pos GROUP BY t.task_id",
        {"pos": position},
    )
    newest = max((int(row.pos) for row in rows), default=position)
    return newest, {str(row.task_id) for row in rows}


def find_tasks(
    connection: Connection,
    now: float,
    *,
    limit: int,
    state: TaskState | None = None,
    text: str | None = None,
    since: float | None = None,
    users: Collection[str] | None = None,
    fields: Mapping[str, str] | None = None,
    after: ListPlace | None = None,
) -> list[TaskRecord]:
    """Return the records of the newest tasks that meet all conditions, newest first.

    Args:
        connection: A connection for reading.
        now: The current time, for comparing heartbeats.
        limit: The maximum number of tasks to return.
        state: The state of the tasks; None for any.
        text: A text that the task's words contain, in upper or lower case; None for any.
        since: The Unix time at or after which the tasks started; None for any.
        users: The users for whom the tasks run; None for any.
        fields: The values of filterable fields of the records; None for any.
        after: The start time and id of the last task of the previous page; None for the first page.
    """
    where: list[str] = []
    values: dict[str, Any] = {"limit": limit}
    is_alive = cached_is_alive(now)
    if state is not None:
        condition, parameters = in_state(connection, is_alive, state)
        where.append(condition)
        values |= parameters
    if text is not None:
        where.append(f"{connection.lower_case.format('t.task')} LIKE :text ESCAPE '!'")
        values |= _text_parameters(text)
    if since is not None:
        where.append("t.started_at >= :since")
        values["since"] = since
    if users is not None:
        condition, parameters = of_users(users)
        where.append(condition)
        values |= parameters
    if fields is not None:
        conditions_of_fields, parameters = with_fields(fields)
        where += conditions_of_fields
        values |= parameters
    if after is not None:
        select_key = "SELECT id FROM delf_tasks WHERE task_id = :after"
        # If that task was removed, its key counts as 0: only tasks with an earlier start time are
        # found.
        where.append(f"(t.started_at, t.id) < (:at, COALESCE(({select_key}), 0))")
        values["at"], values["after"] = after
    conditions = f"WHERE {' AND '.join(where)} " if where else ""
    rows = connection.execute(
        f"SELECT {TASK}, {COLUMNS} FROM delf_tasks AS t "  # noqa: S608 - only names of this module
        f"LEFT JOIN delf_owners AS o ON o.owner = t.owner {conditions}"
        "ORDER BY t.started_at DESC, t.id DESC LIMIT :limit",
        values,
    )
    return [stored_task(row, is_alive) for row in rows]


def of_users(users: Collection[str] | None) -> tuple[str, Mapping[str, str]]:
    """Return the SQL condition for the tasks of some users, and the condition's parameters.

    The query must name the table ``delf_tasks`` as ``t``. The column ``limit_key`` of this table
    has the user of a task.

    Args:
        users: The names of the users; None for the tasks of all users.
    """
    if users is None:
        return "TRUE", {}
    placeholders, values = placeholders_for(sorted(users), "user")
    return f"t.limit_key IN ({placeholders})", values


def with_fields(fields: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the SQL conditions for tasks with the given values of fields, and their parameters.

    The query must name the table ``delf_tasks`` as ``t``.

    Args:
        fields: The values by field name. Fields other than :func:`filterable_fields` are ignored.
    """
    names = filterable_fields().keys() & fields.keys()
    conditions = [f"t.{column_of(name)} = :of_{name}" for name in names]
    return conditions, {f"of_{name}": fields[name] for name in names}


def placeholders_for(items: Iterable[str], prefix: str) -> tuple[str, dict[str, str]]:
    """Return the placeholders for an SQL ``IN``, and a mapping from parameter name to item.

    For the prefix ``user``, the placeholders are ``:user0, :user1``. Without items, the
    placeholders are ``NULL``, because SQL has no empty list.

    Args:
        items: The items.
        prefix: The beginning of the parameters' names.
    """
    values = {f"{prefix}{number}": item for number, item in enumerate(items)}
    placeholders = ", ".join(f":{name}" for name in values)
    return placeholders or "NULL", values


def in_state(
    connection: Connection, is_alive: IsAlive, state: TaskState
) -> tuple[str, Mapping[str, str]]:
    """Return the SQL condition for tasks in a state, and the condition's parameters.

    The query must name the table ``delf_tasks`` as ``t``. An interrupted task is stored as running,
    and its owner is a dead process or nobody.

    Args:
        connection: A connection for reading.
        is_alive: Checks if a process is alive.
        state: The state.
    """
    state = TaskState(state)  # accepts the state's text, too, from untyped programs
    if state not in (TaskState.RUNNING, TaskState.INTERRUPTED):
        return f"t.state = '{state}'", {}
    placeholders, owners = placeholders_for(live_owners(connection, is_alive), "owner")
    condition = f"t.owner IN ({placeholders})"
    if state is TaskState.INTERRUPTED:
        condition = f"({condition}) IS NOT TRUE"  # also true for a task without an owner
    return f"t.state = '{TaskState.RUNNING}' AND {condition}", owners


def count_tasks(connection: Connection, now: float) -> dict[TaskState, int]:
    """Return the number of tasks by state; states without tasks are omitted."""
    rows = connection.execute("SELECT state, COUNT(*) AS tasks FROM delf_tasks GROUP BY state")
    counts = {TaskState(row.state): int(row.tasks) for row in rows}
    # An interrupted task is stored as running, but the process that owns the task is not alive.
    if stored_as_running := counts.pop(TaskState.RUNNING, 0):
        condition, owners = in_state(connection, cached_is_alive(now), TaskState.RUNNING)
        ((running,),) = connection.execute(
            f"SELECT COUNT(*) FROM delf_tasks AS t WHERE {condition}",  # noqa: S608 - only names of this module
            owners,
        )
        counts[TaskState.RUNNING] = int(running)
        counts[TaskState.INTERRUPTED] = stored_as_running - int(running)
    return {state: number for state, number in counts.items() if number}


def find_task(connection: Connection, now: float, task_id: str) -> TaskRecord:
    """Return the record of one task.

    Raises:
        UnknownTaskError: If no such task is known.
    """
    rows = connection.execute(
        f"SELECT {TASK}, {COLUMNS} FROM delf_tasks AS t "  # noqa: S608 - only names of this module
        "LEFT JOIN delf_owners AS o ON o.owner = t.owner WHERE t.task_id = :id",
        {"id": task_id},
    )
    if not rows:
        raise _unknown_task_error(task_id)
    return stored_task(rows[0], cached_is_alive(now))


def _text_parameters(text: str) -> dict[str, str]:
    """Return the parameters of a search for a text that ignores upper and lower case.

    PostgreSQL may convert the case of ASCII letters only. So its condition first replaces each
    letter in ``upper`` by the letter at the same place in ``lower``. For the text ``café à Köln``,
    ``lower`` is ``àéö`` and ``upper`` is ``ÀÉÖ``.
    """
    searched = text.lower()
    # TRANSLATE replaces each letter by a single letter, so "ß" with its upper case "SS" is left
    # out.
    letters = [c for c in sorted(set(searched)) if not c.isascii() and len(c.upper()) == 1]
    upper = "".join(letters).upper()
    return {"text": f"%{like_text(searched)}%", "lower": "".join(letters), "upper": upper}


def like_text(text: str) -> str:
    """Escape a text for the SQL condition ``LIKE … ESCAPE '!'``."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def stored_task(row: SqlRow, is_alive: IsAlive) -> TaskRecord:
    """Convert a row of a query to a task record.

    Args:
        row: A row with the columns that the constants ``TASK`` and ``COLUMNS`` list.
        is_alive: Checks whether the process that owns a running task is alive.
    """
    is_running = row.state == TaskState.RUNNING
    has_live_owner = is_running and is_alive(owner_of(row))
    is_interrupted = is_running and not has_live_owner
    values: dict[str, Any] = {}
    for name, column in _FIELDS.items():
        value = getattr(row, column)
        if value is not None:
            values[name] = value
    values["state"] = TaskState.INTERRUPTED if is_interrupted else TaskState(row.state)
    values["owner"] = f"pid {row.pid} on {row.host}" if has_live_owner else None
    return TaskRecord(**values)


def resolve_id(connection: Connection, text: str, users: Collection[str] | None = None) -> str:
    """Return the full id of the only task whose id has a prefix.

    Args:
        connection: A connection for reading.
        text: The prefix, with or without ``task_``, or a full id.
        users: The users whose tasks may be found; None for all.

    Raises:
        UnknownTaskError: If no id or more than one id has the prefix.
        DelfError: If the text is empty.
    """
    if not text:
        raise DelfError("the id of a task is empty")
    condition, values = of_users(users)
    # A full id is returned even if it is also the prefix of another id.
    exact = connection.execute(
        f"SELECT 1 FROM delf_tasks AS t WHERE t.task_id = :id AND {condition}",  # noqa: S608
        {"id": text, **values},
    )
    if exact:
        return text
    full_prefix = f"task_{text}"
    # Use substr() because LIKE ignores case in SQLite, and ids differ by case. The limit is one
    # more than the error lists, so that the error can say that there are more.
    rows = connection.execute(
        "SELECT t.task_id FROM delf_tasks AS t "  # noqa: S608 - only names of this module
        "WHERE (substr(t.task_id, 1, :length) = :text "
        f"OR substr(t.task_id, 1, :full_length) = :full_prefix) AND {condition} "
        "ORDER BY t.started_at DESC, t.id DESC LIMIT :limit",
        {
            "text": text,
            "length": len(text),
            "full_prefix": full_prefix,
            "full_length": len(full_prefix),
            "limit": _MAX_LISTED_IDS + 1,
            **values,
        },
    )
    ids = [str(row.task_id) for row in rows]
    if len(ids) == 1:
        return ids[0]
    raise _ambiguous_id_error(text, ids) if ids else _unknown_task_error(text)


def _ambiguous_id_error(text: str, ids: Sequence[str]) -> UnknownTaskError:
    """Create the error for a prefix of several ids, which lists at most ``_MAX_LISTED_IDS``."""
    listed = list(ids[:_MAX_LISTED_IDS])
    if len(ids) > len(listed):
        listed.append("…")
    hint = f"one of: {', '.join(listed)}"
    return UnknownTaskError(f"more than one task begins with {text!r}", hint=hint)


# -- retention --------------------------------------------------------------------------------


def find_prunable(
    connection: Connection, now: float, *, older_than: float | Ages | None, keep: int, limit: int
) -> list[str]:
    """Return the ids of tasks that may be removed, oldest first, except running and queued tasks.

    The age of a task counts from its end, or from its start if the task has no end.

    Args:
        connection: A connection for reading.
        now: The current time, for ages and heartbeats.
        older_than: The minimum age of the tasks in seconds; None for any age. A mapping gives the
            minimum age for each state, and excludes the tasks in other states.
        keep: The number of newest tasks that are always kept.
        limit: The maximum number of ids to return.
    """
    ages = older_than if isinstance(older_than, Mapping) else dict.fromkeys(AT_REST, older_than)
    age_condition, values = _old_enough(connection, now, ages)
    keep_condition = "TRUE"
    if keep > 0:
        # Only tasks before the oldest kept task are removed. For keep=10, this is the task that has
        # 9 newer ones.
        values["newer_tasks"] = keep - 1
        keep_condition = f"(t.started_at, t.id) < ({_OLDEST_KEPT_TASK})"
    rows = connection.execute(
        "SELECT t.task_id FROM delf_tasks AS t "  # noqa: S608 - only names of this module
        f"WHERE ({age_condition}) AND {keep_condition} ORDER BY t.started_at, t.id LIMIT :limit",
        {**values, "limit": limit},
    )
    return [str(row.task_id) for row in rows]


# The start time and key of the oldest task that is kept. Only earlier tasks are removed.
_OLDEST_KEPT_TASK: Final = (
    "SELECT started_at, id FROM delf_tasks "
    "ORDER BY started_at DESC, id DESC LIMIT 1 OFFSET :newer_tasks"
)


def _old_enough(
    connection: Connection, now: float, ages: Mapping[TaskState, float | None]
) -> tuple[str, dict[str, Any]]:
    """Return the SQL condition for tasks that are old enough, and the condition's parameters.

    The query must name the table ``delf_tasks`` as ``t``. Running and queued tasks never meet the
    condition.

    Args:
        connection: A connection for reading.
        now: The current time, for ages and heartbeats.
        ages: The minimum age in seconds of the tasks in each state; None for any age. Tasks in
            other states do not meet the condition.
    """
    is_alive = cached_is_alive(now)
    conditions: list[str] = []
    values: dict[str, Any] = {}
    for state in AT_REST:
        if state not in ages:
            continue
        condition, parameters = in_state(connection, is_alive, state)
        values |= parameters
        age = ages[state]
        if age is not None:
            condition += f" AND COALESCE(t.finished_at, t.started_at) < :before_{state}"
            values[f"before_{state}"] = now - age
        conditions.append(f"({condition})")
    return " OR ".join(conditions) or "FALSE", values


def count_events(connection: Connection, task_ids: Sequence[str]) -> int:
    """Return the number of events of some tasks."""
    count = 0
    for start in range(0, len(task_ids), _BATCH_SIZE):
        placeholders, values = placeholders_for(task_ids[start : start + _BATCH_SIZE], "id")
        ((events,),) = connection.execute(
            "SELECT COUNT(*) FROM delf_events WHERE task IN "  # noqa: S608 - only names of this module
            f"(SELECT id FROM delf_tasks WHERE task_id IN ({placeholders}))",
            values,
        )
        count += int(events)
    return count


def _removable_ids(connection: Connection, task_ids: Sequence[str], now: float) -> dict[int, str]:
    """Return the given tasks that are neither queued nor running, as a mapping from key to id."""
    placeholders, values = placeholders_for(task_ids, "id")
    rows = connection.execute(
        f"SELECT t.id, t.task_id, t.state, {COLUMNS} FROM delf_tasks AS t "  # noqa: S608 - only names of this module
        "LEFT JOIN delf_owners AS o ON o.owner = t.owner "
        f"WHERE t.task_id IN ({placeholders}) ORDER BY t.started_at, t.id",
        values,
    )
    is_alive = cached_is_alive(now)
    removable_ids: dict[int, str] = {}
    for row in rows:
        is_running = row.state == TaskState.RUNNING and is_alive(owner_of(row))
        if row.state != TaskState.QUEUED and not is_running:
            removable_ids[int(row.id)] = str(row.task_id)
    return removable_ids


def remove_tasks(connection: Connection, task_ids: Sequence[str], now: float) -> Pruned:
    """Remove tasks with all their data, within a transaction; return what was removed.

    Tasks that are queued or running now are kept: somebody may have resumed these tasks after the
    caller chose them.
    """
    removed_ids = _removable_ids(connection, task_ids, now)
    if not removed_ids:
        return Pruned()
    keys = f"({', '.join(map(str, removed_ids))})"
    # Find the files before the deletion, because their paths are in the events.
    files = written_files(connection, keys)
    inputs = input_files(connection, keys)
    ((events,),) = connection.execute(
        f"SELECT COUNT(*) FROM delf_events WHERE task IN {keys}"  # noqa: S608 - only names of this module
    )
    for key in removed_ids:
        index.forget(connection, key)
    for table in ("delf_events", "delf_blobs", "delf_notes"):
        connection.execute(f"DELETE FROM {table} WHERE task IN {keys}")  # noqa: S608 - only names of this module
    # Remember the ids for was_removed(), so that a repeated message does not start a removed task
    # again.
    connection.execute(
        "INSERT INTO delf_removed (task_id, at) SELECT task_id, :now FROM delf_tasks "  # noqa: S608 - only names of this module
        f"WHERE id IN {keys} AND task_id NOT IN (SELECT task_id FROM delf_removed)",
        {"now": now},
    )
    connection.execute(
        "DELETE FROM delf_removed WHERE at < :before", {"before": now - _REMOVED_SECONDS}
    )
    connection.execute(f"DELETE FROM delf_tasks WHERE id IN {keys}")  # noqa: S608 - only names of this module
    # After the deletion: an input is unused if no event of a remaining task names its file.
    unused_inputs = sorted(_unused_files(connection, inputs))
    return Pruned(
        tasks=tuple(removed_ids.values()),
        events=int(events),
        files=tuple(files),
        inputs=tuple(unused_inputs),
    )


def _unused_files(connection: Connection, paths: set[str]) -> set[str]:
    """Return the given paths without the input files that a remaining task uses.

    If an event with the files of a remaining task is damaged, the result is empty, because the task
    may use any of the files.
    """
    if not paths:
        return set()
    rows = connection.execute(f"SELECT data FROM delf_events WHERE {INPUTS}")  # noqa: S608 - only names of this module
    events = list(_readable_fields(rows))
    if len(events) < len(rows):
        return set()
    return paths - _files_in(events)


def was_removed(connection: Connection, task_id: str) -> bool:
    """Return True if a task with this id was removed in the last 90 days."""
    rows = connection.execute(
        "SELECT 1 FROM delf_removed WHERE task_id = :task_id", {"task_id": task_id}
    )
    return bool(rows)


def written_files(connection: Connection, keys: str) -> list[str]:
    """Return the paths of the files that tasks wrote.

    Args:
        connection: A connection for reading.
        keys: The tasks' database keys as an SQL list, such as ``(1, 2)``.
    """
    rows = connection.execute(
        f"SELECT data FROM delf_events WHERE task IN {keys} AND type = 'FileWritten' ORDER BY pos"  # noqa: S608 - ``keys`` has only integers
    )
    return [str(fields["path"]) for fields in _readable_fields(rows) if "path" in fields]


def input_files(connection: Connection, keys: str) -> set[str]:
    """Return the paths of the input files of some tasks.

    Args:
        connection: A connection for reading.
        keys: The tasks' database keys as an SQL list, such as ``(1, 2)``.
    """
    rows = connection.execute(f"SELECT data FROM delf_events WHERE task IN {keys} AND {INPUTS}")  # noqa: S608 - only names of this module
    return _files_in(_readable_fields(rows))


def _files_in(events: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the paths of the input files in the fields of events."""
    files: set[str] = set()
    for event in events:
        setup: Mapping[str, Any] = event.get("setup", {})
        files.update(map(str, setup.get("input_files", ())))
    return files


def _readable_fields(rows: Iterable[SqlRow]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each event; skip damaged events."""
    for row in rows:
        try:
            fields = dict(json.loads(row.data))
        except DAMAGE:
            continue
        yield fields


def forget_prompts(connection: Connection, before: float, after: int, limit: int) -> int | None:
    """Remove the prompts from old events of model calls.

    Args:
        connection: A connection in a write transaction.
        before: The Unix time before which the models were called.
        after: The position after which events are changed.
        limit: The maximum number of events to change.

    Returns:
        The position of the last event with a prompt that was found, for the next call's ``after``;
        None if no event was found. A damaged event is found, too, but stays unchanged.
    """
    rows = connection.execute(
        "SELECT pos, task, data, blobs FROM delf_events "  # noqa: S608 - only names of this module
        f"WHERE type = 'ModelCalled' AND at < :before AND pos > :after AND ({_HAS_PROMPT}) "
        "ORDER BY pos LIMIT :limit",
        {"before": before, "after": after, "limit": limit},
    )
    last_position: int | None = None
    for row in rows:
        _remove_prompt(connection, row)
        last_position = int(row.pos)
    return last_position


# A short prompt is a text in the field ``data``, as ``"prompt":"…"``. For a long prompt, the field
# ``blobs`` has ``"prompt":`` with the digest of the blob.
_HAS_PROMPT: Final = 'data LIKE \'%"prompt":"%\' OR blobs LIKE \'%"prompt":%\''


def _remove_prompt(connection: Connection, row: SqlRow) -> None:
    """Remove the prompt from an event of a model call.

    A damaged event stays unchanged until its task is removed.
    """
    try:
        fields = dict(json.loads(row.data))
        digests = dict(json.loads(row.blobs or "{}"))
    except DAMAGE:
        return
    fields.pop("prompt", None)
    digest = digests.pop("prompt", None)
    blobs = json.dumps(digests) if digests else None
    connection.execute(
        "UPDATE delf_events SET data = :data, blobs = :blobs WHERE pos = :pos",
        {"data": json.dumps(fields), "blobs": blobs, "pos": row.pos},
    )
    if digest is not None:
        _delete_unused_blob(connection, row.task, digest)


def _delete_unused_blob(connection: Connection, task_key: int, digest: str) -> None:
    """Delete a blob of a task, unless an event of the task still refers to the blob."""
    connection.execute(
        "DELETE FROM delf_blobs WHERE task = :task AND digest = :digest "
        "AND NOT EXISTS (SELECT 1 FROM delf_events AS e WHERE e.task = :task "
        "AND e.blobs LIKE :mention)",
        {"task": task_key, "digest": digest, "mention": f"%{digest}%"},
    )
