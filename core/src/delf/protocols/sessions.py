"""Sessions of people who are logged in to a server, kept for all of its processes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session.

    Args:
        digest: Of what the browser shows, which is not kept.
        name: Whose it is.
        began: Unix time in seconds.
        until: When it is over.
    """

    digest: str
    name: str
    began: float
    until: float


@runtime_checkable
class SupportsLogins(Protocol):
    """A journal that knows who is logged in."""

    async def begin_login(self, session: SessionRecord) -> None:
        """Keep a session; those that are over are forgotten."""
        ...

    async def end_login(self, digest: str) -> None:
        """Forget a session."""
        ...

    async def logins(self, digests: Collection[str] | None = None) -> list[SessionRecord]:
        """The sessions that are not over.

        Args:
            digests: Only these.
        """
        ...
