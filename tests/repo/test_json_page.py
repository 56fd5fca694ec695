"""The tables of ``docs/json.md`` that are made from the commands."""

import re

import pytest

from support.commands import json_tables
from support.json_rows import with_rows
from support.words import JSON_PAGE

PAGE = JSON_PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "section_before"),
    [("delf runs stop", "delf runs prune"), ("delf quickstart", "Other commands")],
)
def test_command_without_section_gets_one(words, section_before):
    section = re.compile(rf"### {words}\n.*?\n(?=### )", re.DOTALL)
    without = section.sub("", PAGE)
    assert words not in json_tables(without)
    made = with_rows(without)
    assert json_tables(made)[words] == json_tables(PAGE)[words]
    headings = re.findall(r"^##+ (.+)$", made, re.MULTILINE)
    assert headings[headings.index(words) - 1] == section_before


def test_table_follows_the_class_of_the_row():
    changed = PAGE.replace("| `stopped` | boolean |", "| `halted` | text |")
    assert changed != PAGE
    assert with_rows(changed) == PAGE
