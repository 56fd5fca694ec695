"""A strategy: how a task becomes tool calls. ``codegen`` is the core's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from delf.messages import Message, ModelReply
    from delf.protocols.sandbox import CallAnswer, CallRequest


class StrategyHost(Protocol):
    """What a strategy may do for a task; every call passes the same gate as a script's."""

    task: str
    """The user's task, with recalled facts and live context ahead of it."""

    stubs: str
    """The allowed tools as typed Python stubs."""

    async def ask(self, messages: Sequence[Message]) -> ModelReply:
        """Ask the main model; counted in cost and budget."""
        ...

    async def call(self, request: CallRequest) -> CallAnswer:
        """Make a tool call through the gate."""
        ...

    def say(self, text: str) -> None:
        """Add to the task's output."""
        ...


class Strategy(Protocol):
    """Works a task until it is done."""

    async def solve(self, host: StrategyHost, options: Mapping[str, Any]) -> str:
        """The answer's text.

        Raises:
            DelfError: When the task failed.
        """
        ...
