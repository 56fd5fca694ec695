"""A check that a value fits the type of its column, for databases that cast what they can, untold.

PostgreSQL, MariaDB and DuckDB make 2 of 1.5 for an integer, drop the time of a moment for a date,
and its zone for a column that keeps none. Such a value is refused, with a way to say what is meant.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from delf.errors import ToolRefusedError
from delf_sql.placeholders import Bound
from delf_sql.values import as_json

Family = Literal[
    "integer", "boolean", "text", "bytes", "json", "date", "timestamp", "timestamptz", "time",
    "timetz", "interval", "other",
]  # fmt: skip
_NAMES: Final[dict[Family, str]] = {
    "integer": "int2 int4 int8 oid int tinyint smallint mediumint integer bigint hugeint utinyint "
    "usmallint uinteger ubigint uhugeint year",
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
}
_FAMILIES: Final[dict[str, Family]] = {
    name: family for family, names in _NAMES.items() for name in names.split()
}
_ZONED: Final[dict[Family, Family]] = {"timestamp": "timestamptz", "time": "timetz"}
_ARRAY: Final = re.compile(r"\[\d*\]$")
_FIRST_WORD: Final = re.compile(r"[a-z_]\w*")
_MOMENTS: Final = frozenset({"date", "timestamp", "timestamptz", "time", "timetz", "interval"})
_ADVICE: Final[dict[Family, str]] = {
    "integer": "round it, as in round(x) or int(x)",
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
}


def family_of(kind: str) -> tuple[Family, int]:
    """Return the family of a type by its name, and how many arrays are around it.

    Args:
        kind: As a catalogue names it, such as ``decimal(9,2)`` or ``timestamp with time zone[]``.
    """
    name = kind.strip().lower()
    depth = 0
    while _ARRAY.search(name):
        name, depth = _ARRAY.sub("", name), depth + 1
    word = _FIRST_WORD.match(name)
    found: Family = _FAMILIES.get(word.group(), "other") if word else "other"
    return (_ZONED.get(found, found) if "with time zone" in name else found), depth


def check_fits(value: object, family: Family, depth: int = 0) -> None:
    """Refuse a value of which the type would change or drop a part.

    Args:
        value: The value of a parameter.
        family: The column's.
        depth: How many arrays are around it.

    Raises:
        TypeError: With what is wrong, and what may be passed.
    """
    if isinstance(value, list) and (depth or family not in ("json", "text", "bytes")):
        for item in cast("list[Any]", value):
            check_fits(item, family, max(depth - 1, 0))
    elif not depth and value is not None and not _fits(value, family):
        shown = f"{_short(value)} ({type(cast('Any', value)).__name__})"
        raise TypeError(
            f"{shown} does not fit a column of type {family} as it is: {_ADVICE[family]}, "
            "or write CAST(… AS …) around the placeholder"
        )


def fitted(bound: Bound, kinds: Sequence[str | None], *, stores: bool) -> Bound:
    """Give each value as its placeholder's type takes it.

    Args:
        bound: A statement with its values.
        kinds: The type of each placeholder, None where it is not known.
        stores: True if the statement may store its values: then none may lose a part.

    Raises:
        ToolRefusedError: For the first value that does not fit.
    """
    values: list[Any] = []
    for number, (value, kind) in enumerate(zip(bound.values, kinds, strict=True)):
        if kind is None:
            values.append(value)
            continue
        family, depth = family_of(kind)
        try:
            if stores and not bound.casts[number]:
                check_fits(value, family, depth)
            values.append(_fit(value, family, depth, stores=stores))
        except (TypeError, ValueError) as error:
            raise ToolRefusedError(f"parameter {bound.names[number]}: {error}") from None
    return Bound(bound.pieces, values, bound.names, bound.casts)


def _fit(value: Any, family: Family, depth: int, *, stores: bool) -> Any:
    """Write JSON where JSON or text is wanted; a text for JSON is JSON already."""
    if depth:
        if not isinstance(value, list):
            return value
        items = cast("list[Any]", value)
        return [_fit(item, family, depth - 1, stores=stores) for item in items]
    if family == "json":
        return value if value is None or isinstance(value, str) else as_json(value)
    if family == "text" and stores and isinstance(value, (list, dict)):
        return as_json(cast("list[Any]", value))
    return value


def _fits(value: Any, family: Family) -> bool:
    if family == "integer":
        return not isinstance(value, (float, decimal.Decimal)) or _is_whole(value)
    if family == "boolean":
        return not isinstance(value, (int, float, decimal.Decimal)) or value in (0, 1)
    if family in ("text", "json"):
        return not isinstance(value, bytes)
    if family == "bytes":
        return isinstance(value, bytes)
    if family in _MOMENTS:
        return isinstance(value, str) or _fits_moment(value, family)
    return True


def _is_whole(value: float | decimal.Decimal) -> bool:
    return decimal.Decimal(value).is_finite() and value == int(value)


def _fits_moment(value: Any, family: Family) -> bool:
    zoned = getattr(value, "tzinfo", None) is not None
    if isinstance(value, dt.timedelta):
        is_time = dt.timedelta(0) <= value < dt.timedelta(days=1)
        return family == "interval" or (family in ("time", "timetz") and is_time)
    if isinstance(value, dt.time):
        return family == "timetz" or (family in ("time", "interval") and not zoned)
    if isinstance(value, dt.datetime):
        is_date = not zoned and value.time() == dt.time(0)
        return {"timestamptz": True, "timestamp": not zoned, "date": is_date}.get(family, False)
    return isinstance(value, dt.date) and family in ("date", "timestamp", "timestamptz")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
