"""Waiting in a task: for permits, timeouts, work that must end, and stop requests."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self, TypeVar

from delf.errors import DelfError
from delf.events import StoppedBy
from delf.machine.contexts import without_context
from delf.network.outages import Outage
from delf.protocols.journal import Journal
from delf.protocols.shared_journal import SharedJournal

_log = logging.getLogger(__name__)
# The interval, in seconds, at which the journal is polled for requests to stop tasks.
POLL_SECONDS: Final = 1.0


class Permit:
    """A task's permit to run, out of a limited number; ``async with`` acquires and holds it.

    Args:
        permits: The semaphore that grants the permits in the order of requests.
    """

    of_task: ClassVar[ContextVar[Permit | None]] = ContextVar("permit of a task", default=None)
    """The permit of the task for which code runs, such as the code of a tool."""

    def __init__(self, permits: asyncio.Semaphore) -> None:
        self.permits = permits
        """The semaphore that grants the permits."""
        self._held = False
        # The asyncio tasks of the calls inside of released(). Such a call waits for a person or a
        # child task, or is being cancelled.
        self._calls_in_released: list[asyncio.Task[Any]] = []
        self.is_over = False
        """True after ``async with``: the permit is not needed any more."""
        # The asyncio task that reacquires the permit after a call has waited for a person.
        self._reacquisition: asyncio.Task[None] | None = None
        self.caller: Permit | None = None
        """The permit of the task whose code runs this task and waits for it."""

    @classmethod
    def of_callers(cls) -> Iterator[Permit]:
        """Yield the permit of the task whose code runs now, then the permits of all its callers.

        A task's callers are the task whose code runs this task, the caller of that task, and so on,
        even if they belong to other agents. A task that is over is left out, because such a task
        does not wait any more.
        """
        permit = cls.of_task.get()
        while permit is not None:
            if not permit.is_over:
                yield permit
            permit = permit.caller

    async def __aenter__(self) -> Self:
        await self._acquire()
        self.caller = next(self.of_callers(), None)  # before of_task is set to this permit
        self.of_task.set(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_over = True
        self._release()

    @asynccontextmanager
    async def released(self) -> AsyncGenerator[None]:
        """Release the permit while a call waits for a person or a child task.

        Several calls may be in this block at once. The last call to leave the block waits
        until the task holds the permit again.
        """
        call = asyncio.current_task()
        assert call is not None  # noqa: S101 - asynchronous code runs in asyncio tasks only
        self._calls_in_released.append(call)
        self._release()
        try:
            yield
        finally:
            self._calls_in_released.remove(call)
            if not self._calls_in_released:
                # Begin here, because a cancelled call does not reach the wait below.
                self._begin_reacquisition()
        await self.wait_until_held()  # returns at once while another call waits in this block

    async def wait_until_held(self) -> None:
        """Wait until the task holds its permit again; return at once while a call is in released().

        Call this before heavy work.
        """
        while not (self._held or self.is_over or self._has_waiting_call):
            if self._reacquisition is not None:
                awaited = {self._reacquisition}
            else:
                # All calls in released() are being cancelled: the last one to leave will reacquire
                # the permit.
                awaited = {*self._calls_in_released}
            if not awaited:  # before ``async with``, no permit is held or reacquired
                return
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)

    @property
    def _has_waiting_call(self) -> bool:
        """True while a call is in :meth:`released` and is not being cancelled."""
        return any(not call.cancelling() for call in self._calls_in_released)

    def _begin_reacquisition(self) -> None:
        """Start to reacquire the permit in a separate asyncio task.

        The cancellation of a call does not cancel that asyncio task.
        """
        if not self._held and not self.is_over:
            self._reacquisition = asyncio.create_task(self._acquire())

    async def _acquire(self) -> None:
        await self.permits.acquire()
        self._held = True

    def _release(self) -> None:
        """Give the permit back, or stop its reacquisition."""
        if self._reacquisition is not None:
            # The permit is being reacquired after an earlier call, but the task does not need the
            # permit now: another call begins to wait for a person, or the task is over.
            self._reacquisition.cancel()
            self._reacquisition = None
        if self._held:
            self._held = False
            self.permits.release()


def is_cancelled() -> bool:
    """Return True if the current asyncio task is being cancelled.

    Call this function after a ``CancelledError`` was caught. If the result is False, the awaited
    code itself raised the error.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class TaskClock:
    """A countdown of a task's seconds that can be paused.

    Args:
        seconds: The number of seconds.
        parent: The clock of the parent task, which is paused together with this clock.
        ignores_pauses: Whether to ignore pauses.
    """

    def __init__(
        self, seconds: float, parent: TaskClock | None = None, *, ignores_pauses: bool = False
    ) -> None:
        self.seconds = seconds
        self._ignores_pauses = ignores_pauses
        # The seconds that were left when the timeout was last stopped.
        self._remaining_seconds = seconds
        self._parent = parent
        self._pause_count = 0
        # The timeout of the running wait(), without a deadline during a pause; None while no wait()
        # runs.
        self._timeout: asyncio.Timeout | None = None
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True if the time of this task or of a parent task is up."""
        return self._is_over or self.is_parent_over

    @property
    def is_parent_over(self) -> bool:
        """True if the time of a parent task is up."""
        return self._parent is not None and self._parent.is_over

    @contextmanager
    def paused(self) -> Generator[None]:
        """Pause the clock while the block runs; pauses may overlap."""
        parent_pause = nullcontext() if self._parent is None else self._parent.paused()
        with parent_pause:
            if self._ignores_pauses:
                yield
                return
            self._pause_count += 1
            self._stop_timeout()
            try:
                yield
            finally:
                self._pause_count -= 1
                self._start_timeout()  # no-op while another pause lasts

    async def wait(self, work: asyncio.Future[Any]) -> None:
        """Wait until work is done or the time is up; pauses of the clock do not count.

        If the method is called again, only the seconds that the first call left remain.
        """
        try:
            async with asyncio.timeout(None) as timeout:
                self._timeout = timeout
                self._start_timeout()
                try:
                    await asyncio.wait({work})
                finally:
                    self._stop_timeout()
                    self._timeout = None
        except TimeoutError:
            self._is_over = not work.done()  # the work may have ended just at the timeout

    def _start_timeout(self) -> None:
        """Let the timeout run for the seconds that are left, unless the clock is paused."""
        timeout = self._timeout
        if timeout is not None and not timeout.expired() and not self._pause_count:
            timeout.reschedule(asyncio.get_running_loop().time() + self._remaining_seconds)

    def _stop_timeout(self) -> None:
        """Stop the timeout if it runs, and keep the seconds that are left."""
        timeout = self._timeout
        if timeout is None:
            return
        deadline = timeout.when()
        if deadline is None:  # stopped already
            return
        self._remaining_seconds = deadline - asyncio.get_running_loop().time()
        if not timeout.expired():  # reschedule() raises after the timeout has expired
            timeout.reschedule(None)


def completion(
    work: concurrent.futures.Future[Any], loop: asyncio.AbstractEventLoop
) -> asyncio.Future[None]:
    """Return a future of an event loop that is done when work in another thread is done.

    A cancellation of the returned future does not cancel the work, unlike a cancellation of
    ``asyncio.wrap_future(work)``. ``asyncio.wait({wrap_future(work)})`` keeps the work, too, but
    needs two more iterations of the loop, which slows short functions down.
    """
    end: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not end.done():
            end.set_result(None)

    def wake_loop(_: concurrent.futures.Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(finish)

    work.add_done_callback(wake_loop)
    return end


T = TypeVar("T")


async def await_despite_cancellation(
    work: Awaitable[T], on_failure: Callable[[BaseException], None] | None = None
) -> T:
    """Wait for work to end, even if the wait is cancelled; then raise the cancellation.

    Args:
        work: The work. A cancellation of the wait does not cancel the work.
        on_failure: Receives the work's exception if a cancellation is raised instead; when omitted,
            such an exception is dropped.

    Returns:
        The result of the work.

    Raises:
        asyncio.CancelledError: If the wait was cancelled, even if the work failed.
    """
    # Run the work in its own asyncio task. If the current task is cancelled, the work goes on.
    end = asyncio.ensure_future(work)
    try:
        await asyncio.wait({end})
    except asyncio.CancelledError:
        while not end.done():
            # Ignore further cancellations: the work ends soon.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({end})
        error = None if end.cancelled() else end.exception()
        if error is not None and on_failure is not None:
            on_failure(error)
        raise
    return end.result()


@dataclass(eq=False)
class StoppableWork:
    """The work of a task that a person can stop, and who asked to stop it."""

    work: asyncio.Task[Any]
    is_stop_requested: bool = False
    by: StoppedBy | None = None

    def cancel(self, by: StoppedBy | None) -> None:
        """Cancel the work at a person's request; later requests have no effect."""
        if not self.is_stop_requested:
            self.is_stop_requested = True
            self.by = by
            self.work.cancel()


class Stops:
    """The running tasks of an agent, each of which a person can stop.

    Stop requests of other processes are read from the journal once a second.

    Args:
        journal: The journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal if isinstance(journal, SharedJournal) else None
        self._tasks: dict[str, StoppableWork] = {}
        place = None if self._journal is None else self._journal.place
        self._outage = Outage(_log, "requests to stop tasks cannot be read", place)
        self._next_poll: asyncio.TimerHandle | None = None
        self._polling: asyncio.Task[None] | None = None

    @contextmanager
    def stoppable(self, task_id: str, work: asyncio.Task[Any]) -> Generator[StoppableWork]:
        """Let the work of a task be stopped while the block runs."""
        # One timer polls the journal for all tasks; a timer for each task would multiply the
        # queries.
        stoppable_work = self._tasks[task_id] = StoppableWork(work)
        # A poll in progress starts the next timer itself.
        is_polling = self._polling is not None and not self._polling.done()
        if self._next_poll is None and not is_polling and self._journal is not None:
            self._poll_later(self._journal)
        try:
            yield stoppable_work
        finally:
            del self._tasks[task_id]
            if not self._tasks and self._next_poll is not None:
                self._next_poll.cancel()
                self._next_poll = None

    def stop(self, task_id: str, by: StoppedBy | None) -> bool:
        """Stop a task of this agent at once.

        Returns:
            False if the task does not run in this process.
        """
        work = self._tasks.get(task_id)
        if work is not None:
            work.cancel(by)
        return work is not None

    def author_of(self, task_id: str) -> StoppedBy | None:
        """Return the person who stopped a task; None if nobody did or the person is unknown."""
        work = self._tasks.get(task_id)
        return None if work is None else work.by

    def _poll_later(self, journal: SharedJournal) -> None:
        def poll() -> None:
            self._next_poll = None
            self._polling = asyncio.ensure_future(self._poll(journal))

        loop = asyncio.get_running_loop()
        # Start the timer without the current context variables: they belong to one task, but the
        # timer polls for all tasks.
        self._next_poll = without_context(loop.call_later, POLL_SECONDS, poll)

    async def _poll(self, journal: SharedJournal) -> None:
        """Stop the tasks that other processes asked to stop, and poll again later."""
        stops_by_task: Mapping[str, StoppedBy] = {}
        with self._outage.track(DelfError):  # logs an error; no task is then stopped
            stops_by_task = await journal.asked_to_stop(self._tasks.keys())
        for task_id, stopper in stops_by_task.items():
            self.stop(task_id, stopper)
        if self._tasks:
            self._poll_later(journal)
