"""The tables, and how a journal of an older version becomes one of this.

A version is one function in ``MIGRATIONS``; what was released is never changed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from delf_journal_sql.database import Connection, Database, transaction
from delf_journal_sql.errors import JournalSetupError

Execute = Callable[[str], object]

_VERSIONS: Final = "delf_schema_version"
REMEMBERED: Final = """type = 'ApprovalDecided' AND data LIKE '%"until_revoked"%'"""
"""The events of decisions that may hold until they are revoked."""
INPUTS: Final = """type IN ('TaskQueued', 'TaskStarted') AND data LIKE '%"input_files"%'"""
"""The events that name the input files of tasks."""


def _version_1(execute: Execute) -> None:
    """Tasks, their events, large values, and the processes that work on them."""
    execute(
        "CREATE TABLE delf_owners ("
        "owner TEXT PRIMARY KEY, pid INTEGER NOT NULL, birth TEXT, host TEXT NOT NULL, "
        "place TEXT NOT NULL, heartbeat {real} NOT NULL)"
    )
    execute(
        "CREATE TABLE delf_tasks ("
        "id {serial}, task_id TEXT NOT NULL UNIQUE, task TEXT NOT NULL, origin TEXT NOT NULL, "
        "state TEXT NOT NULL, started_at {real} NOT NULL, finished_at {real}, duration_ms {real}, "
        "cost_usd {real}, error TEXT, owner TEXT)"
    )
    execute("CREATE INDEX delf_tasks_started ON delf_tasks (started_at, id)")
    execute("CREATE INDEX delf_tasks_running ON delf_tasks (owner) WHERE state = 'running'")
    execute(
        "CREATE TABLE delf_events ("
        "pos {serial}, task {big} NOT NULL, seq INTEGER NOT NULL, at {real} NOT NULL, "
        "type TEXT NOT NULL, v INTEGER NOT NULL, data TEXT NOT NULL, blobs TEXT, "
        "UNIQUE (task, seq))"
    )
    execute(
        "CREATE TABLE delf_blobs ("
        "task {big} NOT NULL, digest TEXT NOT NULL, size {big} NOT NULL, data {bytes} NOT NULL, "
        "PRIMARY KEY (task, digest))"
    )


def _version_2(execute: Execute) -> None:
    """Notes: what other processes say to the one that works on a task."""
    execute(
        "CREATE TABLE delf_notes ("
        "pos {serial}, task {big} NOT NULL, at {real} NOT NULL, kind TEXT NOT NULL, "
        "data TEXT NOT NULL)"
    )
    execute("CREATE INDEX delf_notes_task ON delf_notes (task, pos)")


def _version_3(execute: Execute) -> None:
    """Requests for approval are found without a look at all events."""
    execute(
        "CREATE INDEX delf_events_requests ON delf_events (task, seq) "
        "WHERE type IN ('ApprovalRequested', 'ApprovalDecided')"
    )


def _version_4(execute: Execute) -> None:
    """Conversations: ``last`` and ``summarized`` are positions of messages."""
    execute(
        "CREATE TABLE delf_conversations ("
        "id {serial}, namespace TEXT NOT NULL, name TEXT NOT NULL, title TEXT NOT NULL, "
        "updated_at {real} NOT NULL, messages {big} NOT NULL, last {big} NOT NULL, "
        "summarized {big} NOT NULL, summary TEXT, UNIQUE (namespace, name))"
    )
    execute(
        "CREATE TABLE delf_messages ("
        "conversation {big} NOT NULL, seq {big} NOT NULL, role TEXT NOT NULL, "
        "content TEXT NOT NULL, at {real} NOT NULL, task_id TEXT, "
        "PRIMARY KEY (conversation, seq))"
    )


def _version_5(execute: Execute) -> None:
    """The state of a task that failed is called so."""
    execute("UPDATE delf_tasks SET state = 'failed' WHERE state = 'error'")


def _version_6(execute: Execute) -> None:
    """Leases, and tasks that wait for a runner: ``state`` is ``queued`` then."""
    execute("ALTER TABLE delf_owners ADD COLUMN lease {real}")
    for column in ("queue TEXT", "not_before {real}"):
        execute(f"ALTER TABLE delf_tasks ADD COLUMN {column}")
    execute("CREATE INDEX delf_tasks_queued ON delf_tasks (started_at, id) WHERE state = 'queued'")


def _version_7(execute: Execute) -> None:
    """On whose behalf a task is done, and tries of it that failed."""
    for column in ("limit_key TEXT", "tries INTEGER"):
        execute(f"ALTER TABLE delf_tasks ADD COLUMN {column}")


def _version_8(execute: Execute) -> None:
    """Add the number of times that a task's process was lost."""
    execute("ALTER TABLE delf_tasks ADD COLUMN losses INTEGER")


def _version_9(execute: Execute) -> None:
    """Sessions of people who are logged in to a server."""
    execute(
        "CREATE TABLE delf_sessions ("
        "digest TEXT PRIMARY KEY, name TEXT NOT NULL, began {real} NOT NULL, "
        "until {real} NOT NULL)"
    )


def _version_10(execute: Execute) -> None:
    """Decisions that hold until they are revoked are found without a look at all others."""
    execute(f"CREATE INDEX delf_events_remembered ON delf_events (task, seq) WHERE {REMEMBERED}")


def _version_11(execute: Execute) -> None:
    """People with their keys, and where sessions are from; who was logged in logs in again."""
    execute("CREATE TABLE delf_people (name TEXT PRIMARY KEY, data TEXT NOT NULL)")
    execute("DELETE FROM delf_sessions")
    for column in ("holder", "shown_key", "way", "client", "browser"):
        execute(f"ALTER TABLE delf_sessions ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")


def _version_12(execute: Execute) -> None:
    """Tasks of a state, and those with input files, are found without a look at all others."""
    execute("CREATE INDEX delf_tasks_state ON delf_tasks (state, started_at, id)")
    execute(f"CREATE INDEX delf_events_inputs ON delf_events (task, seq) WHERE {INPUTS}")


MIGRATIONS: Final[Sequence[Callable[[Execute], None]]] = (
    _version_1,
    _version_2,
    _version_3,
    _version_4,
    _version_5,
    _version_6,
    _version_7,
    _version_8,
    _version_9,
    _version_10,
    _version_11,
    _version_12,
)
"""The step to each version from the one before, from version 1 on."""


def migrate(
    database: Database, migrations: Sequence[Callable[[Execute], None]] = MIGRATIONS
) -> None:
    """Bring a journal to the newest version. Any number of processes may do so at once.

    Args:
        database: Where it is.
        migrations: The steps.

    Raises:
        JournalSetupError: When a newer delf has written it.
    """
    connection = database.connect()
    try:
        if _version(connection, database) == len(migrations):
            return
        with transaction(connection, write=True):
            found = _version(connection, database)  # once more: others may have been quicker
            _refuse_newer(found, len(migrations), database)
            if not connection.has_table(_VERSIONS):
                connection.execute(f"CREATE TABLE {_VERSIONS} (version INTEGER NOT NULL)")
                connection.execute(f"INSERT INTO {_VERSIONS} VALUES (0)")  # noqa: S608 - own name
            for step in migrations[found:]:
                step(lambda sql: connection.execute(sql.format(**database.types)))
            connection.execute(f"UPDATE {_VERSIONS} SET version = :v", {"v": len(migrations)})  # noqa: S608 - own name
    finally:
        connection.close()


def _version(connection: Connection, database: Database) -> int:
    if not connection.has_table(_VERSIONS):
        return 0
    rows = connection.execute(f"SELECT version FROM {_VERSIONS}")  # noqa: S608 - own name
    if len(rows) != 1 or not isinstance(rows[0][0], int):
        raise JournalSetupError(f"the journal {database.name} does not say its version")
    return int(rows[0][0])


def _refuse_newer(found: int, known: int, database: Database) -> None:
    if found > known:
        raise JournalSetupError(
            f"the journal {database.name} is of version {found}, and this delf knows {known}",
            hint="upgrade: delf plugins install journal-sql",
        )
