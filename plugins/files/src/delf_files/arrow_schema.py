"""Arrow types that Parquet does not have, read from the schema embedded by writers.

DuckDB ignores that schema and returns durations as integers without their unit.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterator
from typing import Any, Final

from delf.notes import note

_KEY: Final = b"ARROW:schema"
_UNITS: Final = ("seconds", "milliseconds", "microseconds", "nanoseconds")
_DURATION: Final = 18
_HEAD: Final = 8
_MAX: Final = 1000
"""The maximum number of fields of a table in the embedded schema that are examined."""

# The numbers of the fields in the tables of Arrow's format.
_HEADER, _FIELDS = 2, 1
_NAME, _TYPE_KIND, _TYPE = 0, 2, 3
_UNIT: Final = 0


def note_lengths(connection: Any, path: str, name: str) -> None:
    """Add a note about the duration columns of a Parquet file, with their units.

    Args:
        connection: A DuckDB connection.
        path: The quoted path for DuckDB.
        name: The file's name in notes.
    """
    rows: list[tuple[bytes]] = connection.execute(
        "SELECT value FROM parquet_kv_metadata(?) WHERE key = ?", [path, _KEY]
    ).fetchall()
    for (value,) in rows:
        for column, unit in lengths_in(value):
            note(f"{name}: column {column!r} holds lengths of time, as whole {unit}")


def lengths_in(text: bytes) -> list[tuple[str, str]]:
    """Return the duration columns of an encoded schema, with their units."""
    try:
        data = base64.b64decode(text, validate=False)[_HEAD:]
        return list(_lengths(data))
    except (binascii.Error, struct.error, UnicodeDecodeError, IndexError):
        return []  # another program's metadata


def _lengths(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the duration columns of an Arrow schema, with their units."""
    schema = _follow(data, _place(data, _follow(data, 0), _HEADER))
    fields = _follow(data, _place(data, schema, _FIELDS))
    (count,) = struct.unpack_from("<I", data, fields)
    for number in range(min(count, _MAX)):
        field = _follow(data, fields + 4 * (number + 1))
        kind = _place(data, field, _TYPE_KIND)
        if not kind or data[kind] != _DURATION:
            continue
        start = _follow(data, _place(data, field, _NAME))
        (length,) = struct.unpack_from("<I", data, start)
        unit = _place(data, _follow(data, _place(data, field, _TYPE)), _UNIT)
        (unit_code,) = struct.unpack_from("<h", data, unit) if unit else (1,)
        yield data[start + 4 : start + 4 + length].decode(), _UNITS[unit_code]


def _follow(data: bytes, place: int) -> int:
    """Return the target of an offset."""
    (offset,) = struct.unpack_from("<I", data, place)
    return place + offset


def _place(data: bytes, table: int, number: int) -> int:
    """Return the position of a table's field; 0 for an absent field."""
    (vtable,) = struct.unpack_from("<i", data, table)
    (size,) = struct.unpack_from("<H", data, table - vtable)
    entry = 4 + 2 * number
    if entry >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, table - vtable + entry)
    return table + offset if offset else 0
