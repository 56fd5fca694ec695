"""The tables of ``docs/json.md`` that are made from the commands."""

import re

from support.commands import json_tables
from support.json_rows import with_rows
from support.words import JSON_PAGE

PAGE = JSON_PAGE.read_text(encoding="utf-8")


def test_command_without_section_gets_one():
    section = re.compile(r"### delf runs stop\n.*?\n(?=### )", re.DOTALL)
    without = section.sub("", PAGE)
    assert "delf runs stop" not in json_tables(without)
    made = with_rows(without)
    assert made.startswith(without)
    assert json_tables(made)["delf runs stop"] == json_tables(PAGE)["delf runs stop"]


def test_table_follows_the_class_of_the_row():
    changed = PAGE.replace("| `stopped` | boolean |", "| `halted` | text |")
    assert changed != PAGE
    assert with_rows(changed) == PAGE
