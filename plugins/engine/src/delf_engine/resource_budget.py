"""``ResourceBudget``: the CPU seconds, calls and bytes that remain for a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from delf.protocols.sandbox import LimitReached, Limits, SandboxSession, SupportsUsage

# The remaining CPU seconds below which no session is started; less cannot be measured.
_MIN_CPU_SECONDS: Final = 0.1


class ResourceBudget:
    """Counts the resources that a task's scripts use, across all sandbox sessions.

    Args:
        limits: The limits of the whole task.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # The use of the task in closed sessions, added by charge_session().
        self._used_seconds = 0.0
        self._used_calls = self._used_files = self._used_file_bytes = 0
        # The use of the open session.
        self._session_calls = self._session_files = self._session_file_bytes = 0

    def begin_session(self) -> None:
        """Reset the session's counts, since a new session runs unfinished scripts again."""
        self._session_calls = self._session_files = self._session_file_bytes = 0

    def count_call(self) -> None:
        """Count a call of a script."""
        self._session_calls += 1

    @property
    def calls_left(self) -> int:
        """The number of calls that the task can still make; negative beyond the limit."""
        return self._limits.calls - self._used_calls - self._session_calls

    @property
    def too_many_calls(self) -> LimitReached:
        """The outcome for a script that exceeds the task's limit of calls."""
        message = f"a task can make {self._limits.calls:,} tool calls"
        return LimitReached(limit="calls", message=message)

    def count_file(self, size: int) -> None:
        """Count an output file of a script.

        Args:
            size: The size in bytes.
        """
        self._session_files += 1
        self._session_file_bytes += size

    def charge_session(self, session: SandboxSession) -> None:
        """Add the resources that a closed session has used to those that the task has used."""
        if isinstance(session, SupportsUsage):
            self._used_seconds += session.cpu_seconds
        self._used_calls += self._session_calls
        self._used_files += self._session_files
        self._used_file_bytes += self._session_file_bytes
        self._session_calls = self._session_files = self._session_file_bytes = 0

    @property
    def remaining(self) -> Limits:
        """The limits for the next session."""
        limits = self._limits
        return replace(
            limits,
            cpu_seconds=max(0.0, limits.cpu_seconds - self._used_seconds),
            calls=max(0, limits.calls - self._used_calls),
            max_files=max(0, limits.max_files - self._used_files),
            total_file_bytes=max(0, limits.total_file_bytes - self._used_file_bytes),
        )

    @property
    def exhausted(self) -> LimitReached | None:
        """The exhausted limit that prevents further scripts; None if there is none.

        The limits of a new task are not exhausted, however low they are.
        """
        limits = self._limits
        remaining = self.remaining
        if self._used_seconds and remaining.cpu_seconds < _MIN_CPU_SECONDS:
            message = f"the task used its {limits.cpu_seconds:g} s of CPU time"
            return LimitReached(limit="cpu", message=message)
        if self._used_calls and not remaining.calls:
            return self.too_many_calls
        return None
