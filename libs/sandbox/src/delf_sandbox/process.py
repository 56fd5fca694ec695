"""A guest's process: its interface, supplied by a backend, and the limits of the system for it."""

from __future__ import annotations

from typing import Protocol

from delf.protocols.sandbox import Limits, Outcome


class GuestProcess(Protocol):
    """The methods of a sandboxed process (a guest) that the guest's session uses."""

    @property
    def cpu_seconds(self) -> float:
        """The processor seconds of the guest and its children, known after :meth:`aclose`."""
        ...

    def kill(self) -> None:
        """Kill the guest and all processes that it started, without waiting. Idempotent."""
        ...

    async def exit_outcome(self) -> Outcome:
        """Wait for the guest to exit, and return the outcome that states the reason."""
        ...

    async def aclose(self) -> None:
        """Kill the guest, and release the resources of its process. Idempotent."""
        ...


def process_limits(limits: Limits) -> dict[str, int]:
    """Return the resource limits of a guest's process that all backends set alike.

    A backend sets the limits of memory and processor time in its own way.

    Args:
        limits: The limits of the session.

    Returns:
        A mapping from the name of a resource in the module ``resource`` to its limit.
    """
    return {"RLIMIT_FSIZE": limits.file_bytes, "RLIMIT_NOFILE": limits.open_files}
