"""Threads for plain functions, so that no tool blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

from delf_engine.waiting import completion

_level: ContextVar[int] = ContextVar("level of a tool's function", default=0)


class ToolThreads:
    """Thread pools for functions that would block the event loop.

    A function may run another task of its agent, and wait for that task. The functions of that task
    run in a further pool: in the same pool, waiting functions could hold all threads, so that no
    function could go on.

    Args:
        max_threads: The maximum number of functions that run at the same time in each pool.
        inner_levels: The number of further pools, one for each level of such tasks.
    """

    def __init__(self, max_threads: int, inner_levels: int) -> None:
        # Runs the functions of tasks for which functions of this pool wait, as the class describes.
        self._inner = ToolThreads(max_threads, inner_levels - 1) if inner_levels else None
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="delf-tool")
        self._futures: set[Future[Any]] = set()  # of the queued and running functions
        self._closed = False

    async def run(
        self, function: Callable[[], Any], abandoned: Callable[[], bool] = lambda: False
    ) -> Any:
        """Run a function in a thread, in a copy of the current context.

        A thread cannot be stopped. If this method is cancelled while the function runs, it waits
        for the function all the same; only a second cancellation ends the wait.

        Args:
            function: Called without arguments. An exception of the function is raised here.
            abandoned: Returns True if the script does not wait for the function any more. Then the
                first cancellation ends the wait.

        Raises:
            RuntimeError: After :meth:`close`, at the interpreter's shutdown, or if no thread can be
                started.
        """
        context = copy_context()
        # The number of functions that wait for this function, directly or through tasks. The
        # function runs in the pool of this level.
        level = context.get(_level, 0)
        context.run(_level.set, level + 1)
        future = self.submit(partial(context.run, function), level)
        loop = asyncio.get_running_loop()
        try:
            await completion(future, loop)
        except asyncio.CancelledError:
            was_waiting = future.cancel()  # False if a thread has begun the function
            if was_waiting or abandoned():
                raise
            # The result is returned despite the cancellation, so that the journal gets the outcome
            # of the call. A second cancellation is raised here.
            await completion(future, loop)
        if future.cancelled():  # by close()
            raise RuntimeError("the agent was stopped before the function began")
        try:
            return future.result()
        finally:
            # The traceback of an error refers to this frame, and the future refers to the error.
            # Without ``del``, this cycle would keep large arguments in memory until a garbage
            # collection.
            del future

    def submit(self, function: Callable[[], Any], level: int) -> Future[Any]:
        """Queue a function for the threads of a pool; return the future of its result.

        Args:
            function: The function, called without arguments.
            level: The number of the pool: 0 for this pool, 1 for the first further pool.

        Raises:
            RuntimeError: If no thread will ever run the function.
        """
        if level and self._inner is not None:
            return self._inner.submit(function, level - 1)
        # Do not rely on the future of the pool's submit(). If submit() has queued the function but
        # cannot start another thread, it raises an error, and returns no future.
        future: Future[Any] = Future()
        try:
            self._pool.submit(_run, function, [future])
        except RuntimeError as error:
            # After close() and at the interpreter's shutdown, submit() queues nothing.
            is_queued = not self._closed and "interpreter shutdown" not in str(error)
            # The thread of an earlier function takes the next function from the queue.
            has_thread = bool(self._futures)
            will_run = is_queued and has_thread
            if not will_run:
                future.cancel()
                raise
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def close(self) -> None:
        """Cancel queued functions and refuse new ones, without waiting for running functions."""
        self._closed = True
        if self._inner is not None:
            self._inner.close()
        for future in tuple(self._futures):
            future.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _run(function: Callable[[], Any], futures: list[Future[Any]]) -> None:
    """Call a function; store its result or error in a future, unless the future was cancelled.

    Args:
        function: The function.
        futures: A list with the future as its only item, which is taken out of the list.
    """
    # An error refers to this frame and to the caller's frame, and the future refers to the error.
    # If a frame still referred to the future, this cycle would keep large arguments in memory. So
    # the caller passes a list, which is emptied here, and ``future`` is deleted below.
    future = futures.pop()
    # The event loop may cancel the future at this moment: the future's own lock decides who is
    # first.
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
        del future
    else:
        future.set_result(result)
