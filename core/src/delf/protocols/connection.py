"""A connection: actions that a script can call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from delf.actions import Action
    from delf.types import Permission


@runtime_checkable
class ConnectionLike(Protocol):
    """What the engine asks of a connection; :class:`delf.connection.Connection` provides it.

    ``is_function`` says that the connection's only action is called by the connection's own
    name, as ``add(1, 2)``, which is what a ``@tool`` function is.
    """

    name: str
    summary: str
    allow: Permission
    confirm: Permission
    is_function: bool

    async def actions(self) -> Sequence[Action]:
        """All actions, allowed or not, in a stable order. May contact the service."""
        ...


@runtime_checkable
class SupportsContext(Protocol):
    """A connection with live facts for the prompt, such as a database's schema."""

    async def context(self, task: str) -> str | None:
        """Facts that help to write a script for this task, or None.

        Args:
            task: The user's task in plain words.
        """
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """Something that holds resources. It can be used again after it was closed."""

    async def aclose(self) -> None:
        """Free what is held. Safe to call twice."""
        ...
