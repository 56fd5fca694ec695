"""Parts of a syntax tree that rewriting puts into a script, and the names that they use."""

from __future__ import annotations

import ast
from typing import Any, Self

LATER = "__delf_later__"
"""The attribute of a tool that gives a call to be awaited, where the tool itself waits."""
TOOLS = "__delf_tools__"
WAIT, MEANT, SETTLE = "__delf_wait__", "__delf_meant__", "__delf_settle__"
LATER_OF, NOW_OF, PICK = "__delf_later_of__", "__delf_now_of__", "__delf_pick__"
ONCE, ALL, AGAIN = "__delf_once__", "__delf_all__", "__delf_again__"
ASYNC_ITER, ITER = "__delf_aiter__", "__delf_iter__"
ASYNC_WITH, WITH = "__delf_awith__", "__delf_with__"

_LOAD = ast.Load()


class AmbiguousError(SyntaxError):
    """A script is ambiguous, and one of two readings would be wrong."""

    @classmethod
    def about(cls, node: Any, message: str) -> Self:
        """Return the error about a part of the script."""
        error = cls(message)
        error.lineno, error.offset = node.lineno, node.col_offset + 1
        return error


class ToolMisuseError(AmbiguousError):
    """A script uses a connection or an action as a value, so that nothing is called."""


def at(node: Any) -> dict[str, Any]:
    """Return the place of a node in the text, for another."""
    return {
        "lineno": node.lineno,
        "col_offset": node.col_offset,
        "end_lineno": node.end_lineno,
        "end_col_offset": node.end_col_offset,
    }


def name(node: Any, text: str) -> ast.Name:
    """Return a name node for reading, at a node's position."""
    return ast.Name(id=text, ctx=_LOAD, **at(node))


def call(function: str, *given: Any) -> ast.Call:
    """Return a call of a rewriting helper, at the position of its first argument."""
    return ast.Call(func=name(given[0], function), args=list(given), keywords=[], **at(given[0]))


def awaited(node: Any) -> ast.Await:
    """Return a node that is awaited."""
    return ast.Await(value=node, **at(node))


def attribute(value: Any, word: str) -> ast.Attribute:
    """Return an attribute node for reading, at its object's position."""
    return ast.Attribute(value=value, attr=word, ctx=_LOAD, **at(value))


def tool(node: Any, word: str) -> ast.expr:
    """Return a node for a tool or a connection, whatever its name is bound to."""
    key = ast.Constant(value=word, **at(node))
    return ast.Subscript(value=name(node, TOOLS), slice=key, ctx=_LOAD, **at(node))
