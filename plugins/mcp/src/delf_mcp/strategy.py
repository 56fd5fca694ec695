"""The strategy of a served call: a task of one call, made without a model."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic_core import to_jsonable_python

from delf.errors import ToolExecutionError
from delf.protocols.sandbox import Raised, ToolMessage
from delf.protocols.strategy import StrategyHost, ToolDescription

LIST: Final = "what can be called?"
"""The task that is answered with descriptions of all tools."""


class OneCall:
    """Makes the call that the task's text describes, as JSON, and says its result as JSON."""

    calls_only = True

    async def solve(self, host: StrategyHost) -> str:
        """Return the result."""
        if host.task == LIST:
            return json.dumps([_described(tool) for tool in host.tools])
        wanted = json.loads(host.task)
        answer = await host.call(wanted["call"], wanted["arguments"])
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
