"""The strategy ``one-call``: a task of one call, made without a model and without a sandbox."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from pydantic_core import to_jsonable_python

from delf.errors import ConfigurationError, ToolExecutionError
from delf.protocols.sandbox import Raised, ToolMessage
from delf.protocols.strategy import StrategyHost, ToolDescription

ONE_CALL: Final = "one-call"
"""The name of the strategy that makes the single call of a task, without asking a model."""
LIST_TOOLS: Final = "what can be called?"
"""The task for which :class:`OneCall` returns descriptions of all tools."""


def call_task(call: str, arguments: Mapping[str, Any]) -> str:
    """Return the text of a task that makes one call with the strategy :class:`OneCall`.

    Args:
        call: The action, such as ``gmail.search``.
        arguments: The arguments, by name.
    """
    return json.dumps({"call": call, "arguments": dict(arguments)})


def parse_call(
    text: str, read_value: Callable[[ast.expr], Any] = ast.literal_eval
) -> tuple[str, dict[str, Any]]:
    """Parse a call with literal arguments, such as ``gmail.search(query="is:unread")``.

    Args:
        text: The call in script syntax.
        read_value: Returns the value of an argument's expression, or raises a ValueError or a
            TypeError.

    Returns:
        The action and its arguments, by name.

    Raises:
        ConfigurationError: If the text is not a call, or an argument is unnamed or not literal.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Call) and not node.args:
            arguments = {item.arg: read_value(item.value) for item in node.keywords}
            has_repeated_name = len(arguments) < len(node.keywords)
            # An argument such as **{"limit": 50} has the name None.
            if None not in arguments and not has_repeated_name:
                return ast.unparse(node.func), cast("dict[str, Any]", arguments)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass  # TypeError: a value such as {[1]: 2}, with a list as a key
    raise ConfigurationError(
        f"{text[:80]!r} is not a call with values",
        hint='name each argument: gmail.search(query="is:unread", limit=50)',
    )


class OneCall:
    """Makes the call that the task's text describes, and returns its result as JSON.

    The text is JSON, too: :func:`call_task` returns such a text. Implements
    :class:`delf.protocols.strategy.Strategy`.
    """

    calls_only = True

    async def solve(self, host: StrategyHost) -> str:
        """Make the call, or describe all tools if the task is :data:`LIST_TOOLS`.

        Raises:
            ToolExecutionError: If the call failed.
        """
        if host.task == LIST_TOOLS:
            return json.dumps([_described(tool) for tool in host.tools])
        call_data = json.loads(host.task)
        answer = await host.call(call_data["call"], call_data["arguments"])
        if isinstance(answer, Raised):
            raise ToolExecutionError(answer.message, can_retry=False) from answer.cause
        value: Any = answer.message if isinstance(answer, ToolMessage) else answer.value
        return json.dumps(to_jsonable_python(value, bytes_mode="base64"))


def _described(tool: ToolDescription) -> dict[str, Any]:
    return {
        "name": tool.name,
        "summary": tool.summary,
        "effect": tool.effect,
        "schema": dict(tool.schema),
    }
