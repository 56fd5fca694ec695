"""``AgentTools``: the tools of an agent's tasks, which connections may change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from delf.engine.toolset import Toolset
from delf.errors import DelfError
from delf.protocols.connection import ConnectionLike, SupportsRenewal, SupportsSetup

_log = logging.getLogger(__name__)


class AgentTools:
    """The actions that may be called, and the connections that need a set-up or renewal for them.

    Args:
        tools: The tools as they are before.
        connections: Their connections.
    """

    def __init__(self, tools: Toolset, connections: Sequence[ConnectionLike]) -> None:
        self.tools = tools
        self.connections = tuple(connections)
        self.left = [c for c in connections if isinstance(c, SupportsSetup) and c.needs_setup]
        """The connections that are not set up yet; the first task does it."""
        self.need_setup = bool(self.left)
        """True if tasks wait for the set-up before they choose their tools."""
        self.turn = asyncio.Lock()
        """Held by whoever changes the tools."""
        self._changing = [c for c in connections if isinstance(c, SupportsRenewal)]

    async def renew(self) -> None:
        """List the actions of connections again that have others now; to be done before a task."""
        if not self._changing:
            return
        async with self.turn:
            for connection in (c for c in self._changing if c.is_stale()):
                try:
                    self.tools = await self.tools.with_reloaded(connection)
                except DelfError as error:
                    _log.warning("%s has other actions now: %s", connection.name, error.message)
