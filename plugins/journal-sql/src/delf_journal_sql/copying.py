"""Copying of all tables between databases of any kind."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

from delf_journal_sql.database import Connection, Database, transaction
from delf_journal_sql.schema import migrate
from delf_journal_sql.settings import JournalSettings
from delf_journal_sql.sqlite import SqliteDatabase

_BATCH_SIZE: Final = 128
# The beginnings of the names of tables that are not copied, such as ``delf_index_words``.
_NOT_COPIED: Final = ("delf_schema_version", "delf_owners", "delf_index")
# The table with the ids of removed tasks.
_TABLE_OF_REMOVED_TASKS: Final = "delf_removed"


def copy_database(database: Database, path: Path, settings: JournalSettings) -> None:
    """Copy a consistent snapshot of a database into an empty file, as a SQLite database.

    Raises:
        JournalError: If the copy fails.
    """
    if isinstance(database, SqliteDatabase):
        database.copy_to(path)
        return
    copy = SqliteDatabase(path, settings)
    source = database.connect()
    try:
        migrate(copy)
        # One transaction gives one snapshot of all tables. Without ``long``, the server would
        # abort it while the copy is written to disk.
        source.begin(write=False, long=True)
        target = copy.connect()
        try:
            with transaction(target, write=True):
                copy_tables(source, target)
        finally:
            target.close()
    finally:
        source.close()
        copy.close()


def copy_tables(source: Connection, target: Connection) -> bool:
    """Copy the rows of the tables that both databases have.

    The owners of tasks are not copied, because their processes work on the source. The search index
    is not copied either, because the target builds its own.

    Args:
        source: The source connection, in a transaction for a consistent snapshot.
        target: The target connection, in a transaction.

    Returns:
        False if the target is not empty; nothing is copied then.
    """
    tables_of_both = source.tables() & target.tables()
    shared_tables = {name for name in tables_of_both if not name.startswith(_NOT_COPIED)}
    # A target that has only rows about removed tasks counts as empty. The rows of the source
    # replace these rows.
    for table in shared_tables - {_TABLE_OF_REMOVED_TASKS}:
        if target.execute(f"SELECT 1 FROM {table} LIMIT 1"):  # noqa: S608 - only names of this module
            return False
    if _TABLE_OF_REMOVED_TASKS in shared_tables:
        target.execute(f"DELETE FROM {_TABLE_OF_REMOVED_TASKS}")  # noqa: S608 - only names of this module
    for table in sorted(shared_tables):
        columns, rows = source.stream(table)
        while batch := list(itertools.islice(rows, _BATCH_SIZE)):
            target.insert(table, columns, batch)
    target.advance_id_sequences(shared_tables)
    if target.has_table("delf_index"):
        target.execute("DELETE FROM delf_index")  # to rebuild the index
    return True
