"""Politeness to sites: the pages that their ``robots.txt`` allows, and the pause between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from delf.errors import ToolExecutionError

_KEPT_SECONDS: Final = 3600.0
_MAX_SITES: Final = 1000
_MAX_BYTES: Final = 500 * 1024  # what RFC 9309 wants read of a robots.txt
_LONGEST_DELAY: Final = 30.0
_CLIENT_ERROR: Final = range(400, 500)
_OK: Final = 200

Fetch = Callable[[str], Awaitable[tuple[int, bytes]]]
"""The status and the body of an address; status 0 where nothing answered."""

Read = Callable[[str, bytes], Awaitable[tuple[bool, float]]]
"""Rules of ``robots.txt``: allowed addresses, and the pause between requests."""


@dataclass(frozen=True, slots=True)
class Manners:
    """The wishes of a site for a page.

    Args:
        allowed: Whether it gives the page to programs.
        delay: Seconds that it wants between two requests.
    """

    allowed: bool
    delay: float = 0.0


FREE: Final = Manners(allowed=True)
_NOTHING: Final = Manners(allowed=False)


class Robots:
    """The rules of sites for programs.

    Args:
        fetch: Has a ``robots.txt``.
        read: Reads what a ``robots.txt`` says about an address.
    """

    def __init__(self, fetch: Fetch, read: Read) -> None:
        self._fetch = fetch
        self._read = read
        self._known: dict[str, tuple[float, bytes | Manners]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def about(self, url: str) -> Manners:
        """Return the site's wishes for a page."""
        rules = await self._rules(url)
        if isinstance(rules, Manners):
            return rules
        try:
            allowed, delay = await self._read(url, rules)
        except ToolExecutionError:  # what cannot be read gives nothing
            return _NOTHING
        return Manners(allowed, min(delay, _LONGEST_DELAY))

    async def _rules(self, url: str) -> bytes | Manners:
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        async with self._turns.setdefault(site, asyncio.Lock()):
            known = self._known.get(site)
            if known is not None and known[0] > time.monotonic():
                return known[1]
            rules = await self._had(f"{site}/robots.txt")
            if len(self._known) >= _MAX_SITES:
                self._known.clear()
                self._turns = {site: self._turns[site]}
            self._known[site] = time.monotonic() + _KEPT_SECONDS, rules
            return rules

    async def _had(self, url: str) -> bytes | Manners:
        status, body = await self._fetch(url)
        if status in _CLIENT_ERROR:  # there is none: all is given
            return FREE
        return body[:_MAX_BYTES] if status == _OK else _NOTHING


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
