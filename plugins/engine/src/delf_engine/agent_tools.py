"""``AgentTools``: the tools of an agent's tasks, which connections may change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from delf.errors import DelfError
from delf.protocols.connection import ConnectionLike, SupportsRenewal, SupportsSetup
from delf.tools.permissions import check_permission
from delf.types import Permission
from delf_engine.toolset import Toolset

_log = logging.getLogger(__name__)


class AgentTools:
    """The callable actions of an agent, updated when a connection is set up or its actions change.

    Args:
        tools: The actions that are known now.
        connections: The connections of the actions.
    """

    def __init__(self, tools: Toolset, connections: Sequence[ConnectionLike]) -> None:
        self.tools = tools
        self.connections = tuple(connections)
        self.awaiting_setup = [
            c for c in connections if isinstance(c, SupportsSetup) and c.needs_setup
        ]
        """Connections that are not set up yet; the first task sets them up."""
        self.need_setup = bool(self.awaiting_setup)
        """True if connections must be set up before a task can choose its tools."""
        self.lock = asyncio.Lock()
        """A lock for changing the tools."""
        self._renewable = [c for c in connections if isinstance(c, SupportsRenewal)]
        self._rights = [_rights_of(c) for c in connections]

    async def renew(self) -> None:
        """Reload the actions of connections whose actions or permissions may have changed.

        Call this before each task.

        Raises:
            DelfError: If ``allow`` or ``confirm`` names an unknown action.
        """
        rights = [_rights_of(c) for c in self.connections]
        if not self._renewable and rights == self._rights:
            return
        async with self.lock:
            for connection, before, now in zip(self.connections, self._rights, rights, strict=True):
                if before != now:
                    self.tools = await self.tools.with_reloaded(connection)
            self._rights = rights
            for connection in (c for c in self._renewable if c.is_stale()):
                try:
                    self.tools = await self.tools.with_reloaded(connection)
                except DelfError as error:
                    _log.warning(
                        "the changed actions of %s cannot be loaded: %s",
                        connection.name,
                        error.message,
                    )


def _rights_of(connection: ConnectionLike) -> tuple[Permission, Permission]:
    """Return the current ``allow`` and ``confirm`` of a connection."""
    name = connection.name
    return (
        check_permission(connection.allow, "allow", name),
        check_permission(connection.confirm, "confirm", name),
    )
