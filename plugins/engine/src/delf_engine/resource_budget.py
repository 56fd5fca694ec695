"""``ResourceBudget``: the CPU seconds, calls and bytes that remain for a task."""

from __future__ import annotations

from collections import Counter
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
        self._used_seconds = 0.0
        # The use of the closed sessions and that of the open session, by the name of the limit.
        self._used = Counter[str]()
        self._used_by_session = Counter[str]()

    def begin_session(self) -> None:
        """Reset the session's counts.

        A new session runs unfinished scripts again, so what they used must not count twice.
        """
        self._used_by_session.clear()

    def count(self, **used: int) -> None:
        """Count what a script uses, such as ``calls=1``.

        Args:
            used: The amounts, each under the name of the limit in :class:`Limits`.
        """
        self._used_by_session.update(used)  # Counter.update() adds

    @property
    def calls_left(self) -> int:
        """The number of calls that the task can still make; negative beyond the limit."""
        return self._limits.calls - self._used["calls"] - self._used_by_session["calls"]

    @property
    def too_many_calls(self) -> LimitReached:
        """The outcome for a script that exceeds the task's limit of calls."""
        message = f"a task can make {self._limits.calls:,} tool calls"
        return LimitReached(limit="calls", message=message)

    def charge_session(self, session: SandboxSession) -> None:
        """Add the resources used in a closed session to the totals of the task."""
        if isinstance(session, SupportsUsage):
            self._used_seconds += session.cpu_seconds
        self._used.update(self._used_by_session)
        self._used_by_session.clear()

    @property
    def remaining(self) -> Limits:
        """The limits for the next session: the task's limits without what earlier sessions used."""
        limits = self._limits
        counts = {name: max(0, getattr(limits, name) - used) for name, used in self._used.items()}
        seconds = max(0.0, limits.cpu_seconds - self._used_seconds)
        return replace(limits, cpu_seconds=seconds, **counts)

    @property
    def exhausted(self) -> LimitReached | None:
        """The exhausted limit that prevents further scripts; None if there is none.

        A limit counts as exhausted only after a script has used some of the resource. So even a
        limit of 0 does not prevent the first script of a task.
        """
        limits = self._limits
        remaining = self.remaining
        if self._used_seconds and remaining.cpu_seconds < _MIN_CPU_SECONDS:
            message = f"the task used its {limits.cpu_seconds:g} s of CPU time"
            return LimitReached(limit="cpu", message=message)
        if self._used["calls"] and not remaining.calls:
            return self.too_many_calls
        return None
