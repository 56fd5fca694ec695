"""The names that Python code binds, read from its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def names_bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names to which a syntax node itself gives a value, without the node's parts.

    With :func:`ast.walk`, these are all names that a script binds: ``rows``, ``row`` and ``json``
    in ``import json`` and ``for row in (rows := [])``. Names in ``del`` and ``global`` are not
    bound.
    """
    # Not by the module symtable, which reads whole scripts as text, and no single statements.
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
