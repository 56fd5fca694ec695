"""Duration columns of Parquet files, found in the Arrow schema that writers embed.

Parquet has no type for durations. DuckDB ignores the Arrow schema, and returns durations as
integers without a unit.
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
_DEFAULT_UNIT: Final = 1
_DURATION_TYPE: Final = 18
_HEADER_BYTES: Final = 8
_MAX_FIELDS: Final = 1000

# The schema is a FlatBuffer. These constants are the positions of fields in its tables. A field
# holds a number directly; for a text, a list or another table, it holds an offset.
_HEADER = 2
_FIELDS = 1
_NAME = 0
_TYPE_KIND = 2
_TYPE = 3
_UNIT: Final = 0


def note_durations(connection: Any, path: str, name: str) -> None:
    """Add a note for each duration column of a Parquet file, with the unit of the column.

    Args:
        connection: A DuckDB connection.
        path: The path of the file.
        name: The file's name in notes and errors for the model.
    """
    rows: list[tuple[bytes]] = connection.execute(
        "SELECT value FROM parquet_kv_metadata(?) WHERE key = ?", [path, _KEY]
    ).fetchall()
    for (value,) in rows:
        for column, unit in duration_columns(value):
            note(f"{name}: column {column!r} holds lengths of time, as whole {unit}")


def duration_columns(text: bytes) -> list[tuple[str, str]]:
    """Return the name and the unit of each duration column in a Base64-encoded Arrow schema."""
    try:
        data = base64.b64decode(text, validate=False)[_HEADER_BYTES:]
        return list(_read_durations(data))
    except (binascii.Error, struct.error, UnicodeDecodeError, IndexError):
        return []  # the metadata is not an Arrow schema, but comes from another program


def _read_durations(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name and the unit of each duration column in a FlatBuffer.

    The FlatBuffer begins with the offset to a message, whose header is the schema. The schema has
    the list of columns, each with a name and a type.
    """
    message = _offset_target(data, 0)
    schema = _target_of_field(data, message, _HEADER)
    for column in _list_items(data, _target_of_field(data, schema, _FIELDS)):
        kind_position = _field_position(data, column, _TYPE_KIND)
        if kind_position and data[kind_position] == _DURATION_TYPE:
            name = _read_text(data, _target_of_field(data, column, _NAME))
            yield name, _unit_of_duration(data, _target_of_field(data, column, _TYPE))


def _list_items(data: bytes, position: int) -> Iterator[int]:
    """Yield the positions of the tables in a list, at most ``_MAX_FIELDS``.

    A list has the number of its items, and then for each item the offset to its table.
    """
    (count,) = struct.unpack_from("<I", data, position)
    for number in range(1, min(count, _MAX_FIELDS) + 1):
        yield _offset_target(data, position + 4 * number)


def _read_text(data: bytes, position: int) -> str:
    """Return the text whose length in bytes is stored at ``position``, just before the text."""
    (length,) = struct.unpack_from("<I", data, position)
    start = position + 4
    return data[start : start + length].decode()


def _unit_of_duration(data: bytes, duration_type: int) -> str:
    """Return the unit of a duration type; ``duration_type`` is the position of its table."""
    unit_position = _field_position(data, duration_type, _UNIT)
    if not unit_position:
        return _UNITS[_DEFAULT_UNIT]
    (unit_code,) = struct.unpack_from("<h", data, unit_position)
    return _UNITS[unit_code]


def _target_of_field(data: bytes, table: int, number: int) -> int:
    """Return the position of the text, list or table that field ``number`` of a table refers to."""
    return _offset_target(data, _field_position(data, table, number))


def _offset_target(data: bytes, position: int) -> int:
    """Read the relative offset at ``position``; return the position to which the offset leads."""
    (offset,) = struct.unpack_from("<I", data, position)
    return position + offset


def _field_position(data: bytes, table: int, number: int) -> int:
    """Return the position of a field of a FlatBuffer table; 0 for an absent field.

    A table begins with the distance back to its vtable. The vtable has its own size, the size of
    the table, and then for each field the field's offset in the table, each in two bytes.
    """
    (distance,) = struct.unpack_from("<i", data, table)
    vtable = table - distance
    (vtable_size,) = struct.unpack_from("<H", data, vtable)
    entry = 4 + 2 * number
    if entry >= vtable_size:  # the schema was written without this field
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + entry)
    return table + offset if offset else 0
