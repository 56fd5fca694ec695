"""Reading of old workbooks, ``.xls``."""

from __future__ import annotations

import ast
import io
import itertools
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from delf.errors import ToolExecutionError
from delf.notes import note
from delf.protocols.formats import Peek
from delf_files.excel.reading import (
    MAX_CELLS,
    MergedTexts,
    no_sheet_error,
    no_workbook_error,
    note_early_date,
    note_if_hidden,
    note_sheets_without_cells,
)
from delf_files.excel.scan import Area

_UNREAD_SHEET: Final = re.compile(
    r"""Ignoring non-worksheet data named ('[^\n]*'|"[^\n]*") \(type 0x0[12] """
)
_NUMBER = 2
_DATE = 3
_BOOLEAN = 4
_ERROR = 5
_EMPTY_CELLS: Final = (0, 6)


def sheet_names(path: str) -> list[str]:
    """Return the names of a workbook's sheets.

    Raises:
        ToolExecutionError: If the workbook cannot be read.
    """
    with _opened(path) as book:
        note_sheets_without_cells(book.without_cells)
        return list(book.sheet_names())


def peek(path: str, name: str | None, max_rows: int | None) -> Peek:
    """Return the first non-empty rows of a sheet.

    Args:
        path: The path of the workbook.
        name: The sheet's name; the first sheet when None.
        max_rows: The maximum number of rows; all rows when None.

    Raises:
        ToolExecutionError: If the workbook cannot be read, does not have the sheet, or is too
            large.
    """
    with _opened(path) as book:
        names = book.sheet_names()
        if name is not None and name not in names:
            raise no_sheet_error(name, names)
        if not names:
            raise ToolExecutionError("the workbook has no sheet with cells")
        sheet = book.sheet_by_index(0 if name is None else names.index(name))
        note_if_hidden(sheet.name, is_hidden=bool(sheet.visibility))
        if sheet.nrows * sheet.ncols > MAX_CELLS:
            raise ToolExecutionError(
                f"the sheet has more than {MAX_CELLS:,} cells; save it as .csv and open() that in "
                "the script"
            )
        rows = list(itertools.islice(_filled_rows(sheet, book), max_rows))
        has_all_rows = max_rows is None or len(rows) < max_rows
        return Peek(rows, total=len(rows) if has_all_rows else sheet.nrows)


@contextmanager
def _opened(path: str) -> Generator[Any]:
    try:
        with _open_workbook(path) as book:
            yield book
    except ToolExecutionError:
        raise
    except OSError as error:
        raise ToolExecutionError(f"the workbook cannot be read: {error.strerror}") from error
    except Exception as error:  # xlrd raises exceptions of any type for damaged files
        raise no_workbook_error(path, ".xls", error) from error


def _open_workbook(path: str) -> Any:
    """Open a workbook with xlrd; read a damaged workbook as far as possible, with a note."""
    import xlrd

    library: Any = xlrd
    log = io.StringIO()  # for xlrd's warnings
    options: dict[str, Any] = {"on_demand": True, "formatting_info": True, "logfile": log}
    options["verbosity"] = 1  # xlrd then also logs sheets without cells
    try:
        book = library.open_workbook(path, **options)
    except (library.XLRDError, library.compdoc.CompDocError) as error:
        damage = str(error)
    else:
        unread_sheets = _UNREAD_SHEET.findall(log.getvalue())
        book.without_cells = [ast.literal_eval(name) for name in unread_sheets]
        return book
    if "encrypted" in damage.lower():
        raise ToolExecutionError("the workbook has a password; save it without one")
    book = library.open_workbook(path, ignore_workbook_corruption=True, **options)
    book.without_cells = []
    note(f"the workbook is damaged ({damage[:100]}) and was read as far as it goes")
    return book


def _filled_rows(sheet: Any, book: Any) -> Iterator[tuple[int, list[Any]]]:
    """Yield the non-empty rows with their numbers, without empty cells at the end.

    The text of merged cells is repeated in each of the cells.
    """
    # For each style of the book, whether cells of this style show durations.
    shows_duration = [_is_duration_style(book, style) for style in book.xf_list]
    # xlrd counts rows and columns from 0, and the ends of its areas are exclusive.
    areas = [Area(row + 1, left, end, right - 1) for row, end, left, right in sheet.merged_cells]
    merged_texts = MergedTexts(areas)

    def value_of(cell: Any) -> Any:
        is_number = cell.ctype in (_NUMBER, _DATE)
        style_number = cell.xf_index or 0  # an index in ``book.xf_list``
        if is_number and shows_duration[style_number]:
            return _duration(cell.value)
        return _value(cell, book.datemode)

    for number in range(1, sheet.nrows + 1):
        values = list(map(value_of, sheet.row(number - 1)))
        merged_texts.fill(values, number)
        while values and values[-1] is None:
            values.pop()
        if values:
            yield number, values


def _is_duration_style(book: Any, style: Any) -> bool:
    """Return True if a cell style formats numbers as durations, such as ``[h]:mm``."""
    from openpyxl.styles.numbers import is_timedelta_format

    number_format = book.format_map.get(style.format_key)
    return number_format is not None and is_timedelta_format(number_format.format_str)


def _duration(days: float) -> Any:
    """Convert a number of days to a ``timedelta``; return too large numbers unchanged."""
    from openpyxl.utils import datetime

    excel: Any = datetime
    try:
        return excel.from_excel(days, timedelta=True)
    except OverflowError:
        return days


def _value(cell: Any, mode: Any) -> Any:
    """Return the value of a cell as a Python object; whole numbers become ``int``.

    Args:
        cell: The cell.
        mode: The workbook's date mode, which sets the day from which its dates count.
    """
    import xlrd

    if cell.ctype in _EMPTY_CELLS or cell.value == "":
        return None
    if cell.ctype == _NUMBER:
        return int(cell.value) if cell.value.is_integer() else cell.value
    if cell.ctype == _DATE:
        if cell.value < 0:
            note_early_date()
            return cell.value
        try:
            moment = xlrd.xldate.xldate_as_datetime(cell.value, mode)
        except (OverflowError, ValueError):
            note("cells with dates that do not exist were read as numbers")
            return cell.value
        return moment.time() if cell.value < 1 else moment  # day 0: a time without a date
    if cell.ctype == _BOOLEAN:
        return bool(cell.value)
    if cell.ctype == _ERROR:
        return xlrd.error_text_from_code.get(cell.value, "#ERROR")
    return cell.value
