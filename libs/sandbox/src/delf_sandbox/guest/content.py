"""What ``add_to_output_files`` makes of a script's values: bytes, or rows for the host.

Text and bytes are written as they are, dicts and lists as JSON, rows as CSV or TSV by the
name's ending. Workbooks are made on the host, from rows: the guest has the standard library
only.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import decimal
import io
import json
import math
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    ValuesView,
)
from typing import Any, TypeGuard, cast

from delf.values import TooLargeError, UnsupportedValueError, check_size, dumps

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods")
_CELLS = (str, int, float, dt.datetime, dt.date, dt.time, decimal.Decimal)
_LARGEST = 50 * 1024 * 1024
Grid = list[list[Any]]


@dataclasses.dataclass(frozen=True)
class Content:
    """A file's content as it goes to the host.

    Args:
        data: Its bytes, or rows in tagged JSON: the first names the columns.
        is_rows: Whether the host makes the file from rows.
    """

    data: bytes
    is_rows: bool = False


class ContentTooLargeError(Exception):
    """The content would be larger than a file may be."""


class _Text(io.StringIO):
    """A text that is not made any further once it is too large."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def write(self, s: str, /) -> int:
        self._left -= len(s)
        if self._left < 0:
            raise ContentTooLargeError
        return super().write(s)


def make_content(
    name: str, content: Any, row_files: Collection[str] = (), most: int = _LARGEST
) -> Content:
    """Content in the form that its type and the name's ending ask for.

    Args:
        name: The file's name.
        content: Text, bytes, a dict, a list, a data frame, or a file in memory.
        row_files: Endings of files that the host can make from rows.
        most: Bytes that it may have, as records of many columns take much more than they seem.

    Raises:
        TypeError: For content that has no form as a file of this name.
        RuntimeError: When the host would need a plugin for it.
        ContentTooLargeError: When it would be larger; what is written as it is is not looked at.
    """
    ending = _ending(name)
    whole = getattr(content, "getvalue", None)
    if callable(whole):  # io.StringIO, io.BytesIO
        content = whole()
    if _is_bytes(content):
        return Content(bytes(content))
    if isinstance(content, Mapping) or _is_list(content):
        try:
            check_size(content, most, most)
        except TooLargeError:
            raise ContentTooLargeError from None
        except UnsupportedValueError:
            pass  # a file may be deeper than a message
    if ending in row_files or ending in _WORKBOOKS:
        return _workbook(name, ending, content, row_files, most)
    if isinstance(content, str):
        return Content(content.encode("utf-8", "surrogatepass"))
    if _is_frame(content):
        return Content(_frame_to_bytes(ending, content))
    separator = _SEPARATORS.get(ending)
    if separator is not None and _is_list(content):
        return Content(_separated(_grid(content, most), separator, most))
    if separator is not None and isinstance(content, Mapping):
        raise TypeError(f"{name!r}: a {ending} file is made from a list of rows, not from one dict")
    if ending in (".jsonl", ".ndjson") and _is_list(content):
        lines = _Text(most)
        lines.writelines(_json(item) + "\n" for item in content)
        return Content(lines.getvalue().encode())
    if isinstance(content, Mapping) or _is_list(content):
        return Content(_indented_json(content, most).encode())
    raise TypeError(
        f"{name!r}: cannot write a {type(content).__name__} as a file; "
        "give text, bytes, a dict, a list of dicts or a data frame"
    )


def _ending(name: str) -> str:
    last = name.rsplit("/", 1)[-1].lower()
    return last[last.rfind(".") :] if "." in last else ""


def _is_bytes(value: Any) -> TypeGuard[bytes | bytearray]:
    return isinstance(value, (bytes, bytearray, memoryview))


def _is_list(value: Any) -> TypeGuard[Collection[Any]]:
    return isinstance(value, (list, tuple, set, frozenset, KeysView, ValuesView))


def _is_frame(value: Any) -> bool:
    return hasattr(value, "to_csv") and hasattr(value, "columns")


# -- JSON -----------------------------------------------------------------------------------


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_jsonable)
    except ValueError:
        return json.dumps(_without_nan(value), ensure_ascii=False, default=_jsonable)


def _indented_json(value: Any, most: int) -> str:
    encoder = json.JSONEncoder(indent=2, ensure_ascii=False, allow_nan=False, default=_jsonable)
    text = _Text(most)
    try:
        text.writelines(encoder.iterencode(value))
    except ValueError:
        text = _Text(most)
        text.writelines(encoder.iterencode(_without_nan(value)))
    return text.getvalue()


def _jsonable(value: Any) -> Any:
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (set, frozenset, KeysView, ValuesView)):
        return list(cast("Collection[Any]", value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return str(value)


def _without_nan(value: Any) -> Any:
    """The value with null where JSON has no number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in cast("list[Any]", value)]
    return value


# -- rows -----------------------------------------------------------------------------------


def _grid(rows: Collection[Any], most: int) -> Iterator[list[Any]]:
    """Rows as lists of cells; records get a first row with the names of their columns."""
    records = [_record(row) for row in rows]
    if not records or any(record is None for record in records):
        yield from (list(row) if _is_list(row) else [row] for row in rows)
        return
    found = cast("list[Mapping[Any, Any]]", records)
    columns = list(dict.fromkeys(key for record in found for key in record))
    if len(columns) * len(found) > most:  # each cell takes a byte at the least
        raise ContentTooLargeError
    yield columns
    yield from ([record.get(column) for column in columns] for record in found)


def _record(row: Any) -> Mapping[Any, Any] | None:
    if isinstance(row, Mapping):
        return cast("Mapping[Any, Any]", row)
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return None


def _separated(grid: Iterable[list[Any]], separator: str, most: int) -> bytes:
    out = _Text(most)
    writer = csv.writer(out, delimiter=separator, lineterminator="\n")
    writer.writerows([_nested_as_json(cell) for cell in row] for row in grid)
    return out.getvalue().encode("utf-8", "surrogatepass")


def _nested_as_json(cell: Any) -> Any:
    return _json(cell) if isinstance(cell, (dict, list)) else cell


# -- workbooks ------------------------------------------------------------------------------


def _workbook(
    name: str, ending: str, content: Any, row_files: Collection[str], most: int
) -> Content:
    if ending not in row_files:
        advice = (
            "needs a plugin beside delf (delf plugins install files-excel)"
            if ending in (".xlsx", ".xlsm")
            else "is not possible"
        )
        raise RuntimeError(f"{name!r}: making {ending} files {advice}; write a .csv file instead")
    sheets = _sheets(content, most)
    if sheets is None:
        raise TypeError(
            f"{name!r}: cannot make a workbook from a {type(content).__name__}; give a list of "
            "dicts, a data frame, or a dict with such a list for each sheet"
        )
    cells = {sheet: [[_cell(cell) for cell in row] for row in grid] for sheet, grid in sheets}
    return Content(dumps(cells), is_rows=True)


def _sheets(content: Any, most: int) -> list[tuple[str, Grid]] | None:
    if isinstance(content, Mapping):
        items = list(cast("Mapping[Any, Any]", content).items())
        grids = [(str(title), _one_sheet(rows, most)) for title, rows in items]
        if grids and all(grid is not None for _, grid in grids):
            return cast("list[tuple[str, Grid]]", grids)
        return None
    grid = _one_sheet(content, most)
    return None if grid is None else [("Sheet1", grid)]


def _one_sheet(rows: Any, most: int) -> Grid | None:
    if _is_frame(rows):
        return [list(rows.columns), *_frame_rows(rows)]
    return list(_grid(rows, most // 2)) if _is_list(rows) else None


def _cell(value: Any) -> Any:
    """A value that a cell can hold; what is nested becomes JSON, what is unknown text."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, (float, decimal.Decimal)) and value != value:  # noqa: PLR0124 - NaN
        return None
    if isinstance(value, _CELLS):
        return value
    item = getattr(value, "item", None)
    if callable(item):  # a number of numpy
        return item()
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return _json(value)
    return str(value)


# -- data frames, of whatever library -------------------------------------------------------


def _frame_rows(frame: Any) -> Grid:
    rows: Iterable[Any] = frame.itertuples(index=False, name=None)
    return [list(row) for row in rows]


def _frame_to_bytes(ending: str, frame: Any) -> bytes:
    writers: dict[str, Callable[[], Any]] = {
        ".json": lambda: frame.to_json(orient="records", indent=2, date_format="iso"),
        ".jsonl": lambda: frame.to_json(orient="records", lines=True, date_format="iso"),
        ".ndjson": lambda: frame.to_json(orient="records", lines=True, date_format="iso"),
        ".tsv": lambda: frame.to_csv(index=False, sep="\t"),
        ".html": lambda: frame.to_html(index=False),
        ".parquet": lambda: frame.to_parquet(None),
    }
    made = writers.get(ending, lambda: frame.to_csv(index=False))()
    return made if isinstance(made, bytes) else str(made).encode("utf-8", "surrogatepass")
