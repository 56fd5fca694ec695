"""Each promise of docs/threat-model.md names a test that exists."""

import ast
import re

import pytest

from support.workspace import ROOT, tree_of

pytestmark = pytest.mark.docs

PAGE = (ROOT / "docs/threat-model.md").read_text(encoding="utf-8")
PROMISES = PAGE.split("## What is promised")[1].split("## What is not promised")[0]
TESTS = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PROMISES)


def test_threat_model_promises_name_their_tests() -> None:
    promises = [line for line in PROMISES.splitlines() if line.startswith("- ")]
    without = [line for line in promises if not re.search(r"`tests/[\w/]+\.py::\w+`$", line)]
    assert promises
    assert not without


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_threat_model_is_linked_and_exists(file: str, name: str) -> None:
    functions = ast.walk(tree_of(ROOT / file))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {node.name for node in functions if isinstance(node, kinds)}
