"""Ranges in A1 notation and by name, as the service counts them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from delf.errors import ToolRefusedError, did_you_mean

_CORNER: Final = re.compile(r"\$?(?P<column>[A-Za-z]{0,3})\$?(?P<row>[0-9]{0,8})")


@dataclass(slots=True)
class Sheet:
    """A sheet of a book as it will be after the requests that are planned, but not yet sent."""

    id: int
    title: str
    rows: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A rectangle of cells in a sheet.

    Rows and columns count from 0, and ``bottom`` and ``right`` are exclusive. None as an end is the
    end of the sheet.
    """

    sheet: Sheet
    top: int = 0
    left: int = 0
    bottom: int | None = None
    right: int | None = None

    @property
    def json(self) -> dict[str, Any]:
        """Return the range as a GridRange of the Sheets API."""
        grid_range: dict[str, Any] = {"sheetId": self.sheet.id}
        grid_range |= {"startRowIndex": self.top, "startColumnIndex": self.left}
        if self.bottom is not None:
            grid_range["endRowIndex"] = self.bottom
        if self.right is not None:
            grid_range["endColumnIndex"] = self.right
        return grid_range

    @property
    def is_empty(self) -> bool:
        """True for a range without cells, whose end is not after its start."""
        has_rows = self.bottom is None or self.bottom > self.top
        has_columns = self.right is None or self.right > self.left
        return not (has_rows and has_columns)

    @property
    def text(self) -> str:
        """The range in A1 notation."""
        bottom = self.sheet.rows if self.bottom is None else self.bottom
        right = self.sheet.columns if self.right is None else self.right
        # The row `bottom` and the column `right` are the first ones after the range.
        last_row = max(bottom, 1) - 1
        last_column = max(right, 1) - 1
        first = a1(self.top, self.left)
        last = a1(last_row, last_column)
        return f"{quoted_title(self.sheet.title)}!{first}:{last}"

    def of_size(self, height: int, width: int) -> Area:
        """Return a range of this size that starts at the same cell."""
        column_count = max(width, 1)  # a range has a column even if all rows are empty
        return replace(self, bottom=self.top + height, right=self.left + column_count)

    def first_rows(self, max_rows: int) -> Area:
        """Return the range, cut to its first ``max_rows`` rows and to the size of the sheet."""
        bottom = min(self.sheet.rows, self.top + max_rows)
        right = self.sheet.columns
        if self.bottom is not None:
            bottom = min(bottom, self.bottom)
        if self.right is not None:
            right = min(right, self.right)
        # A range that begins beyond the end of the sheet still has a cell.
        return replace(self, bottom=max(bottom, self.top + 1), right=max(right, self.left + 1))

    @property
    def start(self) -> dict[str, Any]:
        """The first cell, as a GridCoordinate."""
        return {"sheetId": self.sheet.id, "rowIndex": self.top, "columnIndex": self.left}


@dataclass(slots=True)
class Book:
    """A spreadsheet's sheets and named ranges."""

    id: str
    title: str
    link: str
    sheets: list[Sheet]
    names: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    @classmethod
    def read(cls, resource: Mapping[str, Any]) -> Book:
        """Build a book from a spreadsheet of the Sheets API."""
        sheets: Sequence[Mapping[str, Any]] = resource.get("sheets") or ()
        named: Sequence[Mapping[str, Any]] = resource.get("namedRanges") or ()
        properties: Mapping[str, Any] = resource.get("properties") or {}
        return cls(
            id=str(resource["spreadsheetId"]),
            title=str(properties.get("title", "")),
            link=str(resource.get("spreadsheetUrl", "")),
            sheets=[_sheet(item["properties"]) for item in sheets],
            names={str(item["name"]): item["range"] for item in named},
        )

    def sheet(self, title: str) -> Sheet:
        """Return a sheet by title; the first sheet for an empty title.

        Raises:
            ToolRefusedError: If there is no such sheet.
        """
        if not title and self.sheets:
            return self.sheets[0]
        for sheet in self.sheets:
            if sheet.title.lower() == title.lower():
                return sheet
        known = [sheet.title for sheet in self.sheets]
        raise ToolRefusedError(
            f"there is no sheet {title!r}; sheets: {', '.join(known)}{did_you_mean(title, known)}"
        )

    def area(self, text: str) -> Area:
        """Return the range that a text names: ``Sheet1!A1:C9``, ``A:C``, ``Sheet1`` or a name.

        Raises:
            ToolRefusedError: If the text is not a range.
        """
        text = text.strip()
        if text in self.names:
            return self._named_area(text)
        title, cells = _split_title(text)
        if not title and not _is_cells(cells):  # the title alone, such as "Sheet1"
            title = cells
            cells = ""
        sheet = self.sheet(title)
        if not cells:
            return Area(sheet=sheet)
        if not _is_cells(cells):
            raise ToolRefusedError(f"{text!r} is not a range, as Sheet1!A1:C9 or A:C is one")
        area = _area_of_cells(sheet, cells)
        if area.is_empty:
            raise ToolRefusedError(f"{text!r} ends before it begins")
        return area

    def _named_area(self, name: str) -> Area:
        grid_range = self.names[name]
        sheet_id = int(grid_range.get("sheetId") or 0)  # Google leaves out the id 0
        sheet = next((sheet for sheet in self.sheets if sheet.id == sheet_id), None)
        if sheet is None:
            raise ToolRefusedError(f"{name!r} is a range of a sheet that does not exist")
        return Area(
            sheet=sheet,
            top=int(grid_range.get("startRowIndex") or 0),
            left=int(grid_range.get("startColumnIndex") or 0),
            bottom=grid_range.get("endRowIndex"),
            right=grid_range.get("endColumnIndex"),
        )


def _sheet(properties: Mapping[str, Any]) -> Sheet:
    grid: Mapping[str, Any] = properties.get("gridProperties") or {}
    return Sheet(
        id=int(properties.get("sheetId") or 0),
        title=str(properties.get("title", "")),
        rows=int(grid.get("rowCount") or 0),
        columns=int(grid.get("columnCount") or 0),
    )


def quoted_title(title: str) -> str:
    """Return a sheet's title in quotes, as A1 notation requires for titles with blanks."""
    doubled = title.replace("'", "''")
    return f"'{doubled}'"


def a1(row: int, column: int) -> str:
    """Return the name of a cell, such as ``B7``."""
    letters = ""
    column += 1
    while column:
        column, remainder = divmod(column - 1, 26)
        letters = chr(ord("A") + remainder) + letters
    return f"{letters}{row + 1}"


def _split_title(text: str) -> tuple[str, str]:
    if text.startswith("'"):
        match = re.fullmatch(r"'((?:[^']|'')*)'(?:!(.*))?", text)
        if match is None:
            raise ToolRefusedError(f"{text!r} is not a range: its quotes do not match")
        return match[1].replace("''", "'"), match[2] or ""
    title, separator, cells = text.rpartition("!")
    return (title, cells) if separator else ("", text)


def _is_cells(text: str) -> bool:
    """Return True for a cell or a range of cells, such as ``A1``, ``A1:B7``, ``A:B`` or ``1:7``."""
    first, colon, last = text.partition(":")
    if not colon:
        match = _CORNER.fullmatch(first)
        # "A1" is a cell; "A" or "7" alone is the title of a sheet, not a column or row.
        return match is not None and bool(match["column"] and match["row"])
    return all(corner and _CORNER.fullmatch(corner) for corner in (first, last))


def _area_of_cells(sheet: Sheet, cells: str) -> Area:
    first_name, _, last_name = cells.partition(":")
    first = _parse_cell_name(first_name)
    last = _parse_cell_name(last_name or first_name)
    # Names count from 1 and Area from 0. The ends stay as they are, because Area excludes the row
    # `bottom` and the column `right`: A1:C9 has the rows 0 to 8, so `bottom` is 9.
    return Area(
        sheet=sheet,
        top=(first.row or 1) - 1,
        left=(first.column or 1) - 1,
        bottom=last.row,
        right=last.column,
    )


class _CellName(NamedTuple):
    """The column and row in a cell's name, both from 1; None for an omitted part."""

    column: int | None
    row: int | None


def _parse_cell_name(text: str) -> _CellName:
    match = _CORNER.fullmatch(text)
    if match is None:
        return _CellName(None, None)
    column = _column_number(match["column"]) if match["column"] else None
    row = int(match["row"]) if match["row"] else None
    return _CellName(column, row)


def _column_number(letters: str) -> int:
    """Return 1 to 26 for A to Z, 27 for AA and so on: a number in base 26 without a zero."""
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    return number
