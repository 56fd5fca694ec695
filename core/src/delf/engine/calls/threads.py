"""Runs plain functions in threads, many of them for the price of few."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
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
"""Seconds that a quick function takes at the most: it needs no thread of its own."""
_AT_ONCE: Final = 5e-4
"""Seconds for which a loop waits in place at the most."""
_LOOKS: Final = 1e-3
"""Seconds after which it is seen whether functions get on that were left to threads at work."""


@dataclass(slots=True)
class _Job:
    function: Callable[[], Any] | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None] | None = None
    begun: bool = False
    end: _End | None = None


class _Place:
    """Lets the thread that makes it be woken on the processor of whoever wakes it.

    The kernel would rather wake another processor, which takes longer than most functions. Once
    the thread is awake, it may run anywhere. An error says that the system lacks this.
    """

    def __init__(self) -> None:
        import ctypes

        self._thread = threading.get_native_id()
        self._everywhere = os.sched_getaffinity(0)
        self._processor = ctypes.PyDLL(None).sched_getcpu

    def here(self) -> None:
        """For whoever wakes it."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self._thread, {self._processor()})

    def anywhere(self) -> None:
        """For the thread itself, awake."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self._everywhere)


@dataclass(slots=True)
class _Companion:
    """A thread for the one function that a loop waits for in place: a hop there, a hop back."""

    job: _Job | None = None
    # To write into it lets go of the interpreter, which who is woken needs; a lock keeps it.
    pipe: tuple[int, int] = field(default_factory=os.pipe)
    done: threading.Lock = field(default_factory=threading.Lock)
    place: _Place | None = None

    def __del__(self) -> None:
        for end in self.pipe:
            os.close(end)


class ToolThreads:
    """Threads that take functions from one line.

    A thread that has nothing to do stays a while, so that a script's next call finds it waiting:
    to have one fetched for each (``run_in_executor``) costs several times as much. Quick functions
    are left to the threads that are at work, and others come when these do not get on. The ends of
    functions that come while the loop is busy are handed over together.

    Args:
        most: How many run at once, and one more for a script that waits.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._executor = ThreadPoolExecutor(most + 1, thread_name_prefix="delf-tool")
        self._lock = threading.Lock()
        self._line: SimpleQueue[_Job | None] = SimpleQueue()
        self._working = 0
        self._idle = 0
        self._taken = 0
        self._watching = False
        self._closed = False
        self._is_quick = True
        self._companion: _Companion | None = None
        self._has_companion = False
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
        job = _Job(function, asyncio.get_running_loop())
        try:
            if not (alone and self._is_quick and self._ends_at_once(job)):
                await (job.future or self._put(job))
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

    def _put(self, job: _Job) -> asyncio.Future[None]:
        """Put a function in the line.

        A thread that waits is counted as busy before it wakes, so that it is promised to one
        function only.
        """
        job.future = job.loop.create_future()
        with self._lock:
            if self._closed:
                raise RuntimeError("no function begins after the end")
            self._line.put(job)
            if self._idle:
                self._idle -= 1
                return job.future
            more = self._working < self._most and not (self._is_quick and self._working)
            self._working += more
            watch = not more and not self._watching
            self._watching |= watch
        if more:
            self._executor.submit(self._work)
        if watch:
            job.loop.call_later(_LOOKS, self._look, job.loop, self._taken)
        return job.future

    def _look(self, loop: asyncio.AbstractEventLoop, taken: int) -> None:
        """Let more threads come where those at work hold up the line."""
        with self._lock:
            waiting = self._line.qsize()
            is_held_up = (self._taken - taken) * _QUICK < self._working * _LOOKS
            more = min(waiting, self._most - self._working) if is_held_up else 0
            more = 0 if self._closed else more
            self._working += more
            self._watching = waiting > 0
        for _ in range(more):
            self._executor.submit(self._work)
        if waiting:
            loop.call_later(_LOOKS, self._look, loop, self._taken)

    def _ends_at_once(self, job: _Job) -> bool:
        """Whether a function has ended before it is worth to do something else meanwhile.

        Where it has not, it has a future if it is in a thread already.
        """
        companion = self._take_companion()
        if companion is None:
            return False
        companion.job = job
        if companion.place is not None:
            companion.place.here()
        os.write(companion.pipe[1], b"\0")
        if not companion.done.acquire(timeout=_AT_ONCE):
            with self._lock:
                if job.end is None:
                    job.future = job.loop.create_future()
                    return False
            companion.done.acquire()
        self._give_back(companion)
        return True

    def _take_companion(self) -> _Companion | None:
        with self._lock:
            companion, self._companion = self._companion, None
            if companion is not None or self._has_companion or self._closed:
                return companion
            self._has_companion = True
        companion = _Companion()
        companion.done.acquire()
        self._executor.submit(self._accompany, companion)
        return companion

    def _give_back(self, companion: _Companion) -> None:
        companion.job = None
        with self._lock:
            if self._closed:
                os.write(companion.pipe[1], b"\0")
            else:
                self._companion = companion

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
            companion, self._companion = self._companion, None
            if companion is not None:
                os.write(companion.pipe[1], b"\0")
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            end = self._call(job)
            if end is not None:
                self._tell(job, end)
            del job, end

    def _accompany(self, companion: _Companion) -> None:
        with contextlib.suppress(AttributeError, ImportError, OSError):
            companion.place = _Place()
        woken = select.poll()
        woken.register(companion.pipe[0], select.POLLIN)
        while True:
            if not woken.poll(_STAYS * 1000):
                with self._lock:
                    if self._companion is companion:
                        self._companion, self._has_companion = None, False
                        return
                woken.poll()  # it was taken just now
            os.read(companion.pipe[0], 1)
            if companion.place is not None:
                companion.place.anywhere()
            job = companion.job
            if job is None:
                return
            end = self._call(job)
            with self._lock:
                job.end, future = end, job.future
            if future is None:
                companion.done.release()
            else:
                if end is not None:
                    self._tell(job, end)
                self._give_back(companion)
            del job, end, future

    def _call(self, job: _Job) -> _End | None:
        """How a function ended; None where it was withdrawn."""
        with self._lock:
            self._taken += 1
            job.begun, function = job.function is not None, job.function
        if function is None:
            return None
        result, error = None, None
        started = time.perf_counter()
        try:
            result = function()
        except BaseException as failure:
            error = failure
        self._is_quick = time.perf_counter() - started < _QUICK
        return result, error

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
            if job.future is not None and not job.future.done():
                job.future.set_result(None)


async def _end_of(job: _Job) -> None:
    """Wait for a function whose future was cancelled."""
    if job.end is None:
        job.future = job.loop.create_future()
        await job.future
