"""The interface of a guest's process, supplied by a backend."""

from __future__ import annotations

from typing import Protocol

from delf.protocols.sandbox import Outcome


class GuestProcess(Protocol):
    """A guest's process as its session uses it."""

    @property
    def cpu_seconds(self) -> float:
        """The processor time of the guest and its children, once released."""
        ...

    def kill(self) -> None:
        """Kill the guest and everything it started, at once. Idempotent."""
        ...

    async def how_it_ended(self) -> Outcome:
        """Wait for the guest's end and return the reason as an outcome."""
        ...

    async def aclose(self) -> None:
        """Release its resources. Idempotent."""
        ...
