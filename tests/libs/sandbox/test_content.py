"""Tests of ``add_to_output_files``: the content for each type of value, and the allowed names."""

import collections
import dataclasses
import datetime as dt
import enum
import io
import json
import math
from decimal import Decimal
from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from delf.machine.filenames import check_file_name
from delf.protocols.sandbox import Limits
from delf.values.encoding import loads
from delf_sandbox.guest.content import ContentTooLargeError, make_content
from delf_sandbox.guest.limits import FileLimits
from delf_sandbox.guest.output import FileSender
from delf_sandbox.guest.records import Record
from delf_sandbox.guest.scratch import Scratch
from delf_sandbox.wire import limits_by_name


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Item:
    id: int
    note: str = ""


def test_record_with_the_items_of_an_open_file_is_written(tmp_path):
    sent = []
    sender = FileSender(lambda *frame: sent.append(frame))
    sender.limits = FileLimits(limits_by_name(Limits()))
    sender.scratch = Scratch(str(tmp_path))
    (tmp_path / "a.csv").write_text("x")
    sender("mail.json", Record(read=True, name="a.csv"))
    ((_kind, name, _is_last, data),) = sent
    assert (name, json.loads(data)) == ("mail.json", {"read": True, "name": "a.csv"})


FRAME = pd.DataFrame({"n": [1.5, math.nan], "when": [pd.Timestamp("2026-01-02 03:04"), pd.NaT]})
BY_REGION = pd.DataFrame({"region": ["north", "south"], "n": [1, 2]}).groupby("region")[["n"]].sum()
TWO_LEVELS = BY_REGION.agg({"n": ["sum", "max"]}).T.set_axis(
    pd.MultiIndex.from_tuples([("n", "sum"), ("n", "max")]), axis=1
)


CONTENT = {
    "text": ("a.txt", "Grüße\r\n", "Grüße\r\n"),
    "text whatever the ending": ("a.csv", "a;b", "a;b"),
    "half of an emoji": ("a.txt", "x\ud83d", "x\ufffd"),
    "half of an emoji in JSON": ("a.json", ["x\ud83d"], '[\n  "x\ufffd"\n]'),
    "half of an emoji in JSON lines": ("a.jsonl", [{"x": "\ud83d"}], '{"x": "\ufffd"}\n'),
    "half of an emoji in CSV": ("a.csv", [{"x": "\ud83d"}], "x\n\ufffd\n"),
    "bytes": ("a.json", b"\x00\xff", b"\x00\xff"),
    "a bytearray": ("a", bytearray(b"x"), "x"),
    "text in memory": ("a.csv", io.StringIO("a,b\n"), "a,b\n"),
    "bytes in memory": ("a.zip", io.BytesIO(b"PK"), "PK"),
    "a dict": ("a.json", {"ü": (1, None)}, '{\n  "ü": [\n    1,\n    null\n  ]\n}'),
    "a dict without an ending": ("a", {}, "{}"),
    "a list": ("a.json", [dt.date(2026, 1, 2), Decimal("1.10")], '[\n  "2026-01-02",\n  "1.10"\n]'),
    "what JSON has no number for": (
        "a.json",
        [math.nan, {"a": math.inf}],
        '[\n  null,\n  {\n    "a": null\n  }\n]',
    ),
    "records": ("a.json", [Item(1)], '[\n  {\n    "id": 1,\n    "note": ""\n  }\n]'),
    "lines of JSON": ("a.jsonl", [{"a": 1}, 2], '{"a": 1}\n2\n'),
    "rows": ("a.csv", [{"a": 1, "b": "x,y"}, {"b": None, "c": [1]}], 'a,b,c\n1,"x,y",\n,,[1]\n'),
    "rows with a NaN": ("a.csv", [[Decimal("NaN"), Decimal("sNaN"), math.nan, 1]], ",,,1\n"),
    "rows by tabs": ("A.TSV", [{"a": 1, "b": "x,y"}], "a\tb\n1\tx,y\n"),
    "rows of records": ("a.csv", [Item(1, "x")], "id,note\n1,x\n"),
    "rows without names": ("a.csv", [[1, 2], (3, 4), 5], "1,2\n3,4\n5\n"),
    "values of a dict": ("a.csv", {"x": {"a": 1}}.values(), "a\n1\n"),
    "no rows": ("a.csv", [], ""),
    "a frame": ("a.csv", FRAME, "n,when\n1.5,2026-01-02 03:04:00\n,\n"),
    "a frame by tabs": ("a.tsv", FRAME, "n\twhen\n1.5\t2026-01-02 03:04:00\n\t\n"),
    "a frame as lines of JSON": (
        "a.jsonl",
        FRAME,
        '{"n": 1.5, "when": "2026-01-02T03:04:00"}\n{"n": null, "when": null}\n',
    ),
    "an index": ("a.csv", BY_REGION, "region,n\nnorth,1\nsouth,2\n"),
    "an index as JSON": (
        "a.json",
        BY_REGION[:1],
        '[\n  {\n    "region": "north",\n    "n": 1\n  }\n]',
    ),
    "an index as a page": (
        "a.html",
        BY_REGION[:1],
        (
            '<table border="1">\n<tr><th>region</th><th>n</th></tr>\n'
            "<tr><td>north</td><td>1</td></tr>\n</table>\n"
        ),
    ),
    "columns of two levels": ("a.csv", TWO_LEVELS, "index,n_sum,n_max\nn,3,2\n"),
    "a series": ("a.csv", BY_REGION["n"], "region,n\nnorth,1\nsouth,2\n"),
    "a series of which only the values say something": ("a.csv", FRAME["n"][:1], "n\n1.5\n"),
    "a table of Arrow": ("a.csv", pa.table({"n": [1, None], "s": ["a", "b"]}), "n,s\n1,a\n,b\n"),
    "a frame of polars": (
        "a.csv",
        pl.DataFrame({"n": [1, None], "s": ["a", "b"]}),
        "n,s\n1,a\n,b\n",
    ),
    "an array": ("a.csv", np.array([[1, 2], [3, 4]]), "1,2\n3,4\n"),
    "numbers of numpy": (
        "a.json",
        {np.int64(1): np.int64(3), "x": np.arange(3), "b": b"\xff"},
        '{\n  "1": 3,\n  "x": [\n    0,\n    1,\n    2\n  ],\n  "b": "/w=="\n}',
    ),
    "numbers of numpy in rows": (
        "a.csv",
        [
            {
                "a": np.float64(1.5),
                "b": np.int64(3),
                "c": np.datetime64("2026-01-02T03:04:00.0", "ns"),
            }
        ],
        "a,b,c\n1.5,3,2026-01-02 03:04:00\n",
    ),
    "frames in a dict": (
        "a.json",
        {"t": BY_REGION[1:]},
        '{\n  "t": [\n    {\n      "region": "south",\n      "n": 2\n    }\n  ]\n}',
    ),
    "other collections": (
        "a.json",
        {"r": range(2), "d": collections.deque([Colour.RED])},
        '{\n  "r": [\n    0,\n    1\n  ],\n  "d": [\n    "red"\n  ]\n}',
    ),
    "rows as they come": ("a.csv", ({"a": n} for n in range(2)), "a\n0\n1\n"),
    "rows that are named tuples": ("a.csv", [Point(1, 2)], "x,y\n1,2\n"),
}


@pytest.mark.parametrize("case", CONTENT)
def test_file_content_is_made_by_type_and_suffix(case):
    name, value, expected = CONTENT[case]
    made = make_content(name, value)
    assert made.data == (expected if isinstance(expected, bytes) else expected.encode())
    assert not made.is_rows


SHEETS = {
    "records": (
        [{"a": 1, "b": [2]}, {"c": True}],
        {"Sheet1": [["a", "b", "c"], [1, "[2]", None], [None, None, True]]},
    ),
    "lists": ([[1, "x"], [None]], {"Sheet1": [[1, "x"], [None]]}),
    "sheets by name": ({"A": [{"n": 1}], 2: []}, {"A": [["n"], [1]], "2": []}),
    "sheets whose names have the same text": ({2: [[1]], "2": [[2]]}, {"2": [[1]], "2_2": [[2]]}),
    "a frame": (
        FRAME,
        {"Sheet1": [["n", "when"], [1.5, dt.datetime(2026, 1, 2, 3, 4)], [None, None]]},
    ),
    "frames by sheet": (
        {"A": BY_REGION, "B": BY_REGION["n"]},
        {name: [["region", "n"], ["north", 1], ["south", 2]] for name in "AB"},
    ),
    "what a cell cannot hold": (
        [[Item(1), {1}, Decimal("NaN")]],
        {"Sheet1": [['{"id": 1, "note": ""}', "[1]", None]]},
    ),
}


@pytest.mark.parametrize("case", SHEETS)
def test_workbook_rows_are_sent_to_the_host(case):
    value, expected = SHEETS[case]
    made = make_content("a.XLSX", value, [".xlsx"])
    assert made.is_rows
    assert loads(made.data) == expected


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("a", object(), TypeError, "cannot write a object as a file"),
        ("a.csv", {"a": 1}, TypeError, "made from a list of rows, not from one dict"),
        ("a.xlsx", "text", TypeError, "cannot make a workbook from a str"),
        ("a.xlsx", {"a": 1}, TypeError, "cannot make a workbook from a dict"),
        ("a.pdf", {"a": 1}, TypeError, "cannot make a .pdf file from a dict; give its text or"),
        ("a.parquet", [], TypeError, "cannot make a .parquet file from a list"),
        ("a.ods", [], RuntimeError, "making .ods files is not possible; write a .csv"),
    ],
)
def test_unsupported_file_content_is_refused(name, value, kind, message):
    with pytest.raises(kind, match=message):
        make_content(name, value, [".xlsx"])


ENDINGS = {
    "report": ({"a": 1}, ".json"),
    "rows": ([1], ".json"),
    "table": (FRAME, ".csv"),
    "sub/report": ({}, ".json"),
    "Makefile": ("x", ""),
    "bytes": (b"?", ""),
    "a.dat": ({"a": 1}, ""),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_suffix_is_added_according_to_content(name):
    content, ending = ENDINGS[name]
    assert make_content(name, content).added_suffix == ending


def test_missing_workbook_plugin_is_named():
    with pytest.raises(
        RuntimeError, match=r"delf plugins install 'files\[excel\]'\); write a \.csv"
    ):
        make_content("a.xlsx", [{"a": 1}])
    assert make_content("a.xlsx", b"PK").data == b"PK"


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "Übersicht 2026.csv",
        "sub/folder/a.txt",
        "日本語.txt",
        "a..b",
        "con-1",
        "x" * 190,
    ],
)
def test_check_file_name_accepts_plain_names(name):
    assert check_file_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        None, 5, "", " ", ".", "..", "../a", "a/..", "a/../b", "/a", "a//b", "a/", "~/a", "~root", "a\\b",
        "C:a", "a\0b", "a\nb", "a\x7f", "a?", "a*", "a|b", 'a"b', "<a>", " a", "a ", "a.", "b/ a",
        "con", "NUL.txt", "sub/aux.csv", "com1", "LPT9.log", "CONIN$",
        "x" * 201, "é" * 101, "\u202efdp.exe", "a\u200bb", "\ufeffa", "\ud800", "\ue000",
        ".bashrc", ".git/hooks/pre-commit", "a/.b", "-rf", "a/--x", "\uff0ebashrc", "\uff0drf",
        "a\uff0fb", "\uff0e\uff0e/a", "\u2024\u2024", "a\uff3cb", "a\uff1ab", "\u2025",
    ],
)  # fmt: skip
def test_unsafe_file_names_are_refused(name):
    with pytest.raises(ValueError, match=r"output file.*name"):
        check_file_name(name)


def nested(depth: int) -> list[object]:
    value: list[object] = [0] * 1000
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a.csv", [{f"k{n}": 1} for n in range(20_000)]),
        ("a.xlsx", [{f"k{n}": 1} for n in range(20_000)]),
        ("a.json", nested(600)),
        ("a.jsonl", ["x" * 1000] * 2000),
    ],
    ids=["columns", "sheet", "indent", "lines"],
)
def test_oversized_content_is_refused_before_encoding(name: str, value: object) -> None:
    """Rows have a cell for each key of any record, and each level of JSON is indented."""
    with pytest.raises(ContentTooLargeError):
        make_content(name, value, [".xlsx"], max_bytes=1_000_000)


def test_keys_that_collide_in_json_are_refused():
    with pytest.raises(TypeError, match="1 and '1' would be the same key"):
        make_content("a.json", {1: "a", "1": "b"})
    with pytest.raises(TypeError, match="the same key"):
        make_content("a.jsonl", [{"x": {None: 1, "null": 2}}])
    made = make_content("a.json", {1: "a", None: 2, dt.date(2026, 1, 2): [{2: 3}]})
    assert json.loads(made.data) == {"1": "a", "null": 2, "2026-01-02": [{"2": 3}]}
