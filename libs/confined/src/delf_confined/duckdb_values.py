"""Values of DuckDB as Python values, for functions that run SQL in a child process."""

from __future__ import annotations

import datetime as dt
import json
import math
import sys
from collections.abc import Sequence
from typing import Any, Final, cast

CONFINED: Final = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
}
"""Settings of a connection: no extension is loaded, and no statement sees a Python variable."""
_JSON: Final = "JSON"
_ZONED: Final = "TIMESTAMP WITH TIME ZONE"
# Regular expressions, by the name of a type, for the texts of values without a Python equivalent:
# intervals with months or years, infinite dates, years beyond 9999, nanoseconds and the time 24:00.
# The texts of lists, structs and maps contain the texts of their items.
_UNREPRESENTABLE: Final = {
    "INTERVAL": r"\d months?|\d years?|\d{9,} days",
    "DATE": r"infinity|\(BC\)|\d{5,}-\d\d-\d\d",
    "TIMESTAMP": r"infinity|\(BC\)|\d{5,}-\d\d-\d\d",
    "TIMESTAMP_NS": r"\.\d{6}\d*[1-9]",
    "TIME_NS": r"\.\d{6}\d*[1-9]",
    "TIME": r"24:00:00",
}


def prevent_import_of_pandas() -> None:
    """Keep DuckDB from importing pandas.

    DuckDB needs pandas only to compare parameters with ``pandas.NaT``, and the import takes longer
    than most statements.
    """
    sys.modules.setdefault("pandas", cast("Any", None))


def select_items(columns: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Return SQL expressions to select, so that :func:`python_row` can convert the selected rows.

    For the columns ``a`` and ``b``, a row is ``(a, b, text of a, text of b)``. If Python can
    represent a value, its text is NULL. Otherwise, the text stands for the value.

    Args:
        columns: An SQL expression for each column.
        kinds: The type of each column, such as ``DATE[]``.
    """
    values: list[str] = []
    texts: list[str] = []
    for column, kind in zip(columns, kinds, strict=True):
        value = column
        text = f"CAST({column} AS VARCHAR)"
        if kind == _JSON:  # the driver parses JSON inconsistently
            value = text
        elif kind == _ZONED:  # a time without its zone, because the driver needs pytz for zones
            value = f"{column} AT TIME ZONE 'UTC'"
        # A kind such as DATE[] has the name of each type that it contains.
        patterns = [pattern for word, pattern in _UNREPRESENTABLE.items() if word in kind]
        if patterns:
            pattern = "|".join(patterns)
            condition = f"regexp_matches({text}, '{pattern}')"
            values.append(f"CASE WHEN NOT {condition} THEN {value} END")
            texts.append(f"CASE WHEN {condition} THEN {text} END")
        else:
            values.append(value)
            texts.append("NULL")
    return [*values, *texts]


def python_row(row: Sequence[Any], kinds: Sequence[str]) -> tuple[list[Any], list[int]]:
    """Convert a row of :func:`select_items` to Python values.

    Returns:
        The values, and the indices of the values that are texts because Python has no such value.
    """
    cells = list(row[: len(kinds)])
    indices_of_texts: list[int] = []
    for index, kind in enumerate(kinds):
        value = cells[index]
        if isinstance(value, bytearray):
            cells[index] = bytes(value)
        elif kind == _ZONED and isinstance(value, dt.datetime):
            cells[index] = value.replace(tzinfo=dt.UTC)
        elif kind == _JSON and isinstance(value, str):
            try:
                cells[index] = json.loads(value, parse_float=_finite)
            except OverflowError:  # raised by _finite(): the cell stays a text
                indices_of_texts.append(index)
            except (ValueError, RecursionError):
                pass  # the text is not JSON, although the statement declared the column as JSON
    texts = row[len(kinds) :]  # the columns after the values
    for index, text in enumerate(texts):
        if text is not None:
            cells[index] = text
            indices_of_texts.append(index)
    return cells, indices_of_texts


def _finite(text: str) -> float:
    """Parse a number; raise OverflowError if the number is too large for a float."""
    number = float(text)
    if math.isinf(number):
        raise OverflowError(text)
    return number
