"""``Turns``: a few calls at once, fairly between those who ask.

Whoever has used the least comes first. What runs long while others wait gives its place up and
starts again later, which it may, as it changes nothing: so many long calls hold no short one for
long. Each start of a call may run as long as all before it together, so that it ends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

SLICE: Final = 0.15
"""Seconds that each start of a call has at the least."""


class Turn:
    """One call, from its first wait to its end.

    Args:
        key: Who asks: those with one key share.
        can_restart: Whether it may be ended and made again.
    """

    def __init__(self, key: Hashable, *, can_restart: bool = True) -> None:
        self.key = key
        self.can_restart = can_restart
        self.used = 0.0
        """Seconds of its earlier starts."""
        self.began: float | None = None
        self.place: asyncio.Future[None] | None = None
        self.gives_way: asyncio.Future[None] | None = None
        """Done when it has to end, and wait for another place."""


class Turns:
    """The places of one event loop.

    Args:
        most: The number of places.
    """

    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Turns]]] = (
        WeakKeyDictionary()
    )
    """An agent has one loop, and its connections know nothing of each other."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._order = itertools.count()
        self._waiting: dict[Turn, int] = {}
        self._running: set[Turn] = set()
        self._past: dict[Hashable, float] = {}
        """Seconds of calls that ended, of those who have others."""
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of_loop(cls, most: int) -> Turns:
        """Return the places that all who run on the current event loop share."""
        known = cls._of_loops.setdefault(asyncio.get_running_loop(), {})
        return known.setdefault(most, cls(most))

    @asynccontextmanager
    async def taken(self, turn: Turn) -> AsyncGenerator[None]:
        """Wait for a place, and hold it."""
        loop = asyncio.get_running_loop()
        turn.place, turn.gives_way = loop.create_future(), loop.create_future()
        self._waiting[turn] = next(self._order)
        self._fill()
        try:
            await turn.place
            yield
        finally:
            self._waiting.pop(turn, None)
            self._running.discard(turn)
            if turn.began is not None:
                turn.used += loop.time() - turn.began
                turn.began = None
            self._remember(turn)
            self._fill()

    def _remember(self, turn: Turn) -> None:
        """Count what a call used among what its asker did, as long as that has others."""
        key = turn.key
        if any(other.key == key for other in (*self._running, *self._waiting)):
            self._past[key] = self._past.get(key, 0.0) + turn.used
        else:
            self._past.pop(key, None)

    def _fill(self) -> None:
        """Give free places away, and see who has to give one up."""
        while len(self._running) < self._most and (turn := self._next()) is not None:
            del self._waiting[turn]
            self._running.add(turn)
            turn.began = asyncio.get_running_loop().time()
            if turn.place is not None and not turn.place.done():
                turn.place.set_result(None)
        self._look()

    def _next(self) -> Turn | None:
        """The call that comes next: one place is left to calls that have not run yet."""
        is_full = sum(turn.used > 0 for turn in self._running) >= max(1, self._most - 1)
        allowed = [turn for turn in self._waiting if not (is_full and turn.used > 0)]
        return min(allowed, key=self._rank, default=None)

    def _rank(self, turn: Turn) -> tuple[float, int, int]:
        alike = sum(other.key == turn.key for other in self._running)
        return self._used(turn.key), alike, self._waiting[turn]

    def _used(self, key: Hashable) -> float:
        now = asyncio.get_running_loop().time()
        mine = (turn for turn in (*self._running, *self._waiting) if turn.key == key)
        used = sum(turn.used + (now - turn.began if turn.began else 0.0) for turn in mine)
        return used + self._past.get(key, 0.0)

    def _look(self) -> None:
        """Have the longest call of another give way to one that waits, once its slice is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = self._next()
        if waiting is None or any(t.gives_way and t.gives_way.done() for t in self._running):
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        ends = [
            ((turn.began or now) + max(SLICE, turn.used), turn)
            for turn in self._running
            if turn.can_restart and turn.key != waiting.key
        ]
        if not ends:
            return
        end, turn = min(ends, key=lambda pair: pair[0])
        if end > now:
            self._timer = loop.call_at(end, self._look)
        elif self._used(turn.key) > self._used(waiting.key) and turn.gives_way is not None:
            turn.gives_way.set_result(None)
        else:
            self._timer = loop.call_later(SLICE, self._look)
