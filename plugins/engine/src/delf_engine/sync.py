"""The bridge from sync to async code, and the owner of the agent's event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from delf.errors import AgentStateError, DelfError
from delf.machine.contexts import shared_task, without_context
from delf.machine.forks import reset_in_forks
from delf.machine.threads import running_loop
from delf_engine.bounded import SLOW_SECONDS
from delf_engine.closing import STOP_SECONDS
from delf_engine.waiting import Permit, completion, is_cancelled

if TYPE_CHECKING:
    from delf_engine.runtime import Runtime

_log = logging.getLogger(__name__)
T = TypeVar("T")
# The maximum number of seconds to finish a stop that Ctrl-C interrupted.
_CLEAN_UP_SECONDS = 3.0
_OWN_LOOP_HINT = (
    "use an agent for each event loop, or call agent.start() before the first `await`: "
    "the agent then works on a loop in a thread of its own"
)
Work = Callable[["Runtime"], Coroutine[Any, Any, T]]
"""An async function that gets the started runtime."""


class LoopThread:
    """An event loop in a thread of its own.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopping = False
        run = partial(without_context, self._run)
        # A daemon thread lets a program end that does not call ``stop()``, even if a tool hangs.
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Run the loop until it is stopped, then end its tasks and generators."""
        asyncio.set_event_loop(self.loop)
        try:
            while not self._stopping:
                try:
                    self.loop.run_forever()
                except (SystemExit, KeyboardInterrupt) as error:
                    # The loop continues without the task that raised the error.
                    _log.warning("%s was raised in the agent's event loop", type(error).__name__)
        finally:
            self.loop.run_until_complete(_end_tasks())
            # Close the generators as ``asyncio.run`` does, but with a time limit.
            generators = self.loop.create_task(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(asyncio.wait({generators}, timeout=1.0))
            self.loop.close()

    def stop(self) -> None:
        """Stop the loop and its thread. Idempotent.

        A blocked thread does not end: after a timeout, it is left behind.
        """
        # A second ``loop.stop()`` would interrupt the clean-up, which runs on the same loop.
        if not self._stopping and not self.loop.is_closed():
            self._stopping = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        # A thread that joins itself would wait forever.
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_SECONDS)


def run_on_loop(
    coroutine: Coroutine[Any, Any, T],
    loop: asyncio.AbstractEventLoop,
    *,
    raises_when_blocked: bool = False,
    is_borrowed: bool = False,
) -> T:
    """Run a coroutine on another thread's loop and wait for it.

    An exception in this thread, such as Ctrl-C or the time limit of a job, cancels the coroutine,
    and is raised once the coroutine has cleaned up. A function that blocks the loop is named in the
    log.

    Args:
        coroutine: The coroutine.
        loop: The loop.
        raises_when_blocked: Whether to raise if the loop is blocked, instead of waiting on.
        is_borrowed: Whether the loop was created by the program, not by delf. While the program
            does not run the loop, this thread runs it.

    Raises:
        AgentStateError: If no thread runs the loop, and this thread cannot run the loop either.
        TimeoutError: If the loop is blocked for :data:`STOP_SECONDS`, with ``raises_when_blocked``.
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return _result_of(future, loop, raises_when_blocked, is_borrowed)
    except _LoopBlockedError:
        raise  # a blocked loop does not run the clean-up either
    except BaseException:
        # A done future has raised the exception; otherwise a signal handler has.
        if not future.done() and not loop.is_closed():
            # This also cancels the task on the loop. Wait for the task's clean-up, such as the end
            # of its calls.
            future.cancel()
            _wait_for_clean_up(loop, is_borrowed)
        raise


class _LoopBlockedError(TimeoutError):
    """A function blocks the event loop."""


def _result_of(
    future: Future[T],
    loop: asyncio.AbstractEventLoop,
    raises_when_blocked: bool,
    is_borrowed: bool,
) -> T:
    """Wait for the future of work on a loop, and return the result of the work.

    An idle borrowed loop is run in this thread; any other loop runs in another thread.
    """
    probe = _LoopProbe(loop)
    blocked_seconds = 0.0
    while True:
        if is_borrowed:
            _run_if_idle(loop, future)
        if wait({future}, timeout=SLOW_SECONDS).done:
            return future.result()
        if probe.poll():  # the loop runs, and the work itself takes long
            blocked_seconds = 0.0
            continue
        if not loop.is_running():
            raise _idle_loop_error(loop, future)
        if blocked_seconds == 0.0:
            _log.warning("the agent's event loop does not answer%s", busy_at(loop))
        blocked_seconds += SLOW_SECONDS
        if raises_when_blocked and blocked_seconds >= STOP_SECONDS:
            raise _LoopBlockedError("the event loop is blocked")


class _LoopProbe:
    """Finds out whether another thread's loop runs callbacks.

    Args:
        loop: The loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answer = threading.Event()
        self._answer.set()
        self.poll()  # schedules the first callback

    def poll(self) -> bool:
        """Return True if the loop has run the last callback; if so, schedule another one."""
        if not self._answer.is_set() or self._loop.is_closed():
            return False
        self._answer.clear()
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(self._answer.set)
        return True


def _run_if_idle(loop: asyncio.AbstractEventLoop, future: Future[Any]) -> None:
    """Run ``loop`` in this thread until ``future`` is done.

    No-op if the loop already runs or is closed, or if this thread runs a loop.
    """
    this_thread_runs_a_loop = running_loop() is not None
    if loop.is_running() or loop.is_closed() or this_thread_runs_a_loop:
        return
    with suppress(RuntimeError):  # another thread has begun to run the loop meanwhile
        loop.run_until_complete(completion(future, loop))


def _idle_loop_error(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any] | Future[Any]
) -> AgentStateError:
    """Cancel the future of work on a loop that no thread runs; return the error to raise."""
    if not loop.is_closed():
        future.cancel()
    return AgentStateError(
        "the agent works on an event loop that no thread runs", hint=_OWN_LOOP_HINT
    )


def busy_at(loop: asyncio.AbstractEventLoop) -> str:
    """Describe the function that blocks a loop's thread, for a log message.

    The function is the innermost one outside of the standard library. If there is no such
    function, the description is empty.
    """
    frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    thread_id: int | None = getattr(loop, "_thread_id", None)  # None if the loop is idle
    frame = None if thread_id is None else frames.get(thread_id)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in sys.stdlib_module_names:
            code = frame.f_code
            return (
                f", blocked by {module}.{code.co_qualname}() ({code.co_filename}:{frame.f_lineno})"
            )
        frame = frame.f_back
    return ""


async def await_on_loop(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Await a coroutine on a given loop, which may run in another thread.

    Raises:
        AgentStateError: If no thread runs the loop.
    """
    if asyncio.get_running_loop() is loop:
        return await coroutine
    future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))
    probe = _LoopProbe(loop)
    try:
        while not future.done():
            await asyncio.wait({future}, timeout=SLOW_SECONDS)
            has_answered = probe.poll()
            is_idle = not has_answered and not loop.is_running()
            if is_idle and not future.done():
                raise _idle_loop_error(loop, future)
    except asyncio.CancelledError:
        future.cancel()
        raise
    return future.result()


async def _end_tasks() -> None:
    """Cancel leftover tasks of libraries on a loop that is about to close."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)


def _wait_for_clean_up(
    loop: asyncio.AbstractEventLoop, is_borrowed: bool, seconds: float = 5.0
) -> None:
    """Wait for cancelled tasks of a loop to finish.

    Args:
        loop: The loop.
        is_borrowed: Whether the loop belongs to the program. If no thread runs such a loop at the
            moment, this thread runs the loop while it waits.
        seconds: The maximum number of seconds.
    """

    async def wait_for_cancelled() -> None:
        other_tasks = asyncio.all_tasks() - {asyncio.current_task()}
        cancelled_tasks = [task for task in other_tasks if task.cancelling()]
        if cancelled_tasks:
            await asyncio.wait(cancelled_tasks, timeout=seconds)

    clean_up = asyncio.run_coroutine_threadsafe(wait_for_cancelled(), loop)
    if is_borrowed:
        _run_if_idle(loop, clean_up)
    try:
        clean_up.result(seconds + 1)  # one second more than wait_for_cancelled() takes at most
    except TimeoutError:
        _log.warning("the agent's event loop does not answer%s", busy_at(loop))


class _BoundRuntime:
    """A runtime, from its start to its stop, and the event loop that the runtime works on.

    Args:
        make: Creates a started runtime.
        loop: The event loop.
        thread: The thread of the loop; None if the loop belongs to the program.
    """

    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, Runtime]],
        loop: asyncio.AbstractEventLoop,
        thread: LoopThread | None,
    ) -> None:
        self.loop = loop
        self.thread = thread
        self._make = make
        self._future: asyncio.Future[Runtime] | None = None
        # Stops the runtime before the event loop ends.
        self._loop_watcher: AsyncGenerator[None] | None = None
        self.is_stopped = False
        """True once the stop has begun; no work begins any more."""
        self._is_freed = False
        self._has_loop_ended = False

    @property
    def runtime(self) -> Runtime | None:
        """The runtime, if started; thread-safe."""
        starting = self._future
        if starting is None or not starting.done():
            return None
        if starting.cancelled() or starting.exception() is not None:
            return None
        return starting.result()

    @property
    def is_starting(self) -> bool:
        """True while the runtime is starting; thread-safe."""
        starting = self._future
        return starting is not None and not starting.done()

    async def started(self) -> Runtime:
        """Return the runtime; start it, or wait if another caller is starting it.

        Raises:
            AgentStateError: If the runtime was stopped.
        """
        if self.is_stopped:
            raise stopped_error()
        if self._future is None:
            # shared_task() leaves out the context of the calling task: all tasks share the runtime.
            self._future = shared_task(self._make())
        # The watcher stops the runtime when the event loop ends. Replacing the watcher would end
        # the old watcher, and so stop the runtime, too.
        if self._loop_watcher is None:
            self._loop_watcher = self._watch_loop()
            await anext(self._loop_watcher)  # begin to watch
        future = self._future
        try:
            # Shielded: a caller that is cancelled must not end the start for the others.
            return await asyncio.shield(future)
        except Exception:
            is_latest_start = self._future is future
            if is_latest_start:
                self._future = None  # so that the next caller starts the runtime again
            raise

    async def stop(self, *, keep_resumable: bool = False) -> None:
        """Stop the runtime, even if it is still starting. Idempotent.

        Args:
            keep_resumable: Whether the running tasks, which are cancelled, can be resumed. The
                journal then records no end of the tasks.
        """
        self.is_stopped = True
        future = self._future
        if future is None:
            return
        if not future.done():
            future.cancel()
        await asyncio.wait({future}, timeout=STOP_SECONDS)
        if not future.done():
            _log.warning("while stopping: the start of the agent does not end")
        elif (runtime := self.runtime) is not None:
            await runtime.stop(keep_resumable=keep_resumable)
        self._is_freed = True

    def error_of_cancelled_work(self) -> AgentStateError | None:
        """Return the error that explains why work was cancelled without its caller's request.

        None if the reason is not known, or needs no explanation.
        """
        if self.is_stopped and not self._has_loop_ended:
            return stopped_error()
        # Explain only the end of the program's own loop: a loop in a thread ends only when the
        # agent is stopped. A caller on the ended loop is cancelled, too, and needs no explanation.
        if self.thread is not None or running_loop() is self.loop:
            return None
        return AgentStateError(
            "the event loop that the agent works on has ended", hint=_OWN_LOOP_HINT
        )

    def abandon(self) -> None:
        """Release the resources of a runtime whose loop was closed."""
        if (runtime := self.runtime) is not None:
            runtime.abandon()

    async def _watch_loop(self) -> AsyncGenerator[None]:
        """Stop the runtime before the running event loop ends, or when the agent is deleted.

        Before its end, an event loop closes its async generators, such as this one. Python closes
        the generator, too, when nothing refers to this object any more.
        """
        try:
            yield  # until the loop closes this generator
        finally:
            if not self.is_stopped:
                self._has_loop_ended = True
                await self.stop()
            elif not self._is_freed and (runtime := self.runtime) is not None:
                # The stop was interrupted. A plugin that hangs must not keep the loop from ending,
                # so the rest of the stop has a time limit.
                freeing = asyncio.ensure_future(runtime.free())
                await asyncio.wait({freeing}, timeout=_CLEAN_UP_SECONDS)
                freeing.cancel()
            if self.thread is not None:
                self.thread.stop()


def stopped_error() -> AgentStateError:
    """Return the error for work on a runtime that was stopped."""
    return AgentStateError("the agent was stopped")


class RuntimeLoop:
    """Starts the runtime on first use, and runs work from any caller on its event loop.

    The runtime's loop is the loop of the first ``await``, or a loop in its own thread if first used
    from synchronous code. When that loop ends, the runtime is stopped, and the next caller starts
    another one. A forked process begins without a runtime.

    Args:
        make: Creates a started runtime.
        name: The name of the loop's thread.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Runtime]], name: str) -> None:
        self._make = make
        self._name = name
        # Reentrant: a signal handler may stop the agent while its thread holds the lock.
        self._lock = threading.RLock()
        self._bound: _BoundRuntime | None = None
        self._stopped = False
        reset_in_forks(self)

    @property
    def runtime(self) -> Runtime | None:
        """The runtime, if started; thread-safe."""
        bound = self._bound
        return None if bound is None else bound.runtime

    @property
    def state(self) -> str:
        """The state ``new``, ``starting``, ``running`` or ``stopped``; thread-safe."""
        bound = self._bound
        if bound is not None and bound.runtime is not None:
            return "running"
        if bound is not None and bound.is_starting:
            return "starting"
        return "stopped" if self._stopped else "new"

    @property
    def is_bound(self) -> bool:
        """True if the runtime has an event loop that runs."""
        bound = self._bound
        return bound is not None and not bound.loop.is_closed()

    def start(self) -> None:
        """Start the runtime from sync code, if not started yet."""
        # Any call starts the runtime. The names are for the error of a call from the wrong loop.
        self.call(_nothing, "start", "astart")

    async def astart(self) -> None:
        """Start the runtime, if not started yet."""
        await self.call_async(_nothing)

    def call(self, work: Work[T], method: str, async_name: str) -> T:
        """Run work on the runtime's loop and wait for it, from synchronous code.

        Errors of delf are raised without the traceback of the event loop.

        Args:
            work: An async function that gets the runtime.
            method: The agent's method that the program called, for the error.
            async_name: The async version of that method.

        Raises:
            AgentStateError: If called from the runtime's own loop, which would deadlock.
        """
        self.check_outside_loop(method, async_name)
        bound = self._bind(to_running_loop=False)
        try:
            return run_on_loop(self._do(bound, work), bound.loop, is_borrowed=bound.thread is None)
        except DelfError as error:
            raise error.with_traceback(None)  # noqa: B904 - it is the same error
        except (CancelledError, RuntimeError) as error:
            # asyncio raises a RuntimeError if a stop has closed the loop since _bind().
            may_be_cancelled = isinstance(error, CancelledError) or bound.is_stopped
            reason = bound.error_of_cancelled_work() if may_be_cancelled else None
            if reason is None:
                raise
            raise reason from error

    def check_outside_loop(self, method: str, async_name: str) -> None:
        """Check that a sync method is not called on the runtime's own loop.

        Raises:
            AgentStateError: If the caller is on that loop. The error names the async version.
        """
        bound = self._bound
        if bound is not None and running_loop() is bound.loop:
            raise AgentStateError(
                f"{method}() was called from inside the event loop that the agent works on",
                hint=f"use `await agent.{async_name}(…)` there",
            )

    async def call_async(self, work: Work[T]) -> T:
        """Run work on the runtime's loop and await it."""
        bound = self._bind(to_running_loop=True)
        try:
            return await await_on_loop(self._do(bound, work), bound.loop)
        except asyncio.CancelledError as error:
            reason = bound.error_of_cancelled_work()
            is_caller_cancelled = is_cancelled()
            if is_caller_cancelled or reason is None:
                raise
            raise reason from error

    def post(self, work: Work[T]) -> Future[T]:
        """Schedule work on the event loop of the started runtime; return the work's future.

        Can be called from any thread.
        """
        bound = self._bind(to_running_loop=False)
        return asyncio.run_coroutine_threadsafe(self._do_detached(bound, work), bound.loop)

    def stop(self) -> None:
        """Stop the runtime from sync code. Idempotent."""
        bound = self._unbind()
        if bound is None:
            return
        loop = bound.loop
        if loop.is_closed():
            bound.abandon()
        elif running_loop() is loop:  # the loop cannot wait for its own work
            loop.create_task(bound.stop())
        else:
            is_borrowed = bound.thread is None
            with suppress(TimeoutError):  # the loop is blocked, as a logged warning says
                run_on_loop(bound.stop(), loop, raises_when_blocked=True, is_borrowed=is_borrowed)
        if bound.thread is not None:
            bound.thread.stop()

    async def astop(self, *, keep_resumable: bool = False) -> None:
        """Stop the runtime. Idempotent.

        Args:
            keep_resumable: Whether the running tasks, which are cancelled, can be resumed. The
                journal then records no end of the tasks.
        """
        bound = self._unbind()
        if bound is None:
            return
        if not bound.loop.is_closed():
            await await_on_loop(bound.stop(keep_resumable=keep_resumable), bound.loop)
        if bound.thread is not None:
            bound.thread.stop()

    async def _do_detached(self, bound: _BoundRuntime, work: Work[T]) -> T:
        """Run work for a caller that may be gone, and return the work's result.

        An exception of the work is raised. It is also marked as retrieved, because asyncio would
        log the exception if no caller is left to retrieve it.
        """
        Permit.of_task.set(None)  # a task that calls post() does not wait for this work
        # post() runs this coroutine as an asyncio task of its own, which ends with the exception.
        own_task = asyncio.current_task()
        if own_task is not None:
            own_task.add_done_callback(_retrieve_exception)
        return await self._do(bound, work)

    async def _do(self, bound: _BoundRuntime, work: Work[T]) -> T:
        runtime = await bound.started()
        try:
            return await work(runtime)
        except DelfError as error:
            runtime.resources.redactor.redact_error(error)
            raise

    def _bind(self, *, to_running_loop: bool) -> _BoundRuntime:
        """Return the runtime with its event loop, choosing a loop if there is none.

        Args:
            to_running_loop: Whether to choose the caller's running loop; otherwise a new loop in a
                thread.
        """
        with self._lock:
            if self._bound is not None:
                if not self._bound.loop.is_closed():
                    return self._bound
                self._bound.abandon()  # for example, its asyncio.run() has ended
            thread = None if to_running_loop else LoopThread(self._name)
            loop = asyncio.get_running_loop() if thread is None else thread.loop
            self._bound = _BoundRuntime(self._make, loop, thread)
            return self._bound

    def reset_after_fork(self) -> None:
        """Drop the runtime in a forked process, because threads do not survive a fork."""
        self._lock = threading.RLock()
        self._bound = None

    def _unbind(self) -> _BoundRuntime | None:
        """Mark the agent as stopped, and return the runtime for the caller to stop."""
        with self._lock:
            bound, self._bound = self._bound, None
            self._stopped = True
            return bound


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def _nothing(_: Runtime) -> None:
    """Do nothing, for a call that only starts the runtime."""
