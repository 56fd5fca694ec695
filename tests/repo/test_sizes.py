"""Modules of at most 600 lines, functions of at most 60, so that each fits in a head."""

import ast

from support.workspace import modules, place, statements, tree_of

MODULE_LINES = 600
FUNCTION_LINES = 60


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


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Those of its body: a long list of parameters is no work."""
    return (node.end_lineno or node.lineno) - node.body[0].lineno + 1
