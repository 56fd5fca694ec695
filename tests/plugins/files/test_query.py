"""``files.query``: SQL over input files where they are, by a process that reads nothing else."""

import asyncio
import csv
import datetime as dt
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from openpyxl import Workbook

from delf.errors import ToolExecutionError, ToolRefusedError
from delf.notes import notes_of_call
from delf.specs import FormatSpec
from delf.testing import TestHost
from delf_engine.formats import Formats
from delf_engine.inputs import find_inputs, input_files
from delf_files import dialects, large
from delf_files.arrow_schema import duration_columns
from delf_files.connection import Files

FORMATS = Formats(TestHost.discover(environ={}))
PARQUET = """
COPY (SELECT i AS n, 'r' || (i % 2) AS region, 1.50::DECIMAL(9, 2) AS price, [1, 2] AS parts,
      {{'a': 1}} AS inner, 'x'::BLOB AS raw, TIMESTAMPTZ '2026-01-02 03:04:00+00' AS at,
      TIMESTAMP '2026-01-02 03:04:05.25' AS local, DATE '2026-01-02' AS day,
      INTERVAL '1 day 90 seconds' AS took FROM range(4) t(i)) TO '{}'
"""


@pytest.fixture(scope="module", autouse=True)
def close_formats():
    """Close the readers' processes that all tests of the module share."""
    yield
    asyncio.run(FORMATS.aclose())


@pytest.fixture
def files(tmp_path):
    """The connection with some files, independent of installed plugins."""
    duckdb.sql(PARQUET.format(tmp_path / "sales.parquet"))
    (tmp_path / "codes.csv").write_text("id;v\n007;1,5\n")
    (tmp_path / "lines.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    database = sqlite3.connect(tmp_path / "shop.db")
    database.executescript(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT) WITHOUT ROWID;"
        "INSERT INTO orders VALUES (1, 'x'), (2, NULL);"
        "CREATE TABLE mixed (v); INSERT INTO mixed VALUES (1), ('two'), (2.5)"
    )
    database.close()
    book = Workbook()
    book.active.append(["n", "when"])
    book.active.append([1, dt.datetime(2026, 1, 2)])
    book.create_sheet("Two").append(["k"])
    book["Two"].append(["v"])
    book.save(tmp_path / "book.xlsx")
    names = ("sales.parquet", "codes.csv", "lines.jsonl", "damaged.parquet", "shop.db", "book.xlsx")
    found = find_inputs([str(tmp_path / name) for name in names])
    return Files(input_files(found, lambda path: f"/workspace/{os.path.basename(path)}"), FORMATS)


def files_of(*paths):
    found = find_inputs([str(path) for path in paths])
    return Files(input_files(found, lambda path: f"/workspace/{os.path.basename(path)}"), FORMATS)


async def test_parquet_durations_are_reported_with_their_units(tmp_path):
    path = tmp_path / "a[1].parquet"
    columns = {
        "n": pa.array([1]),
        "größe": pa.array([dt.timedelta(hours=30)], pa.duration("us")),
        "when": pa.array([1], pa.timestamp("us")),
        "run": pa.array([5], pa.duration("s")),
    }
    pyarrow.parquet.write_table(pa.table(columns), path)
    with notes_of_call() as notes:
        (row,) = await files_of(path).query("SELECT n, größe, run FROM 'a[1].parquet'")
    assert row == {"n": 1, "größe": 108_000_000_000, "run": 5}
    assert list(notes) == [
        "a[1].parquet: column 'größe' holds lengths of time, as whole microseconds",
        "a[1].parquet: column 'run' holds lengths of time, as whole seconds",
    ]
    for text in (b"", b"no base64 \xff", b"A" * 400, b"/" * 400, b"QQ" * 300):
        assert duration_columns(text) == []


@pytest.mark.parametrize("name", ["new one.csv", "it's one.csv", "'one.csv", "one.csv's one.csv"])
async def test_query_opens_no_file_whose_name_is_a_part_of_another_name(tmp_path, name):
    (tmp_path / name).write_text("a title\nn\n1\n")
    others = [tmp_path / "one.csv", tmp_path / "s one.csv", tmp_path / "ne.csv"]
    for other in others:
        other.write_text("")  # an empty file cannot be queried
    quoted = name.replace("'", "''")
    rows = await files_of(tmp_path / name, *others).query(f"FROM '{quoted}'", header=2)
    assert rows == [{"n": "1"}]


async def test_query_opens_no_table_whose_name_begins_another_name(tmp_path):
    database = sqlite3.connect(tmp_path / "shop.db")
    database.executescript(
        "CREATE TABLE a (n); CREATE TABLE orders (n); INSERT INTO orders VALUES (1);"
        "CREATE VIEW o AS SELECT missing FROM nowhere"
    )
    database.close()
    assert await files_of(tmp_path / "shop.db").query("FROM 'shop.db/orders'") == [{"n": 1}]


async def test_query_accepts_both_forms_of_an_accent(tmp_path):
    decomposed, composed = "cafe\u0301.csv", "caf\u00e9.csv"
    (tmp_path / decomposed).write_text("n\n1\n")
    files = files_of(tmp_path / decomposed)
    for name in (decomposed, composed, f"/workspace/{composed}"):
        assert await files.query(f"FROM '{name}'", header={name: 1}) == [{"n": "1"}]


@pytest.mark.parametrize("name", ["a.csv", "a.xlsx"])
async def test_column_names_have_composed_accents(tmp_path, name):
    header, composed = "cafe\u0301", "caf\u00e9"
    book = Workbook()
    book.active.append([header, "n"])
    book.active.append(["x", 1])
    book.save(tmp_path / "a.xlsx")
    (tmp_path / "a.csv").write_text(f"{header},n\nx,1\n", "utf-8")
    files = files_of(tmp_path / name)
    assert await files.query(f"SELECT {composed} FROM '{name}'") == [{composed: "x"}]
    assert [row[composed] for row in await files.read(name)] == ["x"]


async def test_key_value_folders_of_a_path_add_no_columns_to_rows(tmp_path):
    folder = tmp_path / "year=2026" / "region=north"
    folder.mkdir(parents=True)
    duckdb.sql(
        "COPY (SELECT 1999 AS year, 'south' AS region) TO '{}'".format(folder / "orders.parquet")
    )
    (folder / "orders.json").write_text('[{"year": 1999, "region": "south"}]')
    (folder / "orders.csv").write_text("year,region\n1999,south\n")
    for name in ("orders.parquet", "orders.json", "orders.csv"):
        rows = await files_of(folder / name).query(f"SELECT * FROM '{name}'")
        assert [{**row, "year": int(row["year"])} for row in rows] == [
            {"year": 1999, "region": "south"}
        ]
    odd = [
        "it's.parquet",
        "a*.parquet",
        "ab.parquet",
        "data[1].parquet",
        "data1.parquet",
        "q?.parquet",
        'say "x".parquet',
    ]
    for number, name in enumerate(odd):
        duckdb.from_query(f"SELECT {number} AS n").write_parquet(str(tmp_path / name))
    several = files_of(*(tmp_path / name for name in odd))
    for number, name in enumerate(odd):
        single = name.replace("'", "''")
        assert await several.query(f"SELECT n FROM '{single}'") == [{"n": number}]
    assert await several.query("""SELECT n FROM "say ""x"".parquet" """) == [{"n": 6}]
    assert await several.read("data[1].parquet") == [{"n": 3}]
    for number, name in enumerate(("c*.json", "cd.json")):
        (tmp_path / name).write_text(f'[{{"n": {number}}}]')
    assert await files_of(tmp_path / "c*.json", tmp_path / "cd.json").query(
        "SELECT n FROM 'c*.json'"
    ) == [{"n": 0}]


async def test_column_names_differing_by_case_are_kept_and_reported(tmp_path):
    (tmp_path / "a.csv").write_text("ID,id\n1,2\n")
    (tmp_path / "a.json").write_text('[{"ID": 1, "id": 2.5}, {"ID": 9007199254740993, "id": 1.5}]')
    table = pa.table([pa.array([1]), pa.array([2])], names=["ID", "id"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    book = Workbook()
    book.active.append(["ID", "id"])
    book.active.append([1, 2])
    book.save(tmp_path / "a.xlsx")
    for name in ("a.csv", "a.json", "a.parquet", "a.xlsx"):
        with notes_of_call() as notes:
            row = (await files_of(tmp_path / name).query(f"SELECT * FROM '{name}' ORDER BY 1"))[0]
        first, second = row.values()
        assert (int(first), float(second)) == (1, 2.5 if name == "a.json" else 2.0)
        assert any("SQL cannot tell names apart by their case" in note for note in notes), name
    (tmp_path / "b.csv").write_text("id,id_1\n1,2\n")
    with notes_of_call() as notes:
        await files_of(tmp_path / "b.csv").query("SELECT * FROM 'b.csv'")
    assert not notes


QUERIES = {
    "SELECT * FROM 'sales.parquet' LIMIT 1": [
        {
            "n": 0,
            "region": "r0",
            "price": Decimal("1.50"),
            "parts": [1, 2],
            "inner": {"a": 1},
            "raw": b"x",
            "at": dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC),
            "local": dt.datetime(2026, 1, 2, 3, 4, 5, 250000),
            "day": dt.date(2026, 1, 2),
            "took": dt.timedelta(days=1, seconds=90),
        }
    ],
    "SELECT region, sum(n) AS n FROM '/workspace/sales.parquet' GROUP BY 1 ORDER BY 1": [
        {"region": "r0", "n": 2},
        {"region": "r1", "n": 4},
    ],
    "SELECT * FROM 'codes.csv'": [{"id": "007", "v": "1,5"}],
    "SELECT sum(a) AS s FROM 'lines.jsonl'": [{"s": 3}],
    "SELECT * FROM 'shop.db/orders' ORDER BY id": [{"id": 1, "note": "x"}, {"id": 2, "note": None}],
    "SELECT * FROM 'shop.db/mixed'": [{"v": "1"}, {"v": "two"}, {"v": "2.5"}],
    "SELECT * FROM 'book.xlsx'": [{"n": 1, "when": dt.datetime(2026, 1, 2)}],
    "SELECT o.note, b.n FROM 'book.xlsx/Sheet' b JOIN 'shop.db/orders' o ON o.id = b.n": [
        {"note": "x", "n": 1}
    ],
    "SELECT * FROM 'book.xlsx/Two'": [{"k": "v"}],
    "SELECT n, n FROM 'sales.parquet' LIMIT 1": [{"n": 0, "n_2": 0}],
}


async def test_query_uses_file_names_as_tables(files):
    for statement, rows in QUERIES.items():
        assert await files.query(statement) == rows, statement
    assert await files.query("SELECT id FROM 'codes.csv' WHERE v = ?", ["1,5"]) == [{"id": "007"}]
    assert len(await files.read("sales.parquet")) == 4
    assert (
        await files.read("shop.db", sheet="orders")
        == QUERIES["SELECT * FROM 'shop.db/orders' ORDER BY id"]
    )


ROWS = {
    "rows of different lengths": (
        "t.csv",
        "n,n\na,1\nb\nc,2,3\n",
        [("a", "1", None), ("b", None, None), ("c", "2", "3")],
        ["rows with more cells than the 2 columns that are named: 1 (the first is row 4)"],
    ),
    "one short row at the end": ("t.csv", "n,v\n1,2\nx\n", [("1", "2"), ("x", None)], []),
    "a comment is a row": ("t.csv", "n,v\n#1,2\n", [("#1", "2")], []),
    "another encoding": (
        "t.csv",
        "n,city\n1,東京都\n2,大阪府\n".encode("cp932"),
        [("1", "東京都"), ("2", "大阪府")],
        ["t.csv is not UTF-8 (byte 0x93 on line 2) and was read as Shift-JIS (Japanese)"],
    ),
    "another encoding, and a key that is there twice": (
        "t.json",
        '[{"a": "東京都", "a": "大阪府"}]'.encode("cp932"),
        [("大阪府",)],
        ["t.json is not UTF-8", "t.json has objects"],
    ),
    "UTF-16": ("t.tsv", "n\tv\n1\tä\n".encode("utf-16"), [("1", "ä")], []),
    "a broken line": (
        "t.jsonl",
        '{"a": 1}\n{oops\n{"a": 3}\n',
        [(1,), (3,)],
        ["t.jsonl has 1 of 3 lines that are not JSON"],
    ),
    "a key that is there twice": ("t.json", '[{"a": 1, "a": 2}]', [(2,)], ["t.json has objects"]),
    "a number that no float holds": ("t.json", '[{"a": 1e400}]', [("1e400",)], ["t.json has num"]),
    "integers over 64 bits": (
        "t.json",
        '[{"a": 18446744073709551617, "b": 9007199254740993}, {"a": 1, "b": 2}]',
        [("18446744073709551617", 9007199254740993), ("1", 2)],
        ["t.json has numbers that fit no float, and they were read as text: 'a'"],
    ),
    "a key that comes late": (
        "t.jsonl",
        '{"a": 1}\n' * 900 + '{"b": 5}\n',
        [*[(1, None)] * 900, (None, 5)],
        [],
    ),
}


MORE_ROWS = {
    "a key that is there twice, in lines": ("t.jsonl", '{"a": 1, "a": 2}\n', [(2,)], ["t.jsonl has objects"]),
    "a key that is there twice, in an object": ("t.json", '{"a": {"b": 1, "b": 2}}', [({"b": 2},)], ["t.json has objects"]),
    "a key that is there twice, after others": ("t.json", '\ufeff[\n{"a": 12}\n,{"a": "]", "a": 678} ] \n', [(12,), (678,)], ["t.json has objects"]),
    "lines in a value": ("t.csv", 'n,v\n1,"a\nb"\n2,\n', [("1", "a\nb"), ("2", None)], []),
    "lines in a value of a ragged table": ("t.csv", 'n,v\n1,"a\r\nb"\n2\n', [("1", "a\r\nb"), ("2", None)], []),
    "what Excel says about itself": ("t.csv", "sep=;\nn;v\n1,5;x\n", [("1,5", "x")], []),
    "empty lines first": ("t.csv", "\n\nn,v\n\n1,x\n", [("1", "x")], []),
    "a long cell": ("t.csv", f"n,v\n1,{'x' * 3_000_000}\n", [("1", "x" * 3_000_000)], []),
    "only returns": ("t.csv", "n,v\r1,x\r", [("1", "x")], []),
    "a mark": ("t.json", "\ufeff" + '[{"a": 1}]', [(1,)], []),
    "a stray byte": ("t.csv", "n,v\nä,ö\n".encode() + b"\xff,x\n", [("ä", "ö"), ("\ufffd", "x")], ["t.csv has bytes that are not UTF-8, the first on line 3"]),
    "floats after integers that no float holds": (
        "t.json",
        '[{"a": 9007199254740993}, {"a": 1.5}]',
        [("9007199254740993",), ("1.5",)],
        ["t.json has numbers that fit no float, and they were read as text: 'a'"],
    ),
    "texts among numbers": ("t.jsonl", '{"a": 1}\n{"a": "x"}\n', [("1",), ("x",)], []),
    "numbers and lists": ("t.jsonl", '{"a": 1}\n{"a": ["x"]}\n', [(1,), (["x"],)], []),
}  # fmt: skip


@pytest.mark.parametrize(
    "case", [*ROWS, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE_ROWS)]
)
async def test_query_and_read_return_the_same_rows(tmp_path, case):
    name, data, rows, shown = {**ROWS, **MORE_ROWS}[case]
    got, notes = await _queried(tmp_path / name, data)
    assert got == rows
    assert [note[: len(start)] for note, start in zip(notes, shown, strict=True)] == shown


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[]", []),
        ("[1.5, 2e5,-2.25E-7 ]", [1.5, 2e5, -2.25e-7]),
        ("12.5\n3e+2", [12.5, 300.0]),
        ('\ufeff [12, 345 ,{"a":[1,2]}]\n', [12, 345, {"a": [1, 2]}]),
        ("12\n345", [12, 345]),
        ('{"a": "]"}', [{"a": "]"}]),
    ],
)
def test_large_json_is_read_in_pieces(tmp_path, monkeypatch, chunk, text, values):
    monkeypatch.setattr(large, "CHUNK_CHARACTERS", chunk)
    (tmp_path / "a.json").write_text(text, "utf-8")
    large.write_items_as_json_lines(str(tmp_path / "a.json"), str(tmp_path / "b.jsonl"), "a.json")
    lines = (tmp_path / "b.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == values


@pytest.mark.parametrize(("text", "is_ragged"), [("1,2\n3,4\n", False), ("1,2\n3\n", True)])
@pytest.mark.parametrize("names_row", [0, 1])
def test_only_rows_of_different_width_are_ragged(tmp_path, names_row, text, is_ragged):
    (tmp_path / "a.csv").write_text(text, "utf-8")
    copy_path = str(tmp_path / "b.csv")
    table = large.write_table(str(tmp_path / "a.csv"), ".csv", copy_path, "a.csv", names_row)
    assert table.ragged is is_ragged


@pytest.mark.parametrize("text", ["[1, 2", "[1] 2", "[1, x]", '{"a"', "[" * 100_000])
def test_malformed_large_json_is_reported(tmp_path, text):
    (tmp_path / "a.json").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"^a\.json: "):
        large.write_items_as_json_lines(
            str(tmp_path / "a.json"), str(tmp_path / "b.jsonl"), "a.json"
        )


@pytest.mark.parametrize(
    ("data", "header", "message"),
    [
        (
            'n,v\n1,x\n2,"y\n3,z\n',
            None,
            "t.csv: it cannot be read as a table: line 3: a quote is not closed",
        ),
        (
            'n,v\n1,x\n2,"y\n3,z\n',
            3,
            "t.csv: it cannot be read as a table: line 3: a quote is not closed",
        ),
        ("", None, "t.csv: it has no rows"),
    ],
)
async def test_damaged_file_error_names_the_damage(tmp_path, data, header, message):
    with pytest.raises(ToolRefusedError, match=message):
        await _queried(tmp_path / "t.csv", data, header)


def test_unclosed_quote_ends_reading_at_the_largest_cell(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text('id,name\n1,"open\n' + "2,x\n" * 100_000)
    monkeypatch.setattr(dialects, "LARGEST_CELL", 150_000)
    previous_limit = csv.field_size_limit(1)
    try:
        with notes_of_call() as notes, pytest.raises(ValueError, match="line 2: a quote is not"):
            large.write_table(str(path), ".csv", str(tmp_path / "b.csv"), "a.csv")
    finally:
        csv.field_size_limit(previous_limit)
    assert list(notes) == []


async def _queried(path, data, header=None):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    found = input_files(find_inputs([str(path)]), lambda path: path)
    with notes_of_call() as notes:
        got = await Files(found, FORMATS).query(f"FROM '{path.name}'", header=header)
    return [tuple(row.values()) for row in got], list(notes)


async def test_dates_inside_lists_are_converted(tmp_path):
    duckdb.sql(
        "COPY (SELECT [DATE '2026-01-01'] AS d, {'at': TIMESTAMP_NS '2026-01-01 00:00:00.123456789'} AS s) "
        f"TO '{tmp_path / 'a.parquet'}'"
    )
    found = input_files(find_inputs([str(tmp_path / "a.parquet")]), lambda path: path)
    with notes_of_call() as notes:
        (row,) = await Files(found, FORMATS).query("FROM 'a.parquet'")
    assert row == {"d": [dt.date(2026, 1, 1)], "s": "{'at': '2026-01-01 00:00:00.123456789'}"}
    assert [note[:10] for note in notes] == ["column 's'"]


async def test_workbook_times_and_durations_are_converted(tmp_path):
    lasting = dt.timedelta(days=1, hours=6, microseconds=5000)
    book = Workbook()
    book.active.append(["at", "took"])
    book.active.append([dt.time(1, 2), lasting])
    book.save(tmp_path / "a.xlsx")
    found = input_files(find_inputs([str(tmp_path / "a.xlsx")]), lambda path: path)
    got = await Files(found, FORMATS).query("FROM 'a.xlsx' WHERE took > INTERVAL 1 DAY")
    assert got == [{"at": dt.time(1, 2), "took": lasting}]


NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))


class Moments:
    """A format whose records have times with and without a zone."""

    async def parts(self, path):
        return []

    async def read(self, path, part):
        later = (NOON + dt.timedelta(hours=1)).astimezone(dt.UTC)
        return [
            {"zoned": NOON, "mixed": NOON, "time": NOON.timetz()},
            {"zoned": later, "mixed": NOON.replace(tzinfo=None), "time": None},
        ]


async def test_times_of_a_format_keep_their_zone(tmp_path):
    host = TestHost.discover(no_plugins=True, environ={})
    host.provide(FormatSpec(name="m", summary="", factory="a:b", endings=(".moments",)), Moments)
    (tmp_path / "a.moments").touch()
    found = input_files(find_inputs([str(tmp_path / "a.moments")]), str)
    formats = Formats(host)
    try:
        got = await Files(found, formats).query("FROM 'a.moments' ORDER BY zoned")
    finally:
        await formats.aclose()
    assert got == [
        {"zoned": NOON, "mixed": "2026-01-02T12:00:00+02:00", "time": "12:00:00+02:00"},
        {"zoned": NOON + dt.timedelta(hours=1), "mixed": "2026-01-02T12:00:00", "time": None},
    ]


async def test_invalid_sqlite_text_is_reported(tmp_path):
    database = sqlite3.connect(tmp_path / "a.db")
    database.executescript("CREATE TABLE t (v); INSERT INTO t VALUES (CAST(x'4dfc' AS TEXT))")
    database.close()
    found = input_files(find_inputs([str(tmp_path / "a.db")]), lambda path: path)
    with notes_of_call() as notes:
        assert await Files(found, FORMATS).read("a.db") == [{"v": "M\ufffd"}]
    assert [note[:40] for note in notes] == ["the SQLite file has text that is not UTF"]


async def test_integers_among_floats_are_not_rounded(tmp_path):
    database = sqlite3.connect(tmp_path / "a.db")
    database.executescript(
        "CREATE TABLE t (v); INSERT INTO t VALUES (9007199254740993), (1.5);"
        "CREATE TABLE u (v); INSERT INTO u VALUES (3), (1.5)"
    )
    database.close()
    found = input_files(find_inputs([str(tmp_path / "a.db")]), lambda path: path)
    files = Files(found, FORMATS)
    assert await files.query("FROM 'a.db/t'") == [{"v": "9007199254740993"}, {"v": "1.5"}]
    assert await files.query("FROM 'a.db/u'") == [{"v": 3.0}, {"v": 1.5}]


REFUSED = {
    "SELECT * FROM 'codes.csv', read_text('/etc/hostname')": "Cannot access file",
    "SELECT * FROM 'codes.csv', '/etc/passwd'": "does not exist",
    "SELECT * FROM 'codes.csv', glob('/etc/*')": "Cannot access file",
    "COPY (SELECT * FROM 'codes.csv') TO '{}/new.csv'": "only reads",
    "ATTACH 'codes.csv' AS x": "only reads",
    'DROP VIEW "codes.csv"': "only reads",
    "INSTALL httpfs /* 'codes.csv' */": "only reads",
    "SET memory_limit = '10GB' /* 'codes.csv' */": "only reads",
    "SELECT 1 FROM 'codes.csv'; DROP VIEW \"codes.csv\"": "one statement at a time",
    "EXPLAIN ANALYZE COPY (SELECT * FROM 'codes.csv') TO '{}/new.csv'": "only reads",
    "SELECT 1": "names no input file",
    "SELECT nope FROM 'codes.csv'": 'Referenced column "nope" not found',
    "SELECT * FROM 'damaged.parquet'": "too small to be a Parquet file",
    "SELECT n FROM 'sales.parquet', range(1000)": "more than 1000 rows",
}


async def test_arrow_files_are_read(tmp_path):
    table = pa.table({"n": [1, 2], "day": [dt.date(2026, 1, 2), None]})
    with (
        pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as out,
    ):
        out.write_table(table)
    with (
        pa.OSFile(str(tmp_path / "s.feather"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    (tmp_path / "bad.arrow").write_bytes(b"ARROW1 is not all")
    found = find_inputs([str(tmp_path / name) for name in ("t.arrow", "s.feather", "bad.arrow")])
    files = Files(input_files(found, str), FORMATS)
    rows = [{"n": 1, "day": dt.date(2026, 1, 2)}, {"n": 2, "day": None}]
    assert await files.query("SELECT * FROM 't.arrow'") == rows
    assert await files.read("s.feather") == rows
    with pytest.raises(
        (ToolRefusedError, ToolExecutionError), match=r"bad\.arrow is not a file of Arrow"
    ):
        await files.read("bad.arrow")


async def test_query_reads_only_input_files_and_writes_nothing(files, tmp_path):
    before = sorted(os.listdir(tmp_path))
    for statement, why in REFUSED.items():
        with pytest.raises((ToolExecutionError, ToolRefusedError), match=why):
            await files.query(statement.format(tmp_path))
    assert sorted(os.listdir(tmp_path)) == before
    assert len(await files.query("SELECT n FROM 'sales.parquet', range(1000)", limit=5)) == 5


async def test_query_rows_keep_the_order_of_their_file(tmp_path):
    path = tmp_path / "t.parquet"
    numbers = [*range(1000)]
    pyarrow.parquet.write_table(pa.table({"n": numbers}), path, row_group_size=1)
    assert [row["n"] for row in await files_of(path).read("t.parquet")] == numbers


WRONG = """
FROM 'codes.csv' WHERE | SELECT nope FROM 'codes.csv' | SELECT CAST(v AS INTEGER) FROM 'codes.csv'
FROM 'damaged.parquet' | FROM 'lines.jsonl/x' | FROM 'shop.db/nope' | FROM 'book.xlsx/Nope'
FROM read_blob('codes.csv') | FROM read_csv('codes.csv', sep='ab', quote='cc')
SELECT id FROM 'codes.csv' UNION SELECT id, v FROM 'codes.csv' | SELECT sum(v) FROM 'codes.csv'
SELECT x.y.z FROM 'codes.csv' x | FROM parquet_metadata('sales.parquet') | FROM sniff_csv('codes.csv')
PIVOT 'codes.csv' ON v USING | SELECT error('boom') FROM 'codes.csv' | SELECT nope(v) FROM 'codes.csv'
SELECT strptime(v, '%Y') FROM 'codes.csv' | SELECT regexp_matches(v, '(') FROM 'codes.csv'
FROM 'codes.csv', glob('/root/*') | SELECT [1][5] + v FROM 'codes.csv' | FROM 'codes.csv' LIMIT 'x'
SELECT list_reduce([], lambda x, y: x + y) FROM 'codes.csv' | SELECT v OVER () FROM 'codes.csv'
SELECT n + 9223372036854775807 FROM 'sales.parquet' | SELECT ? FROM 'codes.csv'
"""


async def test_query_errors_show_no_trace_or_host_folder(files, tmp_path):
    wrong = [text.strip() for line in WRONG.strip().splitlines() for text in line.split("|")]
    raised = await asyncio.gather(*map(files.query, wrong), return_exceptions=True)
    for statement, error in zip(wrong, raised, strict=True):
        assert isinstance(error, (ToolExecutionError, ToolRefusedError)), statement
        shown = f"{error.message} {error.hint}"
        for part in (str(tmp_path), os.getcwd(), tempfile.gettempdir(), "tack trace", "tack Trace"):
            assert part not in shown, statement
        assert "\n" not in shown


async def test_unrepresentable_value_is_text_with_a_note(tmp_path):
    path = tmp_path / "t.parquet"
    duckdb.sql(
        "COPY (SELECT DATE 'infinity' AS d, INTERVAL '1 month' AS i, TIME '24:00' AS t, "
        "TIMESTAMP '10000-01-02 03:04' AS far, make_timestamp_ns(1) AS ns, "
        f"TIME_NS '12:00:00.123456789' AS tns) TO '{path}'"
    )
    files = Files(input_files(find_inputs([str(path)]), str), FORMATS)
    with notes_of_call() as notes:
        (row,) = await files.query("SELECT * FROM 't.parquet'")
    assert row == {
        "d": "infinity",
        "i": "1 month",
        "t": "24:00:00",
        "far": "10000-01-02 03:04:00",
        "ns": "1970-01-01 00:00:00.000000001",
        "tns": "12:00:00.123456789",
    }
    assert [shown.split(":")[0] for shown in notes] == [f"column {name!r}" for name in row]


async def test_dates_of_the_25th_century_are_dates(files):
    dates = "DATE '2450-01-31' AS d, TIMESTAMP '2401-02-03 04:05' AS t"
    rows = await files.query(f"SELECT {dates} FROM 'codes.csv' LIMIT 1")
    assert rows == [{"d": dt.date(2450, 1, 31), "t": dt.datetime(2401, 2, 3, 4, 5)}]


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_file_larger_than_memory_can_be_queried(tmp_path):
    """The table takes 400 MB in memory; the process must stay well below that, and below 512 MB."""
    numbers = duckdb.sql("SELECT range AS n FROM range(1_000_000)").arrow()
    numbers = (numbers.read_all() if hasattr(numbers, "read_all") else numbers).column("n")
    batch = pa.table({f"c{n}": numbers for n in range(5)})
    quick = {"use_dictionary": False, "write_statistics": False}
    with pyarrow.parquet.ParquetWriter(tmp_path / "big.parquet", batch.schema, **quick) as writer:
        for _ in range(10):
            writer.write_table(batch)
    code = f"""
import asyncio, resource
from delf_engine.inputs import find_inputs, input_files
from delf_engine.formats import Formats
from delf.testing import TestHost
from delf_files import query
from delf_files.arrow_schema import duration_columns
from delf_files.connection import Files
files = Files(input_files(find_inputs([{str(tmp_path / "big.parquet")!r}]), str), Formats(TestHost.discover(environ={{}})))
print(asyncio.run(files.query("SELECT count(*) AS n, sum(c1) AS s FROM 'big.parquet' WHERE c0 % 2 = 0")))
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, most = done.stdout.splitlines()
    assert rows == "[{'n': 5000000, 's': 2499995000000}]"
    assert int(most) < 350


@pytest.fixture
def titled(tmp_path):
    """Tables with a title above the column names."""
    (tmp_path / "sales.csv").write_text("Sales 2026\n\nregion;n\nwest;1\neast;2\n")
    book = Workbook()
    for row in (["Budget 2026"], [], ["team", "spent"], ["IT", 100], ["HR", 50]):
        book.active.append(row)
    book.save(tmp_path / "budget.xlsx")
    (tmp_path / "plain.jsonl").write_text('{"a": 1}\n')
    found = find_inputs([str(tmp_path / n) for n in ("sales.csv", "budget.xlsx", "plain.jsonl")])
    return Files(input_files(found, str), FORMATS)


JOINED = """SELECT sum(CAST(n AS INT)) AS n, (SELECT sum(spent) FROM 'budget.xlsx/Sheet') AS spent
FROM 'sales.csv'"""


@pytest.mark.parametrize(
    ("statement", "header", "rows"),
    [
        ("SELECT region FROM 'sales.csv' WHERE n = '2'", 3, [{"region": "east"}]),
        ("SELECT * FROM 'sales.csv'", 4, [{"west": "east", "1": "2"}]),
        ("SELECT sum(spent) AS s FROM 'budget.xlsx'", 3, [{"s": 150}]),
        (JOINED, {"sales.csv": 3, "budget.xlsx/Sheet": 3}, [{"n": 3, "spent": 150}]),
    ],
)
async def test_header_option_of_query_skips_title_rows_above_the_header(
    titled, statement, header, rows
):
    with notes_of_call() as notes:
        assert await titled.query(statement, header=header) == rows
    assert not notes


async def test_title_mistaken_for_a_header_is_reported(titled):
    for name in ("sales.csv", "budget.xlsx"):
        with notes_of_call() as notes:
            await titled.query(f"SELECT * FROM '{name}'")
        assert "header=3 reads from there" in " ".join(notes)


@pytest.mark.parametrize(
    ("statement", "header", "words"),
    [
        (JOINED, 3, r"several files; write header=\{'sales.csv': 3\}"),
        ("FROM 'sales.csv'", -1, "a row, from 1"),
        ("FROM 'sales.csv'", 2, "row 2 is empty or not there"),
        ("FROM 'sales.csv'", 99, "row 99 is empty or not there"),
        ("FROM 'budget.xlsx'", 99, "row 99 is empty or not there"),
        ("FROM 'plain.jsonl'", 1, "plain.jsonl has no row that names columns"),
        ("FROM 'sales.csv'", {"sale.csv": 3}, "header has 'sale.csv'"),
    ],
)
async def test_invalid_header_error_suggests_a_fix(titled, statement, header, words):
    with pytest.raises((ToolRefusedError, ToolExecutionError), match=words):
        await titled.query(statement, header=header)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ('"2026-01-02T03:04:05+02:00"', "2026-01-02T03:04:05+02:00"),
        ('"2026-01-02 03:04:05.123456789"', "2026-01-02 03:04:05.123456789"),
        ('"2026-01-02"', "2026-01-02"),
        ('"12:00:00+01:00"', "12:00:00+01:00"),
        ('"6BA7B810-9DAD-11D1-80B4-00C04FD430C8"', "6BA7B810-9DAD-11D1-80B4-00C04FD430C8"),
        ('["2026-01-02T00:00:00Z"]', ["2026-01-02T00:00:00Z"]),
        ('{"DATE": "2026-01-02", "n": 1}', {"DATE": "2026-01-02", "n": 1}),
        ('"none"', "none"),
    ],
)
async def test_query_does_not_change_json_texts(tmp_path, text, row):
    path = tmp_path / "rows.json"
    path.write_text(f'[{{"v": {text}, "x": 1.5}}]')
    files = files_of(path)
    assert await files.query("SELECT v FROM 'rows.json'") == [{"v": row}]
    assert await files.read("rows.json") == [{"v": row, "x": 1.5}]


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [("rows.jsonl", "", "\n"), ("rows.jsonl", "", "\n{oops\n"), ("rows.json", "[", "]")],
    ids=["lines", "a broken line", "a list"],
)
async def test_json_keys_differing_by_case_keep_their_text(tmp_path, name, begin, end):
    path = tmp_path / name
    record = '{"ID": "2026-01-02T00:00:00+02:00", "id": "2026-01-02"}'
    path.write_text(f"{begin}{record}{end}")
    with notes_of_call() as notes:
        (row,) = await files_of(path).query(f"FROM '{name}'")
    assert row["ID"] == "2026-01-02T00:00:00+02:00"
    assert row["id_2"] == "2026-01-02"
    assert "'id_2' is 'id' beside 'ID'" in " ".join(notes)


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [("rows.jsonl", "", "\n"), ("rows.jsonl", "{oops\n", "\n"), ("rows.json", "[", "]")],
    ids=["lines", "a broken line", "a list"],
)
async def test_inner_json_keys_differing_by_case_are_kept_and_reported(tmp_path, name, begin, end):
    path = tmp_path / name
    path.write_text(begin + '{"ID": {"": 0}, "v": [{"ID": {"n": 1, "N": 2}, "id": 3}]}' + end)
    with notes_of_call() as notes:
        (row,) = await files_of(path).query(f"FROM '{name}'")
    assert row == {"ID": {"": 0}, "v": [{"ID": {"n": 1, "N_2": 2}, "id_2": 3}]}
    assert "'id_2' is 'id' beside 'ID'" in " ".join(notes)


async def test_keys_of_json_maps_keep_their_case(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("oops\n" + "".join(f'{{"m": {{"a{n}": 1, "A{n}": 2}}}}\n' for n in range(300)))
    rows = await files_of(path).query("FROM 'rows.jsonl'")
    assert rows == [{"m": {f"a{n}": 1, f"A{n}": 2}} for n in range(300)]


@pytest.mark.parametrize(
    ("name", "data", "reported"),
    [
        ("rows.csv", b"a,b\n", "only the names of columns: 'a', 'b'"),
        ("rows.csv", b"", "the table is empty"),
        ("rows.tsv", b"\n\n", "the table is empty"),
        ("rows.jsonl", b"\n", "the file has no values"),
    ],
)
async def test_table_without_rows_is_reported(tmp_path, name, data, reported):
    (tmp_path / name).write_bytes(data)
    with notes_of_call() as notes:
        assert await files_of(tmp_path / name).read(name) == []
    assert reported in " ".join(notes)


async def test_parquet_and_sheets_without_rows_keep_their_columns(tmp_path):
    pa.parquet.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "rows.parquet")
    book = Workbook()
    book.active.append(["n", "when"])
    book.create_sheet("Bare")
    book.save(tmp_path / "book.xlsx")
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("CREATE TABLE orders (n INTEGER)")
    database.close()
    files = files_of(*(tmp_path / name for name in ("rows.parquet", "book.xlsx", "shop.db")))
    for name, sheet in (
        ("rows.parquet", None),
        ("book.xlsx", None),
        ("book.xlsx", "Bare"),
        ("shop.db", "orders"),
    ):
        with notes_of_call() as notes:
            assert await files.read(name, sheet) == []
        assert any("no rows" in reported or "is empty" in reported for reported in notes), name
    for name in ("rows.parquet", "book.xlsx", "shop.db/orders"):
        with notes_of_call() as notes:
            assert await files.query(f"SELECT n FROM '{name}'") == []
        assert any("no rows" in reported for reported in notes), name


async def test_mixed_json_values_are_equal_in_query_and_read(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text('[{"v": "none"}, {"v": {"a": 1}}, {"v": [1, "x"]}, {"v": null}, {"v": 2}]')
    files = files_of(path)
    assert await files.query("FROM 'rows.json'") == await files.read("rows.json")
    path.write_text('[{"v": "none"}, {"v": {"a": 1e400}}, {"v": [123456789012345678901]}]')
    with notes_of_call() as notes:
        _, text, exact = await files.query("FROM 'rows.json'")
    assert (text["v"], exact["v"]) == ('{"a":1e400}', [123456789012345678901])
    assert any("came as text" in shown for shown in notes)


async def test_line_of_long_non_ascii_text_is_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"id,text\n1,{'漢' * 3_000_000}\n2,b\n", encoding="utf-8")
    got = await files_of(path).query("SELECT id, length(text) AS n FROM 't.csv' ORDER BY id")
    assert got == [{"id": "1", "n": 3_000_000}, {"id": "2", "n": 1}]
