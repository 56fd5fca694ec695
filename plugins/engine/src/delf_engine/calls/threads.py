"""Threads for plain functions, so that no tool blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

Ended = tuple[Any, BaseException | None]


class ToolThreads:
    """A thread pool for functions that would block the event loop.

    Args:
        max_threads: The maximum number of functions that run at the same time.
    """

    def __init__(self, max_threads: int) -> None:
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="delf-tool")
        self._jobs: set[Future[Ended]] = set()  # queued or running
        self._closed = False

    async def run(
        self, function: Callable[[], Any], abandoned: Callable[[], bool] = lambda: False
    ) -> Any:
        """Run a function in a thread, in a copy of the current context.

        A function that is cancelled before its start is never called.

        A started function cannot be stopped. A first cancellation therefore waits for the
        function's end; a second cancellation does not wait.

        Args:
            function: The function, called without arguments. An exception of it is raised here.
            abandoned: Returns True if the script has stopped waiting for the function; a
                cancellation then does not wait either.

        Raises:
            RuntimeError: After :meth:`close`, at the interpreter's shutdown, or if no thread can be
                started.
        """
        # The pool keeps a cancelled job in its queue. The function is therefore put in a list: the
        # list is cleared at the cancellation, which frees the function and its arguments.
        pending_work: list[Callable[[], Any]] = [partial(copy_context().run, function)]
        # This frame would keep the function, and with it the arguments of a cancelled call, alive.
        del function
        job: Future[Ended] = Future()
        self._submit(job, pending_work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        try:
            await _completion(job)
        except asyncio.CancelledError:
            # Only a job that has not begun can be cancelled; then the tool is certainly not called.
            if job.cancel():
                pending_work.clear()
                raise
            if abandoned():
                raise
            # The function goes on, so its result is returned in spite of the cancellation. A second
            # cancellation ends this wait, too.
            await _completion(job)
        if job.cancelled():  # by close()
            raise RuntimeError("the agent was stopped before the function began")
        result, error = job.result()
        if error is not None:
            try:
                raise error
            finally:
                del error, job  # breaks the reference cycle of the error and this frame
        return result

    def _submit(self, job: Future[Ended], pending_work: list[Callable[[], Any]]) -> None:
        """Queue a job for the pool's threads.

        Args:
            job: The job.
            pending_work: A list with the function as its only item, from which the thread takes it.

        Raises:
            RuntimeError: If no thread will ever run the job.
        """
        try:
            self._pool.submit(_run_job, job, pending_work)
        except RuntimeError as error:
            # After close() and at the interpreter's shutdown, submit() does not queue the job.
            is_refused = self._closed or "interpreter shutdown" in str(error)
            # Otherwise submit() has queued the job before it failed to start a new thread. If the
            # pool has earlier jobs, one of their threads takes this job from the queue later.
            has_thread = bool(self._jobs)
            if is_refused or not has_thread:
                # The function will never run. The queue still refers to the list: an empty list
                # does not keep the function and its arguments in memory.
                pending_work.clear()
                raise

    def close(self) -> None:
        """Cancel queued functions and refuse new ones, without waiting for running functions."""
        self._closed = True
        for job in tuple(self._jobs):
            job.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _completion(job: Future[Ended]) -> asyncio.Future[None]:
    """Return an asyncio future that is done when a job is done.

    Cancelling the returned future does not cancel the job. ``asyncio.wrap_future`` and
    ``asyncio.wait`` would take two more iterations of the event loop, a third of the time of a
    short function.
    """
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()

    def wake_loop(_job: Future[Ended]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(_finish, end)

    job.add_done_callback(wake_loop)
    return end


def _finish(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)


def _run_job(job: Future[Ended], pending_work: list[Callable[[], Any]]) -> None:
    """Run a queued function in a pool thread, and store the outcome in its job.

    The outcome is a pair of the result and None, or of None and the exception. A job that was
    cancelled before is skipped.

    Args:
        job: The job, which receives the outcome.
        pending_work: A list with the function as its only item. The item is removed, so that the
            function and its arguments are freed as soon as the call ends.
    """
    # The job's own lock decides: either the event loop has cancelled the job, or it starts here.
    is_cancelled = not job.set_running_or_notify_cancel()
    if is_cancelled:
        return
    try:
        job.set_result((pending_work.pop()(), None))
    except BaseException as error:
        job.set_result((None, error))
