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
            each for each in connections if isinstance(each, SupportsSetup) and each.needs_setup
        ]
        """Connections that are not set up yet; the first task sets them up."""
        self.needed_setup = bool(self.awaiting_setup)
        """True if connections were not set up at the start. Stays True after the set-up, because a
        task that began before the set-up must still exchange its tools."""
        self.lock = asyncio.Lock()
        """A lock for changing the tools."""
        self._connections_with_changing_actions = [
            connection for connection in connections if isinstance(connection, SupportsRenewal)
        ]
        # The permissions with which the actions were loaded. After a change of these, renew() loads
        # the actions again.
        self._permissions = [_permissions_of(connection) for connection in connections]

    async def renew(self) -> None:
        """Reload the actions of connections whose actions or permissions may have changed.

        Call this before each task.

        Raises:
            DelfError: If ``allow`` or ``confirm`` names an unknown action.
        """
        permissions = [*map(_permissions_of, self.connections)]
        if not self._connections_with_changing_actions and permissions == self._permissions:
            return
        async with self.lock:
            for connection, old, new in zip(
                self.connections, self._permissions, permissions, strict=True
            ):
                if old != new:  # the program has set ``allow`` or ``confirm``
                    # Not in a ``try``: the earlier actions have the old permissions.
                    self.tools = await self.tools.with_reloaded(connection)
            self._permissions = permissions
            for connection in self._connections_with_changing_actions:
                if not connection.is_stale():
                    continue
                # The earlier actions stay in use if the service cannot be reached.
                try:
                    self.tools = await self.tools.with_reloaded(connection)
                except DelfError as error:
                    _log.warning(
                        "the changed actions of %s cannot be loaded: %s",
                        connection.name,
                        error.message,
                    )


def _permissions_of(connection: ConnectionLike) -> tuple[Permission, Permission]:
    """Return the current ``allow`` and ``confirm`` of a connection."""
    name = connection.name
    return (
        check_permission(connection.allow, "allow", name),
        check_permission(connection.confirm, "confirm", name),
    )
