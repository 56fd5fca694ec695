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

MIN_RUN_SECONDS: Final = 0.15
"""The number of seconds that a call runs at least before it is preempted."""


class Turn:
    """A call that waits for a permit or runs.

    Args:
        key: The caller. The running time of all calls with the same key is added up.
        can_restart: Whether the call may be stopped and started again.
    """

    def __init__(self, key: Hashable, *, can_restart: bool = True) -> None:
        self.key = key
        self.can_restart = can_restart
        self.attempt_seconds = 0.0
        """The total run time of the call's ended attempts in seconds; 0 in the first attempt."""
        self.began: float | None = None
        self.permit: asyncio.Future[None] | None = None
        """A future that is completed when the call may run; None before it first waits."""
        self.preemption_request: asyncio.Future[None] | None = None
        """A future that is completed when the call must release its permit and wait again."""

    @property
    def was_preempted(self) -> bool:
        """True if an earlier attempt of the call was stopped because other calls waited."""
        return self.attempt_seconds > 0

    @property
    def preemption_time(self) -> float:
        """The event loop's time from which the running call may be preempted."""
        # A call that was stopped after 1 s may next run for 1 s, then 2 s and 4 s, until it ends.
        guaranteed_seconds = max(MIN_RUN_SECONDS, self.attempt_seconds)
        return (self.began or 0.0) + guaranteed_seconds

    @property
    def must_end(self) -> bool:
        """True if the running call was requested to release its permit."""
        return self.preemption_request is not None and self.preemption_request.done()


class Turns:
    """Limits the number of concurrent calls on one event loop, fairly among the callers.

    Args:
        max_calls: The maximum number of concurrent calls.
    """

    # For each event loop, the instances by their maximum number of calls.
    _of_loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Turns]]] = (
        WeakKeyDictionary()
    )

    def __init__(self, max_calls: int) -> None:
        self._max_calls = max_calls
        self._order = itertools.count()
        # The waiting calls, each with its place in the order of arrival.
        self._waiting: dict[Turn, int] = {}
        self._running: set[Turn] = set()
        # The seconds used by the ended calls of each caller that has further calls.
        self._seconds_used: dict[Hashable, float] = {}
        # The scheduled next call of _preempt_one_call().
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def of_loop(cls, max_calls: int) -> Turns:
        """Return the instance that all callers with this maximum share on the running loop."""
        by_size = cls._of_loops.setdefault(asyncio.get_running_loop(), {})
        return by_size.setdefault(max_calls, cls(max_calls))

    @asynccontextmanager
    async def acquire(self, turn: Turn) -> AsyncGenerator[None]:
        """Wait for a permit, and release it at the end of the ``async with`` block.

        The block must end early when ``turn.preemption_request`` is completed.
        """
        loop = asyncio.get_running_loop()
        turn.permit = loop.create_future()
        turn.preemption_request = loop.create_future()
        self._undo_add_to_ended(turn)
        self._waiting[turn] = next(self._order)
        # A call that gets a permit moves from _waiting to _running, and has a time ``began``.
        self._assign_permits()
        try:
            await turn.permit
            yield
        finally:
            self._waiting.pop(turn, None)  # cancelled while it waited
            self._running.discard(turn)
            if turn.began is not None:
                turn.attempt_seconds += loop.time() - turn.began
                turn.began = None
            self._add_to_ended(turn)
            self._assign_permits()

    def _add_to_ended(self, turn: Turn) -> None:
        """Add the running time of a call's attempts to the total of its caller's ended calls.

        The total is dropped when the caller has no other running or waiting call.
        """
        key = turn.key
        if any(other.key == key for other in (*self._running, *self._waiting)):
            self._seconds_used[key] = self._seconds_used.get(key, 0.0) + turn.attempt_seconds
        else:
            self._seconds_used.pop(key, None)

    def _undo_add_to_ended(self, turn: Turn) -> None:
        """Undo :meth:`_add_to_ended` for a preempted call, which waits again."""
        if turn.was_preempted and turn.key in self._seconds_used:
            self._seconds_used[turn.key] -= turn.attempt_seconds

    def _assign_permits(self) -> None:
        """Assign the free permits to waiting calls; if calls still wait, perhaps preempt one."""
        while len(self._running) < self._max_calls and (turn := self._next()) is not None:
            del self._waiting[turn]
            self._running.add(turn)
            turn.began = asyncio.get_running_loop().time()
            if turn.permit is not None and not turn.permit.done():
                turn.permit.set_result(None)
        self._preempt_one_call()

    def _next(self) -> Turn | None:
        """Return the waiting call that gets the next permit, or None."""
        # If there are several permits, one of them is reserved for calls that were never preempted.
        max_restarted_calls = max(1, self._max_calls - 1)
        restarted_calls = sum(turn.was_preempted for turn in self._running)
        candidates = list(self._waiting)
        if restarted_calls >= max_restarted_calls:
            candidates = [turn for turn in candidates if not turn.was_preempted]
        return min(candidates, key=self._rank, default=None)

    def _rank(self, turn: Turn) -> tuple[float, int, int]:
        """Return a sort key for waiting calls.

        The call of the caller with the least use comes first; of callers with equal use, the one
        with the fewest running calls; then the call that has waited longest.
        """
        running_calls = sum(other.key == turn.key for other in self._running)
        return self._recent_use(turn.key), running_calls, self._waiting[turn]

    def _recent_use(self, key: Hashable) -> float:
        """Return the running time of the recent calls of a caller in seconds."""
        now = asyncio.get_running_loop().time()
        used_seconds = 0.0
        for turn in (*self._running, *self._waiting):
            if turn.key != key:
                continue
            used_seconds += turn.attempt_seconds
            if turn.began:  # the call runs
                used_seconds += now - turn.began
        return used_seconds + self._seconds_used.get(key, 0.0)

    def _preempt_one_call(self) -> None:
        """Preempt a running call if a call of a caller with less use waits for a permit.

        The use of a caller is the running time of the caller's calls.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting_call = self._next()
        is_permit_about_to_be_free = any(call.must_end for call in self._running)
        if waiting_call is None or is_permit_about_to_be_free:
            return
        calls_of_others = [call for call in self._running if call.key != waiting_call.key]
        restartable = [call for call in calls_of_others if call.can_restart]
        if not restartable:
            return
        loop = asyncio.get_running_loop()
        waiting_use = self._recent_use(waiting_call.key)
        candidates = [call for call in restartable if self._recent_use(call.key) > waiting_use]
        if not candidates:
            # Try again soon: the use of the running calls' callers grows.
            self._timer = loop.call_later(MIN_RUN_SECONDS, self._preempt_one_call)
            return
        call = min(candidates, key=lambda candidate: candidate.preemption_time)
        if call.preemption_time > loop.time():
            # Try again when the call has run long enough.
            self._timer = loop.call_at(call.preemption_time, self._preempt_one_call)
            return
        if call.preemption_request is not None:  # acquire() has set a request for each running call
            call.preemption_request.set_result(None)
