"""Tables: aligned, no wider than a terminal, and as a stream of pages."""

import io
import sys

import click
import pytest

from delf_cli.tables import Table, cut, table

HEAD = ("id", "state", "took", "task")
ROWS = [("1", "done", "2 s", "Count the products"), ("22", "failed", "10 min", "Pay the bill")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch):
    def open_terminal(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stdout", Terminal())

    return open_terminal


def plain(lines: list[str]) -> list[str]:
    return [click.unstyle(line) for line in lines]


def test_columns_are_as_wide_as_their_cells():
    assert plain(table(ROWS, HEAD)) == [
        "id  state   took    task",
        "1   done    2 s     Count the products",
        "22  failed  10 min  Pay the bill",
    ]
    assert table([], HEAD) == []


def test_colours_take_no_room():
    row = ("1", click.style("done", fg="green"), "2 s", "x")
    assert plain(table([row], HEAD))[1] == "1   done   2 s   x"


def test_later_pages_stand_below_the_first_one_and_lose_nothing():
    first = Table(ROWS, HEAD)
    later = [("333333", "done", "2 s", "A" * 300), ("4", "done", "2 s", "x")]
    assert plain(first.lines(later)) == [
        f"333333  done    2 s     {'A' * 300}",
        "4   done    2 s     x",
    ]


def test_on_a_terminal_columns_are_left_out_where_the_last_one_has_no_room(terminal):
    terminal(60)
    wide = [("1" * 20, "done", "t" * 20, "word " * 20)]
    drawn = plain(table(wide, HEAD, ("took",)))
    assert drawn[0].split() == ["id", "state", "task"]
    assert all(len(line) <= 60 for line in drawn)
    assert drawn[1].endswith("…")


def test_on_a_terminal_data_goes_on_in_the_next_line(terminal):
    terminal(60)
    drawn = plain(table([("1", "done", "2 s", "word " * 20)], HEAD, whole=True))
    assert all(len(line) <= 60 for line in drawn)
    assert " ".join(" ".join(drawn[1:]).split()) == "1 done 2 s " + ("word " * 20).strip()


def test_a_page_of_a_terminal_takes_the_room_that_an_earlier_one_did_not_need(terminal):
    terminal(80)
    first = Table([("1", "done", "2 s", "x")], HEAD)
    (line,) = plain(first.lines([("2", "done", "2 s", "Count the products of the shop")]))
    assert line.endswith("Count the products of the shop")


@pytest.mark.parametrize("width", range(2, 60))
def test_a_cut_text_is_never_wider_than_it_may_be(width):
    text = "command config, doctor, inspect, journal, migrate, plugins available"
    assert len(cut(text, width)) <= width
    assert cut(text, len(text)) == text
