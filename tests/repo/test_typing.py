"""Types of delf as users' type checkers see them."""

from pathlib import Path

import pytest

from repo.test_docs import PAGES
from support.typed_pages import PROGRAMS, complaints, write_examples
from support.workspace import ROOT

WRONG = Path(__file__).with_name("typed_wrong.txt").read_text()
"""A program in which each line with ``# wrong`` is an error, and no other line."""


@pytest.mark.timeout(240)
def test_programs_and_examples_type_check(tmp_path):
    """One run of pyright for all. Functions of a page may leave out their own annotations."""
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs") or page.parent == ROOT]
    named = write_examples(pages, tmp_path)
    (tmp_path / "programs").mkdir()
    for file in PROGRAMS:
        (tmp_path / "programs" / file.name).write_text(file.read_text())
    (tmp_path / "wrong.py").write_text(WRONG)
    found = complaints(tmp_path, named)
    expected = {n for n, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}
    wrong = [line for line in found if line.startswith("wrong.py")]
    assert {int(line.split(":")[1]) for line in wrong} == expected
    assert [line for line in found if line not in wrong] == []
