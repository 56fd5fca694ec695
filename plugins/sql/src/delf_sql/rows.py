"""Rows for a script: limited without silent truncation, as plain dicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from delf.errors import ToolExecutionError
from delf.notes import note
from delf.values.conversion import unique_names
from delf_sql.sqlite_child import weight
from delf_sql.values import holds_text, plain


@dataclass(frozen=True, slots=True)
class Fetched:
    """The results of a statement.

    Args:
        columns: The column names from the database.
        rows: The rows, up to the limit.
        more: Whether there are more rows.
        changed: The number of changed rows; 0 if the driver reports no number with the results.
        columns_with_invalid_text: The names of columns in which invalid UTF-8 was replaced.
        warnings: Warnings of the database.
    """

    columns: tuple[str, ...]
    rows: list[Sequence[Any]]
    more: bool = False
    changed: int = 0
    columns_with_invalid_text: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def collect(
    fetch: Callable[[int], Sequence[Sequence[Any]]], limit: int, max_bytes: int
) -> tuple[list[Sequence[Any]], bool]:
    """Fetch at most ``limit`` rows; return them, and True if there are more.

    Args:
        fetch: Returns the next rows, at most as many as requested.
        limit: The maximum number of rows to return.
        max_bytes: The approximate limit in bytes.

    Raises:
        ToolExecutionError: If the rows exceed ``max_bytes``.
    """
    rows: list[Sequence[Any]] = []
    total_bytes = 0
    batch_size = 1
    while True:
        # One row more than the limit shows that there are more rows.
        missing_rows = limit + 1 - len(rows)
        batch = fetch(min(batch_size, missing_rows))
        if not batch:
            return rows, False
        for row in batch:
            if len(rows) == limit:
                return rows, True
            total_bytes += weight(row)  # more than 0, even for an empty row
            if total_bytes > max_bytes:
                raise too_large_error(max_bytes, len(rows) + 1)
            rows.append(row)
        # The number of rows that fit into the remaining bytes, by the average size of a row so far.
        fitting_rows = (max_bytes - total_bytes) * len(rows) // total_bytes
        batch_size = max(1, min(4 * batch_size, fitting_rows))


def too_large_error(max_bytes: int, rows: int) -> ToolExecutionError:
    """Make the error for a result that exceeds its limit."""
    return ToolExecutionError(
        f"the result is larger than {max_bytes / 1e6:g} MB after {rows} rows: select fewer columns "
        "or rows, or aggregate in SQL"
    )


def as_dicts(fetched: Fetched) -> list[dict[str, Any]]:
    """Convert rows to dicts; duplicate names are numbered: ``id``, ``id_2``.

    Adds a note about columns with values that became text.
    """
    names = unique_names(fetched.columns)
    for warning in fetched.warnings:
        note(f"the database says: {warning}")
    for name in fetched.columns_with_invalid_text:
        note(f"column {name!r} has text that is not UTF-8: each such byte was read as \ufffd")
    note_values_turned_to_text(fetched.columns, fetched.rows)
    return [
        {name: plain(value) for name, value in zip(names, row, strict=True)} for row in fetched.rows
    ]


def note_values_turned_to_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Add a note for each column with values that became text, as Python has no such values."""
    for number, name in enumerate(unique_names(columns)):
        turned = [row[number] for row in rows if holds_text(row[number])]
        if turned:
            note(
                f"column {name!r}: {len(turned)} of {len(rows)} values came as text, as "
                f"Python has no value like {str(plain(turned[0]))[:100]!r}"
            )
