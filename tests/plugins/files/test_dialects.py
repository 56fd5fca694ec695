"""The dialect of separated values: a moved cell is reported. DuckDB gives a second opinion."""

from __future__ import annotations

import csv
import io
import random

import duckdb
import pytest

from delf.notes import notes_of_call
from delf_files.dialects import dialect_of
from delf_files.large import write_table
from delf_files.tables import read_table

TEXTS = {
    "decimal commas": ("1,5;2,5\n3,5;4,25\n", ".csv", [["1,5", "2,5"], ["3,5", "4,25"]]),
    "quotes of films in tabs": (
        'id\ttitle\tyear\n1\t"Giliap\t1975\n2\tThe "Best"\t1976\n3\tNo"\t1977\n4\tPlain\t1978\n',
        ".tsv",
        [["id", "title", "year"], ["1", '"Giliap', "1975"], ["2", 'The "Best"', "1976"], ["3", 'No"', "1977"],
         ["4", "Plain", "1978"]],
    ),
    "quotes that close two rows on": (
        'a\tb\n"x\t1\ny"\t2\n', ".tsv", [["a", "b"], ['"x', "1"], ['y"', "2"]],
    ),
    "quoted tabs": ('a\tb\n"x\ty"\t1\n"z"\t2\n', ".tsv", [["a", "b"], ["x\ty", "1"], ["z", "2"]]),
    "backslashes": ('a,b\n"say \\"x\\", or",1\n"y",2\n', ".csv", [["a", "b"], ['say "x", or', "1"], ["y", "2"]]),
    "apostrophes around": ("a,b\n'x,y',1\n'z',2\n", ".csv", [["a", "b"], ["x,y", "1"], ["z", "2"]]),
    "apostrophes inside": ("a,b\n'tis,1\nrock 'n' roll,2\n", ".csv", [["a", "b"], ["'tis", "1"], ["rock 'n' roll", "2"]]),
    "several lines": ('a,b\n"x\ny, z",1\n"w",2\n', ".csv", [["a", "b"], ["x\ny, z", "1"], ["w", "2"]]),
    "names with commas": ("name;n\nSmith, John;1\nDoe, Jane;2\n", ".csv", [["name", "n"], ["Smith, John", "1"], ["Doe, Jane", "2"]]),
    "named": ('sep=;\r\na;b\r\n1,2;"3"\r\n', ".csv", [["a", "b"], ["1,2", "3"]]),
    "bars": ("a|b\n1,2|3\n", ".csv", [["a", "b"], ["1,2", "3"]]),
    "one column": ("name\nx\ny\n", ".csv", [["name"], ["x"], ["y"]]),
    "one column of quoted commas": ('"Dec 8, 2022"\n"Sep 26, 2022"\n', ".csv", [["Dec 8, 2022"], ["Sep 26, 2022"]]),
    "one column of quoted semicolons": ('"a;b;c"\n"d;e;f"\n', ".csv", [["a;b;c"], ["d;e;f"]]),
    "one column with a bare name": ('big\n"100,000"\n"200,500,000"\n', ".csv", [["big"], ["100,000"], ["200,500,000"]]),
    "both kinds of escapes": (
        'a,b\n"x",1\n"y ""z""",2\n"say \\"w\\"",3\n', ".csv", [["a", "b"], ["x", "1"], ['y "z"', "2"], ['say "w"', "3"]],
    ),
    "cells that end in a backslash": ('"a","b\\"\n"c\\","d"\n', ".csv", [["a", "b\\"], ["c\\", "d"]]),
    "one column of quoted statements": (
        "do\n\"f('x', 'y');\"\n\"g('x', 'y');\"\n\"h('z', 'y');\"\ndelete x;\n", ".csv",
        [["do"], ["f('x', 'y');"], ["g('x', 'y');"], ["h('z', 'y');"], ["delete x;"]],
    ),
    "inches": ('size,n\n5" pipe,1\n7" pipe,2\n', ".csv", [["size", "n"], ['5" pipe', "1"], ['7" pipe', "2"]]),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_delimiter_quote_and_header_are_detected(name):
    text, ending, rows = TEXTS[name]
    dialect = dialect_of(text, ending)
    assert [
        row for row in dialect.reader(io.StringIO(text[dialect.start :], newline="")) if row
    ] == rows


def test_rows_wider_than_the_header_are_reported():
    with notes_of_call() as notes:
        rows = read_table("a,b\n1,2\n3,4,5\n6,7,8,9\n", most_bytes=10**6)
    assert rows[1] == {"a": "3", "b": "4", "column_3": "5"}
    (message,) = notes
    assert message.startswith(
        "rows with more cells than the 2 columns that are named: 2 (the first is row 3), with 4"
    )
    with notes_of_call() as notes:
        read_table("a,b\n1,2\n", most_bytes=10**6)
    assert not notes


def test_read_and_query_report_the_same_wider_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('a,b\n"x\ny",1\n\n2,3,4\n')
    with notes_of_call() as notes:
        read_table(path.read_text(), most_bytes=10**6)
    with notes_of_call() as notes_of_query:
        write_table(str(path), ".csv", str(tmp_path / "copy.csv"), "a.csv")
    assert [*notes] == [*notes_of_query]
    assert "(the first is row 4)" in next(iter(notes))


def test_unescaped_quote_is_reported():
    with notes_of_call() as notes:
        read_table('a,b\n"x",1\n"y "z" w",2,3\n', most_bytes=10**6)
    assert any(note.startswith("line 3 has a quote inside of a quoted cell") for note in notes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a,b\nsay \\"x\\",1\n', ["backslashes before quotes were left out, and may be part of the text"]),
        ('a\nsay \\"x\\"\n', ["backslashes before quotes were kept, and may be no part of the text"]),
        ('a,b\n"say \\"x\\"",1\n', []),
        ('a,b\n"c:\\",1\n', []),
    ],
)  # fmt: skip
def test_ambiguous_backslashes_are_reported(text, expected, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with notes_of_call() as notes:
        read_table(text, most_bytes=10**6)
    with notes_of_call() as notes_of_query:
        write_table(str(path), ".csv", str(tmp_path / "copy.csv"), "a.csv")
    assert [*notes] == [*notes_of_query] == expected


def test_uneven_rows_without_a_header_are_reported(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1,2\n3,4,5\n")
    with notes_of_call() as notes:
        read_table(path.read_text(), most_bytes=10**6, header=0)
    with notes_of_call() as notes_of_query:
        write_table(str(path), ".csv", str(tmp_path / "copy.csv"), "a.csv", names_row=0)
    expected = ["rows have from 2 to 3 cells, so cells may be in the wrong columns"]
    assert [*notes] == [*notes_of_query] == expected


WORDS = [
    "lamp",
    "Smith, John",
    "a;b",
    'say "x"',
    "it's",
    "x\ny",
    "tab\there",
    "12",
    "1,5",
    "-3,25",
    "1.5",
    "",
    "2026-01-31",
    "ü",
    "a|b",
]


def made(dice: random.Random) -> tuple[str, list[list[str]]]:
    """Return a table as programs write it, and its cells."""
    width = dice.randrange(1, 6)
    kinds = [
        dice.choice(
            [["1", "22", "333"], ["1,5", "2,25"], ["1.5"], ["lamp", "desk", "it's so"], WORDS]
        )
        for _ in range(width)
    ]
    rows = [[f"name{n}" for n in range(width)]]
    rows += [[dice.choice(kind) for kind in kinds] for _ in range(dice.randrange(2, 12))]
    out = io.StringIO()
    quoting = dice.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    escape = {"escapechar": "\\", "doublequote": False} if width > 1 and dice.random() < 0.2 else {}
    csv.writer(
        out,
        delimiter=dice.choice(",;\t|"),
        quoting=quoting,
        lineterminator=dice.choice(["\n", "\r\n"]),
        **escape,
    ).writerows(rows)
    return out.getvalue(), rows


@pytest.mark.slow
def test_fuzzed_tables_are_read_as_written_or_reported(tmp_path):
    dice = random.Random(52)
    ours = theirs = 0
    moved = []
    tries = 250
    for number in range(tries):
        text, rows = made(dice)
        with notes_of_call() as notes:
            try:
                read = [list(row.values()) for row in read_table(text, most_bytes=10**7)]
            except ValueError as error:
                read, notes[str(error)] = [], None
        right = read == rows[1:]
        ours += right
        if not right and not notes:
            moved.append((text, read))
        path = tmp_path / f"{number}.csv"
        path.write_text(text, newline="")
        try:
            sniffed = duckdb.sql(
                f"FROM read_csv('{path}', all_varchar = true, header = true, nullstr = 'no value')"
            ).fetchall()
        except duckdb.Error:
            sniffed = []
        theirs += [list(row) for row in sniffed] == rows[1:]
    print(f"of {tries}: {ours} right, DuckDB {theirs}, untold {len(moved)}")
    for text, read in moved[:4]:
        print(repr(text), read)
    assert not moved
    assert ours >= max(theirs, 0.98 * tries)
