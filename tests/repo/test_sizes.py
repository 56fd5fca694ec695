"""Modules of at most 600 lines, functions of at most 60, so that each fits in a head.

The core as a whole has limits, too. What a task can be done without is a package of its own: raise
a limit only for what every task needs, and lower it when something leaves.
"""

import ast
import json
from collections import Counter

import pytest

from support.program import run
from support.workspace import CORE, ROOT, modules, place, statements, tree_of

MODULE_LINES = 600
FUNCTION_LINES = 60
CORE_LINES = 20_000
HOP_FILES, HOPS = 34, 210


def test_modules_are_short() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    long = [f"{place(path)}: {size} lines" for path, size in sizes.items() if size > MODULE_LINES]
    assert not long, "\n".join(long)


def test_functions_are_short() -> None:
    long = [
        f"{place(path, node)} {node.name}: {_lines(node)} lines"
        for path in modules()
        for node in statements(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _lines(node) > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_the_core_is_small() -> None:
    rooms: Counter[str] = Counter()
    source = CORE / "src/delf"
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).parts
        room = "/".join(parts[:-1]) or "top level"
        rooms[room] += len(path.read_text(encoding="utf-8").splitlines())
    assert rooms.total() <= CORE_LINES, f"the core has {rooms.total()} lines: {rooms}"


@pytest.mark.timeout(120)
def test_a_task_comes_through_few_files() -> None:
    """The least of some: what happens beside the task may come between two of its steps."""
    way = _way()
    for _ in range(9):
        if len(set(way)) <= HOP_FILES and len(way) - 1 <= HOPS:
            break
        way = min(way, _way(), key=len)
    told = f"{len(set(way))} files, {len(way) - 1} changes of file: {Counter(way).most_common(12)}"
    assert len(set(way)) <= HOP_FILES, told
    assert len(way) - 1 <= HOPS, told


def _way() -> list[str]:
    done = run(["-m", "support.hops"], cwd=ROOT / "tests", text=True)
    assert done.returncode == 0, done.stderr
    way: list[str] = json.loads(done.stdout)
    return way


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Those of its body: a long list of parameters is no work."""
    return (node.end_lineno or node.lineno) - node.body[0].lineno + 1
