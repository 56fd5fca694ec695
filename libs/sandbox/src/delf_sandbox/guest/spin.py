"""Adaptive spin-wait for the next message.

A wake-up costs 30 to 150 µs, as much as the rest of a tool call, whose budget is 250 µs. The guest
therefore spins briefly while that pays off, as in a script that makes one call after another.
"""

from __future__ import annotations

import os
from typing import Final

SPIN_SECONDS: Final = 300e-6
"""The seconds to spin: longer than the call of a plain function takes, because a sleeping processor
would slow down the host's threads.
"""
_LONGEST_REST: Final = 64
_SEVERAL: Final = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else True
"""True with several processors: on one, spinning would keep the host from answering."""


class Spin:
    """Adaptive spin-wait: back off while spinning finds nothing.

    The first wait always sleeps: many scripts make one call.

    Args:
        several: Whether there are several processors.
    """

    def __init__(self, *, several: bool = _SEVERAL) -> None:
        self._several = several
        self._rest = 1
        self._next_rest = 1

    def pays(self) -> bool:
        """Return True if spinning is worthwhile this time."""
        if self._rest:
            self._rest -= 1
            return False
        return self._several

    def record_success(self) -> None:
        """Record a successful spin, or a sleep shorter than a spin."""
        self._rest = 0
        self._next_rest = 1

    def was_in_vain(self) -> None:
        """Record a spin that found nothing."""
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
