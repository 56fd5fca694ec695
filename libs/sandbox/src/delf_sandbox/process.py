"""Parts that a backend supplies to a session beside the byte streams."""

from __future__ import annotations

from typing import Protocol

from delf.protocols.sandbox import Outcome


class GuestProcess(Protocol):
    """The guest's process, as its session needs it."""

    @property
    def cpu_seconds(self) -> float:
        """The processor time of the guest with all its children, once it is freed."""
        ...

    def kill(self) -> None:
        """Kill the guest and everything it started, at once. Idempotent."""
        ...

    async def how_it_ended(self) -> Outcome:
        """Wait for the guest's end and return its reason in words for people."""
        ...

    async def aclose(self) -> None:
        """Release its resources. Idempotent."""
        ...
