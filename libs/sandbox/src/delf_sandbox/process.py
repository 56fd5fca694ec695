"""The interface of a guest's process, supplied by a backend."""

from __future__ import annotations

from typing import Protocol

from delf.protocols.sandbox import Outcome


class GuestProcess(Protocol):
    """The methods of a sandboxed process (a guest) that the guest's session uses."""

    @property
    def cpu_seconds(self) -> float:
        """The processor seconds of the guest and its children, known after :meth:`aclose`."""
        ...

    def kill(self) -> None:
        """Kill the guest and all processes that it started, without waiting. Idempotent."""
        ...

    async def how_it_ended(self) -> Outcome:
        """Wait for the end of the guest, and return the outcome that states the reason."""
        ...

    async def aclose(self) -> None:
        """Kill the guest, and release the resources of its process. Idempotent."""
        ...
