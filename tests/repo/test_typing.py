"""What users' type checkers make of delf."""

from pathlib import Path

import pytest

from repo.test_docs import PAGES
from support.typed_pages import complaints, write_examples
from support.workspace import ROOT

PROGRAMS = [Path(__file__).with_name(f"typed_{name}.py") for name in ("answers", "programs")]
WRONG = """
from delf import Agnet, Gmail

Gmail()
"""


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
    wrong = [line for line in found if line.startswith("wrong.py")]
    assert wrong[0] == 'wrong.py:2: "Agnet" is unknown import symbol (reportAttributeAccessIssue)'
    assert not [line for line in wrong if "Gmail" in line]
    assert [line for line in found if line not in wrong] == []
