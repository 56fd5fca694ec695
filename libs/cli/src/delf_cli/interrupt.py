"""Running of async code that is cancelled by signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from delf_cli import errors
from delf_cli.errors import InterruptedRunError
from delf_engine.sync import busy_at

T = TypeVar("T")

_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
BUSY_SECONDS: Final = 2.0
"""Seconds from the first Ctrl-C or other signal that should end the process, until a warning names
the function that blocks the event loop.
"""
_CTRL_C_HINT: Final = "press Ctrl-C again to end the process at once"
# Seconds that cancelled asyncio tasks have for their clean-up.
_CLEAN_UP_SECONDS: Final = 1.0


def run_until_done(
    main: Callable[[], Coroutine[Any, Any, T]], keep_resumable: Callable[[], None] = lambda: None
) -> T:
    """Run a coroutine in a new event loop.

    The first signal cancels the coroutine and lets it clean up, so that no sandbox is left when
    this function returns. A second signal ends the process at once, together with its sandboxes,
    even if code of a plugin blocks the event loop. Work that ignores its cancellation is abandoned.

    Ctrl-C stops the task. Other signals come from a closed terminal or a shutdown; with a durable
    journal the task then stays resumable.

    Args:
        main: Returns the coroutine.
        keep_resumable: Called before a signal other than Ctrl-C cancels the coroutine, to keep
            tasks resumable.

    Raises:
        InterruptedRunError: If a signal stopped the coroutine.
    """
    stop = _Stop(keep_resumable)

    async def watched() -> T:
        stop.watch(asyncio.current_task())
        return await main()

    runner = asyncio.Runner()
    try:
        return runner.run(watched())
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise InterruptedRunError(stop.signal_number or signal.SIGINT) from None
    finally:
        _close(runner)
        stop.close()  # after _close(), during which a signal is still written to the pipe


def _make_terminal_restorer() -> Callable[[], None]:
    """Return a function that restores the present mode of the terminal on standard input."""
    try:
        import termios
    except ImportError:  # Windows
        return lambda: None
    try:
        descriptor = sys.stdin.fileno()
        mode = termios.tcgetattr(descriptor)
    except (AttributeError, OSError, ValueError, termios.error):  # no terminal, or closed
        return lambda: None

    def restore() -> None:
        with suppress(OSError, termios.error):  # the terminal was closed
            # In the background, tcsetattr() would stop the process.
            if os.tcgetpgrp(descriptor) == os.getpgrp():
                termios.tcsetattr(descriptor, termios.TCSANOW, mode)

    return restore


def _close(runner: asyncio.Runner) -> None:
    """Close a runner, abandoning tasks that ignore their cancellation.

    ``asyncio.Runner.close`` would wait for such tasks forever.
    """
    loop = runner.get_loop()
    unfinished_tasks = asyncio.all_tasks(loop)
    for task in unfinished_tasks:
        task.cancel()
    if unfinished_tasks:
        _, unfinished_tasks = loop.run_until_complete(
            asyncio.wait(unfinished_tasks, timeout=_CLEAN_UP_SECONDS)
        )
    if unfinished_tasks:
        loop.set_exception_handler(_log_nothing)  # the default one would log each abandoned task
        loop.close()
    else:
        runner.close()


def _log_nothing(_loop: asyncio.AbstractEventLoop, _context: dict[str, Any]) -> None:
    return


class _Stop:
    """A signal handler that cancels an asyncio task.

    Args:
        keep_resumable: Called before a signal other than Ctrl-C cancels the task, so that the
            journal records no end of the running tasks of delf.
    """

    def __init__(self, keep_resumable: Callable[[], None]) -> None:
        self._keep_resumable = keep_resumable  # called at any signal but Ctrl-C
        # The number of the signal that the event loop has handled; None before.
        self.signal_number: int | None = None
        self._signal_count = 0  # including signals that the event loop has not handled yet
        self._task: asyncio.Task[Any] | None = None  # the task to cancel
        self._restore_terminal = _make_terminal_restorer()
        # A signal handler may interrupt code that holds a lock. The handler therefore starts no
        # thread and takes no lock, but writes to this pipe, from which a thread reads.
        self._pipe_reader, self._pipe_writer = os.pipe()

    def watch(self, task: asyncio.Task[Any] | None) -> None:
        """Let the first signal cancel an asyncio task, and the second signal end the process.

        The event loop cancels the task. A handler of the module :mod:`signal` counts the signals,
        so that the second signal works even while a function blocks the event loop.
        """
        self._task = task
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._warn_if_blocked, args=(loop,), daemon=True).start()
        for signal_name in _SIGNALS:
            number = getattr(signal, signal_name, None)
            if number is None or signal.getsignal(number) is signal.SIG_IGN:
                continue  # keep ignoring SIGHUP under nohup
            try:
                loop.add_signal_handler(number, self._cancel_task, number)
            except (NotImplementedError, ValueError, RuntimeError):
                return  # on Windows or in another thread, Ctrl-C raises KeyboardInterrupt as usual
            self._add_counting_handler(number)

    def _add_counting_handler(self, number: int) -> None:
        # Replace the handler that asyncio has installed. The handler does nothing, because asyncio
        # receives signals through a file descriptor.
        signal.signal(number, self._count_signal)
        # signal.signal() makes the signal interrupt system calls. Undo this, as asyncio does.
        signal.siginterrupt(number, False)

    def _count_signal(self, number: int, _frame: object) -> None:
        """Count a signal; end the process at the second signal."""
        self._signal_count += 1
        if self._signal_count > 1:  # the clean-up hangs, or the person does not want to wait for it
            self._restore_terminal()  # a question may have changed the mode
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)  # ends the process
        os.write(self._pipe_writer, b"\0")

    def _warn_if_blocked(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for a signal; warn if the event loop has not handled it two seconds later.

        The event loop cannot handle the signal while some function blocks the loop.
        """
        received_signal = os.read(self._pipe_reader, 1) != b""  # empty once the pipe is closed
        if received_signal:
            time.sleep(BUSY_SECONDS)
            has_loop_noticed = self.signal_number is not None  # set by _cancel_task()
            if not has_loop_noticed and not loop.is_closed():
                errors.say("warning", f"not stopped yet{busy_at(loop)}; {_CTRL_C_HINT}")
        os.close(self._pipe_reader)

    def close(self) -> None:
        """End the thread that waits for a signal."""
        os.close(self._pipe_writer)

    def _cancel_task(self, number: int) -> None:
        self.signal_number = number
        if self._task is not None:
            if number != signal.SIGINT:  # Ctrl-C ends the task; a shutdown only interrupts the task
                self._keep_resumable()
            self._task.cancel()
