"""Notes between processes, and the requests for approval that they answer.

All functions block; call them in threads.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from delf.errors import UnknownRequestError, UnreadableEventError
from delf.events import (
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalDecided,
    ApprovalRequested,
    ApprovalVoted,
    Event,
    StoppedBy,
)
from delf.protocols.approval import RememberedDecision
from delf.protocols.journal import Note, RequestRecord, TaskRecord
from delf.protocols.people import Person, keeps_right
from delf.types import TaskState
from delf.values.encoding import from_jsonable
from delf_journal_sql import people
from delf_journal_sql.codec import DAMAGE, unpack, warn_of_unreadable
from delf_journal_sql.database import Connection
from delf_journal_sql.owners import COLUMNS, cached_is_alive
from delf_journal_sql.schema import REMEMBERED, REQUESTS
from delf_journal_sql.statements import SqlRow
from delf_journal_sql.store import (
    EVENT,
    TASK,
    blob_data,
    key_of,
    like_text,
    placeholders_for,
    stored_task,
)

STOP: Final = "cancel"
"""The kind of stored note that asks a task's owner, the process that runs it, to stop the task."""
# The maximum number of tasks in one statement, because databases limit its parameters.
_BATCH_SIZE: Final = 200
_NO_LIMIT: Final = 2**31 - 1
# The kind of note whose content is in an event.
_EMPTIED: Final = "recorded"
# The kind of note that revokes a remembered approval decision.
_REVOKED: Final = "revoked"

# The same condition as in the partial index, so that the database uses the index.
_IS_REQUEST_EVENT: Final = f"e.{REQUESTS}"


_EVENTS_BEFORE_DECISION: Final = (ApprovalVoted, ApprovalCommented, ApprovalAssigned)


def add_note(connection: Connection, now: float, task_id: str, kind: str, data: Any) -> int:
    """Store a note for the process that works on a task; return the note's position.

    Raises:
        UnknownTaskError: If no such task is known.
    """
    rows = connection.execute(
        "INSERT INTO delf_notes (task, at, kind, data) VALUES (:task, :at, :kind, :data) "
        "RETURNING pos",
        {"task": key_of(connection, task_id), "at": now, "kind": kind, "data": json.dumps(data)},
    )
    return int(rows[0][0])


def empty_note(connection: Connection, task: int, position: int) -> None:
    """Remove the content of a task's note, for example because an event has this content now.

    The note may have secrets that its author wrote; in the event, secrets are redacted. The row
    stays, so that no later note gets its position.
    """
    connection.execute(
        "UPDATE delf_notes SET kind = :kind, data = '{}' WHERE pos = :pos AND task = :task",
        {"kind": _EMPTIED, "pos": position, "task": task},
    )


def newest_note(connection: Connection) -> int:
    """Return the position of the newest note; 0 without notes."""
    return int(connection.execute("SELECT COALESCE(MAX(pos), 0) FROM delf_notes")[0][0])


def notes_after(
    connection: Connection, position: int, task_id: str | None = None, limit: int = _NO_LIMIT
) -> list[tuple[int, Note | None]]:
    """Return the notes after a position, each as a pair of its position and the note, in order.

    A damaged note is None. Without ``task_id``, the notes of all tasks are returned.
    """
    condition = ""
    values: dict[str, Any] = {"pos": position, "limit": limit}
    if task_id is not None:
        condition = "AND t.task_id = :task_id "
        values["task_id"] = task_id
    rows = connection.execute(
        "SELECT n.pos, t.task_id, n.at, n.kind, n.data FROM delf_notes AS n "  # noqa: S608 - only names of this module
        f"JOIN delf_tasks AS t ON t.id = n.task WHERE n.pos > :pos {condition}ORDER BY n.pos "
        "LIMIT :limit",
        values,
    )
    return [(row.pos, _readable_note(row)) for row in rows]


def _readable_note(row: SqlRow) -> Note | None:
    """Decode a note; None if it is damaged."""
    try:
        data: Any = from_jsonable(json.loads(row.data))
    except DAMAGE as error:
        reason = f"note {row.pos} of task {row.task_id} is damaged: {error}"
        warn_of_unreadable("a note to a task is left out", reason)
        return None
    return Note(position=row.pos, task_id=row.task_id, at=row.at, kind=row.kind, data=data)


def find_stops(connection: Connection, task_ids: Sequence[str]) -> dict[str, StoppedBy]:
    """Return the tasks that must stop, each with the person who was first to ask for the stop."""
    stops: dict[str, StoppedBy] = {}
    for start in range(0, len(task_ids), _BATCH_SIZE):
        placeholders, values = placeholders_for(task_ids[start : start + _BATCH_SIZE], "id")
        rows = connection.execute(
            "SELECT n.pos, t.task_id, n.at, n.kind, n.data FROM delf_tasks AS t "  # noqa: S608 - only names of this module
            "JOIN delf_notes AS n ON n.task = t.id "
            f"WHERE n.kind = :kind AND t.task_id IN ({placeholders}) "
            "ORDER BY n.pos",
            {"kind": STOP, **values},
        )
        for note in filter(None, map(_readable_note, rows)):
            stops.setdefault(note.task_id, _stopped_by(note))
    return stops


def _stopped_by(note: Note) -> StoppedBy:
    by = note.data.get("by")
    via = note.data.get("via")
    return StoppedBy(str(by or ""), str(via or ""))


def find_requests(
    connection: Connection, now: float, *, id_prefix: str, waiting: bool, limit: int
) -> list[RequestRecord]:
    """Return approval requests, oldest first, except those of tasks with unreadable events.

    Args:
        connection: A connection for reading.
        now: The current time, for comparing heartbeats.
        id_prefix: A prefix of the requests' ids, with or without ``req_``; empty for all requests.
        waiting: Whether to return only pending requests.
        limit: The maximum number of requests. If there are more, the newest are returned.

    Raises:
        UnreadableEventError: If unreadable events may hide the request that ``id_prefix`` names.
    """
    requests, errors_by_task = _read_requests(connection, now, id_prefix, only_running=waiting)
    prefixes = (id_prefix, f"req_{id_prefix}")
    found: list[RequestRecord] = []
    for request_id, record in requests.items():
        # A request seems to wait if the event with its decision is unreadable.
        is_readable = record.task.task_id not in errors_by_task
        is_in_wanted_state = record.waits or not waiting
        if is_readable and is_in_wanted_state and request_id.startswith(prefixes):
            found.append(record)
    # An unreadable event may hide another request with the prefix. If the prefix is the whole id of
    # a found request, there is no other.
    is_found_by_whole_id = any(record.requested.request_id in prefixes for record in found)
    errors = list(errors_by_task.values())
    if errors and id_prefix and not is_found_by_whole_id:
        raise errors[0]
    for error in errors:
        warn_of_unreadable("the requests of a task are not listed", error.message)
    first = max(0, len(found) - limit)  # for limit 0, found[-limit:] would be all
    return found[first:]


def _read_requests(
    connection: Connection, now: float, id_prefix: str, *, only_running: bool
) -> tuple[dict[str, RequestRecord], dict[str, UnreadableEventError]]:
    """Return the requests by id, oldest first, and errors by task id.

    A task with unreadable events has the error of the first such event. The caller must compare the
    ids with ``id_prefix`` again, because the SQL condition (:func:`_prefix_condition`) finds too
    many events.
    """
    condition = f"AND t.state = '{TaskState.RUNNING}' " if only_running else ""
    prefix_condition, parameters = _prefix_condition(id_prefix)
    rows = connection.execute(
        f"SELECT t.id, {EVENT}, {TASK}, {COLUMNS} "  # noqa: S608 - only names of this module
        "FROM delf_events AS e JOIN delf_tasks AS t ON t.id = e.task "
        f"LEFT JOIN delf_owners AS o ON o.owner = t.owner WHERE {_IS_REQUEST_EVENT} {condition}"
        f"{prefix_condition}ORDER BY e.pos",
        parameters,
    )
    requests: dict[str, RequestRecord] = {}
    errors_by_task: dict[str, UnreadableEventError] = {}
    is_alive = cached_is_alive(now)
    for row in rows:
        task = stored_task(row, is_alive)
        load_blob = functools.cache(functools.partial(blob_data, connection, row.id))
        try:
            event = unpack(task.task_id, row, load_blob)
        except UnreadableEventError as error:
            errors_by_task.setdefault(task.task_id, error)
        else:
            _add_event(requests, event, task)
    return requests, errors_by_task


def _add_event(requests: dict[str, RequestRecord], event: Event, task: TaskRecord) -> None:
    """Update the records in ``requests``, by request id, with an event of a task.

    Events that belong to no known request are ignored.
    """
    if isinstance(event, ApprovalRequested):
        requests[event.request_id] = RequestRecord(requested=event, decided=None, task=task)
    elif isinstance(event, (ApprovalDecided, *_EVENTS_BEFORE_DECISION)):
        record = requests.get(event.request_id)
        if record is None:
            return
        if isinstance(event, ApprovalDecided):
            changed = replace(record, decided=event, task=task)
        else:
            changed = replace(record, discussion=(*record.discussion, event), task=task)
        requests[event.request_id] = changed


def find_remembered(connection: Connection) -> list[RememberedDecision]:
    """Return the remembered approval decisions that hold, oldest first.

    Leave out revoked decisions, and decisions of people who may no longer decide. Also leave out
    the decisions of tasks with unreadable events: people are asked again.
    """
    rows = connection.execute(f"SELECT DISTINCT task FROM delf_events WHERE {REMEMBERED}")  # noqa: S608 - only names of this module
    everybody = people.find(connection)
    decisions: list[RememberedDecision] = []
    for (key,) in rows:
        try:
            revoked = _revoked_ids(connection, key)
            remembered = list(_remembered_in(connection, key, everybody))
        except UnreadableEventError as error:
            warn_of_unreadable("the decisions about a task are not remembered", error.message)
            continue
        decisions += [decision for decision in remembered if decision.request_id not in revoked]
    return sorted(decisions, key=lambda decision: decision.at)


def _remembered_in(
    connection: Connection, key: int, everybody: Sequence[Person]
) -> Iterator[RememberedDecision]:
    """Yield the remembered decisions of a task, including revoked ones.

    Decisions of people who have lost the right to decide are left out.
    """
    rows = connection.execute(
        f"SELECT t.task_id, {EVENT} FROM delf_events AS e JOIN delf_tasks AS t ON t.id = e.task "  # noqa: S608 - only names of this module
        f"WHERE e.task = :key AND {_IS_REQUEST_EVENT} ORDER BY e.seq",
        {"key": key},
    )
    requests: dict[str, ApprovalRequested] = {}
    load_blob = functools.cache(functools.partial(blob_data, connection, key))
    for row in rows:
        event = unpack(row.task_id, row, load_blob)
        if isinstance(event, ApprovalRequested):
            requests[event.request_id] = event
        elif isinstance(event, ApprovalDecided) and event.remember == "until_revoked":
            request = requests.get(event.request_id)
            if request is None:
                continue
            if event.person is not None and not keeps_right(event.person, "decide", everybody):
                continue
            decision = RememberedDecision.from_events(request, event)
            if decision is not None:
                yield decision


def _revoked_ids(connection: Connection, key: int) -> set[str]:
    """Return the ids of a task's approval requests whose decisions were revoked.

    Raises:
        UnreadableEventError: If a stored revocation is damaged, because it may revoke any decision
            about the task.
    """
    rows = connection.execute(
        "SELECT data FROM delf_notes WHERE task = :key AND kind = :kind",
        {"key": key, "kind": _REVOKED},
    )
    try:
        return {str(json.loads(data)["request_id"]) for (data,) in rows}
    except DAMAGE as error:
        raise UnreadableEventError(f"a note is damaged: {error}") from error


def revoke(connection: Connection, now: float, request_id: str, by: str) -> RememberedDecision:
    """Revoke a remembered approval decision; return the decision.

    Raises:
        UnknownRequestError: If no remembered decision about the request holds, for example
            because the decision was revoked already.
    """
    decisions = [d for d in find_remembered(connection) if d.request_id == request_id]
    if not decisions:
        raise UnknownRequestError(
            f"no remembered decision {request_id!r} holds",
            hint="delf approvals remembered lists those that do",
        )
    data = {"request_id": request_id, "by": by}
    add_note(connection, now, decisions[0].task_id, _REVOKED, data)
    return decisions[0]


def _prefix_condition(id_prefix: str) -> tuple[str, dict[str, str]]:
    """Return an SQL condition that preselects the events of some requests, and its parameters.

    The condition finds all events of requests whose id begins with ``id_prefix``, and may find
    other events, so the ids of the found events must still be compared.

    Args:
        id_prefix: The beginning of the request's id, with or without ``req_``; empty for any id.
    """
    if not id_prefix:
        return "", {}
    condition = "AND (e.data LIKE :as_given ESCAPE '!' OR e.data LIKE :req_added ESCAPE '!') "
    text = like_text(id_prefix)
    # Ids are JSON strings in the data, so they begin with a quotation mark.
    return condition, {"as_given": f'%"{text}%', "req_added": f'%"req!_{text}%'}
