"""A strategy: how a task becomes tool calls. ``codegen`` is the core's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from delf.messages import Message, ModelReply
    from delf.protocols.sandbox import CallAnswer, CallRequest, Outcome


class StrategyHost(Protocol):
    """What a strategy may do for a task; every call passes the same gate as a script's."""

    async def begin(self) -> tuple[Message, ...]:
        """The conversation's start: rules and tools, then context and task."""
        ...

    async def ask(self, messages: Sequence[Message]) -> ModelReply:
        """Ask the main model; counted in cost and budget."""
        ...

    async def call(self, request: CallRequest) -> CallAnswer:
        """Make a tool call through the gate."""
        ...

    async def execute(self, code: str) -> Outcome:
        """Run a script in the task's sandbox."""
        ...

    def printed(self, text: str) -> None:
        """Add to the task's output."""
        ...


class Strategy(Protocol):
    """Works a task until it is done."""

    async def solve(self, host: StrategyHost) -> str:
        """The answer's text.

        Raises:
            DelfError: When the task failed.
        """
        ...
