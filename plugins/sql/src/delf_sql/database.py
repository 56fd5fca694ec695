"""Statements in threads, with limited concurrency and a timeout for each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from delf.errors import DelfError
from delf_sql.failures import unavailable_error

if TYPE_CHECKING:
    from delf_sql.backends import Backend

log = logging.getLogger(__name__)

T = TypeVar("T")

STOP_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.2


class LostError(TimeoutError):
    """A statement did not end in time, and its outcome is unknown."""


class _Job:
    """A statement that runs in a thread, and whether a caller still waits for its result.

    Args:
        seconds: The seconds from the start of the statement to the caller's deadline.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = asyncio.timeout(None)  # starts when the job has a session
        self._seconds = seconds
        self.lock = threading.Lock()
        self.session: Any = None
        self.is_awaited = True

    async def wait(self, future: Future[T]) -> T:
        """Return the statement's result; raise TimeoutError after the deadline."""
        try:
            async with self._deadline:
                return await asyncio.wrap_future(future)
        finally:
            self.is_awaited = False

    def start_deadline(self) -> None:
        """Start the caller's timeout. Call this in the worker thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            self._loop.call_soon_threadsafe(self._reschedule_deadline)

    def _reschedule_deadline(self) -> None:
        if self.is_awaited:
            self._deadline.reschedule(self._loop.time() + self._seconds)


class Database:
    """A database with its pool of sessions. Each statement gets a clean session.

    Args:
        backend: The backend.
        size: The maximum number of concurrent reads, and the maximum number of concurrent writes.
        timeout: Seconds for each statement.
    """

    def __init__(self, backend: Backend, size: int, timeout: float) -> None:
        self._backend = backend
        self._size = 1 if backend.one_at_a_time else size
        # Some databases end a statement themselves after the timeout. The backend's grace gives
        # them time for this, before the statement is stopped from here.
        self._seconds = timeout + backend.grace
        self._executors: dict[Literal["read", "write"], ThreadPoolExecutor] = {}

    async def run(self, work: Callable[[Any], T], *, read_only: bool) -> T:
        """Run a function with a session in a thread. Uncommitted changes are rolled back.

        Raises:
            ConnectionUnavailableError: If the database does not answer.
            TimeoutError: If the statement exceeded its timeout and was stopped.
            LostError: If the outcome is unknown after the timeout, because the statement could not
                be stopped, or because the connection to the database was lost.
        """
        job = _Job(self._seconds)
        # The work gets the ContextVars of the caller, for example the notes of the call.
        run = copy_context().run
        future = self._executor(read_only).submit(run, self._open_and_work, job, work, read_only)
        # In the two handlers, shield() lets the stopping go on if this task is cancelled again.
        try:
            return await job.wait(future)
        except asyncio.CancelledError:
            await asyncio.shield(self._stop(future, job, read_only))
            raise
        except TimeoutError:  # of the deadline, or raised by the work itself
            was_stopped = await asyncio.shield(self._stop(future, job, read_only))
            is_outcome_unknown = not was_stopped or self._has_lost_connection(future)
            if is_outcome_unknown:
                raise LostError from None
            was_completed_before_stop = future.exception() is None
            if was_completed_before_stop:
                return future.result()
            raise

    def _has_lost_connection(self, ended: Future[Any]) -> bool:
        failure = ended.exception()
        problem = None if failure is None else self._backend.explain(failure)
        return problem is not None and problem.is_connection_lost

    def _open_and_work(self, job: _Job, work: Callable[[Any], T], read_only: bool) -> T:
        """Open a session, and do a job's work in the session. Call this in a worker thread."""
        with contextlib.ExitStack() as stack:
            try:
                session = stack.enter_context(self._backend.session(read_only=read_only))
            except DelfError:
                raise
            except Exception as error:
                problem = unavailable_error(error, self._backend)
            else:
                return self._with_session(job, session, work)
        # Outside of the except block, so that the traceback does not show the driver's exception.
        raise problem

    def _with_session(self, job: _Job, session: Any, work: Callable[[Any], T]) -> T:
        """Run a job's work with a session. Raise TimeoutError if nobody awaits the job any more.

        If the job was given up during its work, discard the session.
        """
        with job.lock:
            if not job.is_awaited:  # cancelled while the job waited for a session
                raise TimeoutError
            job.session = session
        job.start_deadline()
        try:
            return work(session)
        finally:
            # With the lock, _interrupt() cannot stop a session that another statement already uses.
            with job.lock:
                job.session = None
            if not job.is_awaited:  # an interrupt may have come, and may break the next statement
                self._backend.discard(session)

    async def _stop(self, future: Future[Any], job: _Job, read_only: bool) -> bool:
        """Stop a statement in the database, which frees its thread.

        Returns:
            False if the statement could not be stopped.
        """
        if future.cancel() or future.done():
            return True
        finished = asyncio.wrap_future(future)
        # Retrieve the exception, because asyncio logs an exception that was never retrieved.
        finished.add_done_callback(lambda result: result.cancelled() or result.exception())
        try:
            async with asyncio.timeout(STOP_SECONDS):
                # Interrupt again and again: an interrupt between two statements has no effect.
                while not future.done():
                    await asyncio.to_thread(self._interrupt, job)
                    await asyncio.wait([finished], timeout=_AGAIN_SECONDS)
        except Exception as error:
            log.warning("could not stop a statement: %s", type(error).__name__)
            executor = self._executors.pop(self._executor_key(read_only), None)
            if executor is not None:
                executor.shutdown(wait=False)  # its thread may hang forever
            await asyncio.to_thread(self._backend.dispose)
            return False
        return True

    def _interrupt(self, job: _Job) -> None:
        with job.lock:
            if job.session is not None:
                self._backend.stop(job.session)

    def _executor_key(self, read_only: bool) -> Literal["read", "write"]:
        """Return the key of a statement's executor in ``self._executors``."""
        # If only one statement may run at a time, writes share the single thread of the reads.
        shares_thread = self._backend.one_at_a_time
        return "read" if read_only or shares_thread else "write"

    def _executor(self, read_only: bool) -> ThreadPoolExecutor:
        key = self._executor_key(read_only)
        if key not in self._executors:
            self._executors[key] = ThreadPoolExecutor(self._size, thread_name_prefix="delf-sql")
        return self._executors[key]

    async def aclose(self) -> None:
        """Close all connections. The next statement opens new sessions."""
        executors = list(self._executors.values())
        self._executors = {}
        await asyncio.to_thread(self._backend.dispose)
        for executor in executors:
            executor.shutdown(wait=False)
