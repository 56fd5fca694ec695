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
        # The result and the error. They are not set on the future, so that result() frees them.
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
            # A local variable would keep the function alive as long as its error's traceback.
            self._outcome = (self._take_function()(), None)
        except BaseException as error:
            self._outcome = (None, error)
        self.future.set_result(None)  # result() returns the outcome

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
            # The error's traceback refers to this frame, which must not refer to the error: such a
            # cycle would keep the arguments alive.
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
        job = _Job(partial(copy_context().run, function))
        # This frame would keep the function, and with it the arguments of a cancelled call, alive.
        del function
        self._submit(job)
        self._futures.add(job.future)
        job.future.add_done_callback(self._futures.discard)
        try:
            await _completion(job.future)
        except asyncio.CancelledError:
            has_started = not job.cancel()
            if not has_started or abandoned():
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
            # Otherwise, submit() has queued the job before it failed to start another thread.
            is_queued = not self._closed and "interpreter shutdown" not in str(error)
            # The thread of an earlier job takes the next job from the queue.
            has_thread = bool(self._futures)
            will_run = is_queued and has_thread
            if not will_run:
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
