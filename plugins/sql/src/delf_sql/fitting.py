"""Checks that a value fits its column's type, for databases that cast silently.

PostgreSQL, MariaDB and DuckDB round 1.5 for an integer column, drop the time of a datetime for a
date column, and drop the zone for a column without zones. Values that would change are refused with
a hint.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from delf.errors import ToolRefusedError
from delf_sql.placeholders import BoundStatement
from delf_sql.values import as_json

Family = Literal[
    "integer", "float", "year", "boolean", "text", "bytes", "json", "date", "timestamp",
    "timestamptz", "time", "timetz", "interval", "map", "other",
]  # fmt: skip
_NAMES: Final[dict[Family, str]] = {
    "integer": "int2 int4 int8 oid int tinyint smallint mediumint integer bigint hugeint utinyint "
    "usmallint uinteger ubigint uhugeint",
    "float": "float4 float8 real double float",
    "year": "year",
    "boolean": "bool boolean",
    "text": "text varchar bpchar name xml char character tinytext mediumtext longtext string",
    "bytes": "bytea blob tinyblob mediumblob longblob binary varbinary",
    "json": "json jsonb",
    "date": "date",
    "timestamp": "timestamp datetime timestamp_s timestamp_ms timestamp_ns",
    "timestamptz": "timestamptz",
    "time": "time",
    "timetz": "timetz",
    "interval": "interval",
    "map": "map",
}
_FAMILIES: Final[dict[str, Family]] = {
    name: family for family, names in _NAMES.items() for name in names.split()
}
_ZONED: Final[dict[Family, Family]] = {"timestamp": "timestamptz", "time": "timetz"}
_ARRAY: Final = re.compile(r"\[\d*\]$")
_FIRST_WORD: Final = re.compile(r"[a-z_]\w*")
_MOMENTS: Final = frozenset({"date", "timestamp", "timestamptz", "time", "timetz", "interval"})
_YEAR: Final = re.compile(r"0000|19\d\d|20\d\d|21[0-4]\d|215[0-5]")
_MOMENT: Final = re.compile(
    r"(?P<date>\d{4}-\d\d?-\d\d?)?[T ]*(?P<clock>\d{1,3}:\d\d(?::\d\d(?:\.\d*)?)?)?"
    r"\s*(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?",
    re.IGNORECASE,
)
_ADVICE: Final[dict[Family, str]] = {
    "integer": "round it, as in round(x) or int(x)",
    "float": "pass float(x), if its nearest number will do",
    "year": "pass a year of four digits",
    "boolean": "pass True or False",
    "text": "decode it, as in value.decode()",
    "bytes": "pass bytes, as in value.encode()",
    "json": "pass text, as base64.b64encode(value).decode()",
    "date": "pass value.date() of the zone that is meant",
    "timestamp": "pass a datetime without a zone, as value.astimezone(zone).replace(tzinfo=None)",
    "timestamptz": "pass a datetime with a zone",
    "time": "pass a time of less than a day without a zone, as value.time()",
    "timetz": "pass value.timetz()",
    "interval": "pass a timedelta",
    "map": "pass a dict",
}


def family_of(kind: str) -> tuple[Family, int]:
    """Return the family of a column type, such as ``integer``, and the number of array dimensions.

    For ``bigint[][]``, return ``("integer", 2)``; for a type that is no array, the number is 0.

    Args:
        kind: The catalogue's name, such as ``decimal(9,2)`` or ``timestamp with time zone[]``.
    """
    name = kind.strip().lower()
    dimensions = 0
    while _ARRAY.search(name):
        name = _ARRAY.sub("", name)
        dimensions += 1
    word = _FIRST_WORD.match(name)
    family: Family = _FAMILIES.get(word.group(), "other") if word else "other"
    if "with time zone" in name:
        family = _ZONED.get(family, family)
    return family, dimensions


def check_fits(value: object, family: Family, dimensions: int = 0) -> None:
    """Raise if a column's type would change a value or drop a part of the value.

    Args:
        value: The value of a parameter.
        family: The family of the column's type.
        dimensions: The number of dimensions of the column's array type; 0 for any other type.

    Raises:
        TypeError: If the value does not fit. The message says which values are allowed.
    """
    is_array = dimensions > 0
    stores_list_as_value = not is_array and family in ("json", "text", "bytes")
    if isinstance(value, list) and not stores_list_as_value:
        # The list is an array, or belongs to IN. Each item must fit.
        for item in cast("list[Any]", value):
            check_fits(item, family, max(dimensions - 1, 0))
        return
    if is_array:
        return  # the database itself parses a text such as '{1,2}' as an array
    _check_single_value(cast("Any", value), family)


def _check_single_value(value: Any, family: Family) -> None:
    if value is None or _fits(value, family):
        return
    value_text = f"{_shorten(value)} ({type(value).__name__})"
    raise TypeError(
        f"{value_text} does not fit a column of type {family} as it is: {_ADVICE[family]}, "
        "or write CAST(… AS …) around the placeholder"
    )


def check_values(bound: BoundStatement, kinds: Sequence[str | None]) -> None:
    """Raise if a column's type would change a value or drop a part of the value.

    A value that the statement casts is not checked, because the database checks it.

    Args:
        bound: A statement with its values.
        kinds: The type of each placeholder; None for a value that needs no check.

    Raises:
        ToolRefusedError: For the first value that does not fit.
    """
    for number, (value, kind) in enumerate(zip(bound.values, kinds, strict=True)):
        if kind is None or bound.casts[number]:
            continue
        try:
            check_fits(value, *family_of(kind))
        except (TypeError, ValueError) as error:
            raise _refused_parameter(bound, number, error) from None


def _refused_parameter(bound: BoundStatement, number: int, error: Exception) -> ToolRefusedError:
    return ToolRefusedError(f"parameter {bound.names[number]}: {error}")


def convert_values(
    bound: BoundStatement, kinds: Sequence[str | None], *, is_write: bool
) -> BoundStatement:
    """Convert each value to its placeholder's type.

    Args:
        bound: A statement with its values.
        kinds: The type of each placeholder; None if unknown.
        is_write: Whether the statement may store the values, so that a lossy conversion is refused.

    Raises:
        ToolRefusedError: For the first value that does not fit.
    """
    if is_write:
        check_values(bound, kinds)
    values: list[Any] = []
    for number, (value, kind) in enumerate(zip(bound.values, kinds, strict=True)):
        if kind is None:
            values.append(value)
            continue
        family, dimensions = family_of(kind)
        try:
            values.append(_convert(value, family, dimensions, is_write=is_write))
        except (TypeError, ValueError) as error:
            raise _refused_parameter(bound, number, error) from None
    return BoundStatement(bound.pieces, values, bound.names, bound.casts)


def _convert(value: Any, family: Family, dimensions: int, *, is_write: bool) -> Any:
    """Convert a value for a column or parameter of a type family.

    - For JSON, a value becomes JSON text. A text is JSON text already, and stays unchanged.
    - For text, a list or dict becomes JSON text in a write.
    - For DuckDB's type MAP, JSON text is parsed.

    Args:
        value: The value.
        family: The type family.
        dimensions: The number of dimensions of the array; 0 for a single value.
        is_write: Whether a write stores the value; False if the value is only compared.
    """
    if dimensions:
        if not isinstance(value, list):
            return value
        items = cast("list[Any]", value)
        return [_convert(item, family, dimensions - 1, is_write=is_write) for item in items]
    if family == "json":
        if value is None or isinstance(value, str):
            return value
        return as_json(value)
    if family == "map" and isinstance(value, str):
        return _as_duckdb_map(value)
    if family == "text" and is_write and isinstance(value, (list, dict)):
        return as_json(cast("list[Any]", value))
    return value


def _as_duckdb_map(text: str) -> Any:
    """Convert the JSON text of an object to the lists that DuckDB's driver expects for a map.

    Return any other text unchanged.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict):
        return text
    items = cast("dict[str, Any]", value)
    return {"key": list(items), "value": list(items.values())}


def _fits(value: Any, family: Family) -> bool:
    """Return True if a column of a type family can store a value without changing it.

    Also return True for a value whose type is not checked here, such as a date for an integer
    column: the database decides whether to refuse the value.
    """
    if family == "integer":
        if isinstance(value, (str, float, decimal.Decimal)):
            return _has_no_fraction(value)
        return True
    if family == "float":
        loses_digits = isinstance(value, int) and loses_digits_as_float(value)
        return not loses_digits
    if family == "year":
        return bool(_YEAR.fullmatch(str(value)))
    if family == "boolean":
        return _fits_boolean(value)
    if family in ("text", "json"):
        return not isinstance(value, bytes)
    if family == "bytes":
        return isinstance(value, bytes)
    if family in _MOMENTS:
        return _keeps_moment(value, family)
    return True


def _fits_boolean(value: Any) -> bool:
    """Return False for a number other than 0 and 1, also as a text: for 2 and for "2".

    The database decides about texts that are no numbers, such as "yes".
    """
    number = _number(value) if isinstance(value, str) else value
    if not isinstance(number, (int, float, decimal.Decimal)):
        return True
    if isinstance(number, decimal.Decimal) and number.is_nan():
        return False  # comparing a signalling NaN raises
    return number in (0, 1)


def _keeps_moment(value: Any, family: Family) -> bool:
    """Return True if a column stores a date, time or duration completely, with its time zone."""
    if isinstance(value, dt.timedelta):
        is_time = dt.timedelta(0) <= value < dt.timedelta(days=1)
        return family == "interval" or (is_time and family in ("time", "timetz"))
    if isinstance(value, (dt.date, dt.time)):
        value = value.isoformat()
    return isinstance(value, str) and _keeps_date_and_time(value, family)


def loses_digits_as_float(value: int) -> bool:
    """Return True if an integer cannot be represented exactly as a float."""
    try:
        return value != float(value)
    except OverflowError:  # larger than any float
        return True


def _has_no_fraction(value: str | float | decimal.Decimal) -> bool:
    """Return True for a whole number, or for a text that is not a number."""
    number = _number(value) if isinstance(value, str) else decimal.Decimal(value)
    if number is None:  # the database reports the error
        return True
    return number.is_finite() and number == number.to_integral_value()


def _number(text: str) -> decimal.Decimal | None:
    try:
        return decimal.Decimal(text.strip())
    except decimal.InvalidOperation:
        return None


def _keeps_date_and_time(text: str, family: Family) -> bool:
    """Return whether a column keeps the date, the time and the zone that a text has.

    The result is True for a text that is no date or time. ``family`` is the family of the column's
    type.
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return True
    clock = match["clock"] or ""
    has_date = bool(match["date"])
    has_zone = bool(match["zone"])
    if family == "date":
        is_midnight = not clock.strip("0:.")
        return has_date and not has_zone and is_midnight
    if family == "timestamp":
        return has_date and not has_zone
    if family == "timestamptz":
        return has_date
    if family == "interval":
        return not has_date and not has_zone
    has_only_time = bool(clock) and not has_date
    if family == "timetz":
        return has_only_time
    return has_only_time and not has_zone  # family is "time"


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
