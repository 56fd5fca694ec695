"""Threads for plain functions, so that no tool blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any


class _Job:
    """A function that waits for a thread or runs in it.

    Args:
        function: The function. The job frees it, with its arguments, when it ends or is cancelled.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._outcome: tuple[Any, BaseException | None] = (None, None)
        self.future: Future[None] = Future()
        """Done when the function has ended or was cancelled before its start."""

    def cancel(self) -> bool:
        """Cancel the function unless it has started; return whether it never starts."""
        is_cancelled = self.future.cancel()
        if is_cancelled:
            self._function = None
        return is_cancelled

    def run(self) -> None:
        """Run the function in the current thread, unless it was cancelled."""
        # The future's own lock decides: either the event loop has cancelled it, or it starts here.
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self._outcome = (self._take_function()(), None)
        except BaseException as error:
            self._outcome = (None, error)
        self.future.set_result(None)

    def _take_function(self) -> Callable[[], Any]:
        """Return the function, so that only its caller keeps it alive."""
        function, self._function = self._function, None
        assert function is not None  # noqa: S101 - a job that has started was not cancelled
        return function

    def result(self) -> Any:
        """Return the function's result or raise its exception; call this once, after the end."""
        result, error = self._outcome
        self._outcome = (None, None)
        if error is None:
            return result
        try:
            raise error
        finally:
            # The error refers to this frame and to the job, which must not refer to the error.
            del error


class ToolThreads:
    """A thread pool for functions that would block the event loop.

    Args:
        max_threads: The maximum number of functions that run at the same time.
    """

    def __init__(self, max_threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="delf-tool")
        self._futures: set[Future[None]] = set()  # those of queued and running jobs
        self._closed = False

    async def run(
        self, function: Callable[[], Any], abandoned: Callable[[], bool] = lambda: False
    ) -> Any:
        """Run a function in a thread, in a copy of the current context.

        A function that is cancelled before its start is never called. The first cancellation of a
        started function has no effect, because a thread cannot be stopped; a second cancellation
        abandons the function.

        Args:
            function: The function, called without arguments. An exception of it is raised here.
            abandoned: Returns True if the script has stopped waiting for the function; the first
                cancellation then abandons the function.

        Raises:
            RuntimeError: After :meth:`close`, at the interpreter's shutdown, or if no thread can be
                started.
        """
        job = _Job(partial(copy_context().run, function))
        # This frame would keep the function, and with it the arguments of a cancelled call, alive.
        del function
        self._submit(job)
        self._futures.add(job.future)
        job.future.add_done_callback(self._futures.discard)
        try:
            await _completion(job.future)
        except asyncio.CancelledError:
            never_starts = job.cancel()
            if never_starts or abandoned():
                raise
            await _completion(job.future)  # a second cancellation is raised here
        if job.future.cancelled():  # by close()
            raise RuntimeError("the agent was stopped before the function began")
        return job.result()

    def _submit(self, job: _Job) -> None:
        """Queue a job for the pool's threads.

        Raises:
            RuntimeError: If no thread will ever run the job.
        """
        try:
            self._pool.submit(job.run)
        except RuntimeError as error:
            # After close() and at the interpreter's shutdown, submit() does not queue the job.
            is_refused = self._closed or "interpreter shutdown" in str(error)
            # Otherwise submit() has queued the job before it failed to start a new thread. If the
            # pool has earlier jobs, one of their threads takes this job from the queue later.
            has_thread = bool(self._futures)
            if is_refused or not has_thread:
                job.cancel()  # frees the function, because the queue may keep the job
                raise

    def close(self) -> None:
        """Cancel queued functions and refuse new ones, without waiting for running functions."""
        self._closed = True
        for future in tuple(self._futures):
            future.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _completion(future: Future[None]) -> asyncio.Future[None]:
    """Return an asyncio future that is done when the future of a job is done.

    Cancelling the returned future does not cancel the job. ``asyncio.wrap_future`` and
    ``asyncio.wait`` would take two more iterations of the event loop, a third of the time of a
    short function.
    """
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()

    def wake_loop(_: Future[None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(_finish, end)

    future.add_done_callback(wake_loop)
    return end


def _finish(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)
