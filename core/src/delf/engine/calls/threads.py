"""Runs plain functions in threads, many of them for the price of few."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from delf.protocols.sandbox import GIVEN_UP

_End = tuple[Any, BaseException | None]


@dataclass(slots=True)
class _Job:
    function: Callable[[], Any] | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[_End]
    begun: bool = False
    end: _End | None = None


class ToolThreads:
    """Threads that take functions from one line; each stays for as long as there are any.

    A thread for a function of its own (``run_in_executor``) costs twice as much.

    Args:
        most: How many run at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._executor = ThreadPoolExecutor(most, thread_name_prefix="delf-tool")
        self._lock = threading.Lock()
        self._line: deque[_Job] = deque()
        self._working = 0

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call a function in a thread. Cancelled before it began, it is never called.

        One that has begun cannot be stopped. Where a script gave it up, nobody waits for its
        end any more; else, as where the sandbox is gone, its end is waited for all the same,
        until a second cancellation.

        Args:
            function: Called without arguments; what it raises is raised here.
        """
        loop = asyncio.get_running_loop()
        job = _Job(function, loop, loop.create_future())
        with self._lock:
            self._line.append(job)
            more = self._working < self._most
            self._working += more
        if more:
            self._executor.submit(self._work)
        try:
            result, error = await job.future
        except asyncio.CancelledError as cancelled:
            if self._withdraw(job) or GIVEN_UP in cancelled.args:
                raise
            result, error = await _end_of(job)
        if error is not None:
            try:
                raise error
            finally:
                del error, job  # else the error and this frame would keep each other
        return result

    def _withdraw(self, job: _Job) -> bool:
        """Whether a function has not begun, so that it never will; nor does it stay in the line."""
        with self._lock:
            if not job.begun:
                job.function = None
            return not job.begun

    def close(self) -> None:
        """Let no function begin any more; those that run are not waited for."""
        with self._lock:
            self._line.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._line:
                    self._working -= 1
                    return
                job = self._line.popleft()
                if job.function is None:  # it was withdrawn
                    continue
                job.begun, function = True, job.function
            result, error = None, None
            try:
                result = function()
            except BaseException as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                job.loop.call_soon_threadsafe(_hand_over, job, (result, error))
            del job, function, result, error


async def _end_of(job: _Job) -> _End:
    """The end of a function whose future was cancelled."""
    if job.end is None:
        job.future = job.loop.create_future()
        return await job.future
    return job.end


def _hand_over(job: _Job, end: _End) -> None:
    job.end = end
    if not job.future.done():
        job.future.set_result(end)
