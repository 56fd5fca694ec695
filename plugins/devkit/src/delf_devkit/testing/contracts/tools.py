"""Duties of every set of tools."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from delf.tools.action import Action
from delf.tools.connection import describe_actions
from delf.tools.function import Tool, as_connection
from delf_devkit.testing.contracts.base import fail_without
from delf_devkit.testing.contracts.connection import Call, ConnectionContract


class ToolsContract(ConnectionContract):
    """Tests for a set of functions as tools.

    A subclass defines a fixture ``tools``, which returns a list for ``Agent(tools=…)``: functions,
    ``@tool`` functions or a toolset of another framework. The attribute ``calls`` has calls that
    succeed, as in ``ConnectionContract``, with the name of a tool: ``Call("add", a=1, b=2)``. All
    other tests and flags are those of ``ConnectionContract``.
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

    def test_tools_declare_results(self, tools: Sequence[Any]) -> None:
        for item in tools:
            if not _is_function(item):
                continue  # a partial, or a toolset of another framework
            function: Any = getattr(item, "function", item)
            name = str(getattr(function, "__name__", function))
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
