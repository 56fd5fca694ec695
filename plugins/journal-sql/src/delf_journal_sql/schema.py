"""The tables, and migrations from older versions.

Each item of ``MIGRATIONS`` is one version; released ones are never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf_journal_sql.database import Connection, Database, transaction
from delf_journal_sql.errors import JournalSetupError

_VERSIONS: Final = "delf_schema_version"
REQUESTS: Final = (
    "type IN ('ApprovalRequested', 'ApprovalDecided', 'ApprovalVoted', 'ApprovalCommented', "
    "'ApprovalAssigned')"
)
"""The SQL condition for events about requests for approval."""
REMEMBERED: Final = """type = 'ApprovalDecided' AND data LIKE '%"until_revoked"%'"""
"""The SQL condition for events with remembered approval decisions."""
INPUTS: Final = """type IN ('TaskQueued', 'TaskStarted') AND data LIKE '%"input_files"%'"""
"""The SQL condition for events that name input files."""

# Tasks are 'queued' while they wait for a runner. The partial indexes avoid scans of all events
# for lists. `last` and `summarized` are positions of a conversation's messages.
_VERSION_13: Final = f"""
CREATE TABLE delf_owners (
    owner TEXT PRIMARY KEY, pid INTEGER NOT NULL, birth TEXT, host TEXT NOT NULL,
    place TEXT NOT NULL, heartbeat {{real}} NOT NULL, lease {{real}}
);
CREATE TABLE delf_tasks (
    id {{serial}}, task_id TEXT NOT NULL UNIQUE, task TEXT NOT NULL, origin TEXT NOT NULL,
    state TEXT NOT NULL, started_at {{real}} NOT NULL, finished_at {{real}}, duration_ms {{real}},
    cost_usd {{real}}, error TEXT, owner TEXT, queue TEXT, not_before {{real}}, limit_key TEXT,
    tries INTEGER, losses INTEGER, folder TEXT
);
CREATE INDEX delf_tasks_started ON delf_tasks (started_at, id);
CREATE INDEX delf_tasks_state ON delf_tasks (state, started_at, id);
CREATE INDEX delf_tasks_running ON delf_tasks (owner) WHERE state = 'running';
CREATE INDEX delf_tasks_queued ON delf_tasks (started_at, id) WHERE state = 'queued';
CREATE TABLE delf_events (
    pos {{serial}}, task {{big}} NOT NULL, seq INTEGER NOT NULL, at {{real}} NOT NULL,
    type TEXT NOT NULL, v INTEGER NOT NULL, data TEXT NOT NULL, blobs TEXT, UNIQUE (task, seq)
);
CREATE INDEX delf_events_requests ON delf_events (task, seq)
    WHERE type IN ('ApprovalRequested', 'ApprovalDecided');
CREATE INDEX delf_events_remembered ON delf_events (task, seq) WHERE {REMEMBERED};
CREATE INDEX delf_events_inputs ON delf_events (task, seq) WHERE {INPUTS};
CREATE TABLE delf_blobs (
    task {{big}} NOT NULL, digest TEXT NOT NULL, size {{big}} NOT NULL, data {{bytes}} NOT NULL,
    PRIMARY KEY (task, digest)
);
CREATE TABLE delf_notes (
    pos {{serial}}, task {{big}} NOT NULL, at {{real}} NOT NULL, kind TEXT NOT NULL,
    data TEXT NOT NULL
);
CREATE INDEX delf_notes_task ON delf_notes (task, pos);
CREATE TABLE delf_conversations (
    id {{serial}}, namespace TEXT NOT NULL, name TEXT NOT NULL, title TEXT NOT NULL,
    updated_at {{real}} NOT NULL, messages {{big}} NOT NULL, last {{big}} NOT NULL,
    summarized {{big}} NOT NULL, summary TEXT, summary_trust TEXT NOT NULL DEFAULT 'outside',
    UNIQUE (namespace, name)
);
CREATE TABLE delf_messages (
    conversation {{big}} NOT NULL, seq {{big}} NOT NULL, role TEXT NOT NULL,
    content TEXT NOT NULL, at {{real}} NOT NULL, task_id TEXT,
    trust TEXT NOT NULL DEFAULT 'outside', PRIMARY KEY (conversation, seq)
);
CREATE TABLE delf_people (name TEXT PRIMARY KEY, data TEXT NOT NULL);
CREATE TABLE delf_sessions (
    digest TEXT PRIMARY KEY, name TEXT NOT NULL, began {{real}} NOT NULL, until {{real}} NOT NULL,
    holder TEXT NOT NULL DEFAULT '', shown_key TEXT NOT NULL DEFAULT '',
    way TEXT NOT NULL DEFAULT '', client TEXT NOT NULL DEFAULT '', browser TEXT NOT NULL DEFAULT ''
)
"""

_VERSION_14: Final = f"""
DROP INDEX delf_events_requests;
CREATE INDEX delf_events_requests ON delf_events (task, seq) WHERE {REQUESTS};
"""
# The ids of removed tasks, so that a repeated message does not start its removed task again.
_VERSION_15: Final = """
CREATE TABLE delf_removed (task_id TEXT PRIMARY KEY, at {real} NOT NULL);
CREATE INDEX delf_removed_at ON delf_removed (at);
"""
# No table changes. The version number stops earlier versions of delf, which look for the user of an
# event under another name, and would continue a task for the local user.
_VERSION_16: Final = ""
MIGRATIONS: Final[Sequence[str]] = (_VERSION_13, _VERSION_14, _VERSION_15, _VERSION_16)
"""The statements that create :data:`OLDEST_VERSION`, then the statements of each migration."""
OLDEST_VERSION: Final = 13
"""The oldest schema version that can be migrated; earlier versions were never released."""


def newest(migrations: Sequence[str] = MIGRATIONS) -> int:
    """Return the number of the schema version after all migrations."""
    return OLDEST_VERSION + len(migrations) - 1


def _missing_migrations(migrations: Sequence[str], version: int) -> Sequence[str]:
    """Return the migrations that a journal of a given version needs; a new journal has version 0.

    ``migrations[n]`` leads to version ``OLDEST_VERSION + n``.
    """
    return migrations if version == 0 else migrations[version - OLDEST_VERSION + 1 :]


def column_of(field: str) -> str:
    """Return the column of the table ``delf_tasks`` that stores a field of ``TaskRecord``."""
    return "limit_key" if field == "user" else field


def migrate(database: Database, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Create the tables of a journal, or migrate them to the newest version.

    Several processes may call this function at the same time.

    Args:
        database: The journal's database.
        migrations: The statements for each version, separated by ``;``.

    Raises:
        JournalSetupError: If the journal's version is newer than supported, or older than
            :data:`OLDEST_VERSION`.
    """
    connection = database.connect()
    try:
        if _version(connection, database) == newest(migrations):
            return
        with transaction(connection, write=True):
            # Read the version again: another process may have migrated the journal meanwhile.
            version = _version(connection, database)
            _check_version(version, newest(migrations), database)
            if not connection.has_table(_VERSIONS):
                connection.execute(f"CREATE TABLE {_VERSIONS} (version INTEGER NOT NULL)")
                connection.execute(f"INSERT INTO {_VERSIONS} VALUES (0)")  # noqa: S608 - only names of this module
            for migration in _missing_migrations(migrations, version):
                for statement in migration.format(**database.types).split(";"):
                    if statement.strip():
                        connection.execute(statement)
            connection.execute(
                f"UPDATE {_VERSIONS} SET version = :v",  # noqa: S608 - only names of this module
                {"v": newest(migrations)},
            )
    finally:
        connection.close()


def _version(connection: Connection, database: Database) -> int:
    if not connection.has_table(_VERSIONS):
        return 0
    rows = connection.execute(f"SELECT version FROM {_VERSIONS}")  # noqa: S608 - only names of this module
    if len(rows) != 1 or not isinstance(rows[0][0], int):
        raise JournalSetupError(f"the journal {database.name} does not say its version")
    return int(rows[0][0])


def _check_version(version: int, newest_version: int, database: Database) -> None:
    if version > newest_version:
        raise JournalSetupError(
            f"the journal {database.name} is of version {version}, and this delf "
            f"knows {newest_version}",
            hint="upgrade: delf plugins install journal-sql",
        )
    if 0 < version < OLDEST_VERSION:
        raise JournalSetupError(
            f"the journal {database.name} is of version {version}, which was never released",
            hint="move the journal away, or set another one: [plugins.journal-sql] url",
        )
