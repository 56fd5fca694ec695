"""Politeness to sites: a pause between two requests to one host."""

from __future__ import annotations

import asyncio
import time
from typing import Final

_MAX_SITES: Final = 1000


class Pace:
    """Limits the rate of requests to each host.

    Args:
        rate: The maximum number of requests per second to one host; 0 for no limit.
    """

    def __init__(self, rate: float) -> None:
        self._pause = 1 / rate if rate else 0.0
        # By host, the time of time.monotonic() from which the next request to the host may start.
        self._next_start: dict[str, float] = {}

    async def turn(self, host: str) -> None:
        """Wait until the next request to a host may start."""
        now = time.monotonic()
        start_time = max(now, self._next_start.get(host, 0.0))
        self._next_start[host] = start_time + self._pause
        if len(self._next_start) > _MAX_SITES:  # forget the hosts that need no pause any more
            self._next_start = {
                known_host: next_start
                for known_host, next_start in self._next_start.items()
                if next_start > now
            }
        await asyncio.sleep(start_time - now)
