"""The interface of a database to the journal. All methods block; call them in threads."""

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
"""A row of a result: a named tuple, whose fields are the columns."""

_CHUNKS: Final = (128, 16, 1)
"""The rows of one insert statement: a few sizes, so that the database parses few statements."""


@cache
def _row_type(columns: tuple[str, ...]) -> Any:
    # The columns are those of a statement, so a typed class cannot name them.
    return namedtuple("Row", columns, rename=True)  # noqa: PYI024 # pyright: ignore[reportUntypedNamedTuple]


def named(columns: Iterable[str], rows: Iterable[Sequence[Any]]) -> list[SqlRow]:
    """Name the fields of rows by their columns; a column without a name has its number."""
    return [*map(_row_type(tuple(columns))._make, rows)]


class Connection(Protocol):
    """One connection. Its statements name their parameters as ``:name``.

    Failures are :class:`JournalError`, ``DuplicateRowError`` or ``ConnectionLostError``.
    """

    def execute(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[SqlRow]:
        """Run a statement; return its rows, with the columns as their fields."""
        ...

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows."""
        ...

    def has_table(self, name: str) -> bool:
        """Return whether there is such a table."""
        ...

    def tables(self) -> set[str]:
        """Return the names of the tables with a name of delf's."""
        ...

    def stream(self, table: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        """Return the columns of a table, and all its rows, of which few are in memory at once."""
        ...

    def number_on(self, tables: Collection[str]) -> None:
        """Set the sequences of tables behind their copied rows."""
        ...

    def begin(self, *, write: bool, long: bool = False) -> None:
        """Begin a transaction; a reading one sees a consistent snapshot.

        Args:
            write: Whether it writes; writing ones wait for each other.
            long: Whether the caller may do other work for long within it.
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
    """Notifications of writes."""

    def wait(self) -> bool:
        """Wait until there may be a change; return False once closed."""
        ...

    def poke(self) -> None:
        """Notify of this process's write. Thread-safe."""
        ...

    def close(self) -> None:
        """End the waiting. From any thread."""
        ...

    def free(self) -> None:
        """Release resources, in the thread that waited."""
        ...


@dataclass(frozen=True, kw_only=True)
class WordSearch:
    """The dialect of a full-text table, ``delf_index_words``, whose key is ``rowid``.

    Args:
        create: The statements that make it.
        insert: The statement that adds ``:words``, with a space between two, at ``:place``.
        match: The condition for the query ``:query``.
        query: Makes that query of terms, each of words that follow each other; the last word of
            the last term may be the beginning of one.
        whole: A number, as ``{}``, truncated to an integer.
    """

    create: Sequence[str]
    insert: str
    match: str
    query: Callable[[Sequence[Sequence[str]]], str]
    whole: str


class Database(Protocol):
    """A place for a journal."""

    words: WordSearch
    """The dialect of the search for words."""

    types: Mapping[str, str]
    """The dialect's types for ``{serial}``, ``{real}``, ``{bytes}`` and ``{big}``."""
    name: str
    """The place of the database, without a password."""

    def connect(self) -> Connection:
        """Return a connection for writing, which the caller closes."""
        ...

    def reader(self) -> AbstractContextManager[Connection]:
        """Return a connection for reading, lent from a pool."""
        ...

    def changes(self) -> Changes:
        """Return a watch for writes of any process from now on."""
        ...

    def reclaim(self) -> None:
        """Release the space of deleted rows."""
        ...

    def size(self, connection: Connection) -> tuple[int, int]:
        """Return the size in bytes, and the unused part of it."""
        ...

    def back_up(self, path: Path) -> None:
        """Copy a consistent snapshot into an empty file.

        Raises:
            JournalError: When it cannot be.
        """
        ...

    def check(self, connection: Connection) -> None:
        """Check the integrity of the whole database, if it is a file.

        Raises:
            JournalError: When it is.
        """
        ...

    def now(self, connection: Connection) -> float:
        """Return the time by which heartbeats are compared."""
        ...

    def answers(self) -> bool:
        """Return whether the database responds at all within a few seconds."""
        ...

    def close(self) -> None:
        """Close pooled connections. A later use opens new ones."""
        ...


def in_chunks(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
    """Yield chunks of rows, one for each insert statement."""
    start = 0
    for size in _CHUNKS:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


@contextmanager
def transaction(connection: Connection, *, write: bool) -> Generator[Connection]:
    """Yield a transaction that is kept at the end, or dropped when something fails."""
    connection.begin(write=write)
    try:
        yield connection
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
