"""Runs plain functions in threads, many of them for the price of few."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from queue import Empty, SimpleQueue
from typing import Any, Final

from delf.protocols.sandbox import GIVEN_UP
from delf.records import dataclass

_End = tuple[Any, BaseException | None]
_STAYS: Final = 0.2
"""Seconds that a thread waits for a function before it ends; Python's own end waits for it."""
_QUICK: Final = 1e-4
"""Seconds that a function may take after which the next one is waited for in place."""
_AT_ONCE: Final = 5e-4
"""Seconds for which a loop waits in place at the most."""


def _held() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True)
class _Job:
    function: Callable[[], Any] | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    begun: bool = False
    end: _End | None = None
    waits: bool = False
    ended: threading.Lock = field(default_factory=_held)


class ToolThreads:
    """Threads that take functions from one line.

    A thread that has nothing to do stays a while, so that a script's next call finds it waiting:
    to have one fetched for each (``run_in_executor``) costs several times as much. The ends of
    functions that come while the loop is busy are handed over together.

    Args:
        most: How many run at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._executor = ThreadPoolExecutor(most, thread_name_prefix="delf-tool")
        self._lock = threading.Lock()
        self._line: SimpleQueue[_Job | None] = SimpleQueue()
        self._working = 0
        self._idle = 0
        self._closed = False
        self._is_quick = False
        self._ended: dict[asyncio.AbstractEventLoop, deque[_Job]] = {}

    async def run(self, function: Callable[[], Any], *, alone: bool = False) -> Any:
        """Call a function in a thread. Cancelled before it began, it is never called.

        One that has begun cannot be stopped. Where a script gave it up, nobody waits for its
        end any more; else, as where the sandbox is gone, its end is waited for all the same,
        until a second cancellation.

        Args:
            function: Called without arguments; what it raises is raised here.
            alone: Whether a script waits for it and does nothing else. Where the last function
                was quick, its end is then waited for in place for half a millisecond: to put a
                loop to sleep and wake it costs more than most functions.
        """
        loop = asyncio.get_running_loop()
        job = _Job(function, loop, loop.create_future(), waits=alone and self._is_quick)
        if self._put(job):
            self._executor.submit(self._work)
        try:
            if not job.waits or not self._ends_at_once(job):
                await job.future
        except asyncio.CancelledError as cancelled:
            if self._withdraw(job) or GIVEN_UP in cancelled.args:
                raise
            await _end_of(job)
        result, error = job.end or (None, None)
        if error is not None:
            try:
                raise error
            finally:
                del error, job  # else the error and this frame would keep each other
        return result

    def _put(self, job: _Job) -> bool:
        """Whether another thread has to come for it.

        One that waits is counted as busy before it wakes, so that it is promised to one job only.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("no function begins after the end")
            self._line.put(job)
            if self._idle:
                self._idle -= 1
                return False
            more = self._working < self._most
            self._working += more
            return more

    def _ends_at_once(self, job: _Job) -> bool:
        """Whether a function has ended before it is worth to do something else meanwhile."""
        if job.ended.acquire(timeout=_AT_ONCE):
            return True
        with self._lock:
            job.waits = False
            return job.end is not None

    def _withdraw(self, job: _Job) -> bool:
        """Whether a function has not begun, so that it never will; nor does it stay in the line."""
        with self._lock:
            if not job.begun:
                job.function = None
            return not job.begun

    def close(self) -> None:
        """Let no function begin any more; those that run are not waited for."""
        with self._lock:
            self._closed = True
            with contextlib.suppress(Empty):
                while True:
                    self._line.get_nowait()
            for _ in range(self._working):
                self._line.put(None)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            with self._lock:
                job.begun, function = job.function is not None, job.function
            if function is None:  # it was withdrawn
                continue
            result, error = None, None
            started = time.perf_counter()
            try:
                result = function()
            except BaseException as failure:
                error = failure
            self._is_quick = time.perf_counter() - started < _QUICK
            self._tell(job, (result, error))
            del job, function, result, error

    def _next(self) -> _Job | None:
        """The next function; None when there is none for a while."""
        try:
            return self._line.get_nowait()
        except Empty:
            pass
        with self._lock:
            self._idle += self._line.empty()
        while True:
            try:
                return self._line.get(timeout=_STAYS)
            except Empty:
                with self._lock:
                    if self._line.empty():
                        self._idle = max(0, self._idle - 1)
                        self._working -= 1
                        return None

    def _tell(self, job: _Job, end: _End) -> None:
        """Let the loop know that a function has ended."""
        with self._lock:
            job.end = end
            if job.waits:
                job.ended.release()
                return
            ended = self._ended.setdefault(job.loop, deque())
            ended.append(job)
            is_first = len(ended) == 1
        if is_first:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                job.loop.call_soon_threadsafe(self._hand_over, job.loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            ended = self._ended.pop(loop, ())
        for job in ended:
            if not job.future.done():
                job.future.set_result(None)


async def _end_of(job: _Job) -> None:
    """Wait for a function whose future was cancelled."""
    if job.end is None:
        job.future = job.loop.create_future()
        await job.future
