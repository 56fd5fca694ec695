"""How politely a site is asked: what its ``robots.txt`` gives, and how often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from protego import Protego

_KEPT_SECONDS: Final = 3600.0
_MAX_SITES: Final = 1000
_MAX_BYTES: Final = 500 * 1024  # what RFC 9309 wants read of a robots.txt
_LONGEST_DELAY: Final = 30.0
_CLIENT_ERROR: Final = range(400, 500)

Fetch = Callable[[str], Awaitable[tuple[int, bytes]]]
"""The status and the body of an address; status 0 where nothing answered."""


class Robots:
    """What sites give to whom.

    Args:
        agent: The name under which pages are asked for.
        fetch: Has a ``robots.txt``.
    """

    def __init__(self, agent: str, fetch: Fetch) -> None:
        self._agent = agent
        self._fetch = fetch
        self._known: dict[str, tuple[float, Protego]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def allows(self, url: str) -> bool:
        """Whether the site gives this page."""
        return (await self._rules(url)).can_fetch(url, self._agent)

    async def delay(self, url: str) -> float:
        """Seconds that the site wants between two requests."""
        asked = (await self._rules(url)).crawl_delay(self._agent)
        return min(float(asked or 0), _LONGEST_DELAY)

    async def _rules(self, url: str) -> Protego:
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        async with self._turns.setdefault(site, asyncio.Lock()):
            known = self._known.get(site)
            if known is not None and known[0] > time.monotonic():
                return known[1]
            rules = await self._read(f"{site}/robots.txt")
            if len(self._known) >= _MAX_SITES:
                self._known.clear()
                self._turns = {site: self._turns[site]}
            self._known[site] = time.monotonic() + _KEPT_SECONDS, rules
            return rules

    async def _read(self, url: str) -> Protego:
        from protego import Protego

        status, body = await self._fetch(url)
        if status in _CLIENT_ERROR:  # there is none: all is given
            return Protego.parse("")
        if status != 200:
            return Protego.parse("User-agent: *\nDisallow: /")
        return Protego.parse(body[:_MAX_BYTES].decode("utf-8", errors="replace"))


class Pace:
    """Lets requests to one host through one after another, as often as is polite.

    Args:
        rate: Requests a second; 0 is no limit.
    """

    def __init__(self, rate: float) -> None:
        self._pause = 1 / rate if rate else 0.0
        self._next: dict[str, float] = {}

    async def turn(self, host: str, delay: float = 0.0) -> None:
        """Wait until the host may be asked again.

        Args:
            host: The host.
            delay: Seconds that the host itself wants between two requests.
        """
        pause = max(self._pause, delay)
        if not pause:
            return
        now = time.monotonic()
        start = max(now, self._next.get(host, 0.0))
        self._next[host] = start + pause
        if len(self._next) > _MAX_SITES:
            self._next = {host: at for host, at in self._next.items() if at > now}
        await asyncio.sleep(start - now)
