"""Workbooks made by openpyxl itself, read as rows; rows written, read back by openpyxl."""

import datetime as dt
import io
import tracemalloc
import zipfile
from decimal import Decimal
from pathlib import Path

import pytest
import xlwt
from openpyxl import Workbook, load_workbook
from openpyxl.chart import BarChart
from openpyxl.styles import PatternFill
from openpyxl.utils.datetime import CALENDAR_MAC_1904, CALENDAR_WINDOWS_1900
from openpyxl.worksheet.formula import DataTableFormula

from delf.errors import ToolExecutionError
from delf.notes import notes_of_call
from delf.plugins.host import PluginHost
from delf.protocols.formats import SupportsWrite
from delf_engine.formats import Formats
from delf_engine.inputs import find_inputs, input_files
from delf_files.connection import Files
from delf_files.excel import reading, scan
from delf_files.excel.format import ExcelFormat


@pytest.fixture
def workbook(tmp_path):
    """Make a workbook from rows by sheet."""

    def make(sheets, name="a.xlsx"):
        book = Workbook()
        book.remove(book.active)
        for title, rows in sheets.items():
            sheet = book.create_sheet(title)
            for row in rows:
                sheet.append(row)
        book.save(tmp_path / name)
        return str(tmp_path / name)

    return make


excel = ExcelFormat()


def test_workbook_format_is_found_by_the_plugin_host():
    formats = Formats(PluginHost.discover(environ={}))
    for ending in (".xlsx", ".xlsm", ".xls"):
        factory = formats.factory(ending)
        assert factory is not None
        assert factory.attribute == "ExcelFormat"
    assert isinstance(formats.writer(".xlsx"), SupportsWrite)
    assert ".xlsx" in formats.writable


# -- reading --------------------------------------------------------------------------------


async def test_workbook_rows_keep_their_types(workbook):
    when = dt.datetime(2026, 1, 2, 3, 4)
    path = workbook(
        {"S": [["n", "f", "text", "when", "yes", "none"], [1, 1.5, "007", when, True, None]]}
    )
    assert await excel.read(path, None) == [
        {"n": 1, "f": 1.5, "text": "007", "when": when, "yes": True, "none": None}
    ]


async def test_workbook_dates_follow_its_calendar_epoch(tmp_path):
    for epoch, day in ((CALENDAR_WINDOWS_1900, 45292), (CALENDAR_MAC_1904, 43830)):
        book = Workbook()
        book.epoch = epoch
        book.active.append(["day"])
        book.active.append([day])
        book.active["A2"].number_format = "yyyy-mm-dd"
        book.save(tmp_path / "a.xlsx")
        assert await excel.read(str(tmp_path / "a.xlsx"), None) == [
            {"day": dt.datetime(2024, 1, 1)}
        ]


async def test_merged_label_fills_each_row_and_a_number_only_the_first(tmp_path):
    book = Workbook()
    sheet = book.active
    for row in (["region", "sales", "bonus"], ["north", 1, 5], [None, 2, None], ["south", 3, 6]):
        sheet.append(row)
    sheet.merge_cells("A2:A3")
    sheet.merge_cells("C2:C3")
    book.save(tmp_path / "a.xlsx")
    assert await excel.read(str(tmp_path / "a.xlsx"), None) == [
        {"region": "north", "sales": 1, "bonus": 5},
        {"region": "north", "sales": 2, "bonus": None},
        {"region": "south", "sales": 3, "bonus": 6},
    ]


def old_workbook(path, *, dates_1904=False):
    book = xlwt.Workbook()
    book.dates_1904 = dates_1904
    sheet = book.add_sheet("Old")
    day = xlwt.easyxf(num_format_str="YYYY-MM-DD HH:MM")
    for column, name in enumerate(("region", "n", "when", "yes", "f", "gone")):
        sheet.write(0, column, name)
    sheet.write_merge(1, 2, 0, 0, "north")
    for row in (1, 2):
        sheet.write(row, 1, row)
        sheet.write(row, 2, dt.datetime(2026, 1, 2, 3, 4), day)
        sheet.write(row, 3, True)
        sheet.write(row, 4, 1.5)
    book.add_sheet("Other")
    book.save(str(path))
    return str(path)


STRICT = {
    b"http://schemas.openxmlformats.org/officeDocument/2006/": b"http://purl.oclc.org/ooxml/officeDocument/",
    b"http://schemas.openxmlformats.org/spreadsheetml/2006/": b"http://purl.oclc.org/ooxml/spreadsheetml/",
}


def rewritten(path, target, rename, *, strict=False):
    """Write a copy of a workbook with renamed parts, or in the strict form."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.infolist():
            data = old.read(item)
            for usual, other in STRICT.items() if strict else ():
                data = data.replace(usual, other)
            info = zipfile.ZipInfo("x")
            info.filename = rename(item.filename)
            new.writestr(info, data)
    return str(target)


@pytest.mark.parametrize(
    "form", ["strict", "capitals", "backslashes", "small", "slash first", "percents"]
)
async def test_workbook_is_read_as_office_reads_it(tmp_path, workbook, form):
    usual = workbook({"One": [["n", "t"], [1, "x"]], "Two": [["k"], ["=1+1"]]})
    rename = {
        "capitals": str.upper, "small": str.lower, "slash first": lambda name: f"/{name}",
        "backslashes": lambda name: name.replace("/", "\\"),
        "percents": lambda name: name.replace("sheet1", "%73heet1"),
    }.get(form, str)  # fmt: skip
    path = rewritten(usual, tmp_path / "other.xlsx", rename, strict=form == "strict")
    assert await excel.parts(path) == ["One", "Two"]
    assert await excel.read(path, None) == [{"n": 1, "t": "x"}]
    assert await excel.read(path, "Two") == [{"k": "=1+1"}]


async def test_slightly_damaged_old_workbook_is_read_and_reported(tmp_path):
    path = tmp_path / "a.xls"
    old_workbook(path)
    data = bytearray(path.read_bytes())
    entry = 512 * (1 + int.from_bytes(data[0x30:0x34], "little"))  # the root of the directory
    first = data[entry + 128 + 0x74 : entry + 128 + 0x78]  # the first sector of the workbook
    data[entry + 0x74 : entry + 0x7C] = first + (512).to_bytes(4, "little")
    path.write_bytes(data)
    with notes_of_call() as notes:
        assert [row["n"] for row in await excel.read(str(path), None)] == [1, 2]
    assert any("is damaged" in note for note in notes)


async def test_encrypted_workbook_is_reported(tmp_path):
    path = tmp_path / "a.xlsx"
    path.write_bytes(
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le")
    )
    with pytest.raises(ToolExecutionError, match="password"):
        await excel.read(str(path), None)


async def test_hours_beyond_a_day_become_durations(tmp_path):
    shapes = {"[h]:mm": 1.0625, "[hh]:mm:ss": 0.5, "[mm]:ss": 2.5, "h:mm": 0.25}
    old, new = xlwt.Workbook(), Workbook()
    sheet = old.add_sheet("Hours")
    for column, (shape, value) in enumerate(shapes.items()):
        for row, cell in enumerate((shape, value)):
            sheet.write(row, column, cell, xlwt.easyxf(num_format_str=shape if row else "General"))
            new.active.cell(row + 1, column + 1, cell).number_format = shape if row else "General"
    old.save(str(tmp_path / "a.xls"))
    new.save(tmp_path / "a.xlsx")
    hours = [
        dt.timedelta(hours=25.5),
        dt.timedelta(hours=12),
        dt.timedelta(days=2.5),
        dt.time(6),
    ]
    for name in ("a.xls", "a.xlsx"):
        assert await excel.read(str(tmp_path / name), None) == [
            dict(zip(shapes, hours, strict=True))
        ]


@pytest.mark.parametrize("dates_1904", [False, True])
async def test_xls_workbooks_give_typed_rows(tmp_path, dates_1904):
    path = old_workbook(tmp_path / "a.XLS", dates_1904=dates_1904)
    assert await excel.parts(path) == ["Old", "Other"]
    row = {"region": "north", "when": dt.datetime(2026, 1, 2, 3, 4), "yes": True, "f": 1.5}
    expected = [{**row, "n": n, "gone": None} for n in (1, 2)]
    assert await excel.read(path, None) == expected
    assert await excel.read(path, "Other") == []
    with pytest.raises(ToolExecutionError, match="no sheet 'x'; the sheets: 'Old', 'Other'"):
        await excel.read(path, "x")


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("a.xls", b"<html><table><tr><td>1</td></tr></table>", "a page of HTML"),
        ("a.xls", b"a\tb\n1\t2\n", "text"),
        ("a.xlsx", b"a,b\n1,2\n", "text"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "damaged"),
        ("a.xls", b"PK\x03\x04", "damaged"),
        ("a.xlsx", b"PK\x03\x04", "damaged"),
    ],
)
async def test_non_workbook_is_reported(tmp_path, name, data, what):
    (tmp_path / name).write_bytes(data)
    reported = what if what == "damaged" else f"it is no .xlsx? workbook but {what}"
    for work in (excel.read(str(tmp_path / name), None), excel.parts(str(tmp_path / name))):
        with pytest.raises(ToolExecutionError, match=reported):
            await work


async def test_impossible_dates_are_reported(tmp_path):
    book = Workbook()
    book.active.append(["n", "day"])
    for serial in (46_000, 99_999_999, -5e9):
        book.active.append([1, serial])
        book.active.cell(book.active.max_row, 2).number_format = "yyyy-mm-dd"
    book.save(tmp_path / "a.xlsx")
    with notes_of_call() as notes:
        rows = await excel.read(str(tmp_path / "a.xlsx"), None)
    lost = "#VALUE!"
    assert [row["day"] for row in rows] == [dt.datetime(2025, 12, 9), lost, lost]
    reported = (
        "cells with dates that do not exist were read as '#VALUE!': B3 (99999999), B4 (-5000000000)"
    )
    assert list(notes) == [reported]
    old = xlwt.Workbook()
    sheet = old.add_sheet("S")
    sheet.write(0, 0, "day")
    sheet.write(1, 0, 99_999_999, xlwt.easyxf(num_format_str="YYYY-MM-DD"))
    old.save(str(tmp_path / "a.xls"))
    with notes_of_call() as notes:
        assert await excel.read(str(tmp_path / "a.xls"), None) == [{"day": 99_999_999}]
    assert list(notes) == ["cells with dates that do not exist were read as numbers"]


async def test_xml_escapes_in_cell_text_round_trip(tmp_path):
    made = await excel.write({"S": [["a_x000D_b"], ["c\nd"]]})
    (tmp_path / "own.xlsx").write_bytes(made)
    assert await excel.read(str(tmp_path / "own.xlsx"), None) == [{"a_x000D_b": "c\nd"}]
    book = Workbook()
    book.active.append([dt.datetime(2026, 1, 1), "n"])
    book.active.append(["x_x000D_\ny", "_x_ _x12_"])
    book.active.append(["_xD83D__xDE00_", "é_xD83D_"])
    book.save(tmp_path / "theirs.xlsx")
    rows = await excel.read(str(tmp_path / "theirs.xlsx"), None)
    assert rows == [
        {"2026-01-01": "x\r\ny", "n": "_x_ _x12_"},
        {"2026-01-01": "\U0001f600", "n": "é\ud83d"},
    ]
    files = Files(
        input_files(find_inputs([str(tmp_path / "theirs.xlsx")]), str),
        Formats(PluginHost.discover(environ={})),
    )
    (halved,) = await files.query("SELECT n FROM 'theirs.xlsx' OFFSET 1")
    assert halved == {"n": "é?"}


async def test_broken_workbook_does_not_hide_others_and_sheets_are_listed(tmp_path, workbook):
    good = workbook({"A": [["a"], [1]], "B": [["a"], [2]]})
    (tmp_path / "bad.xlsx").write_bytes(b"PK")
    found = input_files(find_inputs([good, str(tmp_path / "bad.xlsx")]), str)
    files = Files(found, Formats(PluginHost.discover(environ={})))
    first, second = await files.list()
    assert first["sheets"] == ["A", "B"]
    assert "damaged" in second["problem"]
    with notes_of_call() as notes:
        assert await files.read("a.xlsx") == [{"a": 1}]
    assert list(notes) == ["a.xlsx: the first sheet, 'A', was read; there are 'B', too"]
    with notes_of_call() as notes:
        assert await files.read("a.xlsx", sheet="B") == [{"a": 2}]
    assert not notes


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([["a", "b"]], []),
        ([[], [None], ["a"], [], [1], [None]], [{"a": 1}]),
        ([["a", None, "a"], [1, 2, 3]], [{"a": 1, "column_2": 2, "a_2": 3}]),
        ([["a"], [1, 2]], [{"a": 1, "column_2": 2}]),
        ([["a", "b", "c"], [1]], [{"a": 1, "b": None, "c": None}]),
        ([[2025, " x "], [1, 2]], [{"2025": 1, "x": 2}]),
    ],
    ids=range(7),
)
async def test_first_excel_row_names_the_columns(workbook, rows, expected):
    assert await excel.read(workbook({"S": rows}), None) == expected


async def test_zip_bomb_sheet_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "MAX_UNPACKED", 1_000_000)
    with zipfile.ZipFile(tmp_path / "a.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", b" " * 1_000_001)
    assert (tmp_path / "a.xlsx").stat().st_size < 10_000
    with pytest.raises(ToolExecutionError, match=r"1,000,001 bytes unpacked, .* save the sheet as"):
        await excel.read(str(tmp_path / "a.xlsx"), None)


async def test_number_of_cells_is_limited(workbook, monkeypatch):
    monkeypatch.setattr(reading, "MAX_CELLS", 10)
    path = workbook({"S": [["a", "b"]] * 6})
    with pytest.raises(ToolExecutionError, match="more than 10 cells"):
        await excel.read(path, None)


async def test_coloured_empty_cells_are_limited(tmp_path, monkeypatch):
    book = Workbook()
    book.active.append(["n"])
    for row in book.active["A2:E4"]:
        for cell in row:
            cell.fill = PatternFill("solid", fgColor="FF0000")
    book.active["A5"] = 1
    book.save(tmp_path / "a.xlsx")
    assert await excel.read(str(tmp_path / "a.xlsx"), None) == [{"n": 1}]
    with monkeypatch.context() as patch:
        patch.setattr(scan, "MAX_RAW_CELLS", 16)
        with pytest.raises(ToolExecutionError, match="more than 16 cells, empty ones included"):
            await excel.read(str(tmp_path / "a.xlsx"), None)
    monkeypatch.setattr(reading, "MAX_AREA", 16)
    with pytest.raises(ToolExecutionError, match="spans more than 16 cells, empty ones included"):
        await excel.read(str(tmp_path / "a.xlsx"), None)


async def test_row_over_the_excel_limit_is_refused(workbook):
    whole = await excel.read(workbook({"S": [["n"], [1] * 16_384]}), None)
    assert (len(whole), len(whole[0])) == (1, 16_384)
    path = workbook({"S": [["n"], [1] * 16_385]})
    with pytest.raises(ToolExecutionError, match=r"a row .* more than 16,384 cells; save .* \.csv"):
        await excel.read(path, None)


# -- writing --------------------------------------------------------------------------------


async def made(parts):
    return load_workbook(io.BytesIO(await excel.write(parts)))


async def test_written_cells_keep_their_types():
    when, day = dt.datetime(2026, 1, 2, 3, 4), dt.date(2026, 1, 2)
    row = [1, 1.5, "x", True, None, when, dt.time(1, 2), Decimal("1.25")]
    book = await made({"S": [["a"] * 8, row, [day]]})
    values = list(book["S"].iter_rows(values_only=True))
    assert values[1] == (1, 1.5, "x", True, None, when, dt.time(1, 2), 1.25)
    assert values[2][0] == dt.datetime(2026, 1, 2)


@pytest.mark.parametrize("text", ["=1+1", '=HYPERLINK("http://x")', "+1", "-1", "@x", "{=A1}"])
async def test_text_is_never_written_as_a_formula(text):
    book = await made({"S": [[text]]})
    cell = book["S"]["A1"]
    assert (cell.value, cell.data_type) == (text, "s")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00+00:00"),
        (dt.date(1812, 1, 2), "1812-01-02"),
        (2**60, str(2**60)),
        (float("inf"), None),
        (Decimal("Infinity"), "Infinity"),
        ("a\x00b\x0bc\ud800", "a\ufffdb\ufffdc\ufffd"),
        ("ä\n\t🦊", "ä\n\t🦊"),
        ((1, 2), "(1, 2)"),
    ],
    ids=range(8),
)
async def test_value_that_excel_would_convert_is_written_as_text(value, shown):
    book = await made({"S": [[value]]})
    assert book["S"]["A1"].value == shown


async def test_long_sheet_names_are_truncated_and_made_unique():
    parts = {name: [] for name in ["a/b", "a:b", "A B", "", "x" * 40, "x" * 41, "'q'"]}
    book = await made(parts)
    assert book.sheetnames == [
        "a b", "a b 2", "A B 3", "Sheet", "x" * 31, "x" * 29 + " 2", "q"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[]] * 1_048_577, "at most 1,048,576 rows, these are 1,048,577; write a .csv"),
        ([[1] * 16_385], "at most 16,384 columns"),
        ([["x" * 32_768]], "at most 32,767 characters, one has 32,768"),
    ],
    ids=["rows", "columns", "text"],
)
async def test_value_excel_cannot_store_is_refused(rows, message):
    with pytest.raises(ToolExecutionError, match=message):
        await excel.write({"S": rows})


# -- sheets that no Excel made --------------------------------------------------------------


@pytest.fixture
def with_sheet(workbook, tmp_path):
    """Make a workbook with one sheet, whose rows are XML."""

    def make(xml, *, before="", declared="", texts=None):
        source, made = workbook({"S": [["n"]]}, name="source.xlsx"), tmp_path / "x.xlsx"
        sheet = f"{before}<sheetData>{xml}</sheetData>"
        parts = {
            "xl/worksheets/sheet1.xml": f"{declared}<worksheet {NAMESPACE}>{sheet}</worksheet>"
        }
        with zipfile.ZipFile(source) as old:
            for item in old.namelist():
                parts.setdefault(item, old.read(item).decode())
        if texts is not None:
            types = parts["[Content_Types].xml"].replace("</Types>", f"{SHARED}</Types>")
            parts["[Content_Types].xml"] = types
            parts["xl/sharedStrings.xml"] = f"<sst {NAMESPACE}>{texts}</sst>"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
            for item, data in parts.items():
                new.writestr(item, data)
        return str(made)

    return make


NAMESPACE = "xmlns='http://schemas.openxmlformats.org/spreadsheetml/2006/main'"
SHARED = (
    "<Override PartName='/xl/sharedStrings.xml' ContentType='application/"
    "vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml'/>"
)
HEAD = "<row r='1'><c r='A1' t='inlineStr'><is><t>n</t></is></c></row>"


@pytest.mark.slow
async def test_row_number_beyond_the_limit_is_skipped_at_once(with_sheet):
    row = "<row r='{0}'><c r='A{0}'><v>1</v></c></row>"
    assert await excel.read(with_sheet(HEAD + row.format(10**12)), None) == []
    assert await excel.read(with_sheet(HEAD + row.format(reading.MAX_ROWS)), None) == [{"n": 1}]


async def test_sheet_over_the_excel_limit_is_refused(with_sheet, monkeypatch):
    monkeypatch.setattr(scan, "MAX_ROWS", 3)
    row = "<row><c><v>1</v></c></row>"
    assert len(await excel.read(with_sheet(HEAD + 2 * row), None)) == 2
    with pytest.raises(ToolExecutionError, match="more than 3 rows"):
        await excel.read(with_sheet(HEAD + 3 * row), None)


async def test_formula_without_a_cached_result_gives_its_text(with_sheet, workbook):
    cells = "<c r='A2'><f>1+1</f><v>2</v></c><c r='B2' s='0'/><c r='C2'><f>SUM(A2:B2)</f></c>"
    array = "<c r='A3'><f t='array' ref='A3'>A2*2</f></c>"
    path = with_sheet(f"{HEAD}<row r='2'>{cells}</row><row r='3'>{array}</row>")
    first = {"n": 2, "column_2": None, "column_3": "=SUM(A2:B2)"}
    assert await excel.read(path, None) == [
        first,
        {"n": "=A2*2", "column_2": None, "column_3": None},
    ]
    path = workbook({"S": [["n", "twice"], [2, "=A2*2"]]})
    assert await excel.read(path, None) == [{"n": 2, "twice": "=A2*2"}]


@pytest.mark.parametrize(
    ("cell", "value", "notes_shown"),
    [
        ("<c r='A2' t='str'><f>IF(1=1,\"\",2)</f><v></v></c>", None, ""),
        ("<c r='A2' t='str'><f>IF(1=1,\"\",2)</f></c>", None, ""),
        ("<c r='A2' t='str'><f>\"x\"</f><v>x</v></c>", "x", ""),
        ("<c r='A2'><f>1+1</f><v>2</v></c>", 2, ""),
        ("<c><f>1+1</f></c>", "=1+1", "their text: 1, the first in row 2, column 1"),
        ("<c r='A2'><f>1+1</f><v></v></c>", "=1+1", "without a computed value"),
    ],
)
async def test_empty_formula_result_differs_from_a_missing_one(
    with_sheet, cell, value, notes_shown
):
    path = with_sheet(f"{HEAD}<row r='2'>{cell}<c r='B2'><v>7</v></c></row>")
    with notes_of_call() as notes:
        assert await excel.read(path, None) == [{"n": value, "column_2": 7}]
    printed = [note for note in notes if "may be missing or old" not in note]
    assert notes_shown in " ".join(printed)
    assert bool(printed) == bool(notes_shown)


async def test_dates_before_the_excel_calendar_are_numbers(tmp_path):
    book = Workbook()
    book.active.append(["n"])
    book.active.append([-1.5])
    book.active["A2"].number_format = "yyyy-mm-dd"
    book.save(tmp_path / "a.xlsx")
    old = xlwt.Workbook()
    sheet = old.add_sheet("S")
    sheet.write(0, 0, "n")
    sheet.write(1, 0, -1.5, xlwt.easyxf(num_format_str="YYYY-MM-DD"))
    old.save(str(tmp_path / "a.xls"))
    for name in ("a.xlsx", "a.xls"):
        with notes_of_call() as notes:
            assert await excel.read(str(tmp_path / name), None) == [{"n": -1.5}]
        assert "dates before 1900" in " ".join(notes)


async def test_uncomputed_values_are_reported(tmp_path):
    book = Workbook()  # openpyxl asks for it, as XlsxWriter does
    book.active.append(["n"])
    book.active["A2"] = "=1+1"
    book.save(tmp_path / "a.xlsx")
    with (
        zipfile.ZipFile(tmp_path / "a.xlsx") as old,
        zipfile.ZipFile(tmp_path / "b.xlsx", "w") as new,
    ):
        for item in old.namelist():
            data = old.read(item)
            if item.endswith("sheet1.xml"):
                data = data.replace(b"</f><v />", b"</f><v>0</v>").replace(
                    b"</f><v></v>", b"</f><v>0</v>"
                )
            new.writestr(item, data)
    with notes_of_call() as notes:
        assert await excel.read(str(tmp_path / "b.xlsx"), None) == [{"n": 0}]
    assert "the values of 1 formulas may be missing or old" in " ".join(notes)


async def test_hidden_and_chart_sheets_are_reported(tmp_path):
    book = Workbook()
    book.active.append(["n"])
    book.active.append([1])
    book.create_sheet("Seen")
    book.active.sheet_state = "hidden"
    book.create_chartsheet("Curve").add_chart(BarChart())
    book.save(tmp_path / "a.xlsx")
    old = xlwt.Workbook()
    old.add_sheet("Sheet").write(0, 0, "n")
    old.get_sheet(0).visibility = 1
    old.add_sheet("Seen")
    old.save(str(tmp_path / "a.xls"))
    for name in ("a.xlsx", "a.xls"):
        with notes_of_call() as notes:
            await excel.parts(str(tmp_path / name))
            await excel.read(str(tmp_path / name), None)
        assert "the sheet 'Sheet' is hidden" in notes
        assert (name == "a.xls") or any("are left out: 'Curve'" in note for note in notes)


async def test_data_table_gives_computed_values_or_none(with_sheet, tmp_path):
    table = "<f t='dataTable' ref='B2:B3' dt2D='0' dtr='0' r1='A1'/>"
    cells = f"<c r='A2'><v>1</v></c><c r='B2'>{table}<v>2.5</v></c><c r='C2'><f>A2</f></c>"
    assert await excel.read(with_sheet(f"{HEAD}<row r='2'>{cells}</row>"), None) == [
        {"n": 1, "column_2": 2.5, "column_3": "=A2"}
    ]
    book = Workbook()
    for row in (["n", "what if"], [1, None]):
        book.active.append(row)
    book.active["B2"] = DataTableFormula(ref="B2:B3", r1="A1")
    book.save(tmp_path / "a.xlsx")
    assert await excel.read(str(tmp_path / "a.xlsx"), None) == [{"n": 1, "what if": None}]


# -- archives that hold more than their size tells ------------------------------------------


@pytest.mark.parametrize("size", ["", "<dimension ref='A1:A2'/>"], ids=["unsized", "sized"])
async def test_very_wide_row_is_read_without_loading_it(with_sheet, size):
    path = with_sheet("<row>" + "<c/>" * 5_000_000 + "</row>", before=size)
    tracemalloc.start()
    try:
        with pytest.raises(ToolExecutionError, match="a row of the sheet has more than 16,384"):
            await excel.read(path, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30_000_000


@pytest.mark.parametrize(
    ("sheet", "what"),
    [
        (f"<row><c t='inlineStr'><is><t>{'x' * 300_000}</t></is></c></row>", "262,136 characters"),
        ("<row><c>" + "<x/>" * 500_001 + "</c></row>", "500,000 elements"),
    ],
    ids=["text", "elements"],
)
async def test_unstorable_cell_value_is_refused(with_sheet, sheet, what):
    path = with_sheet(HEAD + sheet)
    for work in (excel.read(path, None), excel.parts(path)):
        with pytest.raises(ToolExecutionError, match=f"more than {what}; save the sheet as .csv"):
            await work


async def test_cell_text_length_is_limited(with_sheet, monkeypatch):
    texts = "".join(f"<si><t>t{n}</t></si>" for n in range(5))
    path = with_sheet(HEAD + "<row><c t='s'><v>4</v></c></row>", texts=texts)
    assert await excel.read(path, None) == [{"n": "t4"}]
    monkeypatch.setattr(scan, "MAX_TEXTS", 4)
    for work in (excel.read(path, None), excel.parts(path)):
        with pytest.raises(ToolExecutionError, match="more than 4 different texts"):
            await work


async def test_xml_entities_are_not_expanded(with_sheet):
    declared = "<!DOCTYPE worksheet [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]>"
    path = with_sheet(HEAD.replace("<t>n<", "<t>&b;<"), declared=declared)
    with pytest.raises(ToolExecutionError, match="has a document type"):
        await excel.read(path, None)


async def test_workbook_format_is_recognised_despite_its_suffix(tmp_path, workbook):
    modern = Path(workbook({"S": [["n"], [1]]}, name="a.xlsx"))
    modern.rename(tmp_path / "new.xls")
    Path(old_workbook(tmp_path / "old.xls")).rename(tmp_path / "old.xlsx")
    assert await excel.read(str(tmp_path / "new.xls"), None) == [{"n": 1}]
    assert (await excel.read(str(tmp_path / "old.xlsx"), None))[0]["region"] == "north"


async def test_missing_sheet_part_is_reported(tmp_path, workbook):
    source = workbook({"S": [["n"], [1]], "Two": [["k"]]}, name="whole.xlsx")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as new:
        for item in old.namelist():
            if not item.endswith("sheet2.xml"):
                new.writestr(item, old.read(item))
    with notes_of_call() as notes:
        assert await excel.parts(str(tmp_path / "a.xlsx")) == ["S"]
    assert list(notes) == ["sheets that the workbook lists are not in it: 'Two'"]
