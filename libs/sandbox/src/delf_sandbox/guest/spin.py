"""Choose between looking again and again for the next message, and sleeping until it comes.

A wake-up costs 30 to 150 µs: as much as all the rest of a tool call, which has a budget of 250 µs.
So the guest looks for a moment first, as long as that pays: the next message of a script that makes
one call after another comes at once.
"""

from __future__ import annotations

import os
from typing import Final

SPIN_SECONDS: Final = 300e-6
"""Longer than the call of a plain function takes: a processor that sleeps meanwhile draws the
threads of the host apart, which makes each call slower by that much."""
_LONGEST_REST: Final = 64
_SEVERAL: Final = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else True
"""With one processor, looking keeps the host from doing what is looked for."""


class Spin:
    """Remembers whether looking paid: the more often in vain, the more waits are slept.

    So is the first one: many scripts make one call.

    Args:
        several: Whether there are several processors.
    """

    def __init__(self, *, several: bool = _SEVERAL) -> None:
        self._several = several
        self._rest = 1
        self._next_rest = 1

    def pays(self) -> bool:
        """Tell whether to look first this time."""
        if self._rest:
            self._rest -= 1
            return False
        return self._several

    def paid(self) -> None:
        """Record that the awaited message came, or would have: it was slept for no longer."""
        self._rest = 0
        self._next_rest = 1

    def was_in_vain(self) -> None:
        """Nothing came meanwhile."""
        self._rest = self._next_rest
        self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
