"""A lock for questions on the terminal, shared by tasks of all event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class TerminalLock:
    """A fair lock for the terminal.

    ``interrupted`` becomes True when the person presses Ctrl-C, and stays True, also while later
    requests hold the lock, until the person enters a line.
    """

    def __init__(self) -> None:
        self.interrupted = False  # whether the person pressed Ctrl-C after the last entered line
        self._lock = threading.Lock()  # protects the two attributes below
        self._is_held = False  # whether a request holds the terminal
        self._waiting: deque[Waiter] = deque()  # the requests that wait for the terminal, in order

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait for the terminal."""
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None]:
        """Hold the terminal while the block runs."""
        await self._acquire()
        try:
            yield
        finally:
            self._release()

    async def _acquire(self) -> None:
        """Wait until all earlier requests have released the terminal, and acquire it."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if not self._is_held:
                self._is_held = True
                return
            acquired: asyncio.Future[None] = loop.create_future()
            waiter = (loop, acquired)
            self._waiting.append(waiter)
        try:
            await acquired
        except asyncio.CancelledError:
            with self._lock:
                is_waiting = waiter in self._waiting
                if is_waiting:
                    self._waiting.remove(waiter)
            if not is_waiting:  # the lock was already passed to us
                self._release()
            raise

    def _release(self) -> None:
        """Pass the lock to the first waiter whose event loop is open; without a waiter, free it.

        The lock stays held while it is passed on.
        """
        with self._lock:
            while self._waiting:
                loop, future = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(_wake, future)
                except RuntimeError:  # the waiter's event loop is closed
                    continue
                return
            self._is_held = False


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
