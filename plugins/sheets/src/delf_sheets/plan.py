"""Plans the requests of one atomic batch."""

from __future__ import annotations

import itertools
import random
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from delf.errors import ToolRefusedError, did_you_mean
from delf_sheets.cells import FORMATS, cell_of, column_names
from delf_sheets.ranges import Area, Book, Sheet, a1

ChartKind = Literal["column", "bar", "line", "area", "scatter", "pie"]
_NAMED_COLORS: Final = {
    "black": "#000000",
    "white": "#ffffff",
    "red": "#ff0000",
    "green": "#008000",
    "blue": "#0000ff",
    "yellow": "#ffff00",
    "orange": "#ffa500",
    "grey": "#808080",
    "gray": "#808080",
}
# Google's limit on the cells of a whole spreadsheet. _grow() counts only the sheet that grows.
_MAX_CELLS: Final = 10_000_000

_LITERAL: Final = re.compile(r'"[^"]*"|\\.|[_*].')
_BRACKETS: Final = re.compile(r"\[[^\]]*\]")
_ELAPSED: Final = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_PARTS_OF_SECONDS: Final = re.compile(r"\.0+")
_EXPONENT: Final = re.compile(r"e[+-]")


class Plan:
    """The requests for a change of a spreadsheet, and the spreadsheet's state after them.

    Args:
        book: The spreadsheet before the change.
    """

    def __init__(self, book: Book) -> None:
        self.book = book
        self.requests: list[dict[str, Any]] = []
        self._is_unsafe_to_repeat = False
        # By sheet id, the changes of the first row: the first column and the values from there on.
        self._first_row_changes: dict[int, list[tuple[int, Sequence[Any]]]] = {}
        self.created_ids: set[int] = set()
        """The ids of new sheets and charts. The service refuses to create an existing id again, so
        a plan with such ids may be sent twice without harm.
        """

    @property
    def must_send_once(self) -> bool:
        """True if sending the plan's requests twice would change the spreadsheet twice."""
        # The service executes all requests or none. It refuses to create a sheet whose id exists,
        # and thus all requests of a second sending.
        is_second_sending_refused = bool(self.created_ids)
        return self._is_unsafe_to_repeat and not is_second_sending_refused

    def first_row(self, sheet: Sheet, present_row: Sequence[Any]) -> list[Any]:
        """Return the first row of a sheet as it will be after the requests.

        Args:
            sheet: The sheet.
            present_row: The first row before the requests.
        """
        row = list(present_row)
        for left, values in self._first_row_changes.get(sheet.id, ()):
            end = left + len(values)
            row += [None] * (end - len(row))
            row[left:end] = values
        return row

    def change_first_row(self, sheet: Sheet, left: int, values: Sequence[Any]) -> None:
        """Record that the plan writes values into a sheet's first row, from column ``left`` on."""
        self._first_row_changes.setdefault(sheet.id, []).append((left, values))

    def _grow(self, area: Area, height: int, width: int) -> None:
        """Enlarge a sheet so that ``height`` rows and ``width`` columns fit from an area's start.

        Raises:
            ToolRefusedError: If a sheet cannot be so large.
        """
        sheet = area.sheet
        rows = max(sheet.rows, area.top + height)
        columns = max(sheet.columns, area.left + width)
        if rows * columns > _MAX_CELLS:
            raise ToolRefusedError(f"{sheet.title} would have over {_MAX_CELLS:,} cells")
        added_counts = (("ROWS", rows - sheet.rows), ("COLUMNS", columns - sheet.columns))
        for dimension, added_count in added_counts:
            if added_count > 0:
                body = {"sheetId": sheet.id, "dimension": dimension, "length": added_count}
                self.requests.append({"appendDimension": body})
                self._is_unsafe_to_repeat = True  # a second sending would enlarge the sheet again
        sheet.rows, sheet.columns = rows, columns

    # -- cells --------------------------------------------------------------------------

    def write(self, where: str, rows: Sequence[Any], *, formulas: bool = False) -> int:
        """Write rows, beginning at the first cell of a range; return the number of cells.

        Args:
            where: The range.
            rows: The rows; for dicts, a header row is added.
            formulas: Whether a text that begins with ``=`` is a formula.
        """
        area = self.book.area(where)
        grid = with_header(rows)
        width = max((len(row) for row in grid), default=0)
        if not width:
            raise ToolRefusedError("there are no rows to write")
        self._check_fits(area, len(grid), width, where)
        self._grow(area, len(grid), width)
        cells, date_formats = _cells(grid, area.top, area.left, formulas=formulas)
        body = {"start": area.start, "rows": cells, "fields": "userEnteredValue"}
        self.requests.append({"updateCells": body})
        self.requests += _date_format_requests(area, date_formats)
        if area.top == 0:  # a later append to the sheet goes by the new header
            self.change_first_row(area.sheet, area.left, grid[0])
        return len(grid) * width

    def append(self, sheet: Sheet, grid: Sequence[Sequence[Any]], *, formulas: bool = False) -> int:
        """Append rows below the last non-empty row; return the number of appended rows."""
        if not grid:
            raise ToolRefusedError("there are no rows to append")
        width = max(len(row) for row in grid)
        # appendCells adds the missing rows to the sheet, but no columns.
        self._grow(Area(sheet=sheet), height=0, width=width)
        cells, date_formats = _cells(grid, 0, 0, formulas=formulas)
        # The service decides where the rows go, so the formats are set in the cells themselves.
        for (row, column), date_format in date_formats.items():
            cell_format = {"numberFormat": {"type": date_format, "pattern": FORMATS[date_format]}}
            cells[row]["values"][column]["userEnteredFormat"] = cell_format
        fields = "userEnteredValue" + (",userEnteredFormat.numberFormat" if date_formats else "")
        body = {"sheetId": sheet.id, "rows": cells, "fields": fields}
        self.requests.append({"appendCells": body})
        self._is_unsafe_to_repeat = True  # appending twice would add the rows twice
        return len(grid)

    def clear(self, where: str) -> None:
        """Remove the values of a range; formats stay."""
        area = self.book.area(where)
        self.requests.append({"updateCells": {"range": area.json, "fields": "userEnteredValue"}})
        if area.top == 0:
            right = area.sheet.columns if area.right is None else area.right
            self.change_first_row(area.sheet, area.left, [None] * (right - area.left))

    def add_sheet(self, title: str, rows: int = 1000, columns: int = 26) -> Sheet:
        """Plan to add a sheet; its id is chosen here, so that later requests can refer to it."""
        if any(sheet.title.lower() == title.lower() for sheet in self.book.sheets):
            raise ToolRefusedError(f"there is a sheet {title!r} already")
        sheet = Sheet(self._new_id(), title, rows, columns)
        grid = {"rowCount": rows, "columnCount": columns}
        properties = {"sheetId": sheet.id, "title": title, "gridProperties": grid}
        self.requests.append({"addSheet": {"properties": properties}})
        self.book.sheets.append(sheet)
        return sheet

    def _new_id(self) -> int:
        new_id = random.randrange(1, 2**31 - 1)  # noqa: S311 - an id
        self.created_ids.add(new_id)
        return new_id

    def _check_fits(self, area: Area, height: int, width: int, where: str) -> None:
        is_single_cell = area.bottom == area.top + 1 and area.right == area.left + 1
        if is_single_cell:
            return  # rows may extend beyond a range that only names their first cell
        if area.bottom is not None and height > area.bottom - area.top:
            raise ToolRefusedError(f"{height} rows do not fit into {where}")
        if area.right is not None and width > area.right - area.left:
            raise ToolRefusedError(f"{width} columns do not fit into {where}")

    # -- formats ------------------------------------------------------------------------

    def format(self, where: str, properties: Mapping[str, Any]) -> None:
        """Format a range.

        Args:
            where: The range.
            properties: The properties by name, such as ``bold``; None for no change.

        Raises:
            ToolRefusedError: If nothing would change.
        """
        area = self.book.area(where)
        cell_format: dict[str, Any] = {}
        fields: list[str] = []
        for name, (path, convert) in _FORMAT_FIELDS.items():
            if properties.get(name) is not None:
                _set_nested(cell_format, path, convert(properties[name]))
                fields.append(f"userEnteredFormat.{path}")
        frozen_rows = properties.get("freeze_rows")
        if not fields and frozen_rows is None:
            raise ToolRefusedError("give a new look: bold, color, number_format, …")
        if fields:
            body = {"range": area.json, "cell": {"userEnteredFormat": cell_format}}
            self.requests.append({"repeatCell": {**body, "fields": ",".join(fields)}})
        if frozen_rows is not None:
            grid = {"frozenRowCount": int(frozen_rows)}
            sheet_properties = {"sheetId": area.sheet.id, "gridProperties": grid}
            body = {"properties": sheet_properties, "fields": "gridProperties.frozenRowCount"}
            self.requests.append({"updateSheetProperties": body})

    def chart(self, where: str, kind: ChartKind, title: str, anchor: str) -> None:
        """Chart a range: the first column against the others, with names from the first row."""
        area = self.book.area(where)
        right = area.right if area.right is not None else area.sheet.columns
        if right - area.left < 2:
            raise ToolRefusedError(f"a chart of {where} needs two columns: names, then numbers")
        columns = [_column(area, index) for index in range(area.left, right)]
        anchor_area = self.book.area(anchor) if anchor else Area(sheet=area.sheet, left=right + 1)
        self._grow(anchor_area, 1, 1)
        spec = _chart_spec(kind, title, columns)
        position = {"overlayPosition": {"anchorCell": anchor_area.start}}
        chart = {"chartId": self._new_id(), "spec": spec, "position": position}
        self.requests.append({"addChart": {"chart": chart}})


def with_header(rows: Sequence[Any]) -> list[Sequence[Any]]:
    """Return rows as lists; for dicts, add a first row with their keys."""
    if not any(isinstance(row, Mapping) for row in rows):
        return [_checked_row(row) for row in rows]
    if not all(isinstance(row, Mapping) for row in rows):
        raise ToolRefusedError("rows are all dicts, or all lists")
    names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    values = [[row.get(name) for name in names] for row in rows]
    return [names, *values]


def rows_for(header: Sequence[Any], rows: Sequence[Any], column_count: int) -> list[Sequence[Any]]:
    """Return rows to append below a header, as lists; a dict's values follow the header's order.

    The dicts have the names that reading the sheet returns, see :func:`column_names`.

    Args:
        header: The first row of the sheet.
        rows: The rows, all dicts or all lists.
        column_count: The number of columns of the sheet, which may be wider than its header.

    Raises:
        ToolRefusedError: If a dict has a name that is not in the header, or two values for a name.
    """
    if not any(isinstance(row, Mapping) for row in rows):
        return [_checked_row(row) for row in rows]
    has_header = any(cell is not None and str(cell).strip() for cell in header)
    if not has_header:
        return with_header(rows)  # with_header() also refuses rows that are not dicts
    records: list[Mapping[Any, Any]] = []
    for row in rows:
        if not isinstance(row, Mapping):
            raise ToolRefusedError("rows are all dicts, or all lists")
        records.append(cast("Mapping[Any, Any]", row))
    names = _names_for(header, records, column_count)
    grid: list[Sequence[Any]] = []
    for record in records:
        values = _values_by_name(record, names)
        grid.append([values.get(name) for name in names])
    return grid


def _names_for(
    header: Sequence[Any], records: Sequence[Mapping[Any, Any]], column_count: int
) -> list[str]:
    """Return the names of the header's columns, and of further columns that a record uses.

    For the header ``["id", "name"]`` and a record with the key ``column_4``, the result is
    ``["id", "name", "column_3", "column_4"]``.
    """
    used_names = {_name_of(key) for record in records for key in record}
    right_of_header = [None] * (column_count - len(header))
    names = column_names([*header, *right_of_header])
    while len(names) > len(header) and names[-1] not in used_names:
        names.pop()
    return names


def _name_of(key: Any) -> str:
    """Convert a key of a dict to a column's name. The key may be a number, such as a year."""
    return str(key).strip()


def _values_by_name(row: Mapping[Any, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return a row whose keys became names of columns: ``2026`` becomes ``"2026"``.

    Raises:
        ToolRefusedError: If a key is not among the names, or if two keys mean the same name.
    """
    values: dict[str, Any] = {}
    for key, value in row.items():
        name = _name_of(key)
        if name not in names:
            raise ToolRefusedError(
                f"there is no column {name!r}; columns: {', '.join(names)}"
                f"{did_you_mean(name, names)}"
            )
        if name in values:  # from another key, such as "2026" beside 2026
            raise ToolRefusedError(f"a row has two values for the column {name!r}")
        values[name] = value
    return values


def _checked_row(row: Any) -> Sequence[Any]:
    if not isinstance(row, (list, tuple)):
        raise ToolRefusedError(f"a row is a list or a dict, not a {type(row).__name__}")
    return row  # pyright: ignore[reportUnknownVariableType]


def _cells(
    grid: Sequence[Sequence[Any]], top: int, left: int, *, formulas: bool
) -> tuple[list[dict[str, Any]], dict[tuple[int, int], str]]:
    """Return rows in the Sheets API's format, and the formats of dates by (row, column).

    Rows and columns are counted from the start of the grid, whose first cell is (top, left).
    """
    date_formats: dict[tuple[int, int], str] = {}
    rows: list[dict[str, Any]] = []
    for r, row in enumerate(grid):
        cells: list[dict[str, Any]] = []
        for c, value in enumerate(row):
            cell_name = a1(top + r, left + c)  # for messages
            entered, date_format = cell_of(value, cell_name, formulas=formulas)
            if date_format is not None:
                date_formats[r, c] = date_format
            cells.append({"userEnteredValue": entered} if entered else {})
        rows.append({"values": cells})
    return rows, date_formats


def _date_format_requests(
    area: Area, date_formats: Mapping[tuple[int, int], str]
) -> list[dict[str, Any]]:
    """Return requests that format dates: one for adjacent cells of a column with equal format."""
    requests: list[dict[str, Any]] = []
    for (row, column), date_format in date_formats.items():
        if date_formats.get((row - 1, column)) == date_format:
            continue  # the request of a row above sets this format, too
        end = row + 1
        while date_formats.get((end, column)) == date_format:
            end += 1
        left = area.left + column
        dates_area = Area(
            sheet=area.sheet,
            top=area.top + row,
            left=left,
            bottom=area.top + end,
            right=left + 1,
        )
        cell_format = {"numberFormat": {"type": date_format, "pattern": FORMATS[date_format]}}
        body = {"range": dates_area.json, "cell": {"userEnteredFormat": cell_format}}
        fields = "userEnteredFormat.numberFormat"
        requests.append({"repeatCell": {**body, "fields": fields}})
    return requests


def _number_format(pattern: str) -> dict[str, str]:
    return {"type": _number_format_type(pattern), "pattern": pattern}


def _number_format_type(pattern: str) -> str:
    """Return the Sheets API's type of a number format, such as DATE.

    If ``;`` divides the format into sections, the first section decides. Literal text and brackets,
    such as a colour or a condition, are ignored.
    """
    first_section = _LITERAL.sub("", pattern).split(";")[0]
    codes = _BRACKETS.sub("", first_section).lower()
    # Zeros after seconds, as in "ss.000", belong to a time. Any other digit means a number.
    has_digits = _has_any("0#?", _PARTS_OF_SECONDS.sub("", codes))
    has_elapsed_time = _ELAPSED.search(first_section) is not None  # such as "[h]"
    date_or_time = _date_or_time_type(codes, has_elapsed_time=has_elapsed_time)
    if date_or_time is not None and not has_digits:
        return date_or_time
    if codes.strip() == "@":
        return "TEXT"
    if "%" in codes:
        return "PERCENT"
    if _EXPONENT.search(codes):
        return "SCIENTIFIC"
    is_money = any(unicodedata.category(character) == "Sc" for character in pattern)
    return "CURRENCY" if is_money else "NUMBER"


def _date_or_time_type(codes: str, *, has_elapsed_time: bool) -> str | None:
    """Return DATE, TIME or DATE_TIME; None if the codes of a format are for neither."""
    has_time = _has_any("hs", codes) or has_elapsed_time
    # An m is the month in a date, but the minute in a time.
    has_date = _has_any("yd", codes) or ("m" in codes and not has_time)
    if has_time and has_date:
        return "DATE_TIME"
    if has_date:
        return "DATE"
    return "TIME" if has_time else None


def _has_any(characters: str, text: str) -> bool:
    return any(character in text for character in characters)


def _set_nested(data: dict[str, Any], path: str, value: Any) -> None:
    """Set a field of nested objects by its path, such as ``textFormat.bold``."""
    *parents, last = path.split(".")
    for parent in parents:
        data = data.setdefault(parent, {})
    data[last] = value


def _color(text: str) -> dict[str, Any]:
    """Convert a color, such as ``#ff8800`` or ``red``, to the API's format."""
    value = _NAMED_COLORS.get(text.lower(), text).lstrip("#")
    try:
        numbers = bytes.fromhex(value)
    except ValueError:
        numbers = b""
    if len(numbers) != 3:
        named = ", ".join(_NAMED_COLORS)
        raise ToolRefusedError(f"{text!r} is not a color: #ff8800, or one of {named}")
    red, green, blue = (number / 255 for number in numbers)
    return {"rgbColor": {"red": red, "green": green, "blue": blue}}


def _borders(shown: bool) -> dict[str, Any]:
    line = {"style": "SOLID" if shown else "NONE"}
    return dict.fromkeys(("top", "bottom", "left", "right"), line)


# The Sheets API's field for each option of ``format``, and a function for the option's value.
_FORMAT_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "bold": ("textFormat.bold", bool),
    "italic": ("textFormat.italic", bool),
    "font_size": ("textFormat.fontSize", int),
    "color": ("textFormat.foregroundColorStyle", _color),
    "background": ("backgroundColorStyle", _color),
    "number_format": ("numberFormat", _number_format),
    "align": ("horizontalAlignment", str.upper),
    "borders": ("borders", _borders),
}


def _column(area: Area, index: int) -> dict[str, Any]:
    bottom = area.bottom if area.bottom is not None else area.sheet.rows
    span = Area(sheet=area.sheet, top=area.top, left=index, bottom=bottom, right=index + 1)
    return {"sourceRange": {"sources": [span.json]}}


def _chart_spec(kind: str, title: str, columns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a chart in the Sheets API's format; the first column has the labels."""
    first, *others = columns
    if kind == "pie":
        pie = {"domain": first, "series": others[0], "legendPosition": "RIGHT_LEGEND"}
        return {"title": title, "pieChart": pie}
    axis = "BOTTOM_AXIS" if kind == "bar" else "LEFT_AXIS"  # bars are horizontal
    basic: dict[str, Any] = {
        "chartType": kind.upper(),
        "legendPosition": "BOTTOM_LEGEND",
        "domains": [{"domain": first}],
        "series": [{"series": column, "targetAxis": axis} for column in others],
        "headerCount": 1,
    }
    return {"title": title, "basicChart": basic}
