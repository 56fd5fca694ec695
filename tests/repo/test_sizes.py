"""Functions of at most 80 lines and constructors of at most 12 parameters: each fits in a head."""

import ast

from support.workspace import modules, place, statements, tree_of

FUNCTION_LINES = 80
PARAMETERS = 12


def test_functions_are_short() -> None:
    long = [
        f"{place(path, node)} {node.name}: {_lines(node)} lines"
        for path in modules()
        for node in statements(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _lines(node) > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_constructors_take_at_most_a_dozen_parameters() -> None:
    long = [
        f"{place(path, node)}: {_count(node)} parameters"
        for path in modules()
        for node in statements(tree_of(path))
        if isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and _count(node) > PARAMETERS
    ]
    assert not long, "\n".join(long)


def _count(node: ast.FunctionDef) -> int:
    """Those that a caller gives, without self."""
    args = node.args
    return len([*args.posonlyargs, *args.args, *args.kwonlyargs]) - 1


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Those of its body: a long list of parameters is not work."""
    return (node.end_lineno or node.lineno) - node.body[0].lineno + 1
