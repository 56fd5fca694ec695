"""Running of async code that is cancelled by signals."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from delf_cli.errors import InterruptedRunError

T = TypeVar("T")

_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")


def run_until_done(
    main: Callable[[], Coroutine[Any, Any, T]], leave: Callable[[], None] = lambda: None
) -> T:
    """Run a coroutine in a new event loop.

    The first signal cancels the coroutine and lets it clean up, so that sandboxes are gone when
    this returns. A second signal ends the process at once, together with its sandboxes.

    Ctrl-C stops the task. Other signals come from a closed terminal or a shutdown; with a durable
    journal the task then stays resumable.

    Args:
        main: Returns the coroutine.
        leave: Called before a signal other than Ctrl-C cancels the coroutine, to keep tasks
            resumable.

    Raises:
        InterruptedRunError: If a signal stopped the coroutine.
    """
    stop = _Stop(leave)

    async def watched() -> T:
        stop.watch(asyncio.current_task())
        return await main()

    with asyncio.Runner() as runner:
        try:
            return runner.run(watched())
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise InterruptedRunError(stop.number or signal.SIGINT) from None


class _Stop:
    """A signal handler that cancels an asyncio task."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self.number: int | None = None
        self._task: asyncio.Task[Any] | None = None

    def watch(self, task: asyncio.Task[Any] | None) -> None:
        self._task = task
        loop = asyncio.get_running_loop()
        for name in _SIGNALS:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup ignores SIGHUP, and so do we
            try:
                loop.add_signal_handler(number, self._take, number)
            except (NotImplementedError, ValueError, RuntimeError):
                return  # Windows, or not in the main thread: Ctrl-C works as Python has it

    def _take(self, number: int) -> None:
        # The clean-up hangs, or the person does not want to wait for it.
        if self.number is not None:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.number = number
        if self._task is not None:
            if number != signal.SIGINT:
                self._leave()
            self._task.cancel()
