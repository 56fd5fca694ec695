"""``ResourceBudget``: CPU, calls and bytes that are left to a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from delf.protocols.sandbox import LimitReached, Limits, SandboxSession, SupportsUsage

_LEAST_SECONDS: Final = 0.1
"""Less than this is not worth a start, and within what the system measures."""


class ResourceBudget:
    """Counts what scripts use up, so that one which ends its sandbox gains nothing by that.

    Args:
        limits: Of the whole task.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seconds = 0.0
        self._calls = self._file_bytes = 0
        self._calls_now = self._file_bytes_now = 0

    def opened(self) -> None:
        """A session was opened; what was not over before is done again in it."""
        self._calls_now = self._file_bytes_now = 0

    def called(self) -> None:
        """A script made a call."""
        self._calls_now += 1

    @property
    def calls_left(self) -> int:
        """The number of calls that scripts can still make; negative beyond the limit."""
        return self._limits.calls - self._calls - self._calls_now

    @property
    def no_calls(self) -> LimitReached:
        """The end of a script that makes one call more than its task can."""
        message = f"a task can make {self._limits.calls:,} tool calls"
        return LimitReached(limit="calls", message=message)

    def handed_over(self, size: int) -> None:
        """A script handed an output file over.

        Args:
            size: Its bytes.
        """
        self._file_bytes_now += size

    def ended(self, session: SandboxSession) -> None:
        """A session is over with all that its scripts did in it, and closed."""
        if isinstance(session, SupportsUsage):
            self._seconds += session.cpu_seconds
        self._calls += self._calls_now
        self._file_bytes += self._file_bytes_now
        self._calls_now = self._file_bytes_now = 0

    @property
    def left(self) -> Limits:
        """Return the limits of the next session."""
        most = self._limits
        return replace(
            most,
            cpu_seconds=max(0.0, most.cpu_seconds - self._seconds),
            calls=max(0, most.calls - self._calls),
            total_file_bytes=max(0, most.total_file_bytes - self._file_bytes),
        )

    @property
    def spent(self) -> LimitReached | None:
        """The reason for which no further script can run, if none can."""
        most, left = self._limits, self.left
        if self._seconds and left.cpu_seconds < _LEAST_SECONDS:
            message = f"the task used its {most.cpu_seconds:g} s of CPU time"
            return LimitReached(limit="cpu", message=message)
        if self._calls and not left.calls:
            return self.no_calls
        return None
