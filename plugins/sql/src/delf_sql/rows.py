"""Rows on their way to a script: capped, never cut in silence, as plain dicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from delf.errors import ToolExecutionError
from delf.notes import note
from delf_sql.sqlite_child import weight
from delf_sql.values import holds_text, plain


@dataclass(frozen=True, slots=True)
class Fetched:
    """The results of a statement.

    Args:
        columns: Names as the database gave them.
        rows: The rows, at most as many as were asked for.
        more: Whether there were more.
        changed: How many rows were changed, where the driver says it here.
        mended: Columns with text that was not UTF-8, and has marks in place of such bytes.
        warnings: The database's warnings about deviations.
    """

    columns: tuple[str, ...]
    rows: list[Sequence[Any]]
    more: bool = False
    changed: int = 0
    mended: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def collect(
    fetch: Callable[[int], Sequence[Sequence[Any]]], limit: int, max_bytes: int
) -> tuple[list[Sequence[Any]], bool]:
    """Fetch rows, weighing them as they come; return whether there are more.

    The first fetch is one row, later fetches at most the number that fits by the average weight.

    Args:
        fetch: Gives the next rows, at most as many as it is asked for.
        limit: The most rows to take.
        max_bytes: About how much they may hold.

    Raises:
        ToolExecutionError: When they hold more than ``max_bytes``.
    """
    rows: list[Sequence[Any]] = []
    held = 0
    size = 1
    while found := fetch(min(size, limit + 1 - len(rows))):
        for row in found:
            if len(rows) == limit:
                return rows, True
            held += weight(row)
            if held > max_bytes:
                raise too_large(max_bytes, len(rows) + 1)
            rows.append(row)
        size = max(1, min(4 * size, (max_bytes - held) * len(rows) // held))
    return rows, False


def too_large(max_bytes: int, rows: int) -> ToolExecutionError:
    """Return the error for a result that exceeds its limit."""
    return ToolExecutionError(
        f"the result is larger than {max_bytes / 1e6:g} MB after {rows} rows: select fewer columns "
        "or rows, or aggregate in SQL"
    )


def as_dicts(fetched: Fetched) -> list[dict[str, Any]]:
    """Rows as dicts of plain values; a name that comes again gets a number: ``id``, ``id_2``.

    Columns with values that Python cannot say are noted.
    """
    names = unique_names(fetched.columns)
    for warning in fetched.warnings:
        note(f"the database says: {warning}")
    for name in fetched.mended:
        note(f"column {name!r} has text that is not UTF-8: each such byte was read as \ufffd")
    note_texts(fetched.columns, fetched.rows)
    return [
        {name: plain(value) for name, value in zip(names, row, strict=True)} for row in fetched.rows
    ]


def note_texts(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Note the columns with values that Python cannot say."""
    for number, name in enumerate(unique_names(columns)):
        texts = [row[number] for row in rows if holds_text(row[number])]
        if texts:
            note(
                f"column {name!r}: {len(texts)} of {len(rows)} values came as text, as "
                f"Python has no value like {str(plain(texts[0]))[:100]!r}"
            )


def unique_names(columns: Sequence[str]) -> list[str]:
    """Return column names without repetition."""
    taken = set(columns)
    names: list[str] = []
    seen: set[str] = set()
    for column in columns:
        name, number = column, 2
        while name in seen or (name != column and name in taken):
            name = f"{column}_{number}"
            number += 1
        seen.add(name)
        names.append(name)
    return names
