"""Creation of workbooks, in which text of a model never becomes a formula."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf.errors import ToolExecutionError

_MAX_ROWS: Final = 1_048_576
_MAX_COLUMNS: Final = 16_384
_MAX_TEXT_CHARACTERS: Final = 32_767
_MAX_TITLE_CHARACTERS: Final = 31
_FIRST_INEXACT_INT: Final = 2**53
_NOT_IN_TITLES: Final = re.compile(r"[\\*?:/\[\]\x00-\x1f]")
_NOT_IN_CELLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

_ESCAPE_LIKE: Final = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")


def make_workbook(parts: Mapping[str, Sequence[Sequence[Any]]]) -> bytes:
    """Return the bytes of a workbook.

    Args:
        parts: A mapping from sheet name to the rows of the sheet.

    Raises:
        ToolExecutionError: If rows, columns or characters exceed Excel's limits.
    """
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    # Check all rows before writing: an abandoned sheet leaves a temporary file behind.
    rows_by_sheet = {name: _convert_rows(rows) for name, rows in parts.items()}
    book = Workbook(write_only=True)
    titles: set[str] = set()
    for name, rows in rows_by_sheet.items():
        sheet: Any = book.create_sheet(_unique_title(name, titles))
        for row in rows:
            for index, value in enumerate(row):
                if isinstance(value, str):
                    cell: Any = WriteOnlyCell(sheet, value)
                    cell.data_type = "s"  # text that begins with "=" is not a formula
                    row[index] = cell
            sheet.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _convert_rows(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Convert all values of rows to values that a cell can hold.

    Raises:
        ToolExecutionError: If there are too many rows or columns, or a text is too long.
    """
    if len(rows) > _MAX_ROWS:
        raise ToolExecutionError(
            f"a sheet has at most {_MAX_ROWS:,} rows, these are {len(rows):,}; write a .csv file"
        )
    if any(len(row) > _MAX_COLUMNS for row in rows):
        raise ToolExecutionError(f"a sheet has at most {_MAX_COLUMNS:,} columns; write a .csv file")
    return [[_cell_value(value) for value in row] for row in rows]


def _unique_title(name: str, titles: set[str]) -> str:
    """Return a valid name for a sheet that is not in ``titles``, and add the name to ``titles``."""
    base_name = _NOT_IN_TITLES.sub(" ", name).strip(" '")[:_MAX_TITLE_CHARACTERS] or "Sheet"
    title = base_name
    number = 1
    while title.casefold() in titles:
        number += 1
        suffix = f" {number}"
        title = base_name[: _MAX_TITLE_CHARACTERS - len(suffix)] + suffix
    titles.add(title.casefold())
    return title


def _cell_value(value: Any) -> Any:
    """Convert a value to a value that a cell can hold.

    Large numbers and values of other types become text.
    """
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) < _FIRST_INEXACT_INT else str(value)
        case float():
            return value if math.isfinite(value) else None
        case decimal.Decimal():
            return value if value.is_finite() else str(value)
        case dt.datetime() | dt.time() if value.tzinfo is not None:
            return value.isoformat()
        case dt.datetime() | dt.date():
            return value if value.year >= 1900 else value.isoformat()
        case dt.time():
            return value
        case _:
            return _cell_text(str(value))


def _cell_text(text: str) -> str:
    if len(text) > _MAX_TEXT_CHARACTERS:
        raise ToolExecutionError(
            f"a cell holds at most {_MAX_TEXT_CHARACTERS:,} characters, one has {len(text):,}; "
            "write a .csv file"
        )
    allowed_text = _NOT_IN_CELLS.sub("\ufffd", text)
    # Excel reads a text such as _x0041_ as an escaped "A": escape the first underscore.
    return _ESCAPE_LIKE.sub("_x005F_", allowed_text)
