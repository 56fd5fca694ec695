"""Spreadsheets: typed cells, formats, charts, and batches that are done whole or not at all."""

from __future__ import annotations

import ast
import copy
import csv
import datetime as dt
import io
import operator
import re
from dataclasses import dataclass, field
from typing import Any

from support.google.calls import ApiError, Call, answers_of_requests, serves
from support.google.drive import NATIVE, DriveService

KIND = f"{NATIVE}spreadsheet"
CELL = re.compile(r"\$?([A-Za-z]*)\$?(\d*)")
EPOCH = dt.date(1899, 12, 30)
Cell = dict[str, Any]


@dataclass
class Sheet:
    properties: dict[str, Any]
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    charts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> int:
        return self.properties["sheetId"]

    @property
    def size(self) -> tuple[int, int]:
        grid = self.properties["gridProperties"]
        return grid["rowCount"], grid["columnCount"]

    def last_row(self) -> int:
        return max(
            (row for (row, _), cell in self.cells.items() if "userEnteredValue" in cell), default=-1
        )


@dataclass
class Book:
    id: str
    properties: dict[str, Any]
    sheets: list[Sheet] = field(default_factory=list)
    names: list[dict[str, Any]] = field(default_factory=list)
    last_id: int = 0

    def new_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def by_id(self, key: int) -> Sheet:
        for sheet in self.sheets:
            if sheet.id == key:
                return sheet
        raise ApiError(400, f"No grid with id: {key}", "badRequest")

    def copy(self) -> Book:
        sheets = [
            Sheet(copy.deepcopy(s.properties), dict(s.cells), list(s.charts)) for s in self.sheets
        ]
        return Book(self.id, dict(self.properties), sheets, list(self.names), self.last_id)


class SheetsService:
    """All spreadsheets; their files are in the drive."""

    def __init__(self, drive: DriveService) -> None:
        self.books: dict[str, Book] = {}
        self.drive = drive
        drive.exporters["spreadsheet"] = self._export
        drive.creators["spreadsheet"] = self._created
        drive.deleters["spreadsheet"] = lambda key: self.books.pop(key, None)

    def _created(self, key: str, title: str, media: bytes | None, kind: str | None) -> None:
        book = self.new_book(key, {"title": title})
        if media is not None:
            for row, line in enumerate(csv.reader(io.StringIO(media.decode()))):
                for column, text in enumerate(line):
                    book.sheets[0].cells[row, column] = {"userEnteredValue": _typed(text)}

    def new_book(self, key: str, properties: dict[str, Any]) -> Book:
        properties = {
            "title": "Untitled spreadsheet",
            "locale": "en_US",
            "timeZone": "Etc/GMT",
            **properties,
        }
        book = self.books[key] = Book(key, properties)
        self._add_sheet(book, {"sheetId": 0, "title": "Sheet1"})
        return book

    # -- methods ------------------------------------------------------------------------

    @serves("sheets.spreadsheets.create")
    def create(self, call: Call) -> Any:
        title = call.body.get("properties", {}).get("title", "Untitled spreadsheet")
        file = self.drive.add(title, KIND, owner=call.user)
        book = self.new_book(file.id, call.body.get("properties", {}))
        if sheets := call.body.get("sheets"):
            book.sheets.clear()
            for sheet in sheets:
                self._add_sheet(book, sheet.get("properties", {}))
        return self._resource(book, [], grid=False)

    @serves("sheets.spreadsheets.get")
    def get(self, call: Call) -> Any:
        book = self._book(call["spreadsheetId"])
        ranges = call.get("ranges", [])
        grid = call.get("includeGridData", False) or "data" in (call.get("fields") or "")
        return self._resource(book, ranges, grid=grid)

    @serves("sheets.spreadsheets.batchUpdate")
    def batch(self, call: Call) -> Any:
        book = self._book(call["spreadsheetId"])
        requests = call.body.get("requests", [])
        if not requests:
            raise ApiError(400, "Must specify at least one request.", "badRequest")
        draft = book.copy()
        replies = answers_of_requests(self, draft, requests)
        self.books[book.id] = draft
        self.drive.touch(book.id)
        return {"spreadsheetId": book.id, "replies": replies}

    def _book(self, key: str) -> Book:
        if key not in self.books:
            raise ApiError(404, "Requested entity was not found.", "notFound")
        return self.books[key]

    # -- requests of a batch ------------------------------------------------------------

    def _add_sheet(self, book: Book, properties: dict[str, Any]) -> Sheet:
        title = properties.get("title") or f"Sheet{len(book.sheets) + 1}"
        if any(sheet.properties["title"].lower() == title.lower() for sheet in book.sheets):
            raise ApiError(
                400,
                f'A sheet with the name "{title}" already exists. Please enter another name.',
                "badRequest",
            )
        grid = {"rowCount": 1000, "columnCount": 26, **properties.get("gridProperties", {})}
        if grid["rowCount"] * grid["columnCount"] > 10_000_000:
            raise ApiError(
                400,
                "This action would increase the number of cells in the workbook above the limit of 10000000 cells.",
            )
        key = properties.get("sheetId")
        key = book.new_id() if key is None else key
        sheet = Sheet(
            {
                "sheetType": "GRID",
                "index": len(book.sheets),
                **properties,
                "sheetId": key,
                "title": title,
                "gridProperties": grid,
            }
        )
        book.sheets.append(sheet)
        return sheet

    def _do_addSheet(self, book: Book, body: dict[str, Any]) -> Any:
        return {
            "addSheet": {"properties": self._add_sheet(book, body.get("properties", {})).properties}
        }

    def _do_updateSheetProperties(self, book: Book, body: dict[str, Any]) -> None:
        properties = body["properties"]
        sheet = book.by_id(properties.get("sheetId", 0))
        for path in _fields(body):
            _copy_path(properties, sheet.properties, path)

    def _do_appendDimension(self, book: Book, body: dict[str, Any]) -> None:
        grid = book.by_id(body.get("sheetId", 0)).properties["gridProperties"]
        grid["rowCount" if body["dimension"] == "ROWS" else "columnCount"] += body["length"]

    def _do_updateCells(self, book: Book, body: dict[str, Any]) -> None:
        place = body.get("range") or body.get("start")
        sheet = book.by_id(place.get("sheetId", 0))
        rows = body.get("rows", [])
        top, left = (
            place.get("startRowIndex", place.get("rowIndex", 0)),
            place.get("startColumnIndex", place.get("columnIndex", 0)),
        )
        self._put(sheet, top, left, rows, _fields(body))
        if "range" in body:  # what of the range has no data is cleared
            given = {
                (top + r, left + c)
                for r, row in enumerate(rows)
                for c in range(len(row.get("values", [])))
            }
            for spot in [s for s in _spots(sheet, place) if s not in given]:
                self._write(sheet, spot, {}, _fields(body))

    def _do_appendCells(self, book: Book, body: dict[str, Any]) -> None:
        sheet = book.by_id(body.get("sheetId", 0))
        top = sheet.last_row() + 1
        rows = body.get("rows", [])
        grid = sheet.properties["gridProperties"]
        grid["rowCount"] = max(grid["rowCount"], top + len(rows))
        self._put(sheet, top, 0, rows, _fields(body))

    def _put(self, sheet: Sheet, top: int, left: int, rows: list[Any], fields: list[str]) -> None:
        height, width = sheet.size
        for r, row in enumerate(rows):
            for c, cell in enumerate(row.get("values", [])):
                if top + r >= height or left + c >= width:
                    raise ApiError(
                        400,
                        f"Attempting to write row: {top + r}, column: {left + c}, beyond the grid of {height} rows, {width} columns",
                    )
                self._write(sheet, (top + r, left + c), cell, fields)

    def _write(self, sheet: Sheet, spot: tuple[int, int], given: Cell, fields: list[str]) -> None:
        cell = copy.deepcopy(sheet.cells.get(spot, {}))
        for path in fields:
            _copy_path(given, cell, path)
        value = cell.get("userEnteredValue")
        if value is not None and len(value) > 1:
            raise ApiError(400, "a cell has one value")
        if (
            value is not None
            and "formulaValue" in value
            and not value["formulaValue"].startswith("=")
        ):
            raise ApiError(400, "a formula begins with =")
        if value is not None and len(str(next(iter(value.values()), ""))) > 50_000:
            raise ApiError(
                400,
                "Your input contains more than the maximum of 50000 characters in a single cell.",
            )
        if not value:
            cell.pop("userEnteredValue", None)
        if cell:
            sheet.cells[spot] = cell
        else:
            sheet.cells.pop(spot, None)

    def _do_repeatCell(self, book: Book, body: dict[str, Any]) -> None:
        sheet = book.by_id(body["range"].get("sheetId", 0))
        for spot in _spots(sheet, body["range"], everything=True):
            self._write(sheet, spot, body.get("cell", {}), _fields(body))

    def _do_addChart(self, book: Book, body: dict[str, Any]) -> Any:
        chart = body["chart"]
        if "basicChart" not in chart.get("spec", {}) and "pieChart" not in chart.get("spec", {}):
            raise ApiError(400, "a chart needs a spec")
        position = chart.get("position", {})
        if chart.get("chartId") in {c["chartId"] for s in book.sheets for c in s.charts}:
            raise ApiError(400, f"A chart with id {chart['chartId']} already exists.")
        chart = {"chartId": book.new_id(), **chart}
        if position.get("newSheet"):
            sheet = self._add_sheet(book, {})
        else:
            sheet = book.by_id(position["overlayPosition"]["anchorCell"].get("sheetId", 0))
        sheet.charts.append(chart)
        return {"addChart": {"chart": chart}}

    # -- resources ----------------------------------------------------------------------

    def _resource(self, book: Book, ranges: list[str], *, grid: bool) -> dict[str, Any]:
        areas = [_area(book, text) for text in ranges] or [
            (sheet, {"sheetId": sheet.id}) for sheet in book.sheets
        ]
        sheets: dict[int, dict[str, Any]] = {}
        for sheet, area in areas:
            shown = sheets.setdefault(sheet.id, {"properties": sheet.properties})
            if sheet.charts:
                shown["charts"] = sheet.charts
            if grid:
                shown.setdefault("data", []).append(self._grid(sheet, area))
        found = {
            "spreadsheetId": book.id,
            "properties": book.properties,
            "sheets": list(sheets.values()),
            "spreadsheetUrl": f"https://docs.google.com/spreadsheets/d/{book.id}/edit",
        }
        return found | ({"namedRanges": book.names} if book.names else {})

    def _grid(self, sheet: Sheet, area: dict[str, Any]) -> dict[str, Any]:
        top, left = area.get("startRowIndex", 0), area.get("startColumnIndex", 0)
        rows: dict[int, dict[int, Cell]] = {}
        for row, column in _spots(sheet, area):
            rows.setdefault(row, {})[column] = sheet.cells[row, column]
        data: dict[str, Any] = {"rowData": []}
        for row in range(top, max(rows, default=top - 1) + 1):
            cells = rows.get(row, {})
            values = [
                self._cell(sheet, cells.get(c))
                for c in range(left, max(cells, default=left - 1) + 1)
            ]
            data["rowData"].append({"values": values} if values else {})
        return data | ({"startRow": top} if top else {}) | ({"startColumn": left} if left else {})

    def _cell(self, sheet: Sheet, cell: Cell | None) -> Cell:
        if cell is None:
            return {}
        found = dict(cell)
        if (value := cell.get("userEnteredValue")) is not None:
            found["effectiveValue"] = _value(sheet, value)
            found["formattedValue"] = _formatted(found["effectiveValue"], cell)
        if "userEnteredFormat" in cell:
            found["effectiveFormat"] = cell["userEnteredFormat"]
        return found

    def _export(self, key: str, kind: str) -> bytes:
        sheet = self._book(key).sheets[0]
        data = self._grid(sheet, {})["rowData"]
        out = io.StringIO()
        rows = [[cell.get("formattedValue", "") for cell in row.get("values", [])] for row in data]
        csv.writer(out, delimiter="\t" if "tab" in kind else ",").writerows(rows)
        return out.getvalue().encode()


def _fields(body: dict[str, Any]) -> list[str]:
    mask = body.get("fields", "")
    if not mask:
        raise ApiError(
            400, "At least one field must be listed in 'fields'. (Use '*' to indicate all fields.)"
        )
    return ["userEnteredValue", "userEnteredFormat", "note"] if mask == "*" else mask.split(",")


def _copy_path(source: dict[str, Any], target: dict[str, Any], path: str) -> None:
    *above, last = path.strip().split(".")
    for name in above:
        source = source.get(name, {}) if isinstance(source, dict) else {}
        target = target.setdefault(name, {})
    if last in source:
        target[last] = copy.deepcopy(source[last])
    else:
        target.pop(last, None)


def _spots(
    sheet: Sheet, area: dict[str, Any], *, everything: bool = False
) -> list[tuple[int, int]]:
    height, width = sheet.size
    top, bottom = area.get("startRowIndex", 0), min(area.get("endRowIndex", height), height)
    left, right = area.get("startColumnIndex", 0), min(area.get("endColumnIndex", width), width)
    if everything:
        return [(r, c) for r in range(top, bottom) for c in range(left, right)]
    return [(r, c) for r, c in sheet.cells if top <= r < bottom and left <= c < right]


def _area(book: Book, text: str) -> tuple[Sheet, dict[str, Any]]:
    """A range in A1 notation, or a name."""
    for named in book.names:
        if named["name"] == text:
            return book.by_id(named["range"].get("sheetId", 0)), named["range"]
    title, mark, cells = text.rpartition("!")
    title = title[1:-1].replace("''", "'") if title.startswith("'") else title
    if not mark:
        whole = text[1:-1].replace("''", "'") if text.startswith("'") else text
        title, cells = (
            (whole, "")
            if any(s.properties["title"].lower() == whole.lower() for s in book.sheets)
            else ("", text)
        )
    sheet = (
        next((s for s in book.sheets if s.properties["title"].lower() == title.lower()), None)
        if title
        else book.sheets[0]
    )
    first, _, last = cells.partition(":")
    corners = [CELL.fullmatch(corner) for corner in (first, last or first)]
    if sheet is None or None in corners or (cells and not first):
        raise ApiError(400, f"Unable to parse range: {text}", "badRequest")
    area: dict[str, Any] = {"sheetId": sheet.id}
    if cells:
        (column1, row1), (column2, row2) = (match.groups() for match in corners)  # type: ignore[union-attr]
        if row1:
            area["startRowIndex"] = int(row1) - 1
        if row2:
            area["endRowIndex"] = int(row2)
        if column1:
            area["startColumnIndex"] = _column(column1)
        if column2:
            area["endColumnIndex"] = _column(column2) + 1
        height, width = sheet.size
        if area.get("startRowIndex", 0) >= height or area.get("startColumnIndex", 0) >= width:
            raise ApiError(
                400,
                f"Range ({text}) exceeds grid limits. Max rows: {height}, max columns: {width}",
                "badRequest",
            )
    return sheet, area


def _column(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - 64
    return number - 1


def _typed(text: str) -> dict[str, Any]:
    try:
        return {"numberValue": float(text)}
    except ValueError:
        return {"stringValue": text}


def _value(sheet: Sheet, value: dict[str, Any]) -> dict[str, Any]:
    if "formulaValue" not in value:
        return value
    try:
        return {"numberValue": float(_evaluate(sheet, value["formulaValue"][1:]))}
    except ZeroDivisionError:
        return {"errorValue": {"type": "DIVIDE_BY_ZERO", "message": "Division by zero"}}
    except (ValueError, KeyError, SyntaxError, TypeError):
        return {"errorValue": {"type": "NAME", "message": "Unknown name"}}


def _evaluate(sheet: Sheet, text: str) -> float:
    def number(row: int, column: int) -> float:
        entered = sheet.cells.get((row, column), {}).get("userEnteredValue", {})
        return _value(sheet, entered).get("numberValue", 0.0) if entered else 0.0

    def total(match: re.Match[str]) -> str:
        (c1, r1), (c2, r2) = (CELL.fullmatch(corner).groups() for corner in match[1].split(":"))  # type: ignore[union-attr]
        rows, columns = range(int(r1) - 1, int(r2)), range(_column(c1), _column(c2) + 1)
        return repr(sum(number(r, c) for r in rows for c in columns))

    text = re.sub(r"SUM\(([A-Z]+\d+:[A-Z]+\d+)\)", total, text)
    text = re.sub(r"\b([A-Z]+)(\d+)\b", lambda m: repr(number(int(m[2]) - 1, _column(m[1]))), text)
    operators = {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
    }

    def walk(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return operators[type(node.op)](walk(node.left), walk(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        return float(ast.literal_eval(node))

    return walk(ast.parse(text, mode="eval").body)


def _formatted(value: dict[str, Any], cell: Cell) -> str:
    kind = cell.get("userEnteredFormat", {}).get("numberFormat", {}).get("type")
    if "numberValue" in value and kind in ("DATE", "DATE_TIME"):
        day = EPOCH + dt.timedelta(days=int(value["numberValue"]))
        return day.isoformat()
    if "errorValue" in value:
        return "#ERROR!"
    found = next(iter(value.values()))
    if isinstance(found, bool):
        return str(found).upper()
    return f"{found:g}" if isinstance(found, float) else str(found)
