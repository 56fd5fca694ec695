"""Conversion of values for drivers, and of results to plain Python."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import math
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any, Final, cast

_PLAIN: Final = frozenset(
    {
        type(None), bool, int, float, str, bytes, decimal.Decimal, dt.datetime, dt.date, dt.time,
        dt.timedelta, uuid.UUID,
    }
)  # fmt: skip
_LISTS: Final = (list, tuple, set, frozenset)
_FIRST_LARGE_INT: Final = 2**63


class AsText(str):
    """The text of a database value without a Python equivalent."""

    __slots__ = ()


def plain(value: Any) -> Any:
    """Convert a result value to plain Python; unknown types become text."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): plain(item) for key, item in items}
    if isinstance(value, _LISTS):
        return [plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, (bytearray, memoryview)):
        return bytes(cast("bytearray", value))
    for base in (bool, int, float, str, decimal.Decimal):
        if isinstance(value, base):
            return base(value)
    return str(value)


def holds_text(value: Any) -> bool:
    """Return True if a value contains an :class:`AsText`."""
    if isinstance(value, Mapping):
        return any(map(holds_text, cast("Mapping[Any, Any]", value).values()))
    if isinstance(value, _LISTS):
        return any(map(holds_text, cast("list[Any]", value)))
    return isinstance(value, AsText)


def unwrap(value: Any) -> Any:
    """Convert a parameter's enums, paths, tuples and sets to values that drivers support.

    Raises:
        TypeError: If no database has a type for the value.
    """
    if isinstance(value, enum.Enum):
        return unwrap(value.value)
    if type(value) in _PLAIN:
        return value
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, _LISTS):
        return [unwrap(item) for item in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        mapping = {str(k): unwrap(v) for k, v in items}
        if len(mapping) < len(items):
            raise TypeError("a dict has two keys with the same text, as 1 and '1'")
        return mapping
    if isinstance(value, (bytearray, memoryview)):
        return bytes(cast("bytearray", value))
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored")


def as_json(value: Any) -> str:
    """Encode a parameter as JSON; dates and similar values become text.

    Raises:
        TypeError: For bytes.
        ValueError: For NaN and infinity.
    """
    try:
        return json.dumps(value, default=_in_json, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise ValueError(f"JSON has no NaN and no infinity ({error}): pass None") from None


def _in_json(value: Any) -> Any:
    """Convert a value for which JSON has no type.

    Dates and times become text in ISO format, durations a number of seconds. A decimal number
    becomes a number if its value stays exactly the same, else text.

    Raises:
        TypeError: For bytes.
    """
    if isinstance(value, bytes):
        raise TypeError("JSON has no bytes: pass text, as base64.b64encode(value).decode()")
    if isinstance(value, decimal.Decimal):
        is_exact = value.is_finite() and decimal.Decimal(repr(float(value))) == value
        if not is_exact:
            return str(value)
        if value == value.to_integral_value():
            return int(value)
        return float(value)
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value)


def for_any(value: Any) -> Any:
    """Convert a parameter for an unknown driver: lists and dicts become JSON text.

    Raises:
        TypeError: For a value that cannot be stored.
        ValueError: For NaN and infinity in a list or dict.
    """
    value = unwrap(value)
    return as_json(value) if isinstance(value, (list, dict)) else value


def for_duckdb(value: Any) -> Any:
    """Convert a parameter for DuckDB: lists stay lists, dicts become JSON text.

    Raises:
        TypeError: For a value that cannot be stored.
        ValueError: For NaN in a list, and for NaN and infinity in a dict.
    """
    value = unwrap(value)
    if _is_list_with_nan(value):
        raise ValueError("DuckDB's driver makes NULL of a NaN in a list: pass None")
    return as_json(value) if holds_dict(value) else value


def for_sqlite(value: Any) -> Any:
    """Convert a parameter for SQLite, which stores numbers, text and bytes.

    Raises:
        TypeError: For a value that cannot be stored.
        ValueError: For NaN, and for a number with more digits than SQLite stores.
    """
    value = unwrap(value)
    if isinstance(value, int) and not -_FIRST_LARGE_INT <= value < _FIRST_LARGE_INT:
        raise ValueError("SQLite's integers have 64 bits")
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("SQLite makes NULL of a NaN: pass None")
    if isinstance(value, decimal.Decimal):
        return _sqlite_number(value)
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (list, dict)):
        value = as_json(value)
    return value


def _sqlite_number(value: decimal.Decimal) -> int | float:
    """Convert a decimal to a number that SQLite stores without a change."""
    if value.is_finite():
        if value == value.to_integral_value() and abs(value) < _FIRST_LARGE_INT:
            return int(value)
        if decimal.Decimal(repr(float(value))) == value:
            return float(value)
    raise ValueError(
        f"SQLite's numbers have 64 bits, and {value} has more digits than fit: "
        "pass float(value), which is rounded, or str(value)"
    )


def for_mysql(value: Any) -> Any:
    """Convert a parameter for MySQL and MariaDB.

    Raises:
        TypeError: For a value that cannot be stored.
        ValueError: For NaN, infinity, and a time with a zone.
    """
    value = unwrap(value)
    if _is_nan(value) or (isinstance(value, (float, decimal.Decimal)) and math.isinf(value)):
        raise ValueError("MySQL has no infinity and no NaN")
    if isinstance(value, (dt.datetime, dt.time)) and value.tzinfo is not None:
        raise ValueError(
            f"MySQL and MariaDB keep no zone, and {value} has one: pass "
            "value.astimezone(zone).replace(tzinfo=None) for the zone that the column means"
        )
    if isinstance(value, uuid.UUID):
        return str(value)
    return as_json(value) if isinstance(value, (list, dict)) else value


def for_postgresql(value: Any) -> Any:
    """Convert a parameter to a plain value for psycopg; the server infers the parameter's type.

    Raises:
        TypeError: For a value that cannot be stored.
        ValueError: For text with a NUL character.
    """
    value = unwrap(value)
    if isinstance(value, str) and "\x00" in value:
        raise ValueError("PostgreSQL's text cannot hold a NUL character")
    return value


def _is_list_with_nan(value: Any) -> bool:
    """Return True for a list that contains a NaN, also in an inner list; False for a NaN itself."""
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return any(_is_list_with_nan(item) or _is_nan(item) for item in items)
    return False


def _is_nan(value: Any) -> bool:
    """Return True for a NaN, also for a signalling one, which cannot be compared."""
    if isinstance(value, decimal.Decimal):
        return value.is_nan()
    return isinstance(value, float) and math.isnan(value)


def holds_dict(value: Any) -> bool:
    """Return True for a dict, or a list that contains one."""
    if isinstance(value, list):
        return any(holds_dict(item) for item in cast("list[Any]", value))
    return isinstance(value, dict)
