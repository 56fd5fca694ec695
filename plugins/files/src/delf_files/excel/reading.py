"""Reading of workbooks row by row, with limits: a small archive can hold a very large sheet."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import re
import warnings
import zipfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Final
from xml.etree import ElementTree as ET

from delf.errors import ToolExecutionError
from delf.notes import note
from delf.protocols.formats import Peek
from delf.values.json_reader import format_names
from delf_confined.office import is_locked, with_usual_part_names
from delf_confined.text import decode_if_text
from delf_confined.words import shorten_message
from delf_files.excel.scan import MAX_ROWS, Area, Sheet, check_archive, scan_sheet
from delf_files.forms import DETECTION_BYTES, find_format

MAX_CELLS: Final = 2_000_000
MAX_AREA: Final = 50_000_000
"""The maximum number of cells of all rows, including empty cells, which also take memory."""

_MAX_ERROR_CHARACTERS: Final = 300
_FIRST_BYTES: Final = {".xls": b"\xd0\xcf\x11\xe0"}
_UNREADABLE_DATE: Final = re.compile(
    r"Cell (\w+) is marked as a date but the serial value (\S+) is outside"
)
_COMPUTE_ON_LOAD: Final = re.compile(rb"<[^<>]*\bfullCalcOnLoad\s*=\s*[\"'](?:1|true)[\"']")
_ESCAPE: Final = re.compile(r"_x([0-9A-Fa-f]{4})_")


def sheet_names(path: str) -> list[str]:
    """Return the names of the worksheets, with notes about other sheets that the workbook lists.

    The other sheets have no cells, such as charts, or are missing in the file.

    Raises:
        ToolExecutionError: If the workbook cannot be read.
    """
    with _opened(path) as book:
        note_sheets_without_cells([sheet.title for sheet in book.chartsheets])
        _note_missing_sheets(path, book.sheetnames)
        return [sheet.title for sheet in book.worksheets]


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
        sheet = _sheet(book, name)
        # openpyxl finds the XML files ("parts") of a workbook by the names that Excel uses. If
        # another program used other names, the source is a stream with a corrected copy.
        source = with_usual_part_names(path)
        scan = scan_sheet(source, sheet._worksheet_path)  # noqa: SLF001 - openpyxl has no public attribute
        note_if_hidden(sheet.title, is_hidden=sheet.sheet_state != "visible")
        _note_formulas(scan, source)
        # openpyxl reads either the values or the formulas of a book. Some cells may have a formula
        # without a value; then the book is opened a second time, for its formulas.
        needs_formulas = bool(scan.uncomputed_cells)
        opened = _opened(path, values=False) if needs_formulas else nullcontext()
        with opened as formula_book:
            formula_sheet = None if formula_book is None else formula_book[sheet.title]
            filled_rows = _filled_rows(sheet, formula_sheet, scan, book.epoch)
            rows = list(itertools.islice(filled_rows, max_rows))
    has_all_rows = max_rows is None or len(rows) < max_rows
    return Peek(rows, total=len(rows) if has_all_rows else scan.row_count)


def note_sheets_without_cells(names: Sequence[str]) -> None:
    """Add a note to the call's result that sheets without cells, such as charts, are left out."""
    if names:
        note(f"sheets without cells, such as charts, are left out: {', '.join(map(repr, names))}")


def _note_missing_sheets(path: str, names: Sequence[str]) -> None:
    """Add a note about sheets that the workbook lists but does not contain."""
    root = ET.fromstring(_main_part(with_usual_part_names(path)))  # noqa: S314 - check_archive scanned it
    listed_names = [node.get("name", "") for node in root.iter() if node.tag.endswith("}sheet")]
    missing_names = [name for name in listed_names if name not in names]
    if missing_names:
        note(f"sheets that the workbook lists are not in it: {', '.join(map(repr, missing_names))}")


def _main_part(source: str | IO[bytes]) -> bytes:
    with zipfile.ZipFile(source) as archive:
        names = (name for name in archive.namelist() if name.lower() == "xl/workbook.xml")
        return next((archive.read(name) for name in names), b"<workbook/>")


def note_if_hidden(name: str, *, is_hidden: bool) -> None:
    """Add a note to the call's result if a sheet is hidden in the workbook."""
    if is_hidden:
        note(f"the sheet {name!r} is hidden")


def note_early_date() -> None:
    """Add a note to the call's result that dates before 1900 were read as numbers.

    Excel's calendar has no such dates.
    """
    note("cells with dates before 1900 were read as Excel's negative day numbers")


def _note_formulas(sheet: Sheet, source: str | IO[bytes]) -> None:
    """Add notes about formulas without a computed value, and about possibly outdated values."""
    if sheet.uncomputed_cells:
        row, column = next(iter(sheet.uncomputed_cells))
        note(
            "formulas without a computed value were read as their text: "
            f"{len(sheet.uncomputed_cells):,}, the first in row {row}, column {column + 1}"
        )
    if sheet.computed_count and _COMPUTE_ON_LOAD.search(_main_part(source)):
        note(
            f"the values of {sheet.computed_count:,} formulas may be missing or old: the workbook "
            "asks to be computed when it is opened; a program that computes, such as Excel, has to "
            "save it once"
        )


@contextmanager
def _opened(path: str, *, values: bool = True) -> Generator[Any]:
    """Yield an open workbook of openpyxl.

    Args:
        path: The path of the workbook.
        values: Whether cells have the computed values of formulas, not the formulas' texts.

    Raises:
        ToolExecutionError: If the workbook cannot be read.
    """
    from openpyxl import load_workbook

    try:
        check_archive(path)
        lost_dates: list[str] = []
        with warnings.catch_warnings():
            # Ignore warnings about styles and extensions, which are not read.
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", message=_UNREADABLE_DATE.pattern)
            warnings.showwarning = _record_lost_dates(lost_dates)
            source = _openpyxl_source(path)
            book = load_workbook(source, read_only=True, data_only=values, keep_links=False)
            try:
                yield book
            finally:
                book.close()
        if lost_dates and values:  # opening the formulas, too, would repeat the note
            names = format_names(lost_dates)
            note(f"cells with dates that do not exist were read as '#VALUE!': {names}")
    except ToolExecutionError:
        raise
    except OSError as error:
        raise ToolExecutionError(f"the workbook cannot be read: {error.strerror}") from error
    except Exception as error:  # openpyxl raises exceptions of any type for damaged files
        raise no_workbook_error(path, ".xlsx", error) from error


def _openpyxl_source(path: str) -> str | IO[bytes]:
    """Return what openpyxl can open: the path of a workbook, or a stream with its content.

    openpyxl refuses the extension ``.xls``, which some workbooks of the new format have.
    """
    # A stream if the workbook's XML had to be rewritten for openpyxl, else the path.
    source = with_usual_part_names(path)
    if isinstance(source, str) and source.lower().endswith(".xls"):
        return io.BytesIO(Path(source).read_bytes())
    return source


def _record_lost_dates(lost_dates: list[str]) -> Any:
    """Return a hook for warnings that appends each cell with an unreadable date to a list.

    The hook takes the place of ``warnings.showwarning`` while openpyxl loads a workbook.
    """

    def record(message: Warning, *_: Any, **__: Any) -> None:
        # Only the message names the cell. The other arguments name the line of openpyxl's code.
        if match := _UNREADABLE_DATE.match(str(message)):
            lost_dates.append(f"{match[1]} ({match[2]})")

    return record


def _sheet(book: Any, name: str | None) -> Any:
    """Return a sheet by its name, or the first sheet when the name is None."""
    sheets = book.worksheets
    if not sheets:
        raise ToolExecutionError("the workbook has no sheet with cells")
    if name is None:
        return sheets[0]
    for sheet in sheets:
        if sheet.title == name:
            return sheet
    raise no_sheet_error(name, [sheet.title for sheet in sheets])


def no_workbook_error(path: str, ending: str, error: Exception) -> ToolExecutionError:
    """Return the error for a file that cannot be opened as a workbook.

    The message names the file's real format if that is known.

    Args:
        path: The path of the file.
        ending: The expected extension, such as ``.xlsx``.
        error: The error of the library.
    """
    if not Path(path).stat().st_size:
        return ToolExecutionError("the file is empty")
    if is_locked(path):
        return ToolExecutionError("the workbook has a password; save it without one")
    with Path(path).open("rb") as file:
        head = file.read(DETECTION_BYTES)
    if not head.startswith(_FIRST_BYTES.get(ending, b"PK")):
        real_format = find_format(head)
        if real_format is None and head and decode_if_text(head) is not None:
            real_format = "text"
        if real_format is not None:
            return ToolExecutionError(
                f"it is no {ending} workbook but {real_format}; open() it in the script"
            )
    return ToolExecutionError(
        f"the workbook is damaged, has a password, or is no {ending} file "
        f"({shorten_message(f'{type(error).__name__}: {error}', _MAX_ERROR_CHARACTERS)})"
    )


def no_sheet_error(name: str | None, names: Sequence[str]) -> ToolExecutionError:
    """Return the error for a missing sheet, with the names of the existing sheets."""
    listed = ", ".join(map(repr, names)) or "none"
    return ToolExecutionError(f"there is no sheet {name!r}; the sheets: {listed}")


def _rows(sheet: Any) -> Iterator[Sequence[Any]]:
    sheet.reset_dimensions()  # the declared size may be wrong
    return sheet.iter_rows(values_only=True, max_row=MAX_ROWS + 1)


def _filled_rows(
    sheet: Any, formula_sheet: Any, scan: Sheet, epoch: dt.datetime
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the non-empty rows with their numbers, without empty cells at the end.

    Args:
        sheet: The sheet with values.
        formula_sheet: The same sheet with formulas; None if all formulas have values.
        scan: The result of scanning the sheet.
        epoch: The first day of the workbook's calendar.

    Raises:
        ToolExecutionError: If the sheet exceeds a limit.
    """
    merged_texts = MergedTexts(scan.merged_areas)
    spanned_count = 0  # the number of cells, including empty ones
    cell_count = 0  # without the empty cells at the ends of rows
    for number, (row, formulas) in enumerate(_rows_with_formulas(sheet, formula_sheet), 1):
        values = [_cell_value(value, epoch) for value in row]
        _fill_formulas(values, formulas, number, scan)
        merged_texts.fill(values, number)
        spanned_count += len(values)
        while values and values[-1] is None:
            values.pop()
        cell_count += len(values)
        _check_size(spanned_count, cell_count)
        if not values:
            continue
        if number > MAX_ROWS:
            raise ToolExecutionError(f"the sheet has more than {MAX_ROWS:,} rows")
        yield number, values


def _rows_with_formulas(
    sheet: Any, formula_sheet: Any
) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """Yield the values and the formulas of each row; no formulas if ``formula_sheet`` is None."""
    if formula_sheet is None:
        return zip(_rows(sheet), itertools.repeat(()), strict=False)
    return zip(_rows(sheet), _rows(formula_sheet), strict=False)


def _fill_formulas(
    values: list[Any], formulas: Sequence[Any], row_number: int, scan: Sheet
) -> None:
    """Write the text of the formula into each cell whose formula has no computed value.

    Args:
        values: The values of the row, which are changed in place.
        formulas: The formulas of the row, by column; may be empty.
        row_number: The number of the row, from 1.
        scan: The result of scanning the sheet, which knows the cells without computed values.
    """
    for index, formula in enumerate(formulas):
        if values[index] is None and (row_number, index) in scan.uncomputed_cells:
            # openpyxl returns most formulas as a text, an array formula as an object with a text,
            # and a data table as an object without one.
            text = getattr(formula, "text", formula)
            if isinstance(text, str):
                values[index] = text


def _check_size(spanned_count: int, cell_count: int) -> None:
    """Raise if a sheet is too large.

    Args:
        spanned_count: The number of cells, including empty ones.
        cell_count: The number of cells without the empty ones at the ends of rows.

    Raises:
        ToolExecutionError: If a number exceeds its limit.
    """
    if spanned_count > MAX_AREA:
        raise ToolExecutionError(
            f"the sheet spans more than {MAX_AREA:,} cells, empty ones included; save it as "
            ".csv and open() that in the script"
        )
    if cell_count > MAX_CELLS:
        raise ToolExecutionError(
            f"the sheet has more than {MAX_CELLS:,} cells; save it as .csv and open() that in "
            "the script"
        )


def _cell_value(value: Any, epoch: dt.datetime) -> Any:
    """Decode escapes such as ``_x000D_`` in text, and convert too early dates to numbers."""
    if isinstance(value, dt.datetime) and value < epoch:
        note_early_date()
        return (value - epoch) / dt.timedelta(days=1)
    if isinstance(value, str) and "_x" in value:
        text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), value)
        # Two escapes may be the halves of one character, such as an emoji.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return value


class MergedTexts:
    """The texts of merged cells, to repeat in each of the cells, so that every row has its label.

    A number stays in the first cell only, so that a sum counts the number once.

    Args:
        areas: The merged areas of a sheet.
    """

    def __init__(self, areas: Sequence[Area]) -> None:
        self._areas_by_top_row: dict[int, list[Area]] = {}
        for area in areas:
            self._areas_by_top_row.setdefault(area.top, []).append(area)
        # The areas, with their texts, that began in an earlier row and reach the next row.
        self._open_areas: list[tuple[Area, str]] = []

    def fill(self, values: list[Any], number: int) -> None:
        """Write the texts of merged areas into a row; call for each row from top to bottom.

        Args:
            values: The cells of the row, in which only the first cell of each area has a value.
            number: The number of the row.
        """
        for area in self._areas_by_top_row.get(number, ()):  # the areas that begin in this row
            text = values[area.left] if area.left < len(values) else None
            if isinstance(text, str):
                self._open_areas.append((area, text))
        for area, text in self._open_areas:
            end = area.right + 1
            missing_cells = max(0, end - len(values))  # the row may end before the area does
            values.extend([None] * missing_cells)
            width = end - area.left
            values[area.left : end] = [text] * width
        reach_next_row = [(area, text) for area, text in self._open_areas if area.bottom > number]
        self._open_areas = reach_next_row
