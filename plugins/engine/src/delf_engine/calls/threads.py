"""Runs plain functions in threads, so that none of them holds up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

Ended = tuple[Any, BaseException | None]


class ToolThreads:
    """Worker threads with one queue of functions.

    Args:
        most: The most functions that run at once.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="delf-tool")
        self._jobs: set[Future[Ended]] = set()
        self._closed = False

    async def run(
        self, function: Callable[[], Any], abandoned: Callable[[], bool] = lambda: False
    ) -> Any:
        """Call a function in a thread, in a copy of this context.

        A function that is cancelled before it began is never called.

        A function that has begun cannot be stopped. Its end is awaited, until a second
        cancellation.

        Args:
            function: Called without arguments; its exception is raised here.
            abandoned: Returns whether the script stopped waiting: then nobody waits for the
                function's end after a cancellation.

        Raises:
            RuntimeError: After :meth:`close`, and when no thread can be started and none runs.
        """
        # Until it is called or withdrawn: the pool keeps what it has not begun.
        held: list[Callable[[], Any]] = [partial(copy_context().run, function)]
        del function
        job: Future[Ended] = Future()
        try:
            self._pool.submit(_call, job, held)
        except RuntimeError:  # where no thread can be started, those that run come to it
            if self._closed or not self._jobs:
                held.clear()
                raise
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        ended = asyncio.wrap_future(job)
        try:
            await asyncio.wait({ended})
        except asyncio.CancelledError:
            if job.cancel():
                held.clear()
                raise
            if abandoned():
                raise
            await asyncio.wait({ended})
        if ended.cancelled():
            raise RuntimeError("the agent was stopped before the function began")
        result, error = ended.result()
        if error is not None:
            try:
                raise error
            finally:
                del error, ended, job  # else the error and this frame would keep each other
        return result

    def close(self) -> None:
        """Start no further function; running functions are not awaited."""
        self._closed = True
        for job in tuple(self._jobs):
            job.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call(job: Future[Ended], held: list[Callable[[], Any]]) -> None:
    """Call a function unless it was withdrawn, passing every kind of failure to its future."""
    if not job.set_running_or_notify_cancel():
        return
    try:
        job.set_result((held.pop()(), None))
    except BaseException as error:
        job.set_result((None, error))
