"""Background tasks: submitted, then polled, awaited or cancelled by id."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, get_args

from delf.errors import ConfigurationError, TaskStoppedError
from delf.machine.forks import reset_in_forks
from delf.records import dataclass
from delf.types import TaskState
from delf_engine.elsewhere import wait_for_end
from delf_engine.response import Response, past_response
from delf_engine.task import TaskRequest
from delf_engine.views.snapshot import snapshot
from delf_engine.waiting import completion

if TYPE_CHECKING:
    from delf.events import Event
    from delf_engine.runtime import Runtime
    from delf_engine.views.records import StreamEvent
    from delf_engine.views.snapshot import StreamSnapshot


Granularity = Literal["event", "token"]
_GRANULARITIES: Final[tuple[str, ...]] = get_args(Granularity)


async def response_at_end(
    runtime: Runtime, task_id: str, timeout: float | None, task: BackgroundTask | None
) -> Response:
    """Return the response of a finished task, waiting for its end if needed.

    Args:
        runtime: The runtime.
        task_id: The id of the task.
        timeout: The maximum wait in seconds; None to wait forever.
        task: The task, if this process runs it; otherwise its response is read from the journal.

    Raises:
        TimeoutError: If the task does not end in time.
        TaskStoppedError: If the task of this process was stopped.
        UnknownTaskError: If the journal does not have the task.
    """
    # A tool of a running task may wait here. Its task gives up the permit meanwhile, because the
    # awaited task may need the permit to start.
    async with runtime.permit_of_caller_released():
        if task is not None:
            return await task.await_end(timeout)
        try:
            async with asyncio.timeout(timeout):
                events, end = await wait_for_end(runtime.journal, task_id)
        except TimeoutError:
            raise TimeoutError(f"task {task_id} has not ended within {timeout} s") from None
    return past_response(events, end)


MAX_FINISHED_TASKS: Final = 1000
"""The maximum number of finished tasks that an agent keeps for ``poll``."""


@dataclass(frozen=True)
class BackgroundTask:
    """A task that runs in the background, with its events and its response.

    Args:
        task_id: The id of the task.
        events: The events so far, in order, from the submission on; the list grows.
        outcome: A future of the response.
    """

    task_id: str
    events: list[Event]
    outcome: Future[Response]

    def snapshot(self) -> StreamSnapshot:
        """Return a snapshot of the task; thread-safe."""
        # Read this before the events: if the task is over, ``self.events`` then has all its events.
        is_over = self.outcome.done()
        # A task that is over without an end event counts as interrupted.
        progress: StreamSnapshot = snapshot(tuple(self.events), interrupted=is_over)
        if progress.is_terminal or not is_over:
            return progress
        if self.outcome.cancelled():
            # The events do not yet say that the task was stopped.
            return replace(progress, state=TaskState.STOPPED)
        error = self.outcome.exception()
        if error is None:
            return progress
        return replace(progress, state=TaskState.FAILED, error=str(error))

    def cancel(self) -> bool:
        """Stop the task; return False if it was over."""
        return not self.outcome.done() and self.outcome.cancel()

    def wait(self, timeout: float | None) -> Response:
        """Wait for the task's response from synchronous code.

        Raises:
            TimeoutError: If the task does not end in time; the task continues.
            TaskStoppedError: If the task was cancelled.
        """
        with suppress(TimeoutError, CancelledError):
            self.outcome.exception(timeout)  # only waits, and does not raise the task's error
        return self._response(timeout)

    async def await_end(self, timeout: float | None) -> Response:
        """Async version of :meth:`wait`."""
        # A cancelled caller does not cancel the task, which other callers may await.
        end = completion(self.outcome, asyncio.get_running_loop())
        await asyncio.wait({end}, timeout=timeout)
        return self._response(timeout)

    def _response(self, timeout: float | None) -> Response:
        """Return the response of the task after a caller's wait.

        Args:
            timeout: The maximum seconds of the wait, for the error; None for a wait without limit.

        Raises:
            TimeoutError: If the task has not ended.
            TaskStoppedError: If the task was stopped.
        """
        if not self.outcome.done():
            raise TimeoutError(
                f"task {self.task_id} has not ended within {timeout} s; it continues"
            )
        try:
            return self.outcome.result()
        except CancelledError:
            raise TaskStoppedError(f"task {self.task_id} was stopped") from None


class BackgroundTasks:
    """The background tasks of one agent; thread-safe.

    Finished tasks beyond :data:`MAX_FINISHED_TASKS` are forgotten, oldest first. A durable journal
    still has their events.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, BackgroundTask] = {}
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """Forget the unfinished tasks in a forked process, because the parent runs these tasks."""
        self._lock = threading.Lock()
        self._tasks = {key: task for key, task in self._tasks.items() if task.outcome.done()}

    def add(self, task: BackgroundTask) -> None:
        """Add a task."""
        with self._lock:
            self._tasks[task.task_id] = task
        # Outside the lock: the callback of a finished task runs at once, and takes the lock itself.
        task.outcome.add_done_callback(lambda _: self._forget_old())

    def find(self, task_id: str) -> BackgroundTask | None:
        """Return a task by its id, if known."""
        with self._lock:
            return self._tasks.get(task_id)

    def forget(self, task_id: str) -> None:
        """Drop a task, if known."""
        with self._lock:
            self._tasks.pop(task_id, None)

    def __len__(self) -> int:
        return len(self._tasks)

    def _forget_old(self) -> None:
        """Drop the oldest finished tasks beyond ``MAX_FINISHED_TASKS``."""
        with self._lock:
            finished_ids = [task_id for task_id, task in self._tasks.items() if task.outcome.done()]
            surplus_ids = finished_ids[:-MAX_FINISHED_TASKS]  # the oldest come first
            for task_id in surplus_ids:
                del self._tasks[task_id]


async def stream_of(
    request: TaskRequest, run: Callable[[TaskRequest], Awaitable[object]], granularity: Granularity
) -> AsyncGenerator[StreamEvent]:
    """Yield a task's events as they happen; closing the iterator cancels the task.

    Args:
        request: The request.
        run: Runs the task.
        granularity: ``token`` adds the pieces of the model's answers.

    Raises:
        ConfigurationError: If the granularity is unknown.
    """
    if granularity not in _GRANULARITIES:
        raise ConfigurationError(
            f"granularity is {granularity!r}", hint=f"one of: {', '.join(_GRANULARITIES)}"
        )
    yields_tokens = granularity == "token"
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue()

    def put(item: StreamEvent | None) -> None:
        """Queue an item from the agent's loop; None ends the stream."""
        # A reader that stopped may have closed its loop while the task still runs on another one.
        if not loop.is_closed():
            loop.call_soon_threadsafe(queue.put_nowait, item)

    on_delta = put if yields_tokens else None
    stream = True if yields_tokens else None  # None: as the agent's settings say
    request = replace(request, listeners=(put,), on_delta=on_delta, stream=stream)
    work = asyncio.ensure_future(run(request))
    # The end goes through the queue, so that it comes after the last event.
    work.add_done_callback(lambda _: put(None))
    try:
        while (item := await queue.get()) is not None:
            yield item
        await work
    finally:
        # Cancel the task if the reader has closed the iterator early; a no-op if the task has
        # ended.
        work.cancel()
