"""The guest's event loop: sends what gathered before it waits, and knows when it only waits."""

from __future__ import annotations

import _thread
import asyncio
import selectors
from collections.abc import Callable, Sized
from typing import Any

_count_threads = _thread._count  # pyright: ignore[reportPrivateUsage]
_DESCRIPTORS = 2
"""What is watched while a script watches nothing: the wire, and the loop's own wake-ups."""


class _Selector(selectors.DefaultSelector):
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

    def __init__(self) -> None:
        self._threads = _count_threads()
        self._watched = _Selector()
        super().__init__(self._watched)

    def at_turn(self, function: Callable[[], None]) -> None:
        """Have a function called at the end of every turn, before the loop waits."""
        self._watched.at_turn = function

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
            and len(self._watched.get_map()) == _DESCRIPTORS
        )
