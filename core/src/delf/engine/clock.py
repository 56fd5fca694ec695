"""A task's time, which stands still while the task waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Any


class TaskClock:
    """Counts a task's seconds down.

    Args:
        seconds: How many it has.
        parent: The clock of the task of which it is a child: it stands still, too.
    """

    def __init__(self, seconds: float, parent: TaskClock | None = None) -> None:
        self.seconds = seconds
        self._left = seconds
        self._parent = parent
        self._stops = 0
        self._seen_at: float | None = None
        self._changed = asyncio.Event()

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Let no time pass meanwhile; several may wait at once."""
        with nullcontext() if self._parent is None else self._parent.stopped():
            self._tick()
            self._stops += 1
            self._changed.set()
            try:
                yield
            finally:
                self._tick()
                self._stops -= 1
                self._changed.set()

    def _tick(self) -> None:
        """Count what has passed since the last look."""
        if self._seen_at is not None:
            now = asyncio.get_running_loop().time()
            self._left -= 0 if self._stops else now - self._seen_at
            self._seen_at = now

    async def wait(self, work: asyncio.Future[Any]) -> None:
        """Wait until a work is done or the time is up."""
        self._seen_at = asyncio.get_running_loop().time()
        while not work.done():
            self._tick()
            if not self._stops and self._left <= 0:
                return
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait(
                    {work, changed},
                    timeout=None if self._stops else self._left,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                changed.cancel()
