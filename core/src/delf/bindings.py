"""The names that Python code binds, read from its syntax tree."""

from __future__ import annotations

import ast


def name_bound_by(node: ast.AST) -> str | None:
    """Return the name that a syntax node binds; None if the node itself binds no name.

    The node of ``def send(text): …`` binds ``send``, and its child node for the parameter binds
    ``text``. To get all names that a script binds, call this function for each node of
    :func:`ast.walk`. ``del`` and ``global`` bind no names.
    """
    # The module symtable cannot be used, because it reads only the text of whole scripts.
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.alias(name=module, asname=name):
            return name or module.partition(".")[0]  # ``import urllib.parse`` binds ``urllib``
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name  # None for ``except ValueError:`` and for the pattern ``_``
        case ast.MatchMapping(rest=name):
            return name
        case _:
            return None
