"""What ``add_to_output_files`` makes of a value, and which names it takes."""

import dataclasses
import datetime as dt
import io
import json
import math
from decimal import Decimal

import pytest

from delf.filenames import check_file_name
from delf.values import loads
from delf_sandbox.guest.content import ContentTooLargeError, make_content


@dataclasses.dataclass
class Item:
    id: int
    note: str = ""


class Frame:
    """Quacks like a data frame."""

    columns = ["n", "when"]

    def itertuples(self, index, name):
        assert (index, name) == (False, None)
        return iter([(1, dt.datetime(2026, 1, 2)), (math.nan, None)])

    def to_csv(self, index, sep=","):
        return f"n{sep}when\n"

    def to_json(self, orient, date_format, **options):
        return json.dumps([orient, date_format, options])


CONTENT = {
    "text": ("a.txt", "Grüße\r\n", "Grüße\r\n"),
    "text whatever the ending": ("a.csv", "a;b", "a;b"),
    "half of a pair": ("a.txt", "\ud800", b"\xed\xa0\x80"),
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
    "rows by tabs": ("A.TSV", [{"a": 1, "b": "x,y"}], "a\tb\n1\tx,y\n"),
    "rows of records": ("a.csv", [Item(1, "x")], "id,note\n1,x\n"),
    "rows without names": ("a.csv", [[1, 2], (3, 4), 5], "1,2\n3,4\n5\n"),
    "values of a dict": ("a.csv", {"x": {"a": 1}}.values(), "a\n1\n"),
    "no rows": ("a.csv", [], ""),
    "a frame": ("a.csv", Frame(), "n,when\n"),
    "a frame by tabs": ("a.tsv", Frame(), "n\twhen\n"),
    "a frame as JSON": ("a.json", Frame(), '["records", "iso", {"indent": 2}]'),
    "a frame as lines of JSON": ("a.jsonl", Frame(), '["records", "iso", {"lines": true}]'),
}


@pytest.mark.parametrize("case", CONTENT)
def test_content_by_type_and_ending(case):
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
    "a frame": (Frame(), {"Sheet1": [["n", "when"], [1, dt.datetime(2026, 1, 2)], [None, None]]}),
    "what a cell cannot hold": (
        [[Item(1), {1}, Decimal("NaN")]],
        {"Sheet1": [["Item(id=1, note='')", "[1]", None]]},
    ),
}


@pytest.mark.parametrize("case", SHEETS)
def test_workbooks_go_to_the_host_as_rows(case):
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
        ("a.ods", [], RuntimeError, "making .ods files is not possible; write a .csv"),
    ],
)
def test_what_has_no_form_as_a_file(name, value, kind, message):
    with pytest.raises(kind, match=message):
        make_content(name, value, [".xlsx"])


def test_a_workbook_without_the_plugin_names_it():
    with pytest.raises(RuntimeError, match=r"delf plugins install files-excel\); write a \.csv"):
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
def test_plain_names(name):
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
def test_names_that_leave_or_lie_are_refused(name):
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
def test_what_becomes_too_large_is_not_made(name: str, value: object) -> None:
    """A record has a cell for each column that any has, and each level of JSON its blanks."""
    with pytest.raises(ContentTooLargeError):
        make_content(name, value, [".xlsx"], most=1_000_000)
