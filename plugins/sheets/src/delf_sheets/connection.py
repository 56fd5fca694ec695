"""``Sheets``: spreadsheets that a script can read, write, format and draw charts in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, TypedDict

from delf import action
from delf.errors import ToolRefusedError, did_you_mean
from delf.notes import note
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
from delf.tools.action import Action, actions_of
from delf.tools.permissions import is_allowed, needs_confirmation
from delf.types import Trust
from delf_google.connection import GoogleConnection
from delf_google.errors import LostAnswerError
from delf_google.files import file_id
from delf_google.requests import Request, segment
from delf_sheets.cells import grid_of, records_of
from delf_sheets.plan import ChartKind, Plan, rows_for, with_header
from delf_sheets.ranges import Area, Book, quoted_title

_BOOKS: Final = "v4/spreadsheets"
_BOOK_FIELDS: Final = (
    "spreadsheetId,spreadsheetUrl,properties.title,namedRanges(name,range),"
    "sheets.properties(sheetId,title,gridProperties(rowCount,columnCount))"
)
_CELLS: Final = "effectiveValue,effectiveFormat.numberFormat.type"
_MAX_PREVIEW_ROWS: Final = 200
_STEPS: Final = ("write", "append", "clear", "add_sheet", "format", "chart")


class SheetInfo(TypedDict):
    """A sheet of a spreadsheet."""

    title: str
    rows: int
    columns: int


class BookInfo(TypedDict):
    """A spreadsheet."""

    id: str
    title: str
    link: str
    sheets: list[SheetInfo]
    names: list[str]


class Written(TypedDict):
    """The number of cells or rows that a call wrote."""

    cells: int


# The trust level of each field of a result: other people may have written title and content.
_FIELD_TRUST: Final[Mapping[str, Trust]] = {
    **dict.fromkeys(("id", "link", "notice"), "own"),
    "*": "outside",
}


class Sheets(GoogleConnection):
    """Spreadsheets, by id or address.

    A range is `Sheet1!A1:C9`, `A:C`, `Sheet1` (the whole sheet), or the name of a named range.
    """

    root = "https://sheets.googleapis.com/"
    scopes: ClassVar = {
        "reading": "spreadsheets.readonly",
        **dict.fromkeys(("writing", "creating", "format", "chart", "batch"), "spreadsheets"),
    }
    scope_inclusions: ClassVar = {"spreadsheets": frozenset({"spreadsheets.readonly"})}
    summary = "Google Sheets: typed cells, formats, charts."

    # -- read ---------------------------------------------------------------------------

    @action("reading", effect="read", trust=_FIELD_TRUST)
    async def info(self, spreadsheet: str) -> BookInfo:
        """A spreadsheet's sheets with their sizes, and its named ranges."""
        return _info(await self._book(spreadsheet))

    @action("reading", effect="read")
    async def read(
        self,
        spreadsheet: str,
        range: str = "",  # noqa: A002 - scripts pass the argument by this name
        header: bool = True,
        formulas: bool = False,
    ) -> list[Any]:
        """The rows of a range, or of the first sheet: dicts by the names in the first row, or with
        `header=False` lists. Numbers, dates, times and bools keep their types; an empty cell is
        None. With `formulas`, cells hold formulas instead of results.
        """  # noqa: D205 - the model reads the whole paragraph
        grid = await self._grid(spreadsheet, range, formulas=formulas)
        rows = records_of(grid) if header else grid
        if not rows:
            extra = ", only the names of columns" if grid else ""
            note(f"the range has no rows{extra}")
        return rows

    # -- write --------------------------------------------------------------------------

    @action("writing", effect="write", trust="own", sinks=["spreadsheet"])
    async def write(
        self,
        spreadsheet: str,
        range: str,  # noqa: A002 - scripts pass the argument by this name
        rows: list[Any],
        formulas: bool = False,
    ) -> Written:
        """Write rows, each a list or a dict, starting at a range's first cell. Dicts get a header
        row with their keys. Texts stay texts; with `formulas` those that begin with = are formulas.
        """  # noqa: D205 - the model reads the whole paragraph
        plan = Plan(await self._book(spreadsheet))
        cells = plan.write(range, rows, formulas=formulas)
        await self._send_plan("write cells", plan)
        return Written(cells=cells)

    @action("writing", effect="write", trust="own", sinks=["spreadsheet"])
    async def append(
        self, spreadsheet: str, rows: list[Any], sheet: str = "", formulas: bool = False
    ) -> Written:
        """Add rows below the last row. The values of dicts go to the columns that the sheet's first
        row names.
        """  # noqa: D205 - the model reads the whole paragraph
        book = await self._book(spreadsheet)
        plan = Plan(book)
        sheet_info = book.sheet(sheet)
        header = await self._header(book, sheet_info.title, rows)
        grid = rows_for(header, rows, sheet_info.columns)
        plan.append(sheet_info, grid, formulas=formulas)
        await self._send_plan("append rows", plan)
        return Written(cells=sum(len(row) for row in grid))

    @action("writing", effect="write", trust="own", sinks=["spreadsheet"])
    async def clear(self, spreadsheet: str, range: str) -> None:  # noqa: A002 - scripts pass the argument by this name
        """Take the values out of a range; formats stay."""
        plan = Plan(await self._book(spreadsheet))
        plan.clear(range)
        await self._send_plan("clear cells", plan)

    # -- create -------------------------------------------------------------------------

    @action("creating", effect="write", trust=_FIELD_TRUST, sinks=[])
    async def create(self, title: str, sheets: list[str] | None = None) -> BookInfo:
        """A new spreadsheet in the top folder of the drive, with these sheets; by default with one
        sheet.
        """  # noqa: D205 - the model reads the whole paragraph
        body: dict[str, Any] = {"properties": {"title": title}}
        if sheets:
            body["sheets"] = [{"properties": {"title": name}} for name in sheets]
        created = await self.transport.json(
            Request(
                "make a spreadsheet",
                "POST",
                _BOOKS,
                query={"fields": _BOOK_FIELDS},
                body=body,
                send_once=True,
            )
        )
        return _info(Book.read(created))

    @action("creating", effect="write", trust=_FIELD_TRUST, sinks=["spreadsheet"])
    async def add_sheet(
        self, spreadsheet: str, title: str, rows: int = 1000, columns: int = 26
    ) -> BookInfo:
        """Add a sheet to a spreadsheet."""
        plan = Plan(await self._book(spreadsheet))
        plan.add_sheet(title, rows, columns)
        await self._send_plan("add a sheet", plan)
        return _info(plan.book)

    # -- formats ------------------------------------------------------------------------

    @action("format", effect="write", trust="own", sinks=["spreadsheet"])
    async def format(
        self,
        spreadsheet: str,
        range: str,  # noqa: A002 - scripts pass the argument by this name
        bold: bool | None = None,
        italic: bool | None = None,
        font_size: int | None = None,
        color: str | None = None,
        background: str | None = None,
        number_format: str | None = None,
        align: Literal["left", "center", "right"] | None = None,
        borders: bool | None = None,
        freeze_rows: int | None = None,
    ) -> None:
        """Change how a range looks. Colors are #ff8800 or names; number formats are patterns, as
        `0.00`, `#,##0 €`, `0%`, `yyyy-mm-dd`.
        """  # noqa: D205 - the model reads the whole paragraph
        properties = {
            "bold": bold,
            "italic": italic,
            "font_size": font_size,
            "color": color,
            "background": background,
            "number_format": number_format,
            "align": align,
            "borders": borders,
            "freeze_rows": freeze_rows,
        }
        plan = Plan(await self._book(spreadsheet))
        plan.format(range, properties)
        await self._send_plan("format cells", plan)

    @action("chart", effect="write", trust="own", sinks=["spreadsheet"])
    async def chart(
        self,
        spreadsheet: str,
        range: str,  # noqa: A002 - scripts pass the argument by this name
        kind: ChartKind = "column",
        title: str = "",
        anchor: str = "",
    ) -> None:
        """Draw a chart of a range: the first column has the labels, each other column is a series,
        and the first row has the names. The chart is at the cell `anchor`, or beside the range.
        """  # noqa: D205 - the model reads the whole paragraph
        plan = Plan(await self._book(spreadsheet))
        plan.chart(range, kind, title, anchor)
        await self._send_plan("draw a chart", plan)

    @action("batch", effect="write", trust=_FIELD_TRUST, sinks=["spreadsheet"])
    async def batch(self, spreadsheet: str, steps: list[dict[str, Any]]) -> BookInfo:
        """Several steps, all of them or none: `[{"do": "add_sheet", "title": "Q3"}, {"do": "write",
        "range": "Q3!A1", "rows": [...]}]`. Steps are write, append, clear, add_sheet, format and
        chart; each step takes the arguments of the action that has its name, without spreadsheet.
        """  # noqa: D205 - the model reads the whole paragraph
        refusal = self._reason_to_refuse(steps)
        if refusal is not None:
            raise ToolRefusedError(refusal)
        book = await self._book(spreadsheet)
        existing_titles = {sheet.title for sheet in book.sheets}
        plan = Plan(book)
        for number, step in enumerate(steps, 1):
            try:
                await self._add_step(plan, step, existing_titles)
            except ToolRefusedError as error:
                raise ToolRefusedError(f"step {number}, {step['do']}: {error.message}") from None
        await self._send_plan("change a spreadsheet", plan)
        return _info(plan.book)

    async def check(self, call: ProposedCall) -> Verdict:
        """Check an action as usual; for a batch, check each step.

        A batch is refused if a step has to be refused, and needs approval if a step does. Any other
        batch is allowed, with a preview if the setting ``confirm`` names the batch itself.
        """
        if call.action != "batch":
            return await super().check(call)
        steps: list[dict[str, Any]] = call.arguments.get("steps") or []
        refusal = self._reason_to_refuse(steps)
        if refusal is not None:
            return Refused(message=refusal)
        steps_by_name = self._steps()
        names = dict.fromkeys(str(step["do"]) for step in steps)
        steps_to_approve = [
            name for name in names if needs_confirmation(self.confirm, steps_by_name[name])
        ]
        is_batch_confirmed = needs_confirmation(self.confirm, steps_by_name["batch"])
        if not steps_to_approve and not is_batch_confirmed:
            return Allowed()
        title = _title(await self._book(str(call.arguments["spreadsheet"])))
        preview = "\n".join([title, *map(_display_step, steps)])
        # The basis is the title, which identifies the approved spreadsheet.
        if not steps_to_approve:  # ``confirm`` names the batch, so the engine asks for approval
            return Allowed(preview=preview, basis=title)
        reason = f"its steps {', '.join(steps_to_approve)} need approval"
        return NeedsApproval(reason=reason, preview=preview, basis=title)

    async def preview(self, call: ProposedCall) -> Allowed | None:
        """Return a preview: the spreadsheet's title, and the cells that would be overwritten.

        Return None if the call names no spreadsheet.
        """
        arguments = call.arguments
        if "spreadsheet" not in arguments:
            return None
        book = await self._book(str(arguments["spreadsheet"]))
        lines = [_title(book)]
        if call.action in ("write", "clear"):
            area = book.area(str(arguments["range"]))
            if call.action == "write":
                rows = with_header(arguments["rows"])
                area = area.of_size(len(rows), max((len(row) for row in rows), default=1))
            lines += await self._present_values(book, area)
        text = "\n".join(lines)
        # As basis of the approval, the text must be the same when the call is made.
        return Allowed(preview=text, basis=text)

    async def _present_values(self, book: Book, area: Area) -> list[str]:
        """List the current values of an area, at most those of its first rows."""
        if area.top >= area.sheet.rows or area.left >= area.sheet.columns:
            return []  # the sheet will grow
        area_shown = area.first_rows(_MAX_PREVIEW_ROWS)
        rows = await self._grid(book.id, area_shown.text, formulas=True)
        filled = [row for row in rows if any(cell is not None for cell in row)]
        if not filled:
            return [f"{area_shown.text} is empty"]
        return [f"{area_shown.text} holds now:", *(f"- {row!r}" for row in filled)]

    # -- parts --------------------------------------------------------------------------

    def _steps(self) -> dict[str, Action]:
        return {item.name: item for item in actions_of(type(self), self, self.name)}

    def _reason_to_refuse(self, steps: list[dict[str, Any]]) -> str | None:
        """Return why a batch is refused; None if each step is valid and allowed."""
        if not steps:
            return "there are no steps"
        steps_by_name = self._steps()
        for number, step in enumerate(steps, 1):
            name = str(step.get("do"))
            if name not in _STEPS:
                close = did_you_mean(name, _STEPS)
                return f"step {number}: unknown step {name!r}{close}; steps: {', '.join(_STEPS)}"
            if not is_allowed(self.allow, steps_by_name[name]):
                return (
                    f"step {number}: {name} is not allowed (the setting allow of {self.name} "
                    "names the allowed actions)"
                )
            arguments = {key: value for key, value in step.items() if key != "do"}
            if "spreadsheet" in arguments:
                return (
                    f"step {number}: the batch names the spreadsheet for all steps; "
                    "leave spreadsheet out of the step"
                )
            # The validation requires a spreadsheet, which the batch names.
            placeholder = {"spreadsheet": "of the batch"}
            try:
                steps_by_name[name].validate({**placeholder, **arguments})
            except ToolRefusedError as error:
                return f"step {number}: {error.message}"
        return None

    async def _add_step(
        self, plan: Plan, step: Mapping[str, Any], existing_titles: set[str]
    ) -> None:
        """Add the requests of a batch's step to a plan.

        Args:
            plan: The plan, which has the requests of the earlier steps.
            step: The step.
            existing_titles: The sheets that the spreadsheet had before the batch.
        """
        arguments = {key: value for key, value in step.items() if key != "do"}
        if step["do"] == "append":
            await self._add_append(plan, existing_titles, **arguments)
        elif step["do"] == "format":
            plan.format(arguments.pop("range"), arguments)
        elif step["do"] == "chart":
            kind: ChartKind = arguments.get("kind", "column")
            plan.chart(
                arguments["range"], kind, arguments.get("title", ""), arguments.get("anchor", "")
            )
        elif step["do"] == "write":
            plan.write(arguments.pop("range"), arguments.pop("rows"), **arguments)
        elif step["do"] == "clear":
            plan.clear(arguments["range"])
        else:
            plan.add_sheet(**arguments)

    async def _add_append(
        self,
        plan: Plan,
        existing_titles: set[str],
        *,
        rows: list[Any],
        sheet: str = "",
        formulas: bool = False,
    ) -> None:
        """Add a batch's step ``append`` to a plan.

        Args:
            plan: The plan, which has the requests of the earlier steps.
            existing_titles: The sheets that the spreadsheet had before the batch.
            rows: The rows to append.
            sheet: The title of the sheet; empty for the first sheet.
            formulas: Whether a text that begins with ``=`` is a formula.
        """
        target = plan.book.sheet(sheet)
        is_new = target.title not in existing_titles  # added by this batch, so not readable yet
        present_header = [] if is_new else await self._header(plan.book, target.title, rows)
        header = plan.first_row(target, present_header)
        grid = rows_for(header, rows, target.columns)
        plan.append(target, grid, formulas=formulas)
        # If the rows are lists, _header() has not read the sheet, which may have a header.
        is_header_known = is_new or isinstance(rows[0], Mapping)
        if is_header_known and not any(header):
            # The first appended row becomes the header, which later steps of the batch may need.
            plan.change_first_row(target, left=0, values=grid[0])

    async def _header(self, book: Book, title: str, rows: list[Any]) -> list[Any]:
        """Return the header row of a sheet if the rows are dicts, else an empty list."""
        if not any(isinstance(row, Mapping) for row in rows):
            return []
        grid = await self._grid(book.id, f"{quoted_title(title)}!1:1", formulas=False)
        return grid[0] if grid else []

    async def _book(self, spreadsheet: str) -> Book:
        return Book.read(
            await self.transport.json(
                Request(
                    "look at a spreadsheet",
                    "GET",
                    f"{_BOOKS}/{segment(file_id(spreadsheet))}",
                    query={"fields": _BOOK_FIELDS},
                )
            )
        )

    async def _grid(self, spreadsheet: str, cell_range: str, *, formulas: bool) -> list[list[Any]]:
        """Read the values of a range in A1 notation; an empty range is the whole first sheet."""
        fields = f"{_CELLS},userEnteredValue.formulaValue" if formulas else _CELLS
        if not cell_range:
            first_sheet = (await self._book(spreadsheet)).sheets[0]
            cell_range = quoted_title(first_sheet.title)
        answer = await self.transport.json(
            Request(
                f"read {cell_range}",
                "GET",
                f"{_BOOKS}/{segment(file_id(spreadsheet))}",
                query={"ranges": cell_range, "fields": f"sheets.data.rowData.values({fields})"},
            )
        )
        sheets: list[dict[str, Any]] = answer.get("sheets") or [{}]
        return grid_of(sheets[0], formulas=formulas)

    async def _send_plan(self, what: str, plan: Plan) -> None:
        """Send the requests of a plan.

        If the answer is lost, look for the objects that the plan creates. If these exist, the
        requests were executed; otherwise, raise the error.
        """
        request = Request(
            what,
            "POST",
            f"{_BOOKS}/{segment(plan.book.id)}:batchUpdate",
            query={"fields": "spreadsheetId"},
            body={"requests": plan.requests},
            send_once=plan.must_send_once,
        )
        try:
            await self.transport.json(request)
        except LostAnswerError:
            if not plan.created_ids:
                raise
            existing_ids = await self._sheet_and_chart_ids(plan.book.id)
            has_succeeded = existing_ids >= plan.created_ids
            if not has_succeeded:
                raise

    async def _sheet_and_chart_ids(self, book: str) -> set[int]:
        answer = await self.transport.json(
            Request(
                "look at a spreadsheet",
                "GET",
                f"{_BOOKS}/{segment(book)}",
                query={"fields": "sheets(properties.sheetId,charts.chartId)"},
            )
        )
        sheets: list[dict[str, Any]] = answer.get("sheets") or []
        ids: set[int] = set()
        for sheet in sheets:
            ids.add(int(sheet["properties"].get("sheetId") or 0))
            ids.update(int(chart["chartId"]) for chart in sheet.get("charts") or ())
        return ids


def _title(book: Book) -> str:
    return f"spreadsheet {book.title!r}, {book.link or book.id}"


def _info(book: Book) -> BookInfo:
    return BookInfo(
        id=book.id,
        title=book.title,
        link=book.link,
        sheets=[
            SheetInfo(title=sheet.title, rows=sheet.rows, columns=sheet.columns)
            for sheet in book.sheets
        ],
        names=list(book.names),
    )


def _display_step(step: Mapping[str, Any]) -> str:
    arguments: list[str] = []
    for key, value in step.items():
        if key == "rows":
            arguments.append(f"rows={len(value)} rows")
        elif key != "do":
            arguments.append(f"{key}={value!r}")
    return f"{step['do']}: {', '.join(arguments)}"
