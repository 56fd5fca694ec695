"""The interface between a database and the journal. All methods block; call them in threads."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

SqlRow = Any
"""A result row: a named tuple with the columns as fields."""

_CHUNKS: Final = (128, 16, 1)
"""The numbers of rows in an insert statement; few sizes, so that few statements are parsed."""


@cache
def _row_type(columns: tuple[str, ...]) -> Any:
    # The columns are those of a statement, so a typed class cannot name them.
    return namedtuple("Row", columns, rename=True)  # noqa: PYI024 # pyright: ignore[reportUntypedNamedTuple]


def name_columns(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> list[SqlRow]:
    """Convert rows to named tuples; an unnamed column gets its number as name."""
    return [*map(_row_type(tuple(columns))._make, rows)]


class Connection(Protocol):
    """A database connection, whose statements have parameters written as ``:name``.

    Failures are :class:`JournalError`, ``DuplicateRowError`` or ``ConnectionLostError``.
    """

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[SqlRow]:
        """Run a statement; return its rows as named tuples."""
        ...

    def insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        unique: str | None = None,
    ) -> list[SqlRow]:
        """Insert rows.

        Args:
            table: The table.
            columns: The columns.
            rows: The values of the columns.
            unique: A unique column. Rows whose value exists are skipped, and the ids of the others
                are returned with their values.
        """
        ...

    def has_table(self, name: str) -> bool:
        """Return True if a table exists."""
        ...

    def tables(self) -> set[str]:
        """Return the names of delf's tables."""
        ...

    def stream(self, table: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        """Return a table's columns and an iterator of its rows, with few rows in memory at once."""
        ...

    def number_on(self, tables: Collection[str]) -> None:
        """Advance the id sequences of tables past their copied rows."""
        ...

    def begin(self, *, write: bool, long: bool = False) -> None:
        """Begin a transaction; a read transaction sees a consistent snapshot.

        Args:
            write: Whether the transaction writes; write transactions wait for each other.
            long: Whether the transaction may stay open for long.
        """
        ...

    def commit(self) -> None:
        """Commit the transaction."""
        ...

    def rollback(self) -> None:
        """Roll back the transaction. Never fails."""
        ...

    def close(self) -> None:
        """Close the connection. Never fails."""
        ...


class Changes(Protocol):
    """Notifications about writes to the database."""

    def wait(self) -> bool:
        """Wait until there may be new data; return False once closed."""
        ...

    def poke(self) -> None:
        """Signal a write of this process. Thread-safe."""
        ...

    def close(self) -> None:
        """Stop waiting. Thread-safe."""
        ...

    def free(self) -> None:
        """Release resources; call in the thread that waited."""
        ...


@dataclass(frozen=True, kw_only=True)
class WordSearch:
    """The database's dialect for the full-text table ``delf_index_words``.

    Args:
        create: The statements that create the table.
        insert: The statement that inserts the space-separated ``:words`` with the key ``:place``.
        match: The condition that matches ``:query``.
        query: Builds ``:query`` from phrases; the last word is a prefix.
        whole: The expression that truncates a number ``{}`` to an integer.
    """

    create: Sequence[str]
    insert: str
    match: str
    query: Callable[[Sequence[Sequence[str]]], str]
    whole: str


class Database(Protocol):
    """A database in which a journal is stored."""

    words: WordSearch
    """The full-text search dialect."""

    types: Mapping[str, str]
    """The column types for ``{serial}``, ``{real}``, ``{bytes}`` and ``{big}``."""
    name: str
    """The database's address, without credentials."""

    def connect(self) -> Connection:
        """Open a connection for writing, which the caller closes."""
        ...

    def reader(self) -> AbstractContextManager[Connection]:
        """Borrow a pooled connection for reading."""
        ...

    def changes(self) -> Changes:
        """Start watching for writes of any process."""
        ...

    def reclaim(self) -> None:
        """Release the space of deleted rows."""
        ...

    def size(self, connection: Connection) -> tuple[int, int]:
        """Return the size in bytes, and the unused part of that size."""
        ...

    def back_up(self, path: Path) -> None:
        """Copy a consistent snapshot into an empty file.

        Raises:
            JournalError: If the copy fails.
        """
        ...

    def check(self, connection: Connection) -> None:
        """Check the integrity of the whole database, if it is a file.

        Raises:
            JournalError: If the database is damaged.
        """
        ...

    def now(self, connection: Connection) -> float:
        """Return the current time on the clock with which heartbeats are compared."""
        ...

    def answers(self) -> bool:
        """Return True if the database responds within a few seconds."""
        ...

    def close(self) -> None:
        """Close pooled connections. Later use opens new connections."""
        ...


def in_chunks(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    """Split rows into chunks, one for each insert statement."""
    start = 0
    for size in _CHUNKS:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def new_only(unique: str | None) -> str:
    """Return the end of an insert statement that skips rows whose unique value exists."""
    return f" ON CONFLICT ({unique}) DO NOTHING RETURNING id, {unique}" if unique else ""


@contextmanager
def transaction(connection: Connection, *, write: bool) -> Generator[Connection]:
    """Run the block in a transaction: commit at the end, roll back on an exception."""
    connection.begin(write=write)
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
