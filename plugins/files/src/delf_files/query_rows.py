"""Rows of workbooks and other tables as typed JSON lines for DuckDB."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from delf.values.conversion import unique_names
from delf_files.dialects import unique_folded

_FIRST_LARGE_INT: Final = 2**63
_LAST_EXACT_INT: Final = 2**53


def write_rows(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], path: str
) -> list[list[str]]:
    """Write rows as JSON lines.

    Args:
        columns: The columns of the rows.
        rows: The rows.
        path: The file to write.

    Returns:
        The column names with their types.
    """
    names = unique_names(columns) or ["column_1"]
    folded = unique_folded(names)
    kinds = {name: _kind([row.get(name) for row in rows]) for name in names}
    with Path(path).open("w", encoding="utf-8") as file:
        for row in rows:
            cells = {
                new: _cell(row.get(name), kinds[name])
                for name, new in zip(names, folded, strict=True)
            }
            file.write(json.dumps(cells, ensure_ascii=False) + "\n")
    return [[new, kinds[name]] for name, new in zip(names, folded, strict=True)]


def _kind(values: Sequence[Any]) -> str:
    """Return the type for all values of a column; text for mixed values."""
    kinds: set[Any] = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int} and all(abs(v) < _FIRST_LARGE_INT for v in values if v is not None):
        return "BIGINT"
    if kinds and kinds <= {int, float} and not any(map(_is_rounded, values)):
        return "DOUBLE"
    if kinds == {dt.date}:
        return "DATE"
    if kinds and kinds <= {dt.date, dt.datetime}:
        return "TIMESTAMP"
    if kinds == {dt.time}:
        return "TIME"
    if kinds == {dt.timedelta}:
        return "INTERVAL"
    return "VARCHAR"


def _is_rounded(value: Any) -> bool:
    """Return whether a float would change a value."""
    return isinstance(value, int) and abs(value) > _LAST_EXACT_INT


def _cell(value: Any, kind: str) -> Any:
    """Convert a value to JSON that DuckDB reads as a type."""
    if value is None or kind in ("BOOLEAN", "BIGINT", "DOUBLE"):
        return value
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.timedelta):
        parts = (value.days, value.seconds, value.microseconds)
        return "{} days {} seconds {} microseconds".format(*parts)
    return value if isinstance(value, str) else str(value)
