"""Rows of workbooks and other tables as typed JSON lines for DuckDB."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from delf.values.conversion import unique_names

_FIRST_LARGE_INT: Final = 2**63
_LAST_EXACT_INT: Final = 2**53


def write_rows(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], path: str
) -> list[list[str]]:
    """Write rows as JSON lines for DuckDB.

    Args:
        columns: The names of the columns.
        rows: The rows, as mappings from column name to value.
        path: The path of the file to write.

    Returns:
        The unique name and the DuckDB type of each column.
    """
    names = unique_names(columns)  # the keys of the rows
    if not names:
        names = ["column_1"]  # DuckDB needs a column
    sql_names = unique_names(names, str.lower)  # SQL ignores case: "ID" beside "id" gets a number
    kinds = {name: _duckdb_type([row.get(name) for row in rows]) for name in names}
    # Lone surrogates cannot be encoded as UTF-8, and become question marks.
    with Path(path).open("w", encoding="utf-8", errors="replace") as file:
        for row in rows:
            cells = {
                sql_name: _json_cell(row.get(name), kinds[name])
                for name, sql_name in zip(names, sql_names, strict=True)
            }
            file.write(json.dumps(cells, ensure_ascii=False) + "\n")
    return [[sql_name, kinds[name]] for name, sql_name in zip(names, sql_names, strict=True)]


def _duckdb_type(values: Sequence[Any]) -> str:
    """Return the DuckDB type that holds all values of a column; VARCHAR for mixed values."""
    filled = [value for value in values if value is not None]
    kinds: set[Any] = set(map(type, filled))
    if not kinds:
        return "VARCHAR"
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int} and all(abs(value) < _FIRST_LARGE_INT for value in filled):
        return "BIGINT"
    # Also for integers that are too large for BIGINT, if a float keeps all their digits.
    if kinds <= {int, float} and not any(map(_loses_digits_as_float, filled)):
        return "DOUBLE"
    if kinds == {dt.date}:
        return "DATE"
    times = [value for value in filled if isinstance(value, (dt.datetime, dt.time))]
    zoned_times = [time for time in times if time.tzinfo is not None]
    if zoned_times:
        # TIMESTAMP and TIME would lose the zone.
        are_zoned_moments = kinds == {dt.datetime} and len(zoned_times) == len(filled)
        return "TIMESTAMP WITH TIME ZONE" if are_zoned_moments else "VARCHAR"
    if kinds <= {dt.date, dt.datetime}:
        return "TIMESTAMP"
    if kinds == {dt.time}:
        return "TIME"
    if kinds == {dt.timedelta}:
        return "INTERVAL"
    return "VARCHAR"


def _loses_digits_as_float(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > _LAST_EXACT_INT


def _json_cell(value: Any, kind: str) -> Any:
    """Convert a value to a JSON value that DuckDB reads as the type ``kind``."""
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
