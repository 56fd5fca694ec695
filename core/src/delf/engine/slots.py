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
        self._over = False
        self._returning: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Wait for a place, and hold it."""
        await self._take()
        try:
            yield
        finally:
            self._over = True
            self._leave()

    @asynccontextmanager
    async def given_up(self) -> AsyncGenerator[None]:
        """Leave the place to others while a person decides; several calls may wait at once.

        It is taken again afterwards, also where the call that waited was cancelled: its task goes
        on.
        """
        self._away += 1
        self._leave()
        try:
            yield
        finally:
            self._away -= 1
            if not (self._held or self._away or self._over):
                self._returning = asyncio.create_task(self._take())
        await self.regained()

    async def regained(self) -> None:
        """Wait until the task has its place again, unless a person decides meanwhile."""
        while self._returning is not None and not self._returning.done():
            await asyncio.wait({self._returning})

    async def _take(self) -> None:
        await self._places.acquire()
        self._held = True

    def _leave(self) -> None:
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None
        if self._held:
            self._held = False
            self._places.release()
