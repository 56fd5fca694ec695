"""Threads for plain functions, so that no tool blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

_level: ContextVar[int] = ContextVar("level of a tool's function", default=0)


class ToolThreads:
    """A thread pool for functions that would block the event loop.

    A function may run another task of its agent, and wait for it. The functions of that task run in
    a further pool: in the same pool, the functions that wait could hold all threads.

    Args:
        max_threads: The maximum number of functions that run at the same time in each pool.
        levels: The number of further pools.
    """

    def __init__(self, max_threads: int, levels: int) -> None:
        self._inner = ToolThreads(max_threads, levels - 1) if levels else None
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="delf-tool")
        self._calls: set[Future[None]] = set()  # the calls of queued and running functions
        self._closed = False

    async def run(
        self, function: Callable[[], Any], abandoned: Callable[[], bool] = lambda: False
    ) -> Any:
        """Run a function in a thread, in a copy of the current context.

        A thread cannot be stopped. If this method is cancelled while the function runs, it waits
        for the function all the same; only a second cancellation ends the wait.

        Args:
            function: The function, called without arguments. An exception of it is raised here.
            abandoned: Returns True if the script does not wait for the function any more. Then the
                first cancellation ends the wait.

        Raises:
            RuntimeError: After :meth:`close`, at the interpreter's shutdown, or if no thread can be
                started.
        """
        context = copy_context()
        level = context.get(_level, 0)
        context.run(_level.set, level + 1)
        # Has the function; after the run, the result and the error: see _run().
        work: list[Any] = [partial(context.run, function)]
        del function  # its arguments are freed when the function is taken out of ``work``
        call = self.submit(work, level)
        try:
            await _completion(call)
        except asyncio.CancelledError:
            has_started = not call.cancel()
            if not has_started:
                work.clear()  # the queue of the pool keeps the list
            if not has_started or abandoned():
                raise
            await _completion(call)  # a second cancellation is raised here
        if call.cancelled():  # by close()
            raise RuntimeError("the agent was stopped before the function began")
        result, error = work
        # The traceback of the error leads to the thread's frames, and so to this list: a cycle of
        # references would keep the function's arguments alive.
        work.clear()
        if error is None:
            return result
        try:
            raise error
        finally:
            del error  # the traceback leads to this frame, too

    def submit(self, work: list[Any], level: int = 0) -> Future[None]:
        """Queue the function in a list for the threads of a pool; return the future of its end.

        Args:
            work: The list.
            level: The number of functions that wait for this function.

        Raises:
            RuntimeError: If no thread will ever run the function.
        """
        if level and self._inner is not None:
            return self._inner.submit(work, level - 1)
        call: Future[None] = Future()
        try:
            self._pool.submit(_run, work, call)
        except RuntimeError as error:
            # After close() and at the interpreter's shutdown, submit() does not queue the function.
            # Otherwise, submit() has queued the function before it failed to start another thread.
            is_queued = not self._closed and "interpreter shutdown" not in str(error)
            # The thread of an earlier call takes the next function from the queue.
            has_thread = bool(self._calls)
            will_run = is_queued and has_thread
            if not will_run:
                call.cancel()
                work.clear()  # the queue may keep the list
                raise
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

    def close(self) -> None:
        """Cancel queued functions and refuse new ones, without waiting for running functions."""
        self._closed = True
        if self._inner is not None:
            self._inner.close()
        for call in tuple(self._calls):
            call.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _run(work: list[Any], call: Future[None]) -> None:
    """Replace the function in a list by its result and its error, unless its call was cancelled."""
    # The future's own lock decides: either the event loop has cancelled it, or it starts here.
    if not call.set_running_or_notify_cancel():
        return
    try:
        work[:] = [work.pop()(), None]
    except BaseException as error:
        work[:] = [None, error]
    call.set_result(None)


def _completion(call: Future[None]) -> asyncio.Future[None]:
    """Return an asyncio future that is done when the future of a call is done.

    Cancelling the returned future does not cancel the call. ``asyncio.wrap_future`` and
    ``asyncio.wait`` would take two more iterations of the event loop, a third of the time of a
    short function.
    """
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()

    def wake_loop(_: Future[None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(_finish, end)

    call.add_done_callback(wake_loop)
    return end


def _finish(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)
