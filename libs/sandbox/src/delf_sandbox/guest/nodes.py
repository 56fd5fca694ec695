"""Syntax nodes that the rewriting inserts into a script."""

from __future__ import annotations

import ast
from typing import Any, Self

ASYNC_VARIANT = "__delf_later__"
"""The attribute of a tool with its async variant: a function that returns an awaitable call."""
TOOLS = "__delf_tools__"
WAIT = "__delf_wait__"
RESULT_OF_COROUTINE = "__delf_unwrap__"
AS_AWAITABLE = "__delf_settle__"
ASYNC_VARIANT_OF = "__delf_later_of__"
BLOCKING_VARIANT_OF = "__delf_now_of__"
CALLABLE_OR_TOOL = "__delf_pick__"
WATCHED_ITERATOR = "__delf_once__"
AS_LIST = "__delf_all__"
REPEATABLE_VARIANT = "__delf_again__"
ASYNC_ITER = "__delf_aiter__"
ITER = "__delf_iter__"
ASYNC_WITH = "__delf_awith__"
WITH = "__delf_with__"

_LOAD = ast.Load()


class AmbiguousError(SyntaxError):
    """A script can be understood in two ways, and running it in the wrong way would do harm."""

    @classmethod
    def at_node(cls, node: Any, message: str) -> Self:
        """Build the error with the line and column of a node of the script."""
        error = cls(message)
        error.lineno = node.lineno
        error.offset = node.col_offset + 1  # columns of errors begin with 1
        return error


class ToolMisuseError(AmbiguousError):
    """A script uses a connection or action as a value, where it should call an action."""


def position_of(node: Any) -> dict[str, Any]:
    """Return the arguments that give a new node the source position of ``node``."""
    return {
        "lineno": node.lineno,
        "col_offset": node.col_offset,
        "end_lineno": node.end_lineno,
        "end_col_offset": node.end_col_offset,
    }


def name(node: Any, text: str) -> ast.Name:
    """Build a name node with the source position of ``node``."""
    return ast.Name(id=text, ctx=_LOAD, **position_of(node))


def call(function: str, *arguments: Any) -> ast.Call:
    """Build a call of a helper function, with the source position of the first argument."""
    return ast.Call(
        func=name(arguments[0], function),
        args=list(arguments),
        keywords=[],
        **position_of(arguments[0]),
    )


def await_node(node: Any) -> ast.Await:
    """Build an ``await`` expression around a node."""
    return ast.Await(value=node, **position_of(node))


def attribute(value: Any, word: str) -> ast.Attribute:
    """Build a node for an attribute of ``value``."""
    return ast.Attribute(value=value, attr=word, ctx=_LOAD, **position_of(value))


def tool(node: Any, word: str) -> ast.expr:
    """Build an expression that refers to a tool even where the script rebinds the tool's name.

    Args:
        node: The node whose source position the expression gets.
        word: The name of the tool.
    """
    key = ast.Constant(value=word, **position_of(node))
    return ast.Subscript(value=name(node, TOOLS), slice=key, ctx=_LOAD, **position_of(node))
