"""Set-up: what connections have a model do for them once, before the first task uses them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from delf.engine.task import TaskState
from delf.engine.toolset import Toolset
from delf.errors import DelfError
from delf.events import Step
from delf.llm import LLMConfig, as_llm_config
from delf.messages import Message, ModelReply, ModelRequest
from delf.protocols.connection import (
    ConnectionLike,
    SetupAsk,
    SupportsRenewal,
    SupportsSetup,
)

_log = logging.getLogger(__name__)


class SetUp:
    """Sets connections up in the first task; tasks beside it wait.

    Args:
        tools: The agent's tools as they are before.
        connections: The agent's connections.
    """

    def __init__(self, tools: Toolset, connections: Sequence[ConnectionLike]) -> None:
        self.tools = tools
        self.connections = tuple(connections)
        self._left = [c for c in connections if isinstance(c, SupportsSetup) and c.needs_setup]
        self.needed = bool(self._left)
        """Whether tasks come here before they choose their tools."""
        self.changing = [c for c in connections if isinstance(c, SupportsRenewal)]
        self._turn = asyncio.Lock()

    async def renew(self) -> None:
        """List the actions of connections anew that have others now; to be done before a task."""
        async with self._turn:
            for connection in (c for c in self.changing if c.is_stale()):
                try:
                    self.tools = await self.tools.with_reloaded(connection)
                except DelfError as error:
                    _log.warning("%s has other actions now: %s", connection.name, error.message)

    async def __call__(self, task: TaskState) -> None:
        """Set up what is left to be. A failure costs a warning, never the task.

        When this task is cancelled meanwhile, the next that waits goes on with the rest.
        """
        if self._left:
            async with self._turn:
                if self._left:
                    async with task.log.step(Step.SETUP):
                        while self._left:
                            await self._set_up(self._left[0], task)
                            del self._left[0]
        task.tools = self.tools.with_builtins_of(task.tools)  # the task may date from before

    async def _set_up(self, connection: SupportsSetup, task: TaskState) -> None:
        is_failure = f"{connection.name} is not wholly set up"
        async with task.unharmed(is_failure):
            if not await connection.setup(_asker(task)):
                return
        async with task.unharmed(is_failure):  # what was done before a failure is used, too
            self.tools = await self.tools.with_reloaded(connection)


def _asker(task: TaskState) -> SetupAsk:
    # Neither the user's own instructions nor the stream of an answer belong to a set-up.
    asker = replace(task.models, system_prompt=None, stream=False)

    async def ask(messages: Sequence[Message], llm: str | LLMConfig | None = None) -> ModelReply:
        config = task.config.quick_llm if llm is None else as_llm_config(llm)
        return await asker.ask(config, ModelRequest(messages=tuple(messages), purpose="setup"))

    return ask
