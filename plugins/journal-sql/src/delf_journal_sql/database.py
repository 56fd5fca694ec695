"""The databases that can store a journal. All methods block; call them in threads."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from delf_journal_sql.postgresql import PostgresChanges, PostgresConnection, PostgresDatabase
from delf_journal_sql.sqlite import SqliteChanges, SqliteConnection, SqliteDatabase

Connection = SqliteConnection | PostgresConnection
Changes = SqliteChanges | PostgresChanges
Database = SqliteDatabase | PostgresDatabase


@contextmanager
def transaction(connection: Connection, *, write: bool) -> Generator[Connection]:
    """Run a ``with`` block in a transaction: commit at its end, roll back on an exception."""
    connection.begin(write=write)
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
