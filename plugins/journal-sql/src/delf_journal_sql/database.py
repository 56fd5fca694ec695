"""What the journal needs of a database. Everything here blocks: it is called in threads."""

from __future__ import annotations

import urllib.parse
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from delf_journal_sql.errors import JournalSetupError
from delf_journal_sql.settings import JournalSettings

SqlRow = Sequence[Any]

_CHUNKS: Final = (128, 16, 1)
"""Rows that one statement inserts: few sizes, so that few statements are read by the database."""
_POSTGRES: Final = ("postgres", "postgresql", "postgresql+psycopg")


class Connection(Protocol):
    """One connection. Its statements name their parameters as ``:name``.

    Failures are :class:`JournalError`, ``DuplicateRowError`` or ``ConnectionLostError``.
    """

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[SqlRow]:
        """Run a statement; the rows that it returns."""
        ...

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[SqlRow]) -> None:
        """Insert rows."""
        ...

    def has_table(self, name: str) -> bool:
        """Whether there is such a table."""
        ...

    def begin(self, *, write: bool) -> None:
        """Begin a transaction; writing ones wait for each other."""
        ...

    def commit(self) -> None:
        """Keep what was done."""
        ...

    def rollback(self) -> None:
        """Drop what was done. Never fails."""
        ...

    def close(self) -> None:
        """Close it. Never fails."""
        ...


class Changes(Protocol):
    """Tells when somebody wrote."""

    def wait(self) -> bool:
        """Wait until something may have changed; False when it was closed."""
        ...

    def poke(self) -> None:
        """This process wrote. From any thread."""
        ...

    def close(self) -> None:
        """End the waiting. From any thread."""
        ...

    def free(self) -> None:
        """Free what it holds, in the thread that waited."""
        ...


class Database(Protocol):
    """A place for a journal."""

    types: Mapping[str, str]
    """What ``{serial}``, ``{real}``, ``{bytes}`` and ``{big}`` are in this dialect."""
    name: str
    """Where it is, without a password."""

    def connect(self) -> Connection:
        """A connection for writing, which the caller closes."""
        ...

    def reader(self) -> AbstractContextManager[Connection]:
        """A connection for reading, lent from a pool."""
        ...

    def changes(self) -> Changes:
        """A watch for what anybody writes from now on."""
        ...

    def reclaim(self) -> None:
        """Give the space of what was deleted back."""
        ...

    def check(self, connection: Connection) -> None:
        """Look at all of it, where a file can be damaged in parts.

        Raises:
            JournalError: When it is.
        """
        ...

    def now(self, connection: Connection) -> float:
        """The time by which heartbeats are compared."""
        ...

    def close(self) -> None:
        """Close pooled connections. It can be used again."""
        ...


def in_chunks(rows: Sequence[SqlRow]) -> Iterator[Sequence[SqlRow]]:
    """Rows as they are inserted: those of one statement together."""
    start = 0
    for size in _CHUNKS:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


@contextmanager
def transaction(connection: Connection, *, write: bool) -> Generator[Connection]:
    """A transaction that is kept at the end, or dropped when something fails."""
    connection.begin(write=write)
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def open_database(settings: JournalSettings) -> Database:
    """The database that the settings name; nothing is opened yet.

    Raises:
        JournalSetupError: When the URL is none that can be used.
        OptionalDependencyError: When its driver is not installed.
    """
    url = settings.url.get_secret_value().strip() if settings.url is not None else ""
    scheme, mark, rest = url.partition("://")
    if mark and scheme in _POSTGRES:
        from delf_journal_sql.postgresql import PostgresDatabase

        return PostgresDatabase(rest, settings)
    if mark and scheme != "sqlite":
        raise JournalSetupError(
            f"the journal cannot be kept at {scheme[:40]}://…",
            hint="it takes sqlite:///path, a path, or postgresql://user@host/database",
        )
    from delf_journal_sql.sqlite import SqliteDatabase

    return SqliteDatabase(_path(urllib.parse.unquote(rest) if mark else url, mark), settings)


def _path(text: str, mark: str) -> Path:
    if not text:
        if mark:
            raise JournalSetupError(
                "a journal in memory is another one",
                hint='use journal = "none"',
            )
        from platformdirs import user_data_path

        return user_data_path("delf", appauthor=False) / "journal.db"
    # sqlite:///relative and sqlite:////absolute, as SQLAlchemy has it
    name = text.removeprefix("/") if mark else text
    if name == ":memory:":
        raise JournalSetupError(
            "a journal in memory is another one",
            hint='use journal = "none"',
        )
    return Path(name).expanduser().absolute()
