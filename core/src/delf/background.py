"""Tasks that nobody waits for: submitted, looked at, waited for or cancelled by their id."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, Required, TypedDict, get_args

from delf.engine.elsewhere import wait_for_end
from delf.engine.task import TaskRequest
from delf.engine.views.snapshot import snapshot
from delf.errors import ConfigurationError, TaskStoppedError, UnknownTaskError
from delf.events import TaskFinished, size_of
from delf.messages import ModelDelta
from delf.records import dataclass
from delf.response import Response, past_response

if TYPE_CHECKING:
    from delf.engine.runtime import Runtime
    from delf.engine.views.snapshot import StreamSnapshot
    from delf.events import Event


Granularity = Literal["event", "token"]
_GRANULARITIES: Final[tuple[str, ...]] = get_args(Granularity)


class HandingIn(TypedDict, total=False):
    """Options with which a task is left to a runner: ``agent.submit(task, queue="reports")``.

    Args:
        queue: Where a runner takes it from (``delf runner``).
        key: On whose behalf it is done, as ``customer-7``: a queue has limits for each key.
        priority: Among those of the queue; the lowest comes first, and 0 is usual.
        delay: Seconds until a runner may take it.
        retries: How often it is tried again where a service was away; the queue's when omitted.
        retry_after: Seconds until the first of these; each later one waits twice as long.
        setup: What a runner needs to set up the same agent; it has the project's when omitted.
    """

    queue: Required[str]
    key: str
    priority: int
    delay: float
    retries: int
    retry_after: float
    setup: Mapping[str, Any]


def handed_in(request: TaskRequest, how: HandingIn) -> TaskRequest:
    """A request as runners get it.

    Raises:
        ConfigurationError: When no queue is named.
    """
    if "queue" not in how:
        names = ", ".join(how)
        raise ConfigurationError(
            f"submit() takes {names} only with a queue", hint='name one: queue="reports"'
        )
    delay = how.get("delay", 0.0)
    return replace(
        request,
        queue=how["queue"],
        key=how.get("key") or None,
        priority=how.get("priority", 0),
        not_before=time.time() + delay if delay > 0 else None,
        retries=how.get("retries"),
        retry_after=how.get("retry_after"),
        setup={**request.setup, **how.get("setup", {})},
    )


async def past_end(runtime: Runtime, task_id: str, timeout: float | None) -> Response:
    """The response of a task of the journal, once it is over, whoever works on it.

    Raises:
        TimeoutError: When it is not over in time.
        UnknownTaskError: When the journal does not have it.
    """
    async with asyncio.timeout(timeout):
        events = await wait_for_end(runtime.journal, task_id)
    return past_response(events, next(e for e in events if isinstance(e, TaskFinished)))


@dataclass(frozen=True)
class BackgroundTask:
    """A task with all that is known of it.

    Args:
        request: What was asked.
        events: What happened so far, in order; it grows. The first says that it was submitted.
        outcome: Its response, once there is one.
    """

    request: TaskRequest
    events: list[Event]
    outcome: Future[Response]

    def look(self) -> StreamSnapshot:
        """Return its present state; from any thread."""
        seen: StreamSnapshot = snapshot(tuple(self.events))
        if seen.is_terminal or not self.outcome.done():
            return seen
        if self.outcome.cancelled():
            return replace(seen, state="stopped")  # its last steps are still on their way
        error = self.outcome.exception()
        return seen if error is None else replace(seen, state="error", error=str(error))


class BackgroundTasks:
    """The background tasks of one agent; safe between threads.

    What is forgotten here may still be in the journal.

    Args:
        keep: How many finished tasks are kept; the oldest are forgotten first.
        max_bytes: How much memory they may take together, about; the newest one is kept in any
            case.
    """

    def __init__(self, keep: int, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._keep = keep
        self._max_bytes = max_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._tasks: OrderedDict[str, BackgroundTask] = OrderedDict()

    def add(self, request: TaskRequest, start: Callable[[TaskRequest], Future[Response]]) -> str:
        """Take a task in and start it.

        Args:
            request: What is asked.
            start: Lets it run.

        Returns:
            Its id.
        """
        events: list[Event] = list(request.past)
        outcome = start(replace(request, listeners=(*request.listeners, events.append)))
        with self._lock:
            self._tasks[request.task_id] = BackgroundTask(request, events, outcome)
            self._forget_old()
        outcome.add_done_callback(lambda _: self._weigh(request.task_id, events))
        return request.task_id

    def _weigh(self, task_id: str, events: Sequence[Event]) -> None:
        """Count the memory of a task that is over."""
        size = sum(map(size_of, events))
        with self._lock:
            self._sizes[task_id] = size
            self._bytes += size
            self._forget_old()

    def get(self, task_id: str) -> BackgroundTask:
        """A task by its id.

        Raises:
            UnknownTaskError: When there is none.
        """
        task = self.find(task_id)
        if task is None:
            raise UnknownTaskError(
                f"no task {task_id!r} is known",
                hint=f"the last {self._keep} finished tasks are kept (keep_tasks)",
            )
        return task

    def find(self, task_id: str) -> BackgroundTask | None:
        """A task by its id, if it is known."""
        with self._lock:
            return self._tasks.get(task_id)

    def cancel(self, task_id: str) -> bool:
        """Stop a task; False when it was over already."""
        outcome = self.get(task_id).outcome
        return not outcome.done() and outcome.cancel()

    def wait(self, task_id: str, timeout: float | None) -> Response:
        """A task's response, waited for from synchronous code.

        Raises:
            TimeoutError: When it is not there in time; the task goes on.
            TaskStoppedError: When it was cancelled.
        """
        try:
            return self.get(task_id).outcome.result(timeout)
        except CancelledError:
            raise TaskStoppedError(f"task {task_id} was stopped") from None

    def __len__(self) -> int:
        return len(self._tasks)

    def _forget_old(self) -> None:
        while len(self._sizes) > 1:
            if len(self._tasks) <= self._keep and self._bytes <= self._max_bytes:
                return
            task_id, size = self._sizes.popitem(last=False)
            self._bytes -= size
            self._tasks.pop(task_id, None)


async def stream_of(
    request: TaskRequest, run: Callable[[TaskRequest], Awaitable[object]], granularity: Granularity
) -> AsyncGenerator[Event | ModelDelta]:
    """A task's events as they happen; whoever stops to read cancels it.

    Args:
        request: What is asked.
        run: Does it.
        granularity: ``token`` adds the pieces of the model's answers.

    Raises:
        ConfigurationError: When it is not a granularity.
    """
    if granularity not in _GRANULARITIES:
        raise ConfigurationError(
            f"granularity is {granularity!r}", hint=f"one of: {', '.join(_GRANULARITIES)}"
        )
    tokens = granularity == "token"
    loop = asyncio.get_running_loop()
    coming: asyncio.Queue[Event | ModelDelta | None] = asyncio.Queue()

    def put(item: Event | ModelDelta | None) -> None:
        """Bring something from the agent's loop; None ends the stream."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(coming.put_nowait, item)

    def put_text(text: str) -> None:
        put(ModelDelta(text))

    on_delta = put_text if tokens else None
    request = replace(request, listeners=(put,), on_delta=on_delta, stream=tokens or None)
    work = asyncio.ensure_future(run(request))
    work.add_done_callback(lambda _: put(None))
    try:
        while (item := await coming.get()) is not None:
            yield item
        await work
    finally:
        work.cancel()
