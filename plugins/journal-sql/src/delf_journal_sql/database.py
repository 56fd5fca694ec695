"""The interface of a database to the journal. Everything here blocks: it is called in threads."""

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
"""A row that a statement returns: a named tuple, whose fields are the columns."""

_CHUNKS: Final = (128, 16, 1)
"""Rows that one statement inserts: few sizes, so that few statements are read by the database."""


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
        """Run a statement; the rows that it returns, with the columns as their fields."""
        ...

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows."""
        ...

    def has_table(self, name: str) -> bool:
        """Tell whether there is such a table."""
        ...

    def tables(self) -> set[str]:
        """The names of the tables with a name of delf's."""
        ...

    def stream(self, table: str) -> tuple[Sequence[str], Iterator[Sequence[Any]]]:
        """The columns of a table, and all its rows, of which few are in memory at once."""
        ...

    def number_on(self, tables: Collection[str]) -> None:
        """Let new rows of tables have numbers after those that were copied into them."""
        ...

    def begin(self, *, write: bool, long: bool = False) -> None:
        """Begin a transaction; one that reads sees all as it is at one moment.

        Args:
            write: Whether it writes; writing ones wait for each other.
            long: Whether whoever began it may do something else for long in between.
        """
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


@dataclass(frozen=True, kw_only=True)
class WordSearch:
    """The dialect of a table of words, ``delf_index_words``, whose key is ``rowid``.

    Args:
        create: The statements that make it.
        insert: The statement that adds ``:words``, with a space between two, at ``:place``.
        match: The condition for the query ``:query``.
        query: Makes that query of terms, each of words that follow each other; the last word of
            the last term may be the beginning of one.
        whole: A number, as ``{}``, without what is behind its point.
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

    def size(self, connection: Connection) -> tuple[int, int]:
        """The bytes that it takes, and those of them that hold nothing."""
        ...

    def back_up(self, path: Path) -> None:
        """Copy it into an empty file, as it is at one moment.

        Raises:
            JournalError: When it cannot be.
        """
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

    def answers(self) -> bool:
        """Tell whether it says anything at all now; False after a few seconds of silence."""
        ...

    def close(self) -> None:
        """Close pooled connections. It can be used again."""
        ...


def in_chunks(rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Sequence[Any]]]:
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
