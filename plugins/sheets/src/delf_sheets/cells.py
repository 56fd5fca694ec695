"""Conversion of cells to Python values and back. A text is a formula only on request."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from delf.errors import ToolRefusedError
from delf.values.conversion import unique_names

_EPOCH: Final = dt.datetime(1899, 12, 30)  # noqa: DTZ001 - sheets know no zones
_DAY: Final = 86_400
_LONGEST: Final = 50_000
_ERRORS: Final = {
    "DIVIDE_BY_ZERO": "#DIV/0!",
    "ERROR": "#ERROR!",
    "LOADING": "Loading...",
    "NAME": "#NAME?",
    "NULL_VALUE": "#NULL!",
    "NUM": "#NUM!",
    "N_A": "#N/A",
    "REF": "#REF!",
    "VALUE": "#VALUE!",
}
FORMATS: Final = {"DATE": "yyyy-mm-dd", "DATE_TIME": "yyyy-mm-dd hh:mm:ss", "TIME": "hh:mm:ss"}


def value_of(cell: Mapping[str, Any], *, formulas: bool = False) -> Any:
    """Return the value of a cell: text, number, bool, date, datetime, time, or None.

    Args:
        cell: The cell in the format of the Sheets API.
        formulas: Whether to return formulas instead of their results.
    """
    entered: Mapping[str, Any] = cell.get("userEnteredValue") or {}
    if formulas and "formulaValue" in entered:
        return entered["formulaValue"]
    value: Mapping[str, Any] = cell.get("effectiveValue") or {}
    if "numberValue" in value:
        cell_format: Mapping[str, Any] = cell.get("effectiveFormat") or {}
        number_format: Mapping[str, Any] = cell_format.get("numberFormat") or {}
        return _number_or_date(float(value["numberValue"]), number_format.get("type"))
    if "errorValue" in value:
        error_type = str(value["errorValue"].get("type", ""))
        return _ERRORS.get(error_type, f"#{error_type}!")
    return value.get("stringValue", value.get("boolValue"))


def _number_or_date(number: float, format_type: str | None) -> Any:
    """Convert the number in a cell to a date or time if its format shows one.

    Args:
        number: The number; for a date or time, the days since ``_EPOCH``.
        format_type: The type of the cell's number format, such as ``DATE``.
    """
    if format_type not in FORMATS:
        is_exact_integer = number.is_integer() and abs(number) < 2**53
        return int(number) if is_exact_integer else number
    try:
        since_epoch = dt.timedelta(seconds=round(number * _DAY, 3))
        moment = _EPOCH + since_epoch
    except OverflowError:
        return number
    if format_type == "DATE":
        return moment.date() if number == int(number) else moment
    if format_type == "DATE_TIME":
        return moment
    is_time_of_day = 0 <= number < 1  # otherwise the cell has a duration
    return moment.time() if is_time_of_day else since_epoch


def cell_of(value: Any, where: str, *, formulas: bool = False) -> tuple[dict[str, Any], str | None]:
    """Convert a value to a cell of the Sheets API, and return it with its number format, if any.

    Args:
        value: Text, number, bool, date, datetime, time, timedelta or None.
        where: The cell's name, for messages.
        formulas: Whether a text that begins with ``=`` is a formula.

    Raises:
        ToolRefusedError: If the value has another type, is not finite, or is too large or long.
    """
    if value is None:
        return {}, None
    if isinstance(value, bool):
        return {"boolValue": value}, None
    if isinstance(value, (int, float, Decimal)):
        if not _is_finite_as_float(value):
            # str() raises ValueError for an int with thousands of digits.
            shown = "so large a number" if isinstance(value, int) else value
            raise ToolRefusedError(f"{where}: a cell cannot hold {shown}")
        if isinstance(value, int) and int(float(value)) != value:
            raise ToolRefusedError(
                f"{where}: a cell cannot hold all digits of {value}; as text it can"
            )
        number = int(value) if isinstance(value, int) else float(value)
        return {"numberValue": number}, None
    if isinstance(value, str):
        if len(value) > _LONGEST:
            raise ToolRefusedError(
                f"{where}: the text has {len(value):,} characters, over {_LONGEST:,}"
            )
        # A lone "=" is a text in Sheets, too.
        if formulas and value.startswith("=") and value != "=":
            key = "formulaValue"
        else:
            key = "stringValue"
        return {key: value}, None
    day_count, date_format = _day_count_and_format(value)
    if date_format is None:
        raise ToolRefusedError(f"{where}: a cell cannot hold a {type(value).__name__}")
    return {"numberValue": day_count}, date_format


def _is_finite_as_float(number: float | Decimal) -> bool:
    """Return True if a number is finite as a float, which is the number type of cells."""
    try:
        return math.isfinite(number)
    except (OverflowError, ValueError):  # a too large int, or a signalling NaN
        return False


def _day_count_and_format(value: Any) -> tuple[float, str | None]:
    """Convert a date or time to a number of days; return the number and its format, as ``DATE``.

    Any other value gives ``(0.0, None)``.
    """
    if isinstance(value, dt.datetime):
        # Local time without a zone: sheets have no time zones.
        since_epoch = value.replace(tzinfo=None) - _EPOCH
        return since_epoch.total_seconds() / _DAY, "DATE_TIME"
    if isinstance(value, dt.date):
        return float((value - _EPOCH.date()).days), "DATE"
    if isinstance(value, dt.time):
        seconds = value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
        return seconds / _DAY, "TIME"
    if isinstance(value, dt.timedelta):
        return value.total_seconds() / _DAY, "TIME"
    return 0.0, None


def grid_of(sheet: Mapping[str, Any], *, formulas: bool = False) -> list[list[Any]]:
    """Return the values of a range, row by row.

    Empty rows and cells at the ends are omitted, also cells that only have a format.
    """
    data: Sequence[Mapping[str, Any]] = sheet.get("data") or ()
    rows: Sequence[Mapping[str, Any]] = ()
    if data:
        rows = data[0].get("rowData") or ()
    grid: list[list[Any]] = []
    for row in rows:
        cells = [value_of(cell, formulas=formulas) for cell in row.get("values") or ()]
        while cells and cells[-1] is None:
            cells.pop()
        grid.append(cells)
    while grid and not grid[-1]:
        grid.pop()
    return grid


def records_of(grid: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the rows below a header as dicts, whose keys are the names in the header.

    Missing and duplicate names get numbers.
    """
    if not grid:
        return []
    width = max(len(row) for row in grid)
    names = column_names(_of_width(grid[0], width))
    return [dict(zip(names, _of_width(row, width), strict=True)) for row in grid[1:]]


def column_names(header: Sequence[Any]) -> list[str]:
    """Return a name for each column of a header. Duplicate and empty names get numbers."""
    texts = ["" if cell is None else str(cell).strip() for cell in header]
    return unique_names(text or f"column_{number}" for number, text in enumerate(texts, start=1))


def _of_width(row: Sequence[Any], width: int) -> list[Any]:
    """Return a row with empty cells at its end, so that it has ``width`` cells."""
    return [*row, *[None] * (width - len(row))]
