"""How many tasks run at once; the others wait in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Slot:
    """A task's place among those that run.

    Args:
        places: All places; it hands them out in the order in which they are asked for.
    """

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._held = False
        self._away = 0
        self._returning = asyncio.Lock()

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Wait for a place, and hold it."""
        await self._take()
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def given_up(self) -> AsyncGenerator[None]:
        """Leave the place to others while a person decides; several calls may wait at once."""
        self._away += 1
        self._leave()
        try:
            yield
        finally:
            self._away -= 1
        async with self._returning:
            if not self._held and self._away == 0:
                await self._take()

    async def _take(self) -> None:
        await self._places.acquire()
        self._held = True

    def _leave(self) -> None:
        if self._held:
            self._held = False
            self._places.release()
