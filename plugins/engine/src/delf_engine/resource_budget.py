"""``ResourceBudget``: CPU, calls and bytes that are left to a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from delf.protocols.sandbox import LimitReached, Limits, SandboxSession, SupportsUsage

_LEAST_SECONDS: Final = 0.1
"""The least processor time worth a start, within the system's measuring error."""


class ResourceBudget:
    """Counts the resources that scripts use, so that a script gains nothing by ending its sandbox.

    Args:
        limits: Of the whole task.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seconds = 0.0
        self._calls = self._file_bytes = 0
        self._calls_now = self._file_bytes_now = 0

    def opened(self) -> None:
        """Record that a session was opened; unfinished scripts are repeated in it."""
        self._calls_now = self._file_bytes_now = 0

    def called(self) -> None:
        """Note that a script made a call."""
        self._calls_now += 1

    @property
    def calls_left(self) -> int:
        """The number of calls that scripts can still make; negative beyond the limit."""
        return self._limits.calls - self._calls - self._calls_now

    @property
    def no_calls(self) -> LimitReached:
        """Return the end of a script that makes one call more than its limit."""
        message = f"a task can make {self._limits.calls:,} tool calls"
        return LimitReached(limit="calls", message=message)

    def handed_over(self, size: int) -> None:
        """Note that a script handed an output file over.

        Args:
            size: Its bytes.
        """
        self._file_bytes_now += size

    def ended(self, session: SandboxSession) -> None:
        """Record the use of a closed session with all its scripts."""
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
    def exhausted(self) -> LimitReached | None:
        """The reason for which no further script can run, if none can."""
        most, left = self._limits, self.left
        if self._seconds and left.cpu_seconds < _LEAST_SECONDS:
            message = f"the task used its {most.cpu_seconds:g} s of CPU time"
            return LimitReached(limit="cpu", message=message)
        if self._calls and not left.calls:
            return self.no_calls
        return None
