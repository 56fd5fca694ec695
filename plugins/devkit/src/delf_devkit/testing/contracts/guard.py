"""Guards for suites: timeouts that name the hanging step, and detection of blocking calls."""

from __future__ import annotations

import asyncio
import asyncio.base_subprocess
import contextlib
import functools
import linecache
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, cast

import pytest

from delf_devkit.testing.contracts.leavings import remember_module_state, restored_process

_TEST_SUITES_FOLDER: Final = str(Path(__file__).parent.parent)
# How often a waiting test is checked within its time limit.
_CHECKS_PER_LIMIT: Final = 8
# The share of a time limit that the machine may take for other processes.
_MAX_CPU_WAIT_SHARE: Final = 1 / 8
_CHECK_SECONDS: Final = 0.05
_BEAT_SECONDS: Final = 0.01
# The shortest time for which a blocked event loop fails a test.
_MIN_BLOCKED_SECONDS: Final = 5.0
# For coroutines, async generators and generators: the attributes that hold the frame of the object
# and the inner object that it awaits.
_FRAME_AND_INNER: Final = (
    ("cr_frame", "cr_await"),
    ("ag_frame", "ag_await"),
    ("gi_frame", "gi_yieldfrom"),
)
_SCHEDULER_STATISTICS: Final = Path("/proc/thread-self/schedstat")


def guarded(function: Callable[..., Any], seconds_of: Callable[[Any], float]) -> Callable[..., Any]:
    """Wrap an async test with a time limit for each ``await``, and close its fixtures at the end.

    The test also fails if it blocks the event loop for longer than the time limit, and for longer
    than five seconds. Changes of the process, such as environment variables, are undone.

    Args:
        function: The test.
        seconds_of: Takes the object of the test class; returns the time limit in seconds.
    """

    @functools.wraps(function)
    async def run(self: Any, *arguments: Any, **named: Any) -> None:
        __tracebackhide__ = True
        # Before the first use of the fixtures: check_nothing_remains() compares with this state.
        for fixture in named.values():
            remember_module_state(fixture)
        test = _run_and_close(function(self, *arguments, **named), named.values())
        await _run_with_limit(test, seconds_of(self))

    return run


async def _run_with_limit(test: Coroutine[Any, Any, None], seconds: float) -> None:
    """Run a test with a time limit for each ``await``; fail if a task ignores its cancellation.

    Also fail if the test blocks the event loop.
    """
    __tracebackhide__ = True
    tasks_before = asyncio.all_tasks()
    task = asyncio.ensure_future(test)
    max_blocked_seconds = max(seconds, _MIN_BLOCKED_SECONDS)

    def fail_for_blocked_loop(frame: FrameType | None) -> None:
        where = "" if frame is None else f" at {_line(frame.f_code, frame.f_lineno)}"
        pytest.fail(
            f"the event loop has been held for {max_blocked_seconds:g} s{where}; use a thread"
        )

    try:
        with (
            # A blocked event loop cannot restart this time limit, so the limit expires.
            time_limit(max_blocked_seconds, fail_for_blocked_loop) as restart_blocked_time,
            restored_process(),
        ):
            await _wait_or_fail(task, test, seconds, on_check=restart_blocked_time)
        await task
    finally:
        # A cancelled task ends at once, or ignores its cancellation: a short wait is enough.
        cancel_seconds = seconds / _CHECKS_PER_LIMIT
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=cancel_seconds)
        new_tasks = asyncio.all_tasks() - tasks_before - {task}
        stuck_names = await abandon_stuck_tasks(new_tasks, cancel_seconds)
    assert not stuck_names, (
        f"{stuck_names[0]} goes on although it was cancelled: neither a stopped task nor the "
        "program would ever end; let CancelledError pass"
    )


async def _wait_or_fail(
    task: asyncio.Task[None],
    test_coroutine: object,
    seconds: float,
    on_check: Callable[[], None],
) -> None:
    """Wait for the end of a test; fail the test if one ``await`` takes longer than the time limit.

    Args:
        task: The task that runs the test.
        test_coroutine: The coroutine of the task.
        seconds: The time limit.
        on_check: Called each time this function checks what the test awaits.
    """
    __tracebackhide__ = True
    last_awaited: object = None
    unchanged_checks = 0  # for how many checks the test has awaited the same object
    while not task.done():
        await asyncio.wait({task}, timeout=seconds / _CHECKS_PER_LIMIT)
        on_check()
        current = _find_awaited(test_coroutine)
        awaited = None if current is None else current.awaited
        if current is None or awaited is not last_awaited:
            last_awaited = awaited
            unchanged_checks = 0
            continue
        unchanged_checks += 1
        if unchanged_checks >= _CHECKS_PER_LIMIT and not task.done():
            name = function_name_of(current.object_in_message)
            place = place_of(current.object_in_message)
            pytest.fail(f"{name} has not ended after {seconds:g} s{place}", pytrace=False)


async def abandon_stuck_tasks(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> list[str]:
    """Wait for cancelled tasks to end, and unregister those that ignore their cancellation.

    The event loop would otherwise wait for these tasks when it is closed.

    Args:
        tasks: The tasks; a task that nobody cancelled is left alone.
        seconds: The time for a cancelled task to end.

    Returns:
        The names of the coroutines that ignored their cancellation.
    """
    cancelled = {task for task in tasks if task.cancelling() and not task.done()}
    if not cancelled:
        return []
    _, stuck = await asyncio.wait(cancelled, timeout=seconds)
    for task in stuck:
        asyncio._unregister_task(task)  # noqa: SLF001 - for event loops, by its documentation
    return [function_name_of(task) for task in stuck]


async def _run_and_close(test: Awaitable[None], fixtures: Iterable[Any]) -> None:
    await test
    for fixture in fixtures:
        # A class is a factory, whose caller closes the made objects.
        if hasattr(fixture, "aclose") and not isinstance(fixture, type):
            await fixture.aclose()


def function_name_of(work: object) -> str:
    """Return the name of an awaited object's function, such as ``Store.aclose``.

    Args:
        work: A coroutine, a future, or the awaitable of ``anext``.
    """
    awaitable: Any = work
    if isinstance(awaitable, asyncio.Task):
        awaitable = cast("asyncio.Task[Any]", awaitable).get_coro()
    name = getattr(awaitable, "__qualname__", None)
    if name is None:
        kind = type(awaitable).__name__
        if kind.startswith("async_generator"):
            return "the next item of an async iterator"
        return kind
    return str(name).replace(".<locals>", "")


def place_of(work: object) -> str:
    """Describe the line at which a coroutine waits, for a message; empty if unknown."""
    innermost_frame: FrameType | None = None
    current: Any = work
    while current is not None:
        if isinstance(current, asyncio.Task):
            current = cast("asyncio.Task[Any]", current).get_coro()
        frame, current = _frame_and_inner(current)
        innermost_frame = frame or innermost_frame  # an object that has ended has no frame
    if innermost_frame is None:
        return ""
    return f": it waits at {_line(innermost_frame.f_code, innermost_frame.f_lineno)}"


def _frame_and_inner(awaitable: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of a coroutine or generator, and the inner object that it awaits.

    Other objects, such as futures, have neither: both are None.
    """
    for frame_name, inner_name in _FRAME_AND_INNER:
        if hasattr(awaitable, frame_name):
            return getattr(awaitable, frame_name), getattr(awaitable, inner_name)
    return None, None


def _line(code: CodeType, number: int) -> str:
    """Describe a line of a source file by the file's name, the line number and the line itself."""
    source = linecache.getline(code.co_filename, number).strip()
    quoted_source = f", `{source}`" if source else ""
    return f"{Path(code.co_filename).name}:{number}{quoted_source}"


class _Awaited(NamedTuple):
    """The object that a test awaits.

    Args:
        awaited: The object. While it stays the same, the test has not got any further.
        object_in_message: The object that the timeout message names. For a future, whose name says
            nothing, this is the coroutine that awaits the future.
    """

    awaited: object
    object_in_message: object


def _find_awaited(test_coroutine: Any) -> _Awaited | None:
    """Find the object that a test awaits, inside the coroutines of delf's own test suites.

    None if the test does not wait, or waits in :meth:`Contract.within`, which has its own timeout.
    """
    coroutine = test_coroutine
    while _is_of_test_suite(coroutine):
        awaited = coroutine.cr_await
        has_own_timeout = coroutine.cr_code.co_name == "within"  # Contract.within()
        if has_own_timeout or awaited is None:
            return None
        is_coroutine_or_generator = hasattr(awaited, "__qualname__")
        if not is_coroutine_or_generator:
            is_anext = type(awaited).__name__.startswith("async_generator")
            # For a future, the message names the coroutine that awaits the future.
            return _Awaited(awaited, object_in_message=awaited if is_anext else coroutine)
        coroutine = awaited
    return _Awaited(coroutine, object_in_message=coroutine)


def _is_of_test_suite(coroutine: Any) -> bool:
    """Return True for a running coroutine of delf's test suites, not of the plugin under test."""
    frame = getattr(coroutine, "cr_frame", None)
    return frame is not None and frame.f_code.co_filename.startswith(_TEST_SUITES_FOLDER)


@contextlib.contextmanager
def time_limit(
    seconds: float, fail: Callable[[FrameType | None], None]
) -> Generator[Callable[[], None]]:
    """Fail the test if the block takes longer than ``seconds``, not counting waits for a CPU.

    Yield a function that starts the time again from zero.

    The limit uses the signal SIGALRM, because only signals interrupt a blocked thread. There is no
    limit on Windows, in other threads than the main thread, or if another tool such as
    pytest-timeout uses the signal.

    Args:
        seconds: The time limit.
        fail: Fails the test. The argument is the frame that was interrupted.
    """
    can_use_timer = (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )
    if not can_use_timer:
        yield lambda: None
        return
    cpu_wait_at_start = 0.0

    def start(limit: float) -> None:
        nonlocal cpu_wait_at_start
        cpu_wait_at_start = cpu_wait_seconds()
        signal.setitimer(signal.ITIMER_REAL, limit)

    def expire(_signal: int, frame: FrameType | None) -> None:
        waited_for_cpu = cpu_wait_seconds() - cpu_wait_at_start
        if waited_for_cpu > seconds * _MAX_CPU_WAIT_SHARE:
            start(waited_for_cpu)  # the machine is busy: give the test the lost time
        else:
            fail(frame)

    previous_handler = signal.signal(signal.SIGALRM, expire)
    start(seconds)
    try:
        yield lambda: start(seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)


def cpu_wait_seconds() -> float:
    """Return the seconds for which this thread was ready to run and waited for a free CPU.

    The result is 0 on systems other than Linux.
    """
    try:
        return int(_SCHEDULER_STATISTICS.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


class LoopWatch:
    """Measures for how long and where code holds the event loop of the current thread.

    A task of the event loop notes a beat, the current time, again and again. While other code holds
    the event loop, no beat is noted, and a second thread looks at what that code is doing.
    """

    def __init__(self) -> None:
        self._loop_thread_id = threading.get_ident()
        self._has_ended = threading.Event()
        self._last_beat = time.monotonic()
        self._cpu_wait_at_last_beat = cpu_wait_seconds()
        # The longest pause for which watch(), in the second thread, has set longest_pause_at.
        self._longest_located_pause = 0.0
        self.longest_pause = 0.0
        """The longest time in seconds between two iterations of the event loop.

        The time for which the thread waited for a CPU does not count: the machine was busy, and not
        the event loop.
        """
        self.longest_pause_at = ""
        """The line of code that held the event loop for the longest time; empty if none did."""

    async def beat(self) -> None:
        """Call :meth:`note_beat` at short intervals until cancelled. Runs in the event loop."""
        while True:
            self.note_beat()
            await asyncio.sleep(_BEAT_SECONDS)

    def note_beat(self) -> None:
        """Measure the pause since the last beat, and start the next."""
        now, cpu_wait = time.monotonic(), cpu_wait_seconds()
        pause = now - self._last_beat - (cpu_wait - self._cpu_wait_at_last_beat)
        self.longest_pause = max(self.longest_pause, pause)
        self._last_beat, self._cpu_wait_at_last_beat = now, cpu_wait

    def watch(self) -> None:
        """Update ``longest_pause_at`` until :meth:`end` is called.

        Called in another thread, because the watched thread may be blocked.
        """
        while not self._has_ended.wait(_CHECK_SECONDS):
            pause = time.monotonic() - self._last_beat
            if pause > max(self._longest_located_pause, 2 * _CHECK_SECONDS):
                self._longest_located_pause = pause
                frame = sys._current_frames().get(self._loop_thread_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
                self.longest_pause_at = _place_in(frame) or self.longest_pause_at

    def end(self) -> None:
        """End :meth:`watch`."""
        self._has_ended.set()


@contextlib.asynccontextmanager
async def watched_loop() -> AsyncGenerator[LoopWatch]:
    """Measure for how long and where the code in the ``with`` statement holds the event loop."""
    watch = LoopWatch()
    watching_thread = threading.Thread(target=watch.watch, name="delf-watch", daemon=True)
    watching_thread.start()
    beating = asyncio.ensure_future(watch.beat())
    try:
        await asyncio.sleep(0)  # the first beat comes before the work
        yield watch
        watch.note_beat()  # the pause since the last beat counts, too
    finally:
        beating.cancel()
        watch.end()
        watching_thread.join()


# -- what blocks, however quick it is ------------------------------------------------------------

_BLOCKING_EVENTS: Final = {
    "socket.getaddrinfo": "socket.getaddrinfo",
    "socket.gethostbyname": "socket.gethostbyname",
    "sqlite3.connect": "sqlite3.connect",
    "sqlite3.execute": "a statement of sqlite3",
    "os.system": "os.system",
}
_WRITES: Final = frozenset("wax+")
_ASYNCIO_START: Final = asyncio.base_subprocess.BaseSubprocessTransport.__init__.__code__
_SYNCS: Final = ("fsync", "fdatasync")
_listeners: list[Callable[[str, tuple[Any, ...]], None]] = []
_installed = threading.Event()


def _hook(
    event: str,
    arguments: tuple[Any, ...],
    listeners: list[Callable[[str, tuple[Any, ...]], None]] = _listeners,
) -> None:
    """Pass an audit event to listeners.

    The listeners are a default value, because Python still calls this function at its shutdown,
    when it has cleared the global variables of this module.
    """
    for listener in tuple(listeners):
        listener(event, arguments)


def install_audit_hook() -> None:
    """Report audit events and statements of sqlite3 to ``_listeners`` from now on.

    Call this before the tested plugin opens anything.
    """
    if _installed.is_set():
        return
    _installed.set()
    sys.addaudithook(_hook)  # audit hooks cannot be removed
    connect = sqlite3.connect

    @functools.wraps(connect)
    def watched(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        # Listeners only have to know that this thread executes a statement, and not which one.
        connection.set_trace_callback(lambda _statement: _hook("sqlite3.execute", ()))
        return connection

    sqlite3.connect = watched  # sqlite3 raises no audit event for statements


@contextlib.contextmanager
def started_programs() -> Generator[list[str]]:
    """Collect the command lines of programs that are started while the block runs."""
    install_audit_hook()
    programs = list[str]()

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            programs.append(str(arguments[1]))
        if event == "os.system":
            programs.append(str(arguments[0]))

    _listeners.append(listen)
    try:
        yield programs
    finally:
        _listeners.remove(listen)


def _blocking_step(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Describe the blocking call that an audit event reports; None for any other event."""
    if event == "socket.connect":
        return "a blocking connect" if arguments[0].gettimeout() != 0 else None
    if event == "subprocess.Popen":
        return None if _is_called_by_asyncio_start() else "a start of a program"
    if event == "open":
        is_descriptor = isinstance(arguments[0], int)  # such as the end of a pipe
        is_write = bool(_WRITES & set(arguments[1] or ""))
        return "a file that is written" if is_write and not is_descriptor else None
    return _BLOCKING_EVENTS.get(event)


@contextlib.contextmanager
def blocking_calls() -> Generator[list[str]]:
    """Collect the blocking calls that this thread makes while the block runs, by an audit hook."""
    install_audit_hook()
    loop_thread_id = threading.get_ident()
    calls: list[str] = []

    def is_on_loop() -> bool:
        return threading.get_ident() == loop_thread_id

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if not is_on_loop():
            return
        blocking_step = _blocking_step(event, arguments)
        if blocking_step is not None:
            calls.append(f"{blocking_step} at {_caller()}")

    original_sleep = time.sleep
    original_syncs = {name: getattr(os, name) for name in _SYNCS if hasattr(os, name)}

    def recording_sync(name: str) -> Callable[[Any], None]:
        """Return a replacement for ``os.fsync`` that records the calls of the loop's thread.

        Args:
            name: The name of the replaced function: ``fsync`` or ``fdatasync``.
        """

        def sync(file: Any) -> None:
            if is_on_loop():
                calls.append(f"os.{name} at {_caller()}")
            original_syncs[name](file)

        return sync

    def recording_sleep(seconds: float) -> None:
        if seconds and is_on_loop():  # sleep(0) only yields to other threads
            calls.append(f"time.sleep at {_caller()}")
        original_sleep(seconds)

    _listeners.append(listen)
    time.sleep = recording_sleep  # an audit event exists only from 3.13 on
    for name in original_syncs:
        setattr(os, name, recording_sync(name))  # these functions raise no audit event
    try:
        yield calls
    finally:
        time.sleep = original_sleep
        for name, sync in original_syncs.items():
            setattr(os, name, sync)
        _listeners.remove(listen)


def _is_called_by_asyncio_start() -> bool:
    """Return True if asyncio's function that starts a program is on the stack."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code is _ASYNCIO_START:
            return True
        frame = frame.f_back
    return False


def _caller() -> str:
    """Describe the innermost line of the call stack that belongs to a plugin.

    Lines of Python itself, of other installed packages and of delf's test suites are skipped.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return _place_in(frame) or "?"


def _place_in(frame: FrameType | None) -> str:
    """Describe the innermost line of a plugin in a call stack.

    If no line is a plugin's, describe the outermost line of an installed package or of Python.
    Return an empty text if the call stack has no such line.
    """
    described: FrameType | None = None
    while frame is not None:  # from the innermost to the outermost frame
        path = frame.f_code.co_filename
        # Code of the test suites, or of Python's import system, which has "<frozen …>" as its path.
        is_skipped = path.startswith((_TEST_SUITES_FOLDER, "<frozen")) or path == __file__
        if not is_skipped:
            described = frame
            is_installed = "site-packages" in path or path.startswith(sys.base_prefix)
            if not is_installed:  # the plugin's own code
                break
        frame = frame.f_back
    if described is None:
        return ""
    return _line(described.f_code, described.f_lineno)
