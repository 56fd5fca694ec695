"""Tasks that come at once begin one after the other, so that nobody else waits for all of them."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Gives each who asks a turn of the event loop that nobody else has of it."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def mine(self) -> None:
        """Wait for a turn, in the order of coming; not at all where nobody has this one."""
        loop = asyncio.get_running_loop()
        if not self._taken:
            self._taken = True
            loop.call_soon(self._next, loop)
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                loop.call_soon(self._next, loop)
                return
        self._taken = False
