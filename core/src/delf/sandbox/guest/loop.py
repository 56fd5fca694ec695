"""The guest's event loop: sends what gathered before it waits, and knows when it only waits.

It holds no descriptor until it is opened, so that it can be made once and forked many times.
"""

from __future__ import annotations

import _thread
import asyncio
import selectors
from collections.abc import Callable, Sized
from time import monotonic  # before scripts get another
from typing import Any

_count_threads = _thread._count  # pyright: ignore[reportPrivateUsage]


class _Selector(selectors.PollSelector):
    """Calls a function before it looks for what happened, so at the end of a loop's turn."""

    at_turn: Callable[[], None] | None = None

    def select(self, timeout: float | None = None) -> Any:
        if self.at_turn is not None:
            self.at_turn()
        return super().select(timeout)


class GuestLoop(asyncio.SelectorEventLoop):
    """An event loop that knows when it only waits for the host."""

    _ready: Sized
    _scheduled: Sized
    _signal_handlers: Sized
    _csock: object = None

    def __init__(self) -> None:
        self._threads = 0
        self._watched = _Selector()
        super().__init__(self._watched)

    def open(self, *, threads: bool) -> None:
        """Begin to serve one process.

        Args:
            threads: Whether threads may wake it up.
        """
        self._threads = _count_threads()
        if threads:
            self._open_wake_up()

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        """As the one of asyncio, which needs something to be woken by."""
        self._open_wake_up()
        super().add_signal_handler(sig, callback, *args)

    def _open_wake_up(self) -> None:
        if self._csock is None:
            super()._make_self_pipe()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]

    def _make_self_pipe(self) -> None:
        """asyncio's: not yet."""

    def _close_self_pipe(self) -> None:
        if self._csock is not None:
            super()._close_self_pipe()  # pyright: ignore[reportUnknownMemberType,reportAttributeAccessIssue]

    def at_turn(self, function: Callable[[], None]) -> None:
        """Have a function called at the end of every turn, before the loop waits."""
        self._watched.at_turn = function

    def time(self) -> float:
        """The real time, which timers go by."""
        return monotonic()

    def only_waits(self) -> bool:
        """Whether nothing can happen before the host sends something.

        Not so while a callback is ready, a timer runs, a thread could call back, a signal is
        handled, a further descriptor is watched, or the task that asks is being cancelled.
        """
        task = asyncio.current_task(self)
        return (
            task is not None
            and not task.cancelling()
            and not self._ready
            and not self._scheduled
            and not self._signal_handlers
            and self.get_task_factory() is None
            and _count_threads() == self._threads
            and len(self._watched.get_map()) == (1 if self._csock is None else 2)  # with the wire
        )
