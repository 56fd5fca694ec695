"""Ranges in A1 notation and by name, as the service counts them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from delf.errors import ToolRefusedError, did_you_mean

_CORNER: Final = re.compile(r"\$?(?P<column>[A-Za-z]{0,3})\$?(?P<row>[0-9]{0,8})")
_MAX_CELLS: Final = 10_000_000


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
    def text(self) -> str:
        """The range in A1 notation."""
        quoted = self.sheet.title.replace("'", "''")
        bottom = self.sheet.rows if self.bottom is None else self.bottom
        right = self.sheet.columns if self.right is None else self.right
        # The row `bottom` and the column `right` are the first ones after the range.
        last_row = max(bottom, 1) - 1
        last_column = max(right, 1) - 1
        first = a1(self.top, self.left)
        last = a1(last_row, last_column)
        return f"'{quoted}'!{first}:{last}"

    def of_size(self, height: int, width: int) -> Area:
        """Return a range of this size that starts at the same cell."""
        bottom = self.top + height
        right = self.left + max(width, 1)
        return replace(self, bottom=bottom, right=right)

    def first_rows(self, max_rows: int) -> Area:
        """Return the range, cut to its first ``max_rows`` rows and to the size of the sheet."""
        end = self.sheet.rows if self.bottom is None else min(self.bottom, self.sheet.rows)
        right = self.sheet.columns if self.right is None else min(self.right, self.sheet.columns)
        bottom = max(self.top + 1, min(end, self.top + max_rows))
        return replace(self, bottom=bottom, right=max(self.left + 1, right))

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
            f"there is no sheet {title!r}{did_you_mean(title, known)}; sheets: {', '.join(known)}"
        )

    def area(self, text: str) -> Area:
        """Return the range that a text names: ``Sheet1!A1:C9``, ``A:C``, ``Sheet1`` or a name.

        Raises:
            ToolRefusedError: If the text is not a range.
        """
        text = text.strip()
        if text in self.names:
            return self._named_area(self.names[text])
        title, cells = _split_title(text)
        if not title and not cells:
            return Area(sheet=self.sheet(""))
        if not title and not _is_cells(cells):
            title = cells
            cells = ""
        sheet = self.sheet(title)
        if not cells:
            return Area(sheet=sheet)
        if not _is_cells(cells):
            raise ToolRefusedError(f"{text!r} is not a range, as Sheet1!A1:C9 or A:C is one")
        first, _, last = cells.partition(":")
        # _parse_cell_name() counts columns from 0 and rows from 1.
        left_column, top_row = _parse_cell_name(first)
        right_column, bottom_row = _parse_cell_name(last or first)
        # Area counts both from 0, and excludes the row `bottom` and the column `right`. For A1:C9,
        # `top` is 0 and `bottom` is 9, because the area consists of the rows 0 to 8.
        area = Area(
            sheet=sheet,
            top=(top_row or 1) - 1,
            left=left_column or 0,
            bottom=bottom_row,
            right=None if right_column is None else right_column + 1,
        )
        has_rows = area.bottom is None or area.bottom > area.top
        has_columns = area.right is None or area.right > area.left
        if not (has_rows and has_columns):
            raise ToolRefusedError(f"{text!r} ends before it begins")
        return area

    def _named_area(self, area: Mapping[str, Any]) -> Area:
        key = int(area.get("sheetId") or 0)
        sheet = next((sheet for sheet in self.sheets if sheet.id == key), self.sheets[0])
        return Area(
            sheet=sheet,
            top=int(area.get("startRowIndex") or 0),
            left=int(area.get("startColumnIndex") or 0),
            bottom=area.get("endRowIndex"),
            right=area.get("endColumnIndex"),
        )


def _sheet(properties: Mapping[str, Any]) -> Sheet:
    grid: Mapping[str, Any] = properties.get("gridProperties") or {}
    return Sheet(
        id=int(properties.get("sheetId") or 0),
        title=str(properties.get("title", "")),
        rows=int(grid.get("rowCount") or 0),
        columns=int(grid.get("columnCount") or 0),
    )


def growth(area: Area, height: int, width: int) -> list[dict[str, Any]]:
    """Return requests that enlarge the sheet of an area; update ``area.sheet`` to the new size.

    Raises:
        ToolRefusedError: If a sheet cannot be so large.
    """
    sheet = area.sheet
    requests: list[dict[str, Any]] = []
    rows = area.top + height
    columns = area.left + width
    if max(rows, sheet.rows) * max(columns, sheet.columns) > _MAX_CELLS:
        raise ToolRefusedError(f"{sheet.title} would have over {_MAX_CELLS:,} cells")
    for dimension, missing in (("ROWS", rows - sheet.rows), ("COLUMNS", columns - sheet.columns)):
        if missing > 0:
            body = {"sheetId": sheet.id, "dimension": dimension, "length": missing}
            requests.append({"appendDimension": body})
    sheet.rows, sheet.columns = max(rows, sheet.rows), max(columns, sheet.columns)
    return requests


def a1(row: int, column: int) -> str:
    """Return the name of a cell, such as ``B7``."""
    letters = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(65 + rest) + letters
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


def _parse_cell_name(text: str) -> tuple[int | None, int | None]:
    """Parse a cell's name to a column from 0 and a row from 1; None for an omitted part."""
    match = _CORNER.fullmatch(text)
    letters, digits = (match["column"], match["row"]) if match else ("", "")
    # The columns A to Z are 1 to 26, AA is 27 and so on: a number in base 26 without a zero.
    column_from_1 = 0
    for letter in letters.upper():
        column_from_1 = column_from_1 * 26 + ord(letter) - ord("A") + 1
    return column_from_1 - 1 if letters else None, int(digits) if digits else None
