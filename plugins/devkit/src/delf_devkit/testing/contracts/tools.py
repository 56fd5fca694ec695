"""Duties of every set of tools."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import pytest

from delf.tools.action import EFFECTS, Action
from delf.tools.connection import describe_actions
from delf.tools.function import Tool, as_connection
from delf_devkit.testing.contracts.base import fail_without
from delf_devkit.testing.contracts.connection import Call, ConnectionContract


class ToolsContract(ConnectionContract):
    """Tests for a set of functions as tools.

    A subclass defines a fixture ``tools``, which returns a list for ``Agent(tools=…)``: functions,
    ``@tool`` functions or a toolset of another framework. The attribute ``calls`` has calls that
    succeed, as in ``ConnectionContract``, with the name of a tool: ``Call("add", a=1, b=2)``. All
    other tests and flags are those of ``ConnectionContract``. The sources of the functions are read
    to see whether each function declares its effect.
    """

    logs_in: ClassVar[bool] = False

    @pytest.fixture
    def tools(self) -> Sequence[Any]:
        """The tools under test."""
        fail_without(self, "a fixture `tools`")

    @pytest.fixture
    def connection(self, tools: Sequence[Any]) -> Any:
        """The tools as one connection, with an action for each tool."""
        return _ToolSet(tools)

    def test_tool_names_are_unique(self, tools: Sequence[Any]) -> None:
        names = [connection.name for connection in map(as_connection, tools)]
        twice = sorted({name for name in names if names.count(name) > 1})
        assert not twice, (
            f"two tools are called {twice[0]!r}: no agent starts with both; give one of them "
            "another name, @tool(name=…)"
        )

    def test_tools_declare_effects_and_results(self, tools: Sequence[Any]) -> None:
        for item in tools:
            if not _is_function(item):
                continue  # a partial, or a toolset of another framework
            function: Any = getattr(item, "function", item)
            name = str(getattr(function, "__name__", function))
            assert _may_declare_effect(item, function), (
                f"{name} has no effect: delf takes it for irreversible, and a person is asked "
                f"before each call; say @tool(effect=…), one of: {', '.join(EFFECTS)}"
            )
            hints = getattr(inspect.unwrap(function), "__annotations__", {})
            assert "return" in hints, (
                f"{name} does not say what it returns: the model has to guess the fields; "
                "annotate it, with None for nothing"
            )

    def _tools_of(self, connection: Any) -> list[Any]:
        return list(connection.tools)

    def _source(self, call: Call, connection: Any) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        return f"await {call.action}({arguments})"


class _ToolSet:
    """A set of functions and tools that the suite tests as one connection.

    Args:
        tools: The functions and tools.
    """

    is_function = False
    allow = confirm = None
    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self, tools: Sequence[Any]) -> None:
        self.name, self.summary = "tools", "A set of tools."
        self.tools = list(tools)

    async def actions(self) -> Sequence[Action]:
        """Return the action of each tool."""
        actions_of_tools = [
            await connection.actions() for connection in map(as_connection, self.tools)
        ]
        return [action for actions in actions_of_tools for action in actions]

    def inspect(self, *, verbose: bool = False) -> dict[str, Any]:
        """Describe the tools that are functions. Connections with several actions are left out."""
        actions = [
            connection.action
            for connection in map(as_connection, self.tools)
            if isinstance(connection, Tool)
        ]
        return describe_actions(self.name, self.summary, actions, verbose=verbose)


def _is_function(item: Any) -> bool:
    return isinstance(item, Tool) or inspect.isroutine(item)


def _may_declare_effect(item: Any, function: Any) -> bool:
    """Return False for a plain function, and if the source shows a ``@tool`` without ``effect``."""
    if not isinstance(item, Tool):
        return False
    decorators = _decorators_of(function)
    names = [ast.unparse(_function_of(decorator)).rpartition(".")[2] for decorator in decorators]
    if "tool" not in names:
        return True  # probably made by tool(function, effect=…)
    calls = [decorator for decorator in decorators if isinstance(decorator, ast.Call)]
    keywords = [keyword.arg for call in calls for keyword in call.keywords]
    has_options = None in keywords  # the name of ``**options``, which may contain ``effect``
    return "effect" in keywords or has_options


def _function_of(decorator: ast.expr) -> ast.expr:
    """Return the function of a decorator with or without arguments: ``tool`` of ``tool(…)``."""
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _decorators_of(function: Any) -> list[ast.expr]:
    """Return the decorators in the source of a function; none if there is no source."""
    if isinstance(function, partial):
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    except (OSError, SyntaxError, TypeError, IndexError):
        return []
    return getattr(tree, "decorator_list", [])
