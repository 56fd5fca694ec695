"""``Turns``: limited concurrency with fairness between callers.

The caller with the least use comes first. A long call is preempted if others wait, and restarted
later, so that long calls do not delay short ones. Restarting is safe because calls have no side
effects. Each restart may run as long as all earlier attempts together, so that the call ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

MIN_RUN_SECONDS: Final = 0.15
"""The number of seconds that a call runs at least before it is preempted."""


class Turn:
    """A call that waits for a permit to run, or runs.

    Args:
        key: The caller. The running time of all calls with the same key is added up.
    """

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.attempt_seconds = 0.0
        """The total run time of the call's ended attempts in seconds; 0 in the first attempt."""
        self.began: float | None = None
        self.permit: asyncio.Future[None] | None = None
        """A future that is completed when the call may run; None before the call first waits."""
        self.preemption_request: asyncio.Future[None] | None = None
        """A future that is completed when the call must release its permit and wait again."""

    @property
    def was_preempted(self) -> bool:
        """True if an earlier attempt of the call was stopped because other calls waited."""
        return self.attempt_seconds > 0

    @property
    def preemption_time(self) -> float:
        """The event loop's time from which the running call may be preempted."""
        # The guaranteed time grows with each preemption (1 s, 1 s, 2 s, 4 s, …), so that even a
        # long call ends.
        guaranteed_seconds = max(MIN_RUN_SECONDS, self.attempt_seconds)
        return (self.began or 0.0) + guaranteed_seconds


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
        self._waiting: list[Turn] = []  # in the order of arrival
        self._running: set[Turn] = set()
        # The seconds that each caller has used, while the caller has running or waiting calls.
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
        # If this is the caller's only call and was preempted, _release() has deleted the caller's
        # time: restore the time of the call's earlier attempts.
        used_seconds = self._seconds_used.get(turn.key, 0.0)
        self._seconds_used[turn.key] = max(used_seconds, turn.attempt_seconds)
        self._waiting.append(turn)
        # A call that gets a permit moves from _waiting to _running, and has a time ``began``.
        self._assign_permits()
        try:
            await turn.permit
            yield
        finally:
            self._release(turn, loop.time())
            self._assign_permits()

    def _release(self, turn: Turn, now: float) -> None:
        """Remove a call, and add its running time to its caller's total."""
        if turn.began is None:  # cancelled while it waited
            self._waiting.remove(turn)
        else:
            self._running.remove(turn)
            turn.attempt_seconds += now - turn.began
            self._seconds_used[turn.key] += now - turn.began
            turn.began = None
        other_turns = (*self._running, *self._waiting)
        is_last_of_caller = all(other.key != turn.key for other in other_turns)
        if is_last_of_caller:
            del self._seconds_used[turn.key]  # set by acquire()

    def _assign_permits(self) -> None:
        """Give free permits to waiting calls; if calls still wait, perhaps stop a running call."""
        while len(self._running) < self._max_calls and (turn := self._next()) is not None:
            self._waiting.remove(turn)
            self._running.add(turn)
            turn.began = asyncio.get_running_loop().time()
            # The permit is done already if the waiting call was cancelled; acquire() then releases
            # the permit again.
            if turn.permit is not None and not turn.permit.done():
                turn.permit.set_result(None)
        self._preempt_one_call()

    def _next(self) -> Turn | None:
        """Return the waiting call that gets the next permit, or None."""
        # If there are several permits, one of them is reserved for calls that were never preempted.
        max_preempted_count = max(1, self._max_calls - 1)
        preempted_count = sum(turn.was_preempted for turn in self._running)
        candidates = self._waiting
        if preempted_count >= max_preempted_count:
            candidates = [turn for turn in candidates if not turn.was_preempted]
        return min(candidates, key=self._rank, default=None)

    def _rank(self, turn: Turn) -> tuple[float, int]:
        """Return a sort key for waiting calls: the call with the lowest key gets the next permit.

        The key has the time that the caller's calls have run so far, then the number of the
        caller's running calls. Of calls with equal keys, the call that has waited longest comes
        first.
        """
        running_calls = sum(other.key == turn.key for other in self._running)
        return self._total_seconds(turn.key), running_calls

    def _total_seconds(self, key: Hashable) -> float:
        """Return the running time of the recent calls of a caller in seconds."""
        now = asyncio.get_running_loop().time()
        running = (now - turn.began for turn in self._running if turn.key == key and turn.began)
        return self._seconds_used[key] + sum(running)

    def _preempt_one_call(self) -> None:
        """Ask a running call to release its permit if a caller with less running time waits.

        The running time of a caller is the total over all its calls.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting_call = self._next()
        requests = [call.preemption_request for call in self._running if call.preemption_request]
        is_permit_about_to_be_free = any(request.done() for request in requests)
        if waiting_call is None or is_permit_about_to_be_free:
            return
        loop = asyncio.get_running_loop()
        running_call = self._first_preemptible(waiting_call)
        if running_call is None or running_call.preemption_time > loop.time():
            # Try again soon, because the running time of the other callers grows.
            self._timer = loop.call_later(MIN_RUN_SECONDS, self._preempt_one_call)
        elif running_call.preemption_request is not None:  # acquire() has set the request
            running_call.preemption_request.set_result(None)

    def _first_preemptible(self, waiting_call: Turn) -> Turn | None:
        """Return the running call that may be stopped first in favour of a waiting call.

        Only the calls of callers with more running time are considered. None if there is no such
        call.
        """
        seconds_of_waiting = self._total_seconds(waiting_call.key)
        calls_of_others = (call for call in self._running if call.key != waiting_call.key)
        busier_calls = [
            call for call in calls_of_others if self._total_seconds(call.key) > seconds_of_waiting
        ]
        return min(busier_calls, key=lambda call: call.preemption_time, default=None)
