"""The page that goes through a reference row by row: every row names a test, and it exists."""

import ast
import re

import pytest

from support.workspace import ROOT

pytestmark = pytest.mark.docs

PAGE = ROOT / "docs/files-and-workers.md"
ROW = re.compile(r"^\| (?!-|llm-do)(.+) \|$", re.MULTILINE)
TEST = re.compile(r"^`(tests/[\w/]+\.py)::(\w+)`$")


def test_every_row_names_a_test_that_exists() -> None:
    rows = [row.split(" | ") for row in ROW.findall(PAGE.read_text(encoding="utf-8"))]
    assert len(rows) > 25
    for row in rows:
        named = TEST.match(row[-1])
        assert named is not None, f"no test: {row}"
        path = ROOT / named[1]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        found = {node.name for node in tree.body if isinstance(node, functions)}
        assert named[2] in found, f"{named[1]} has no {named[2]}"
