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
from delf_confined.office import is_locked, usual_form
from delf_confined.text import decode_if_text
from delf_confined.words import shorten_message
from delf_files.excel.scan import MAX_ROWS, Area, Sheet, check_archive, check_sheet
from delf_files.forms import LOOKED_AT, form_of

MAX_CELLS: Final = 2_000_000
MAX_AREA: Final = 50_000_000
"""The maximum number of cells of all rows, including empty ones, because a row is built before it
is cut.
"""

_LONGEST: Final = 300
_BEGINNINGS: Final = {".xls": b"\xd0\xcf\x11\xe0"}
_NO_DATE: Final = re.compile(
    r"Cell (\w+) is marked as a date but the serial value (\S+) is outside"
)
_MUST_COMPUTE: Final = re.compile(rb"<[^<>]*\bfullCalcOnLoad\s*=\s*[\"'](?:1|true)[\"']")
_ESCAPE: Final = re.compile(r"_x([0-9A-Fa-f]{4})_")


def sheet_names(path: str) -> list[str]:
    """Return the names of the sheets with cells.

    Raises:
        ToolExecutionError: If the workbook cannot be read.
    """
    with _opened(path) as book:
        note_without_cells([sheet.title for sheet in book.chartsheets])
        _note_lost(path, book.sheetnames)
        return [sheet.title for sheet in book.worksheets]


def peek(path: str, name: str | None, max_rows: int | None) -> Peek:
    """Return the first non-empty rows of a sheet.

    Raises:
        ToolExecutionError: If the workbook cannot be read, does not have the sheet, or is too
            large.
    """
    with _opened(path) as book:
        sheet = _sheet(book, name)
        source = usual_form(path)
        scan = check_sheet(source, sheet._worksheet_path)  # noqa: SLF001 - no public one
        note_hidden(sheet.title, is_hidden=sheet.sheet_state != "visible")
        _note_formulas(scan, source)
        with _opened(path, values=False) if scan.uncomputed else nullcontext() as formulas:
            texts = formulas and formulas[sheet.title]
            filled_rows = _filled_rows(sheet, texts, scan, book.epoch)
            rows = list(itertools.islice(filled_rows, max_rows))
    return Peek(rows, len(rows) if max_rows is None or len(rows) < max_rows else scan.rows)


def note_without_cells(names: Sequence[str]) -> None:
    """Add a note about sheets without cells, such as chart sheets."""
    if names:
        note(f"sheets without cells, as of charts, are left out: {', '.join(map(repr, names))}")


def _note_lost(path: str, names: Sequence[str]) -> None:
    """Add a note about sheets that the workbook lists but does not contain."""
    root = ET.fromstring(_main_part(usual_form(path)))  # noqa: S314 - looked through before
    listed = [each.get("name", "") for each in root.iter() if each.tag.endswith("}sheet")]
    missing_names = [name for name in listed if name not in names]
    if missing_names:
        note(f"sheets that the workbook lists are not in it: {', '.join(map(repr, missing_names))}")


def _main_part(source: str | IO[bytes]) -> bytes:
    with zipfile.ZipFile(source) as archive:
        names = (name for name in archive.namelist() if name.lower() == "xl/workbook.xml")
        return next((archive.read(name) for name in names), b"<workbook/>")


def note_hidden(name: str, *, is_hidden: bool) -> None:
    """Add a note if a sheet is hidden in the workbook."""
    if is_hidden:
        note(f"the sheet {name!r} is hidden")


def note_early() -> None:
    """Add a note about a date before the first day of the workbook's calendar.

    Excel cannot show such a date.
    """
    note("cells that are dates before 1900, which have negative numbers, came as their numbers")


def _note_formulas(sheet: Sheet, source: str | IO[bytes]) -> None:
    """Add a note about formulas without a computed value, or with a possibly outdated one."""
    if sheet.uncomputed:
        row, column = next(iter(sheet.uncomputed))
        note(
            f"formulas that no program has computed came as their text: {len(sheet.uncomputed):,}, "
            f"the first in row {row}, column {column + 1}"
        )
    if sheet.computed and _MUST_COMPUTE.search(_main_part(source)):
        note(
            f"the values of {sheet.computed:,} formulas may be missing or old: the workbook asks "
            "to be computed when it is opened; a program that computes, such as Excel, has to save "
            "it once"
        )


@contextmanager
def _opened(path: str, *, values: bool = True) -> Generator[Any]:
    """Open a workbook while the block runs; failures become ToolExecutionError."""
    from openpyxl import load_workbook

    try:
        check_archive(path)
        lost_dates: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions, which are not read
            warnings.filterwarnings("always", message=_NO_DATE.pattern)
            warnings.showwarning = _record_lost_dates(lost_dates)
            book = load_workbook(_source(path), read_only=True, data_only=values, keep_links=False)
            try:
                yield book
            finally:
                book.close()
        if lost_dates and values:
            names = format_names(lost_dates)
            note(f"cells that are dates no calendar has came as '#VALUE!': {names}")
    except ToolExecutionError:
        raise
    except OSError as error:
        raise ToolExecutionError(f"the workbook cannot be read: {error.strerror}") from error
    except Exception as error:  # openpyxl raises anything for damaged files
        raise no_workbook(path, ".xlsx", error) from error


def _source(path: str) -> str | IO[bytes]:
    """Return a path or stream that openpyxl opens, whatever the file extension."""
    source = usual_form(path)
    if isinstance(source, str) and source.lower().endswith(".xls"):
        return io.BytesIO(Path(source).read_bytes())
    return source


def _record_lost_dates(lost_dates: list[str]) -> Any:
    """Return a hook that records each cell with a date that openpyxl cannot read."""

    def keep(message: Warning, *_: Any, **__: Any) -> None:
        if match := _NO_DATE.match(str(message)):
            lost_dates.append(f"{match[1]} ({match[2]})")

    return keep


def _sheet(book: Any, name: str | None) -> Any:
    sheets = book.worksheets
    if name is None and sheets:
        return sheets[0]
    if not sheets:
        raise ToolExecutionError("the workbook has no sheet with cells")
    for sheet in sheets:
        if sheet.title == name:
            return sheet
    raise no_sheet(name, [sheet.title for sheet in sheets])


def no_workbook(path: str, ending: str, error: Exception) -> ToolExecutionError:
    """Return the error for a file that is not a workbook, with its real format if known."""
    if not Path(path).stat().st_size:
        return ToolExecutionError("the file is empty")
    if is_locked(path):
        return ToolExecutionError("the workbook has a password; save it without one")
    with Path(path).open("rb") as file:
        head = file.read(LOOKED_AT)
    if not head.startswith(_BEGINNINGS.get(ending, b"PK")):
        form = form_of(head) or ("text" if head and decode_if_text(head) is not None else None)
        if form is not None:
            return ToolExecutionError(
                f"it is no {ending} workbook but {form}; open() it in the script"
            )
    return ToolExecutionError(
        f"the workbook is damaged, has a password, or is no {ending} file "
        f"({shorten_message(f'{type(error).__name__}: {error}', _LONGEST)})"
    )


def no_sheet(name: str | None, names: Sequence[str]) -> ToolExecutionError:
    """Return the error for a missing sheet."""
    listed = ", ".join(map(repr, names)) or "none"
    return ToolExecutionError(f"there is no sheet {name!r}; the sheets: {listed}")


def _rows(sheet: Any) -> Iterator[Sequence[Any]]:
    sheet.reset_dimensions()  # the declared size may be wrong
    return sheet.iter_rows(values_only=True, max_row=MAX_ROWS + 1)


def _filled_rows(
    sheet: Any, formulas: Any, result: Sheet, epoch: dt.datetime
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the non-empty rows with their numbers, cut after their last value.

    The text of merged cells is repeated in each of them, so that every row has its label. A number
    is in the first cell only, so that a sum counts it once.
    """
    areas_by_top_row: dict[int, list[Area]] = {}
    for merged in result.merged:
        areas_by_top_row.setdefault(merged.top, []).append(merged)
    open_areas: list[tuple[Area, str]] = []
    cells = total_area = 0
    formula_rows = itertools.repeat(()) if formulas is None else _rows(formulas)
    for number, (row, texts) in enumerate(zip(_rows(sheet), formula_rows, strict=False), 1):
        values = [_plain(value, epoch) for value in row]
        for index, formula in enumerate(texts):
            if values[index] is None and (number, index) in result.uncomputed:
                text = getattr(formula, "text", formula)  # for array formulas
                values[index] = text if isinstance(text, str) else None  # None for data tables
        if open_areas or number in areas_by_top_row:
            open_areas = _fill_merged_cells(
                values, number, open_areas, areas_by_top_row.get(number, ())
            )
        total_area += len(values)
        if total_area > MAX_AREA:
            raise ToolExecutionError(
                f"the sheet spans more than {MAX_AREA:,} cells, empty ones included; save it as "
                ".csv and open() that in the script"
            )
        while values and values[-1] is None:
            values.pop()
        cells += len(values)
        if cells > MAX_CELLS:
            raise ToolExecutionError(
                f"the sheet has more than {MAX_CELLS:,} cells; save it as .csv and open() that in "
                "the script"
            )
        if values and number > MAX_ROWS:
            raise ToolExecutionError(f"the sheet has more than {MAX_ROWS:,} rows")
        if values:
            yield number, values


def _plain(value: Any, epoch: dt.datetime) -> Any:
    """Return a cell's value, with XML escapes of line breaks decoded."""
    if isinstance(value, dt.datetime) and value < epoch:
        note_early()
        return (value - epoch) / dt.timedelta(days=1)
    if isinstance(value, str) and "_x" in value:
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), value)
    return value


def _fill_merged_cells(
    values: list[Any], number: int, open_areas: list[tuple[Area, str]], new_areas: Sequence[Area]
) -> list[tuple[Area, str]]:
    """Repeat the texts of merged cells in a row; return the merged areas that continue below."""
    for area in new_areas:
        text = values[area.left] if area.left < len(values) else None
        if isinstance(text, str):
            open_areas.append((area, text))
    for area, text in open_areas:
        values.extend([None] * (area.right + 1 - len(values)))
        values[area.left : area.right + 1] = [text] * (area.right + 1 - area.left)
    return [(area, text) for area, text in open_areas if area.bottom > number]
