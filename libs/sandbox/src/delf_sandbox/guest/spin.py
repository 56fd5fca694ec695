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
_MAX_WAITS_WITHOUT_SPIN: Final = 64
# True if the machine has several processors.
#
# On a single processor, spinning would keep the host from answering.
_HAS_SEVERAL_PROCESSORS: Final = (
    len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else True
)


class Spin:
    """Decides whether to spin or to sleep until the next message.

    After a spin during which no message arrived, the next waits sleep at once, without spinning: 1
    wait, then 2, then 4, and so on, until a message arrives quickly. The first wait always sleeps,
    because many scripts make only one call.

    Args:
        has_several_processors: Whether the machine has several processors.
    """

    def __init__(self, *, has_several_processors: bool = _HAS_SEVERAL_PROCESSORS) -> None:
        self._has_several_processors = has_several_processors
        # How many of the next waits sleep at once, without a spin. It is 1 at the beginning: many
        # scripts make only one call, for which a spin would not pay off.
        self._waits_without_spin = 1
        # The value of _waits_without_spin after the next spin during which no message arrives. Each
        # such spin doubles this number, up to _MAX_WAITS_WITHOUT_SPIN.
        self._next_waits_without_spin = 1

    def should_spin(self) -> bool:
        """Return True if the next wait should spin before it sleeps.

        After a spin without a message, the next few waits do not spin. Each call that returns False
        for this reason counts one of these waits.
        """
        if self._waits_without_spin:
            self._waits_without_spin -= 1
            return False
        return self._has_several_processors

    def record_success(self) -> None:
        """Record a spin during which a message arrived, or a sleep that was shorter than a spin.

        The next wait spins. If that spin fails, only one wait after it sleeps at once.
        """
        self._waits_without_spin = 0
        self._next_waits_without_spin = 1

    def record_failure(self) -> None:
        """Record that a spin ended without a message: do not spin in the next few waits."""
        self._waits_without_spin = self._next_waits_without_spin
        self._next_waits_without_spin = min(
            2 * self._next_waits_without_spin, _MAX_WAITS_WITHOUT_SPIN
        )
