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


@dataclass(slots=True)
class _Job:
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[tuple[Any, BaseException | None]]


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
        result, error = await job.future
        if error is not None:
            try:
                raise error
            finally:
                del error, job  # else the error and this frame would keep each other
        return result

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
            if job.future.cancelled():
                continue
            result, error = None, None
            try:
                result = job.function()
            except BaseException as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                job.loop.call_soon_threadsafe(_hand_over, job.future, result, error)
            del job, result, error


def _hand_over(
    future: asyncio.Future[tuple[Any, BaseException | None]],
    result: Any,
    error: BaseException | None,
) -> None:
    if not future.done():
        future.set_result((result, error))
