"""Adaptive spin-wait for the next message.

A wake-up costs 30 to 150 µs, as much as the rest of a tool call, whose budget is 250 µs. The guest
therefore spins briefly while that pays off, as in a script that makes one call after another.
"""

from __future__ import annotations

import os
from typing import Final

SPIN_SECONDS: Final = 300e-6
"""The maximum time to spin, in seconds.

A call of a plain function takes less time than this, so the guest does not sleep during such a
call. The host would otherwise lose time to wake up a sleeping processor.
"""
_MAX_SLEEPS: Final = 64
# True if the machine has several processors.
#
# On a single processor, spinning would keep the host from answering.
_HAS_SEVERAL_PROCESSORS: Final = (
    len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else True
)


class Spin:
    """Decides whether to spin or to sleep until the next message.

    A spin fails if no message arrives during the spin. After a failed spin, the next wait sleeps
    without spinning; after the second failed spin, the next 2 waits do so, then 4, and so on, until
    a message arrives quickly. The first wait always sleeps, because many scripts make only one
    call.

    Args:
        has_several_processors: Whether the machine has several processors.
    """

    def __init__(self, *, has_several_processors: bool = _HAS_SEVERAL_PROCESSORS) -> None:
        self._has_several_processors = has_several_processors
        # How many waits still have to sleep before a wait may spin; at first, only the first wait.
        self._remaining_sleeps = 1
        # The value of _remaining_sleeps after the next failed spin: 1, 2, 4, …, _MAX_SLEEPS.
        self._sleeps_after_failure = 1

    def begin_wait(self) -> bool:
        """Count a wait, and return True if the wait should spin before it sleeps."""
        if self._remaining_sleeps:
            self._remaining_sleeps -= 1
            return False
        return self._has_several_processors

    def record_success(self) -> None:
        """Record that a message arrived quickly, so that the next wait spins.

        This also resets the back-off: after the next failed spin, only 1 wait skips spinning.
        """
        self._remaining_sleeps = 0
        self._sleeps_after_failure = 1

    def record_failure(self) -> None:
        """Record that a spin ended without a message: do not spin in the next few waits."""
        self._remaining_sleeps = self._sleeps_after_failure
        self._sleeps_after_failure = min(2 * self._sleeps_after_failure, _MAX_SLEEPS)
