"""Adaptive spin-wait for the next message.

A wake-up costs 30 to 150 µs: as much as all the rest of a tool call, which has a budget of 250 µs.
So the guest spins briefly, as long as that pays: the next message of a script that makes one call
after another comes at once.
"""

from __future__ import annotations

import os
from typing import Final

SPIN_SECONDS: Final = 300e-6
"""Longer than the call of a plain function takes: a processor that sleeps meanwhile draws the
threads of the host apart, which makes each call slower by that much."""
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
        """Return whether to look first this time."""
        if self._rest:
            self._rest -= 1
            return False
        return self._several

    def paid(self) -> None:
        """Record a successful spin, or a sleep shorter than a spin."""
        self._rest = 0
        self._next_rest = 1

    def was_in_vain(self) -> None:
        """Record a spin that found nothing."""
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
