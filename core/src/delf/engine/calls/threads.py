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
from typing import Any, Final

from delf.protocols.sandbox import GIVEN_UP
from delf.records import dataclass

_End = tuple[Any, BaseException | None]
_STAYS: Final = 0.2
"""Seconds that a companion waits for functions before it ends; Python's own end waits for it."""
_QUICK: Final = 1e-4
"""Seconds that a quick function takes at the most: it needs no thread of its own."""
_AT_ONCE: Final = 5e-4
"""Seconds for which a loop waits in place at the most."""
_TOGETHER: Final = 32
"""The most quick functions that are handed over at once."""


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
    """A thread for quick functions, for which a loop waits in place: a hop there, a hop back."""

    jobs: deque[_Job] = field(default_factory=deque["_Job"])
    job: _Job | None = None
    is_waited_for: bool = False
    # To write into it lets go of the interpreter, which who is woken needs; a lock keeps it.
    pipe: tuple[int, int] = field(default_factory=os.pipe)
    done: threading.Lock = field(default_factory=threading.Lock)
    place: _Place | None = None

    def __del__(self) -> None:
        for end in getattr(self, "pipe", ()):
            os.close(end)


class ToolThreads:
    """Threads that take functions from one line, and one that takes quick functions together.

    Where the last function was quick, those that come in one turn of the loop are handed over
    together, and the loop waits in place for half a millisecond at the most: to put a loop to
    sleep and wake it, or to share the interpreter with another thread, costs more than most
    functions. Those that did not begin meanwhile go to the line, so that a slow one holds up
    nobody. The ends of functions that come while the loop is busy are handed over together.

    Args:
        most: How many run at once, and one more of the quick ones.
    """

    def __init__(self, most: int) -> None:
        self._line = ThreadPoolExecutor(most, thread_name_prefix="delf-tool")
        self._lock = threading.Lock()
        self._closed = False
        self._is_quick = True
        self._companion: _Companion | None = None
        self._has_companion = False
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._ended: dict[asyncio.AbstractEventLoop, deque[_Job]] = {}

    async def run(self, function: Callable[[], Any], *, alone: bool = False) -> Any:
        """Call a function in a thread. Cancelled before it began, it is never called.

        One that has begun cannot be stopped. Where a script gave it up, nobody waits for its
        end any more; else, as where the sandbox is gone, its end is waited for all the same,
        until a second cancellation.

        Args:
            function: Called without arguments; what it raises is raised here.
            alone: Whether a script waits for it and does nothing else, so that no others come.
        """
        if self._closed:
            raise _after_the_end()
        job = _Job(function, asyncio.get_running_loop())
        try:
            if not self._is_quick:
                self._put(job)
            elif alone:
                self._run([job])
            else:
                self._gather(job)
            if job.future is not None:
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

    def _put(self, job: _Job) -> None:
        """Put a function in the line."""
        if job.future is None:
            job.future = job.loop.create_future()
        try:
            self._line.submit(self._work, job)
        except RuntimeError as error:  # closed meanwhile, or no thread can be started
            if self._withdraw(job):
                job.end = None, error
                _settle(job)

    def _gather(self, job: _Job) -> None:
        """Let a function begin with the others of this turn of the loop."""
        job.future = job.loop.create_future()
        gathered = self._gathered.setdefault(job.loop, [])
        gathered.append(job)
        if len(gathered) == 1:
            job.loop.call_soon(self._run_gathered, job.loop)
        elif len(gathered) == _TOGETHER:
            self._run_gathered(job.loop)

    def _run_gathered(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered = self._gathered.pop(loop, ())
        jobs = [job for job in gathered if job.future and not job.future.cancelled()]
        if jobs:
            self._run(jobs)

    def _run(self, jobs: list[_Job]) -> None:
        """Run quick functions; those that have not ended in place have a future."""
        companion = self._take_companion()
        if companion is None:
            for job in jobs:
                self._put(job)
            return
        companion.jobs.extend(jobs)
        companion.is_waited_for = True
        if companion.place is not None:
            companion.place.here()
        os.write(companion.pipe[1], b"\0")
        has_ended, left = companion.done.acquire(timeout=_AT_ONCE), []
        if not has_ended:
            with self._lock:
                has_ended = companion.done.acquire(blocking=False)
                left = [*companion.jobs]
                companion.jobs.clear()
                companion.is_waited_for = has_ended
                if companion.job is not None and companion.job.future is None:
                    companion.job.future = companion.job.loop.create_future()
        if has_ended:
            self._give_back(companion)
        for job in jobs:
            _settle(job)
        for job in left:
            self._put(job)

    def _take_companion(self) -> _Companion | None:
        with self._lock:
            companion, self._companion = self._companion, None
            if companion is not None or self._has_companion or self._closed:
                return companion
            self._has_companion = True
        try:
            companion = _Companion()
            companion.done.acquire()
            threading.Thread(target=self._accompany, args=(companion,), name="delf-tools").start()
        except (OSError, RuntimeError):  # no descriptor or no thread is free: it goes without
            self._has_companion = False
            return None
        return companion

    def _give_back(self, companion: _Companion) -> None:
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
            companion, self._companion = self._companion, None
            if companion is not None:
                os.write(companion.pipe[1], b"\0")
        self._line.shutdown(wait=False, cancel_futures=True)

    def _work(self, job: _Job) -> None:
        end = self._call(job)
        if end is not None:
            self._tell(job, end)

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
            if self._closed and not companion.jobs:
                return
            self._run_all(companion)

    def _run_all(self, companion: _Companion) -> None:
        """Run what a companion was given, up to where its loop takes the rest away."""
        while True:
            with self._lock:
                job = companion.job = companion.jobs.popleft() if companion.jobs else None
                if job is None and companion.is_waited_for:
                    companion.done.release()
                    return
            if job is None:
                self._give_back(companion)
                return
            end = self._call(job)
            with self._lock:
                job.end, is_waited_for = end, companion.is_waited_for
            if end is not None and not is_waited_for:
                self._tell(job, end)

    def _call(self, job: _Job) -> _End | None:
        """How a function ended; None where it was withdrawn."""
        with self._lock:
            function, closed = job.function, self._closed
            job.begun = function is not None
        if function is None:
            return None
        if closed:
            return None, _after_the_end()
        result, error = None, None
        started = time.perf_counter()
        try:
            result = function()
        except BaseException as failure:
            error = failure
        self._is_quick = time.perf_counter() - started < _QUICK
        return result, error

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
            _settle(job)


def _after_the_end() -> RuntimeError:
    return RuntimeError("no function begins after the end")


def _settle(job: _Job) -> None:
    """Let whoever waits for a function that has ended know."""
    if job.end is not None and job.future is not None and not job.future.done():
        job.future.set_result(None)


async def _end_of(job: _Job) -> None:
    """Wait for a function whose future was cancelled."""
    if job.end is None:
        job.future = job.loop.create_future()
        await job.future
