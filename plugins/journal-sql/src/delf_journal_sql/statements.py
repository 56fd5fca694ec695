"""Rows, and the parts of statements in which SQLite and PostgreSQL differ."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

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


@dataclass(frozen=True, kw_only=True)
class WordSearch:
    """The SQL dialect of a database for the full-text table ``delf_index_words``.

    Args:
        create_statements: The statements that create the table.
        insert: The statement that inserts a row. ``:place`` is the row's key, and ``:words`` a text
            of words with spaces between them.
        match: The condition that matches ``:query``.
        query: Builds ``:query`` from search terms. The last word of the last term also matches
            longer words: ``pay`` finds ``payment``.
    """

    create_statements: Sequence[str]
    insert: str
    match: str
    query: Callable[[Sequence[Sequence[str]]], str]


def insert_statements(
    table: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    unique: str | None,
    placeholder: str,
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the statements that insert rows, each with the values of several rows.

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
            values = [value for row in chunk for value in row]
            yield head + ", ".join([row_text] * size) + tail, values
