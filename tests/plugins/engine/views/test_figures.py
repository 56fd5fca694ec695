"""Tests of figures as a table, whose names a spreadsheet must not read as formulas."""

from __future__ import annotations

import csv
import io

import pytest

from delf.protocols.search import Figures
from delf_engine.views.figures import figures_csv


@pytest.mark.parametrize(
    "name", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "＝1+1", "'=1", "|x"]
)
def test_csv_name_cannot_become_a_formula(name):
    (row,) = csv.DictReader(io.StringIO(figures_csv("model", [Figures(group=name)]), newline=""))
    assert row["model"] == f"'{name}"


@pytest.mark.parametrize("name", ["2026-11-26", "mail.send", "Åsa", "gpt-5.5", "", 'a "b", c\nd'])
def test_csv_cell_that_starts_with_a_letter_or_digit_is_unchanged(name):
    (row,) = csv.DictReader(io.StringIO(figures_csv("day", [Figures(group=name)]), newline=""))
    assert (row["day"], row["tasks"], row["cost_usd"]) == (name, "0", "0.0")
