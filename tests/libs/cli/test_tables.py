"""Tests that tables are aligned and fit the terminal."""

import click
import pytest

from delf_cli.tables import cut_at_word, format_table, table

HEAD = ("id", "state", ">took", "task")
ROWS = [("1", "done", "2 s", "Count the products"), ("22", "failed", "10 min", "Pay the bill")]


def test_table_columns_are_as_wide_as_their_cells():
    assert [click.unstyle(line) for line in table(ROWS, HEAD)] == [
        "id  state     took  task",
        "1   done       2 s  Count the products",
        "22  failed  10 min  Pay the bill",
    ]
    assert table([], HEAD) == []


def test_table_widths_ignore_colour_codes():
    row = ("1", click.style("done", fg="green"), "2 s", "x" * 9)
    assert click.unstyle(format_table([row], HEAD, None)[1]) == f"1   done    2 s  {'x' * 9}"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_table_wraps_or_cuts_its_widest_column(width):
    text = ("word " * 40).strip()
    rows = [("1", "done", "2 s", text), (text, "m", "1 s", "x")]
    for row in rows:
        lines = format_table([row], HEAD, width)
        assert max(map(len, lines)) <= width
        assert sum(line.count("word") for line in lines) == 40
        shown, *more = format_table([row], HEAD, width, whole=False)[1:]
        assert (more, "…" in shown) == ([], True)


@pytest.mark.parametrize("width", [2, 20, 59])
def test_cut_text_fits_its_width(width):
    text = "command config, doctor, inspect, journal, plugins available"
    assert len(cut_at_word(text, width)) <= width
    assert cut_at_word(text, len(text)) == text
