"""Conversion of script values for ``add_to_output_files`` to bytes, or to rows for the host.

Text and bytes are written unchanged, dicts and lists as JSON, and rows as CSV, TSV or HTML by the
name's suffix. Workbooks are written by the host from rows, because the guest has only the standard
library. Values of data libraries follow the rules of :mod:`delf.values.conversion`.
"""

from __future__ import annotations

import base64
import csv
import dataclasses
import datetime as dt
import decimal
import html
import io
import json
import math
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from itertools import chain, islice
from typing import Any, TypeGuard, cast

from delf.values.conversion import Table, fields_of, plain_or_as_is, table_of, unique_names
from delf.values.encoding import TooLargeError, UnsupportedValueError, check_size, dumps
from delf_sandbox.guest.frames import UNPAIRED_SURROGATES

_SEPARATOR_BY_SUFFIX = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_JSON_LINES_SUFFIXES = (".jsonl", ".ndjson")
_JSON_SUFFIXES = (".json", ".geojson")
_HTML_SUFFIXES = (".html", ".htm")
_WORKBOOK_SUFFIXES = (".xlsx", ".xlsm", ".xls", ".ods")
_BINARY_SUFFIXES = frozenset(
    {".arrow", ".avro", ".bmp", ".db", ".docx", ".feather", ".gif", ".gz", ".jpeg", ".jpg", ".orc"}
    | {".parquet", ".pdf", ".png", ".pptx", ".sqlite", ".webp", ".zip"}
)
_CELLS = (str, int, float, dt.datetime, dt.date, dt.time, decimal.Decimal)
_MAX_BYTES = 50 * 1024 * 1024
Grid = list[list[Any]]


@dataclasses.dataclass(frozen=True)
class Content:
    """The content of an output file, as sent to the host.

    Args:
        data: The bytes of the file; or the rows of a table, with the column names first, in the
            tagged JSON of :mod:`delf.values.encoding`.
        is_rows: Whether ``data`` has rows, from which the host writes the file.
        added_suffix: The suffix to append to the file name; empty if the name has a suffix.
    """

    data: bytes
    is_rows: bool = False
    added_suffix: str = ""


class ContentTooLargeError(Exception):
    """The content exceeds the size limit of a file."""


class _LimitedText(io.StringIO):
    """A text buffer that raises :class:`ContentTooLargeError` beyond a maximum length."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self._remaining = max_bytes

    def write(self, s: str, /) -> int:
        self._remaining -= len(s)
        if self._remaining < 0:
            raise ContentTooLargeError
        return super().write(s)


def make_content(
    name: str,
    content: Any,
    host_written_suffixes: Collection[str] = (),
    max_bytes: int = _MAX_BYTES,
) -> Content:
    """Convert a script's content to the file format that the name's suffix stands for.

    A name without a suffix gets one that fits: ``.csv`` for a table, none for text and bytes, and
    ``.json`` for anything else.

    Args:
        name: The file's name.
        content: Text, bytes, a dict, a list, a table of a data library, or a file in memory.
        host_written_suffixes: The suffixes of the file formats that the host can write from rows,
            such as ``.xlsx``.
        max_bytes: The maximum size of the converted content in bytes. The size is checked already
            during the conversion, because a small list in memory that repeats one record can become
            a huge file. Text and bytes are not checked.

    Raises:
        TypeError: If the content cannot be written as such a file.
        RuntimeError: If the host has no plugin for the format.
        ContentTooLargeError: If the converted content exceeds ``max_bytes``.
    """
    get_value = getattr(content, "getvalue", None)
    if callable(get_value):  # io.StringIO, io.BytesIO
        content = get_value()
    table: Table | None = None
    if not _is_bytes(content) and not _is_text_or_collection(content):
        table = table_of(content)
        if table is None:
            content = _as_collection(name, content)
    given_suffix = _suffix_of(name)
    added_suffix = "" if given_suffix else _default_suffix(content, table)
    suffix = given_suffix or added_suffix
    result = _make_by_suffix(name, suffix, content, table, host_written_suffixes, max_bytes)
    return dataclasses.replace(result, added_suffix=added_suffix)


def _make_by_suffix(
    name: str,
    suffix: str,
    content: Any,
    table: Table | None,
    host_written_suffixes: Collection[str],
    max_bytes: int,
) -> Content:
    """Convert a script's content to the content of a file with the given suffix.

    Args:
        name: The file's name, for error messages.
        suffix: The suffix that selects the format.
        content: The content that the script gave.
        table: The content as a table, if it is a table of a data library.
        host_written_suffixes: The suffixes of the formats that the host writes from rows.
        max_bytes: The maximum number of bytes.
    """
    type_name = type(content).__name__
    if _is_bytes(content):
        return Content(bytes(content))
    if isinstance(content, Mapping) or _is_list(content):
        try:
            # Each value takes at least one byte, so the limit on bytes also limits the values.
            check_size(content, max_bytes, most_values=max_bytes)
        except TooLargeError:
            raise ContentTooLargeError from None
        except UnsupportedValueError:
            # check_size() refuses values that are nested too deeply for a message to the host. A
            # file may contain such values.
            pass
    if suffix in host_written_suffixes or suffix in _WORKBOOK_SUFFIXES:
        return _workbook_content(name, suffix, content, table, host_written_suffixes, max_bytes)
    if isinstance(content, str):  # goes unchanged into any file but a workbook
        return Content(_encode_utf8(content))
    if suffix in _BINARY_SUFFIXES:
        raise TypeError(
            f"{name!r}: cannot make a {suffix} file from a {type_name}; give its text or bytes"
        )
    if table is not None:
        return Content(_encode_table(table, suffix, max_bytes))
    # The content is a list or a mapping.
    is_separated = suffix in _SEPARATOR_BY_SUFFIX  # a suffix such as ``.csv``
    if is_separated and isinstance(content, Mapping):
        raise TypeError(f"{name!r}: a {suffix} file is made from a list of rows, not from one dict")
    if is_separated or (suffix in _HTML_SUFFIXES and _is_list(content)):
        rows = _rows_of_cells(cast("Collection[Any]", content), max_bytes)
        return Content(_encode_rows(rows, suffix, max_bytes))
    return Content(_encode_json(content, suffix, max_bytes))


def _suffix_of(name: str) -> str:
    """Return the suffix of a file's name in lower case, such as ``.csv``; empty without one."""
    file_name = name.rpartition("/")[2].lower()
    _, dot, extension = file_name.rpartition(".")
    return f".{extension}" if dot else ""


def _default_suffix(content: Any, table: Table | None) -> str:
    """Return the suffix for a file name without a suffix; empty for text and bytes."""
    if table is not None:
        return ".csv"
    if isinstance(content, str) or _is_bytes(content):
        return ""
    return ".json"


def _is_bytes(value: Any) -> TypeGuard[bytes | bytearray]:
    return isinstance(value, (bytes, bytearray, memoryview))


def _is_list(value: Any) -> TypeGuard[Collection[Any]]:
    return isinstance(value, (list, tuple, set, frozenset, KeysView, ValuesView))


def _is_text_or_collection(value: Any) -> bool:
    return isinstance(value, (str, Mapping)) or _is_list(value)


def _as_collection(name: str, content: Any) -> Any:
    """Convert an iterator, or an object of a data library, to a list or dict.

    Raises:
        TypeError: If the content cannot be converted.
    """
    if isinstance(content, Iterator):
        # Each item takes at least one byte, so a longer list would exceed the limit anyway.
        return list(islice(cast("Iterator[Any]", content), _MAX_BYTES))
    plain_value = plain_or_as_is(content)
    if isinstance(plain_value, (list, dict)):
        return cast("Any", plain_value)
    raise TypeError(
        f"{name!r}: cannot write a {type(content).__name__} as a file; "
        "give text, bytes, a dict, a list of dicts or a data frame"
    )


def _encode_utf8(text: str) -> bytes:
    """Encode a text; half an emoji, as of a cut text, becomes the replacement character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
        return UNPAIRED_SURROGATES.sub("\ufffd".encode(), data)


# -- JSON -----------------------------------------------------------------------------------


def _encode_json(content: Any, suffix: str, max_bytes: int) -> bytes:
    """Format a list as JSON lines for a suffix such as ``.jsonl``, else any content as JSON."""
    if suffix in _JSON_LINES_SUFFIXES and _is_list(content):
        lines = _LimitedText(max_bytes)
        lines.writelines(_compact_json(item) + "\n" for item in content)
        return _encode_utf8(lines.getvalue())
    return _encode_utf8(_indented_json(content, max_bytes))


def _compact_json(value: Any) -> str:
    return _COMPACT.encode(_to_json_types(value))


def _indented_json(value: Any, max_bytes: int) -> str:
    text = _LimitedText(max_bytes)
    text.writelines(_INDENTED.iterencode(_to_json_types(value)))
    return text.getvalue()


_COMPACT = json.JSONEncoder(ensure_ascii=False)
_INDENTED = json.JSONEncoder(indent=2, ensure_ascii=False)


def _to_json_types(value: Any) -> Any:
    """Convert a value to types that JSON has; infinities and NaN become None.

    Raises:
        TypeError: If two keys of a dict have the same text in JSON, which would lose a value.
    """
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return _to_json_object(cast("Mapping[Any, Any]", value))
    if _is_list(value):
        return list(map(_to_json_types, value))  # takes less of the stack than a comprehension
    # In pandas, a datetime without a value; plain_or_as_is() converts such a value to None.
    is_missing = type(value).__name__ == "NaTType"
    if isinstance(value, (dt.datetime, dt.date, dt.time)) and not is_missing:
        return value.isoformat()
    if _is_bytes(value):
        return base64.b64encode(value).decode("ascii")
    plain_value = plain_or_as_is(value)
    if type(plain_value) is type(value):  # nothing could be converted
        return str(value)
    return _to_json_types(plain_value)


def _to_json_object(record: Mapping[Any, Any]) -> dict[str, Any]:
    key_by_text: dict[str, Any] = {}
    result: dict[str, Any] = {}
    for key, item in record.items():
        text = key if isinstance(key, str) else _key_text(key)
        if text in result:
            raise TypeError(
                f"{key_by_text[text]!r} and {key!r} would be the same key in JSON: "
                "use texts as keys, and make them differ"
            )
        key_by_text[text] = key
        result[text] = _to_json_types(item)
    return result


def _key_text(key: Any) -> str:
    """Convert a key of a dict to text as the json module does; a list becomes its JSON text."""
    # As a key, NaN stays NaN; as a value, _to_json_types() replaces NaN by None.
    converted = key if isinstance(key, float) else _to_json_types(key)
    return converted if isinstance(converted, str) else json.dumps(converted, ensure_ascii=False)


# -- rows -----------------------------------------------------------------------------------


def _encode_table(table: Table, suffix: str, max_bytes: int) -> bytes:
    """Format the table of a data library: as records for a JSON suffix, else as rows."""
    if suffix in _JSON_LINES_SUFFIXES or suffix in _JSON_SUFFIXES:
        records = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        return _encode_json(records, suffix, max_bytes)
    return _encode_rows(chain([table.columns], table.rows), suffix, max_bytes)


def _rows_of_cells(rows: Collection[Any], max_bytes: int) -> Iterator[list[Any]]:
    """Yield the rows of a table as lists of cells.

    For records, the first row has the column names.
    """
    records = [_record(row) for row in rows]
    if not records or any(record is None for record in records):
        yield from (_cells(row) for row in rows)
        return
    mappings = cast("list[Mapping[Any, Any]]", records)
    columns = list(dict.fromkeys(chain.from_iterable(mappings)))
    if len(columns) * len(mappings) > max_bytes:  # each cell takes at least one byte
        raise ContentTooLargeError
    yield columns
    for record in mappings:
        yield [record.get(column) for column in columns]


def _record(row: Any) -> Mapping[Any, Any] | None:
    """Return a row as a mapping from column to cell; None if the row has no names of columns."""
    if isinstance(row, Mapping):
        return cast("Mapping[Any, Any]", row)
    as_dict = getattr(row, "_asdict", None)
    if callable(as_dict):
        return cast("Mapping[Any, Any]", as_dict())
    return fields_of(row)


def _cells(row: Any) -> list[Any]:
    """Return the items of a row such as ``[1, 2]``; any other row becomes a single cell."""
    # Convert a row that is not a list yet, such as an array of a data library.
    items = row if _is_list(row) else plain_or_as_is(row)
    return list(items) if _is_list(items) else [items]


def _encode_rows(grid: Iterable[list[Any]], suffix: str, max_bytes: int) -> bytes:
    """Format rows as an HTML table for a suffix such as ``.html``, else as CSV or TSV."""
    if suffix in _HTML_SUFFIXES:
        return _html_table(grid, max_bytes)
    return _encode_separated(grid, _SEPARATOR_BY_SUFFIX.get(suffix, ","), max_bytes)


def _encode_separated(grid: Iterable[list[Any]], separator: str, max_bytes: int) -> bytes:
    out = _LimitedText(max_bytes)
    writer = csv.writer(out, delimiter=separator, lineterminator="\n")
    writer.writerows([_format_cell(cell) for cell in row] for row in grid)
    return _encode_utf8(out.getvalue())


def _html_table(grid: Iterable[list[Any]], max_bytes: int) -> bytes:
    """Format rows as an HTML table."""
    out = _LimitedText(max_bytes)
    out.write('<table border="1">\n')
    tag = "th"  # the first row has the column names
    for row in grid:
        html_row = "<tr>"
        for cell in row:
            value = _format_cell(cell)
            text = "" if value is None else html.escape(str(value))
            html_row += f"<{tag}>{text}</{tag}>"
        out.write(f"{html_row}</tr>\n")
        tag = "td"
    out.write("</table>\n")
    return _encode_utf8(out.getvalue())


def _format_cell(cell: Any) -> Any:
    """Convert a cell for a text file: a nested value to JSON text, a missing value to None.

    The writers of text files write None as an empty cell.
    """
    kind = cast("Any", type(cell))
    if kind is str or kind is int:  # the most frequent types, which need none of the tests below
        return cell
    if not isinstance(cell, (str, int, float, decimal.Decimal, dt.date, dt.time, type(None))):
        cell = plain_or_as_is(cell)
    if _is_bytes(cell):
        return base64.b64encode(cell).decode("ascii")
    if cell is None or type(cell).__name__ in _MISSING:
        return None
    if isinstance(cell, decimal.Decimal) and cell.is_nan():  # a signalling NaN cannot be compared
        return None
    if isinstance(cell, float) and math.isnan(cell):
        return None
    if isinstance(cell, float):
        return float(cell)  # the text of a numpy float names its type
    if isinstance(cell, (Mapping, list, tuple, set, frozenset)):
        return _compact_json(cell)
    return cell


_MISSING = frozenset({"NAType", "NaTType"})


# -- workbooks ------------------------------------------------------------------------------


def _workbook_content(
    name: str,
    suffix: str,
    content: Any,
    table: Table | None,
    host_written_suffixes: Collection[str],
    max_bytes: int,
) -> Content:
    """Convert a script's object to the rows of a workbook, with one sheet for each table.

    Args:
        name: The file's name, for error messages.
        suffix: The suffix, such as ``.xlsx``.
        content: The object: a list of rows, or a dict with a table or list for each sheet.
        table: ``content`` as a table, if the object is a table of a data library, such as a data
            frame; otherwise None.
        host_written_suffixes: The suffixes of the file formats that the host can write from rows.
            Any other suffix raises an error.
        max_bytes: The maximum size of the rows in bytes.
    """
    if suffix not in host_written_suffixes:
        if suffix in (".xlsx", ".xlsm"):
            advice = "needs a library beside delf (delf plugins install 'files[excel]')"
        else:
            advice = "is not possible"
        raise RuntimeError(f"{name!r}: making {suffix} files {advice}; write a .csv file instead")
    if table is not None:
        sheets = [("Sheet1", _rows_with_header(table))]
    else:
        sheets = _titled_sheets(content, max_bytes)
    if sheets is None:
        raise TypeError(
            f"{name!r}: cannot make a workbook from a {type(content).__name__}; give a list of "
            "dicts, a data frame, or a dict with such a list for each sheet"
        )
    cells: dict[str, list[list[Any]]] = {}
    for title, rows in sheets:
        cells[title] = [[_workbook_cell(cell) for cell in row] for row in rows]
    return Content(dumps(cells), is_rows=True)


def _titled_sheets(content: Any, max_bytes: int) -> list[tuple[str, Grid]] | None:
    """Return the title and rows of each sheet; None if the content is not made of rows."""
    if isinstance(content, Mapping):
        tables = cast("Mapping[Any, Any]", content)
        sheets: list[tuple[str, Grid]] = []
        for title, table in zip(unique_names(map(str, tables)), tables.values(), strict=True):
            grid = _rows_of_sheet(table, max_bytes)
            if grid is None:
                return None
            sheets.append((title, grid))
        return sheets or None  # a workbook needs a sheet
    grid = _rows_of_sheet(content, max_bytes)
    return None if grid is None else [("Sheet1", grid)]


def _rows_of_sheet(rows: Any, max_bytes: int) -> Grid | None:
    """Return the rows of a sheet as lists of cells.

    None if the script gave neither a table of a data library nor a list.
    """
    if not _is_list(rows):
        table = table_of(rows)
        if table is not None:
            return _rows_with_header(table)
        rows = plain_or_as_is(rows)  # an object of another library may convert to a list
        if not _is_list(rows):
            return None
    # In the JSON for the host, each cell takes at least two bytes: a character and a comma.
    return list(_rows_of_cells(rows, max_bytes // 2))


def _rows_with_header(table: Table) -> Grid:
    return [table.columns, *table.rows]


def _workbook_cell(value: Any) -> Any:
    """Convert a value for a cell: a nested value to JSON, a value of unknown type to text."""
    formatted = _format_cell(value)
    if formatted is None or isinstance(formatted, _CELLS):
        return formatted
    return str(formatted)
