"""The index for search and statistics: tables derived from the events.

The index is not part of the journal's schema, because it can be rebuilt from the events. Searches
update the index, so that tasks do not pay for it.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from delf.errors import UnreadableEventError
from delf.events import with_user
from delf.protocols.people import name_of_user
from delf.protocols.search import Place
from delf.values.unicode import normalized
from delf_journal_sql.blobs import blob_data
from delf_journal_sql.codec import DAMAGE, value_of, warn_of_unreadable
from delf_journal_sql.database import Connection, Database
from delf_journal_sql.statements import SqlRow

# The version of the index's format. After an increase, older indexes are rebuilt.
_VERSION: Final = 3
_TABLES: Final = ("delf_index", "delf_index_tasks", "delf_index_uses", "delf_index_words")
# The maximum number of characters of a text that is indexed; the rest is ignored.
_MAX_INDEXED_LENGTH: Final = 20_000
SEQ_BITS: Final = 24
"""The number of low bits of an index key that hold the event's sequence number."""
_WORD: Final = re.compile(r"[^\W_]+")
# Matches a character of a writing system without spaces, which is indexed as a word.
_SPACELESS_CHARACTER: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)

_CREATE: Final = """
CREATE TABLE delf_index (version INTEGER NOT NULL, position {big} NOT NULL);
CREATE TABLE delf_index_tasks (
    task {big} PRIMARY KEY, person TEXT NOT NULL, is_child INTEGER NOT NULL
);
CREATE INDEX delf_index_persons ON delf_index_tasks (person);
CREATE TABLE delf_index_uses (
    task {big} NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, connection TEXT NOT NULL,
    calls INTEGER NOT NULL, failed INTEGER NOT NULL, questions INTEGER NOT NULL,
    waiting INTEGER NOT NULL, waited {real} NOT NULL, input {big} NOT NULL, cached {big} NOT NULL,
    output {big} NOT NULL, cost {real} NOT NULL, unpriced INTEGER NOT NULL,
    PRIMARY KEY (task, kind, name)
);
CREATE INDEX delf_index_names ON delf_index_uses (kind, name, task);
CREATE INDEX delf_index_connections ON delf_index_uses (connection, task)
"""

Kind = Literal["action", "model"]


@dataclass(slots=True)
class _Use:
    """Statistics of one task about one action or model.

    ``waiting`` is the number of pending approval requests. ``waited`` is the sum of the decisions'
    timestamps minus the sum of the requests' timestamps. So up to a time ``now``, requests have
    waited for ``waited + waiting * now`` seconds.
    """

    calls: int = 0
    failed: int = 0
    questions: int = 0
    waiting: int = 0
    waited: float = 0.0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float = 0.0
    unpriced: int = 0


_COUNT_COLUMNS: Final = tuple(_Use.__dataclass_fields__)


@dataclass
class _Batch:
    """The index entries of a batch of events, before they are stored."""

    uses: defaultdict[tuple[int, Kind, str], _Use] = field(
        default_factory=lambda: defaultdict[tuple[int, Kind, str], _Use](_Use)
    )
    """Statistics by the task's database key, and the kind and name of an action or model."""
    tasks: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    """For each task: the person for whom the task runs, and 1 for a child task, else 0."""
    words: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Pairs of an event's index key and the searchable words of the event, as one text."""


def index_key_of(task: int, seq: int = 0) -> int:
    """Return the index key of an event; newer tasks have higher keys.

    Args:
        task: The task's database key.
        seq: The event's sequence number.
    """
    return (task << SEQ_BITS) + seq


def event_at(index_key: int) -> tuple[int, int]:
    """Split an index key into the task's database key and the event's sequence number."""
    return index_key >> SEQ_BITS, index_key & ((1 << SEQ_BITS) - 1)


def words_of(text: str) -> list[str]:
    """Split a text into the words that are indexed for it."""
    return _WORD.findall(_SPACELESS_CHARACTER.sub(r" \1 ", normal(text)))


def normal(text: str) -> str:
    """Truncate a text to the indexed length, convert it to lower case, and strip accents."""
    folded_text = normalized(text[:_MAX_INDEXED_LENGTH], "NFKD").casefold()
    without_accents = "".join(c for c in folded_text if not unicodedata.combining(c))
    return normalized(without_accents)


def texts_of(kind: str, data: Mapping[str, Any]) -> list[tuple[Place, str]]:
    """Return the searchable texts of an event.

    Args:
        kind: The name of the event's class.
        data: The fields as JSON data.
    """
    match kind:
        case "TaskQueued" | "TaskStarted":
            return [("task", str(data["task"]))]
        case "ScriptGenerated":
            return [("script", str(data["code"]))]
        case "CallStarted":
            # Short values first: only the beginning of a text is indexed.
            arguments = "\n".join(sorted(_leaf_texts(data["arguments"]), key=len))
            return [("call", f"{data['action']}\n{data.get('description') or ''}\n{arguments}")]
        case "TaskFinished":
            return [("answer", str(data["text"])), ("error", str(data.get("error") or ""))]
        case _:
            return [("error", str(data.get("error") or ""))]


def _leaf_texts(value: Any, name: str = "") -> Iterator[str]:
    """Yield the leaf values of JSON data as ``key=value`` texts."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from _leaf_texts(item, key)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _leaf_texts(item, name)
    else:
        yield f"{name}={value}" if name else str(value)


def index_exists(connection: Connection) -> bool:
    """Return True if the search index exists in the format of this version of delf."""
    if not connection.has_table("delf_index"):
        return False
    versions = [row.version for row in connection.execute("SELECT version FROM delf_index")]
    return versions == [_VERSION]


def count_unindexed_events(connection: Connection) -> int:
    """Return the number of events that are not indexed yet."""
    position = "(SELECT MAX(position) FROM delf_index)" if index_exists(connection) else "0"
    rows = connection.execute(
        f"SELECT COALESCE(MAX(pos), 0) - {position} FROM delf_events"  # noqa: S608 - only names of this module
    )
    return max(int(rows[0][0]), 0)


def advance(connection: Connection, database: Database, limit: int) -> int:
    """Add the next events to the index; return the number of events that are not indexed yet.

    Args:
        connection: A connection in a write transaction.
        database: The database, for its SQL dialect.
        limit: The maximum number of events to index.
    """
    if not index_exists(connection):
        _create_tables(connection, database)
    ((position,),) = connection.execute("SELECT position FROM delf_index")
    rows = connection.execute(
        "SELECT pos, task, seq, at, type, data, blobs FROM delf_events WHERE pos > :pos "
        "ORDER BY pos LIMIT :limit",
        {"pos": position, "limit": limit},
    )
    if not rows:
        return 0
    batch = _Batch()
    for row in rows:
        if row.type in _INDEXED_EVENTS:
            try:
                _add_event(connection, batch, row)
            except (*DAMAGE, UnreadableEventError) as error:
                reason = f"event {row.seq} of task number {row.task} is damaged: {error}"
                warn_of_unreadable("an event is not found by search", reason)
    _store(connection, database, batch)
    connection.execute("UPDATE delf_index SET position = :pos", {"pos": rows[-1].pos})
    is_last_batch = len(rows) < limit
    return 0 if is_last_batch else count_unindexed_events(connection)


def forget(connection: Connection, task: int) -> None:
    """Remove a task from the index.

    Args:
        connection: A connection in a write transaction.
        task: The task's database key.
    """
    if not index_exists(connection):
        return
    connection.execute(
        # The table of words has no column for the task, but a task's keys are consecutive.
        "DELETE FROM delf_index_words WHERE rowid >= :first AND rowid < :end",
        {"first": index_key_of(task), "end": index_key_of(task + 1)},
    )
    for table in ("delf_index_tasks", "delf_index_uses"):
        connection.execute(f"DELETE FROM {table} WHERE task = :task", {"task": task})  # noqa: S608 - only names of this module


def _create_tables(connection: Connection, database: Database) -> None:
    for table in _TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    create_statements = _CREATE.format(**database.types).split(";")
    for sql in (*create_statements, *database.text_search.create_statements):
        connection.execute(sql)
    connection.execute(
        "INSERT INTO delf_index (version, position) VALUES (:version, 0)", {"version": _VERSION}
    )


def _store(connection: Connection, database: Database, batch: _Batch) -> None:
    """Store the entries of a batch in the tables of the index."""
    # DO NOTHING: a queued task has two events that name its person, TaskQueued and TaskStarted.
    for task, (person, is_child) in batch.tasks.items():
        connection.execute(
            "INSERT INTO delf_index_tasks (task, person, is_child) VALUES (:task, :person, :child) "
            "ON CONFLICT (task) DO NOTHING",
            {"task": task, "person": person, "child": is_child},
        )
    increments = ", ".join(
        f"{name} = delf_index_uses.{name} + excluded.{name}" for name in _COUNT_COLUMNS
    )
    names = ", ".join(_COUNT_COLUMNS)
    placeholders = ", ".join(f":{name}" for name in _COUNT_COLUMNS)
    for (task, kind, name), use in batch.uses.items():
        connection.execute(
            f"INSERT INTO delf_index_uses (task, kind, name, connection, {names}) "  # noqa: S608 - only names of this module
            f"VALUES (:task, :kind, :name, :connection, {placeholders}) "
            f"ON CONFLICT (task, kind, name) DO UPDATE SET {increments}",
            {
                "task": task,
                "kind": kind,
                "name": name,
                "connection": name.partition(".")[0] if kind == "action" else "",
                **{column: getattr(use, column) for column in _COUNT_COLUMNS},
            },
        )
    for index_key, words in batch.words:
        connection.execute(database.text_search.insert, {"place": index_key, "words": words})


# -- events -----------------------------------------------------------------------------------

_INDEXED_EVENTS: Final = frozenset(
    {
        "TaskQueued",
        "TaskStarted",
        "TaskFinished",
        "ScriptGenerated",
        "CallStarted",
        "CallFinished",
        "ModelReplied",
        "ModelFailed",
        "ApprovalRequested",
        "ApprovalDecided",
    }
)
_EVENTS_WITHOUT_WORDS: Final = frozenset({"ModelReplied", "ApprovalRequested", "ApprovalDecided"})


def _add_event(connection: Connection, batch: _Batch, row: SqlRow) -> None:
    """Decode the row of an event, and add its statistics and its words to a batch."""
    data = data_of(connection, row.task, row.data, row.blobs)
    _add_statistics(connection, batch, row, data)
    if row.type not in _EVENTS_WITHOUT_WORDS:
        words: list[str] = []
        for _, text in texts_of(row.type, data):
            words += words_of(text)
        if words:
            batch.words.append((index_key_of(row.task, row.seq), " ".join(words)))


def _add_statistics(connection: Connection, batch: _Batch, row: SqlRow, data: Any) -> None:
    """Count an event in the statistics of a batch; :class:`_Use` explains ``waited``."""
    task = row.task
    match row.type:
        case "TaskQueued" | "TaskStarted":
            is_child = data.get("parent") is not None
            batch.tasks.setdefault(task, (_person_of(data), int(is_child)))
        case "CallStarted":
            batch.uses[task, "action", data["action"]].calls += 1
        case "CallFinished" if data["status"] == "error":
            batch.uses[task, "action", data["action"]].failed += 1
        case "ModelReplied":
            _count_reply(batch.uses[task, "model", data["model"]], data)
        case "ModelFailed":
            use = batch.uses[task, "model", data["model"]]
            use.calls += 1
            use.failed += 1
        case "ApprovalRequested":
            use = batch.uses[task, "action", data["action"]]
            use.questions += 1
            use.waiting += 1
            # The decision adds its time later: the sum is then the seconds that the request waited.
            use.waited -= row.at
        case "ApprovalDecided":
            action = _action_of_request(connection, task, data["request_id"])
            if action is not None:
                use = batch.uses[task, "action", action]
                use.waiting -= 1
                use.waited += row.at
        case _:
            pass


def data_of(connection: Connection, task: int, raw: str, blobs: str | None) -> dict[str, Any]:
    """Return the fields of an event as JSON data, including blobs.

    Args:
        connection: A connection for reading.
        task: The task's database key.
        raw: The JSON of the fields without blobs.
        blobs: The JSON of a mapping from field name to the digest of its blob; None without blobs.
    """
    data: dict[str, Any] = json.loads(raw)
    load_blob = functools.partial(blob_data, connection, task)
    for name, digest in json.loads(blobs or "{}").items():
        data[name] = value_of(digest, load_blob)
    return data


def _person_of(data: Mapping[str, Any]) -> str:
    """Return the name of the person for whom a task runs; empty if unknown."""
    setup: Mapping[str, Any] = data.get("setup") or {}
    request_to_server: Mapping[str, Any] = setup.get("serve") or {}
    # The name of the person whose API key was used, if the server got the task in a request.
    # with_user() also reads data of older versions.
    requester = with_user(request_to_server).get("user")
    if requester:
        return str(requester)
    # A task without a request, such as a task of a schedule, may still have a user.
    user = with_user(data).get("user")
    return name_of_user(user) if user else ""


def _count_reply(use: _Use, data: Mapping[str, Any]) -> None:
    """Add a reply of a model to the statistics of its use."""
    usage: Mapping[str, int] = data["usage"]
    use.calls += 1
    use.input += usage.get("input_tokens", 0)
    use.cached += usage.get("cached_tokens", 0)
    use.output += usage.get("output_tokens", 0)
    use.cost += data.get("cost_usd") or 0.0
    use.unpriced += data.get("cost_usd") is None


def _action_of_request(connection: Connection, task: int, request_id: str) -> str | None:
    """Return the action that an approval request was about; None if the request is unknown."""
    rows = connection.execute(
        "SELECT data FROM delf_events WHERE task = :task AND type = 'ApprovalRequested' "
        "AND data LIKE :named ORDER BY seq LIMIT 1",
        {"task": task, "named": f'%"{request_id}"%'},
    )
    return str(json.loads(rows[0][0])["action"]) if rows else None
