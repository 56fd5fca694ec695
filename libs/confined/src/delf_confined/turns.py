"""``Turns``: limited concurrency with fairness between callers.

The caller with the least use comes first. A long call is preempted if others wait, and restarted
later, so that long calls do not delay short ones. Restarting is safe because calls have no side
effects. Each restart may run as long as all earlier attempts together, so that the call ends.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

SLICE: Final = 0.15
"""The minimum number of seconds before a call is preempted."""


class Turn:
    """A call, from the time when it starts to wait for a permit to its end.

    Args:
        key: The caller; calls with the same key count against one share of the time.
        can_restart: Whether the call may be interrupted and repeated.
    """

    def __init__(self, key: Hashable, *, can_restart: bool = True) -> None:
        self.key = key
        self.can_restart = can_restart
        self.used = 0.0
        """Seconds used by the call's earlier attempts."""
        self.began: float | None = None
        self.permit: asyncio.Future[None] | None = None
        self.preempted: asyncio.Future[None] | None = None
        """A future that is done when the call must release its permit and wait again."""


class Turns:
    """The permits for concurrent calls of one event loop.

    Args:
        max_calls: The number of concurrent calls.
    """

    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Turns]]] = (
        WeakKeyDictionary()
    )
    """The instances by event loop."""

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._order = itertools.count()
        self._waiting: dict[Turn, int] = {}
        self._running: set[Turn] = set()
        self._seconds_used: dict[Hashable, float] = {}
        """Seconds used by finished calls of each caller that has unfinished calls."""
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of_loop(cls, max_calls: int) -> Turns:
        """Return the permits shared by everything on the running event loop."""
        by_size = cls._of_loops.setdefault(asyncio.get_running_loop(), {})
        return by_size.setdefault(max_calls, cls(max_calls))

    @asynccontextmanager
    async def acquire(self, turn: Turn) -> AsyncGenerator[None]:
        """Acquire a permit, and release it after the block."""
        loop = asyncio.get_running_loop()
        turn.permit, turn.preempted = loop.create_future(), loop.create_future()
        self._waiting[turn] = next(self._order)
        self._fill()
        try:
            await turn.permit
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
        """Add a finished call's time to the total of its caller; forget an idle caller's total."""
        key = turn.key
        if any(other.key == key for other in (*self._running, *self._waiting)):
            self._seconds_used[key] = self._seconds_used.get(key, 0.0) + turn.used
        else:
            self._seconds_used.pop(key, None)

    def _fill(self) -> None:
        """Assign free permits, and choose calls that must release theirs."""
        while len(self._running) < self._max_calls and (turn := self._next()) is not None:
            del self._waiting[turn]
            self._running.add(turn)
            turn.began = asyncio.get_running_loop().time()
            if turn.permit is not None and not turn.permit.done():
                turn.permit.set_result(None)
        self._preempt_longest()

    def _next(self) -> Turn | None:
        """Return the next call; one permit is reserved for calls that have not run yet."""
        is_full = sum(turn.used > 0 for turn in self._running) >= max(1, self._max_calls - 1)
        allowed_turns = [turn for turn in self._waiting if not (is_full and turn.used > 0)]
        return min(allowed_turns, key=self._rank, default=None)

    def _rank(self, turn: Turn) -> tuple[float, int, int]:
        alike = sum(other.key == turn.key for other in self._running)
        return self._recent_use(turn.key), alike, self._waiting[turn]

    def _recent_use(self, key: Hashable) -> float:
        now = asyncio.get_running_loop().time()
        mine = (turn for turn in (*self._running, *self._waiting) if turn.key == key)
        used_seconds = sum(turn.used + (now - turn.began if turn.began else 0.0) for turn in mine)
        return used_seconds + self._seconds_used.get(key, 0.0)

    def _preempt_longest(self) -> None:
        """Make the longest restartable call of another caller release its permit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = self._next()
        if waiting is None or any(t.preempted and t.preempted.done() for t in self._running):
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
            self._timer = loop.call_at(end, self._preempt_longest)
        elif (
            self._recent_use(turn.key) > self._recent_use(waiting.key)
            and turn.preempted is not None
        ):
            turn.preempted.set_result(None)
        else:
            self._timer = loop.call_later(SLICE, self._preempt_longest)
