"""Adaptations of DBOS to SQLite: locks for claims, and times in old versions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from dbos._sys_db_sqlite import SQLiteSystemDatabase
from sqlalchemy import Connection, Engine, event, text

_create_engine: Final = SQLiteSystemDatabase._create_engine  # pyright: ignore[reportPrivateUsage] # noqa: SLF001


def lock_claims() -> None:
    """Make DBOS claim workflows under SQLite's write lock, so that limits hold across processes.

    DBOS counts a queue's running workflows before it claims new ones. SQLite's driver begins a
    transaction only at the first write, so two processes could count before either one claims.
    """

    @contextmanager
    def begin(self: SQLiteSystemDatabase, isolation: str | None) -> Generator[Connection]:
        """Replace the method of DBOS that begins a transaction; take the write lock at once."""
        _ = isolation  # SQLite has no isolation levels
        with self.engine.begin() as connection:
            # SQLAlchemy's begin() sends nothing to SQLite, so this begins the transaction.
            connection.execute(text("BEGIN IMMEDIATE"))
            yield connection

    SQLiteSystemDatabase._begin = begin  # pyright: ignore[reportPrivateUsage] # noqa: SLF001


def add_missing_functions() -> None:
    """Add ``unixepoch('subsec')`` to DBOS's connections if this SQLite does not have it.

    With Python 3.12 and later, DBOS takes all times from this function, which SQLite has from
    version 3.42 on. Older versions return NULL, which DBOS's tables refuse.
    """
    if sqlite3.sqlite_version_info >= (3, 42):
        return

    def create_engine(
        self: SQLiteSystemDatabase, system_database_url: str, engine_kwargs: dict[str, Any]
    ) -> Engine:
        engine = _create_engine(self, system_database_url, engine_kwargs)
        event.listen(engine, "connect", _add_unixepoch)
        return engine

    SQLiteSystemDatabase._create_engine = create_engine  # pyright: ignore[reportPrivateUsage] # noqa: SLF001


def _add_unixepoch(connection: sqlite3.Connection, record: object) -> None:
    _ = record  # SQLAlchemy's record of the connection
    connection.create_function("unixepoch", 1, _unixepoch)


def _unixepoch(modifier: str) -> float:
    if modifier != "subsec":
        raise ValueError(f"unixepoch({modifier!r}) is not supported")
    return round(time.time(), 3)
