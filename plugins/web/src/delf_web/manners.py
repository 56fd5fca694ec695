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
        self._next: dict[str, float] = {}

    async def turn(self, host: str) -> None:
        """Wait until the next request to a host may start."""
        now = time.monotonic()
        start = max(now, self._next.get(host, 0.0))
        self._next[host] = start + self._pause
        if len(self._next) > _MAX_SITES:
            self._next = {host: at for host, at in self._next.items() if at > now}
        await asyncio.sleep(start - now)
