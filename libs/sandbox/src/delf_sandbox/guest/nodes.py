"""Syntax nodes that the rewriting inserts into a script."""

from __future__ import annotations

import ast
from typing import Any, Self

LATER = "__delf_later__"
"""The attribute of a tool that returns an awaitable call, where the tool itself would wait."""
TOOLS = "__delf_tools__"
WAIT, RESULT, SETTLE = "__delf_wait__", "__delf_unwrap__", "__delf_settle__"
LATER_OF, NOW_OF, PICK = "__delf_later_of__", "__delf_now_of__", "__delf_pick__"
ONCE, ALL, AGAIN = "__delf_once__", "__delf_all__", "__delf_again__"
ASYNC_ITER, ITER = "__delf_aiter__", "__delf_iter__"
ASYNC_WITH, WITH = "__delf_awith__", "__delf_with__"

_LOAD = ast.Load()


class AmbiguousError(SyntaxError):
    """A script has two possible readings, of which one would be wrong."""

    @classmethod
    def about(cls, node: Any, message: str) -> Self:
        """Make the error for a node of the script."""
        error = cls(message)
        error.lineno, error.offset = node.lineno, node.col_offset + 1
        return error


class ToolMisuseError(AmbiguousError):
    """A script uses a connection or action as a value, so that nothing is called."""


def position_of(node: Any) -> dict[str, Any]:
    """Return the source position of a node, for a new node."""
    return {
        "lineno": node.lineno,
        "col_offset": node.col_offset,
        "end_lineno": node.end_lineno,
        "end_col_offset": node.end_col_offset,
    }


def name(node: Any, text: str) -> ast.Name:
    """Make a name node at the position of another node."""
    return ast.Name(id=text, ctx=_LOAD, **position_of(node))


def call(function: str, *arguments: Any) -> ast.Call:
    """Make a call of a rewriting helper at the position of its first argument."""
    return ast.Call(
        func=name(arguments[0], function),
        args=list(arguments),
        keywords=[],
        **position_of(arguments[0]),
    )


def await_node(node: Any) -> ast.Await:
    """Wrap a node in ``await``."""
    return ast.Await(value=node, **position_of(node))


def attribute(value: Any, word: str) -> ast.Attribute:
    """Make an attribute node at the position of its object."""
    return ast.Attribute(value=value, attr=word, ctx=_LOAD, **position_of(value))


def tool(node: Any, word: str) -> ast.expr:
    """Make a node that refers to a tool even if its name is rebound."""
    key = ast.Constant(value=word, **position_of(node))
    return ast.Subscript(value=name(node, TOOLS), slice=key, ctx=_LOAD, **position_of(node))
