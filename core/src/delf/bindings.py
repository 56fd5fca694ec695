"""The names that Python code binds, read from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def names_bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a syntax node binds, without the names that its child nodes bind.

    The node of ``def send(text): …`` yields ``send``, and its child node for the parameter yields
    ``text``. To get all names that a script binds, call this function for each node of
    :func:`ast.walk`. ``del`` and ``global`` bind no names.
    """
    # The module symtable reads only whole scripts as text, and no single statements.
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=module, asname=name):
            yield name or module.partition(".")[0]  # ``import urllib.parse`` binds ``urllib``
        case (
            ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            yield name
        case _:
            pass
