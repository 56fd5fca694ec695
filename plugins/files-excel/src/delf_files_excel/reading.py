"""Reads workbooks row by row, within limits: a small archive can hold a very large sheet."""

from __future__ import annotations

import itertools
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from delf.errors import ToolExecutionError

MAX_UNPACKED: Final = 256 * 1024 * 1024
MAX_CELLS: Final = 2_000_000
MAX_ROWS: Final = 1_048_576
"""As many as Excel has; without it, a row could claim a number that is never reached."""
_FORMULA: Final = re.compile(rb"<(?:\w+:)?f[\s/>]")
_PIECE: Final = 1024 * 1024


def sheet_names(path: str) -> list[str]:
    """The names of a workbook's sheets that hold cells.

    Raises:
        ToolExecutionError: When it cannot be read.
    """
    with _opened(path) as book:
        return [sheet.title for sheet in book.worksheets]


def read_rows(path: str, name: str | None) -> list[dict[str, Any]]:
    """The rows of a sheet as records; the first row that is not empty names the columns.

    Rows without any value are left out. Columns without a name get one if they hold anything.
    A formula gives the value that was stored with it, or its text if none was.

    Args:
        path: The workbook.
        name: The sheet; the first when None.

    Raises:
        ToolExecutionError: When it cannot be read, has no such sheet, or is too large.
    """
    with _opened(path) as book, _formulas(path) as formulas:
        sheet = _sheet(book, name)
        rows = list(_filled_rows(sheet, formulas and formulas[sheet.title]))
    if not rows:
        return []
    width = max(map(len, rows))
    columns = _columns(rows[0], width)
    return [
        dict(zip(columns, [*row, *[None] * (width - len(row))], strict=True)) for row in rows[1:]
    ]


def _formulas(path: str) -> Any:
    """The workbook once more, with formulas in place of their values, if it has any."""
    return _opened(path, values=False) if _has_formulas(path) else nullcontext()


def _has_formulas(path: str) -> bool:
    with zipfile.ZipFile(path) as archive:
        for item in archive.namelist():
            if item.startswith("xl/worksheets/") and item.endswith(".xml"):
                with archive.open(item) as part:
                    before = b""
                    while piece := part.read(_PIECE):
                        if _FORMULA.search(before + piece):
                            return True
                        before = piece[-80:]
    return False


@contextmanager
def _opened(path: str, *, values: bool = True) -> Iterator[Any]:
    from openpyxl import load_workbook

    try:
        _check_size(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and extensions, which are not read
            book = load_workbook(path, read_only=True, data_only=values)
            try:
                yield book
            finally:
                book.close()
    except ToolExecutionError:
        raise
    except OSError as error:
        raise ToolExecutionError(f"the workbook cannot be read: {error.strerror}") from error
    except Exception as error:  # openpyxl raises whatever a damaged file leads to
        raise ToolExecutionError(
            "the workbook is damaged, has a password, or is no .xlsx file "
            f"({type(error).__name__}: {error})"[:400]
        ) from error


def _check_size(path: str) -> None:
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(item.file_size for item in archive.infolist())
    if unpacked > MAX_UNPACKED:
        raise ToolExecutionError(
            f"the workbook has {unpacked:,} bytes unpacked, and at most {MAX_UNPACKED:,} are "
            "read; save the sheet as .csv and open() that in the script"
        )


def _sheet(book: Any, name: str | None) -> Any:
    sheets = book.worksheets
    if name is None and sheets:
        return sheets[0]
    for sheet in sheets:
        if sheet.title == name:
            return sheet
    listed = ", ".join(repr(sheet.title) for sheet in sheets) or "none"
    raise ToolExecutionError(f"there is no sheet {name!r}; the sheets: {listed}")


def _rows(sheet: Any) -> Iterator[Sequence[Any]]:
    sheet.reset_dimensions()  # what a file says about its size may be wrong
    return sheet.iter_rows(values_only=True, max_row=MAX_ROWS + 1)


def _filled_rows(sheet: Any, formulas: Any) -> Iterator[list[Any]]:
    """The rows with any value, cut after their last one."""
    cells = 0
    written = itertools.repeat(()) if formulas is None else _rows(formulas)
    for number, (row, texts) in enumerate(zip(_rows(sheet), written, strict=False), 1):
        values = list(row)
        for index, text in enumerate(texts):
            if values[index] is None:
                values[index] = getattr(text, "text", text)  # of an array's formula
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
            yield values


def _columns(header: Sequence[Any], width: int) -> list[str]:
    names: dict[str, None] = {}
    for index in range(width):
        value = header[index] if index < len(header) else None
        own = "" if value is None else str(value).strip()
        own = own or f"column_{index + 1}"
        name, number = own, 1
        while name in names:
            number += 1
            name = f"{own}_{number}"
        names[name] = None
    return list(names)
