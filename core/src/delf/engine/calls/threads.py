"""Runs plain functions in threads, so that none of them holds up the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_Ended = asyncio.Future[tuple[Any, BaseException | None]]


class _Job:
    """A function that is called once, in a thread, unless it is withdrawn before."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._lock = threading.Lock()

    def withdraw(self) -> bool:
        """Tell whether it has not begun, so that it never will; nor is it kept while it waits."""
        with self._lock:
            withdrawn, self._function = self._function is not None, None
        return withdrawn

    def call(self) -> tuple[Any, BaseException | None]:
        """Its result or its failure; a future would not take every kind of failure."""
        with self._lock:
            function, self._function = self._function, None
        if function is None:
            return None, None
        try:
            return function(), None
        except BaseException as error:
            return None, error


class ToolThreads:
    """Threads that take functions from one line.

    Args:
        most: The most functions that run at once.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="delf-tool")
        self._begun: set[_Ended] = set()
        self._closed = False

    async def run(
        self, function: Callable[[], Any], given_up: Callable[[], bool] = lambda: False
    ) -> Any:
        """Call a function in a thread. Cancelled before it began, it is never called.

        One that has begun cannot be stopped. Its end is waited for, until a second cancellation.

        Args:
            function: Called without arguments; what it raises is raised here.
            given_up: Returns whether the script does not wait for it: then nobody waits for its
                end after a cancellation.

        Raises:
            RuntimeError: After :meth:`close`, and when no thread can be started and none runs.
        """
        job, ended = await self._begin(function)
        del function  # the job alone keeps it, and lets it go
        self._begun.add(ended)
        ended.add_done_callback(self._begun.discard)
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            if job.withdraw() or given_up():
                raise
            await asyncio.wait({ended})
        if ended.cancelled():
            raise RuntimeError("the agent was stopped before the function began")
        result, error = ended.result()
        if error is not None:
            try:
                raise error
            finally:
                del error, ended  # else the error and this frame would keep each other
        return result

    async def _begin(self, function: Callable[[], Any]) -> tuple[_Job, _Ended]:
        """Hand a function in; where no thread can be started it waits for one that ends."""
        while True:
            job = _Job(function)
            try:
                return job, asyncio.wrap_future(self._pool.submit(job.call))
            except RuntimeError:
                job.withdraw()
                if self._closed or not self._begun:
                    raise
            await asyncio.wait(self._begun, return_when=asyncio.FIRST_COMPLETED)

    def close(self) -> None:
        """Let no function begin any more; those that run are not waited for."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
