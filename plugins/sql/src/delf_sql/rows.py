"""Rows on their way to a script: capped, never cut in silence, as plain dicts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Final, cast

from delf.errors import ToolExecutionError
from delf_sql.values import plain

_CHUNK: Final = 200
_ROW_BYTES: Final = 64
_VALUE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a statement gave.

    Args:
        columns: Names as the database gave them.
        rows: The rows, at most as many as were asked for.
        more: Whether there were more.
        changed: How many rows were changed, where the driver says it here.
    """

    columns: tuple[str, ...]
    rows: list[Sequence[Any]]
    more: bool = False
    changed: int = 0


async def collect(
    columns: Sequence[str],
    fetch: Callable[[int], Awaitable[Sequence[Sequence[Any]]]],
    limit: int,
    max_bytes: int,
) -> Fetched:
    """Rows from a cursor, up to a limit.

    Args:
        columns: Their names.
        fetch: Gives the next rows, at most so many.
        limit: The most rows to keep.
        max_bytes: About how much they may hold.

    Raises:
        ToolExecutionError: When they hold more than ``max_bytes``.
    """
    rows: list[Sequence[Any]] = []
    held = 0
    while len(rows) <= limit:
        part = await fetch(min(_CHUNK, limit + 1 - len(rows)))
        if not part:
            return Fetched(tuple(columns), rows)
        held += sum(map(_weight, part))
        if held > max_bytes:
            raise ToolExecutionError(
                f"the result is larger than {max_bytes / 1e6:g} MB after {len(rows) + len(part)} "
                "rows: select fewer columns or rows, or aggregate in SQL"
            )
        rows.extend(part)
    return Fetched(tuple(columns), rows[:limit], more=True)


def _weight(row: Sequence[Any]) -> int:
    size = _ROW_BYTES
    for value in row:
        sized = isinstance(value, (str, bytes, list, dict))
        size += len(cast("Sized", value)) if sized else _VALUE_BYTES
    return size


def as_dicts(fetched: Fetched) -> list[dict[str, Any]]:
    """Rows as dicts of plain values; a name that comes again gets a number: ``id``, ``id_2``."""
    names = unique_names(fetched.columns)
    return [
        {name: plain(value) for name, value in zip(names, row, strict=True)} for row in fetched.rows
    ]


def unique_names(columns: Sequence[str]) -> list[str]:
    """Column names without repetition."""
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
