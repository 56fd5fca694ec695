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
"""A result row: a named tuple whose fields are the columns."""

# The possible numbers of rows in an insert statement.
#
# The sizes are few, so that databases parse few different statements.
_CHUNKS: Final = (128, 16, 1)


@cache
def _row_type(columns: tuple[str, ...]) -> Any:
    # The columns are those of a statement, so a typed class cannot name them.
    return namedtuple("Row", columns, rename=True)  # noqa: PYI024 # pyright: ignore[reportUntypedNamedTuple]


def name_columns(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> list[SqlRow]:
    """Convert rows to named tuples.

    A column without a valid name is named by its position, such as ``_0``.
    """
    return [*map(_row_type(tuple(columns))._make, rows)]


class Connection(Protocol):
    """A database connection; parameters in its statements are written as ``:name``.

    Failures raise :class:`JournalError`, ``DuplicateRowError`` or ``ConnectionLostError``.
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
        """Insert rows into a table.

        Args:
            table: The table.
            columns: The columns.
            rows: The values of the columns.
            unique: A unique column. Rows whose value exists already are skipped.

        Returns:
            With ``unique``, the id and the unique value of each inserted row; otherwise
            nothing.
        """
        ...

    def has_table(self, name: str) -> bool:
        """Return True if a table exists."""
        ...

    def tables(self) -> set[str]:
        """Return the names of delf's tables."""
        ...

    def stream(self, table: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        """Return a table's column names, and an iterator that fetches its rows in small batches."""
        ...

    def advance_id_sequences(self, tables: Collection[str]) -> None:
        """Set the id sequences of tables past the highest id of their copied rows."""
        ...

    def begin(self, *, write: bool, long: bool = False) -> None:
        """Begin a transaction; a read transaction sees a consistent snapshot.

        Args:
            write: Whether the transaction writes; write transactions wait for each other.
            long: Whether the transaction may stay open without a time limit.
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
    """Notifications about writes of any process to the database."""

    def wait(self) -> bool:
        """Block until there may be new data; return False after :meth:`close`."""
        ...

    def poke(self) -> None:
        """Report a write of this process, which wakes :meth:`wait`. Thread-safe."""
        ...

    def close(self) -> None:
        """End :meth:`wait` for good. Thread-safe."""
        ...

    def free(self) -> None:
        """Release the resources. Must be called in the thread that called :meth:`wait`."""
        ...


@dataclass(frozen=True, kw_only=True)
class WordSearch:
    """The SQL dialect of a database for the full-text table ``delf_index_words``.

    Args:
        create_statements: The statements that create the table.
        insert: The statement that inserts a row. ``:place`` is the row's key, and ``:words`` a text
            of words with spaces between them.
        match: The condition that matches ``:query``.
        query: Builds ``:query`` from phrases; the last word also matches longer words.
    """

    create_statements: Sequence[str]
    insert: str
    match: str
    query: Callable[[Sequence[Sequence[str]]], str]


class Database(Protocol):
    """A database in which a journal is stored."""

    text_search: WordSearch
    """The SQL dialect of full-text search."""

    truncation: str
    """An SQL expression that truncates the number ``{}`` to an integer."""

    types: Mapping[str, str]
    """The SQL types of this database for ``serial``, ``real``, ``bytes`` and ``big`` columns."""
    name: str
    """The database's address, without credentials."""

    def connect(self) -> Connection:
        """Open a connection for writing, which the caller must close."""
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
        """Return the total size in bytes, and the part of it that is free space."""
        ...

    def back_up(self, path: Path) -> None:
        """Copy a consistent snapshot into an empty file, as a SQLite database.

        Raises:
            JournalError: If the copy fails.
        """
        ...

    def check(self, connection: Connection) -> None:
        """Check the integrity of the database's files, if this process can read them.

        Raises:
            JournalError: If the database is damaged.
        """
        ...

    def now(self, connection: Connection) -> float:
        """Return the current Unix time on the clock with which heartbeats are compared."""
        ...

    def is_responding(self) -> bool:
        """Return True if the database responds within a few seconds."""
        ...

    def close(self) -> None:
        """Close pooled connections. Later use opens new connections."""
        ...


def insert_statements(
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    unique: str | None,
    placeholder: str,
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the statements for :meth:`Connection.insert`, each with the values of several rows.

    Args:
        table: The table.
        columns: The columns.
        rows: The values of the columns.
        unique: A unique column. The statements skip rows whose value exists already, and return the
            id and the unique value of each inserted row.
        placeholder: The text that stands for a value in a statement.
    """
    row_text = f"({', '.join([placeholder] * len(columns))})"
    head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "  # noqa: S608 - only names of this package
    tail = f" ON CONFLICT ({unique}) DO NOTHING RETURNING id, {unique}" if unique else ""
    start = 0
    for size in _CHUNKS:  # the sizes decrease to 1, so that no row is left
        while len(rows) - start >= size:
            chunk = rows[start : start + size]
            start += size
            yield head + ", ".join([row_text] * size) + tail, [v for row in chunk for v in row]


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
