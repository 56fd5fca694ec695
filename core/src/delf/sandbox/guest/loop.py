"""The guest's event loop: sends what gathered before it waits, and knows when it only waits."""

from __future__ import annotations

import _thread
import asyncio
import selectors
from collections.abc import Callable
from typing import Any

_DESCRIPTORS = 2
"""What is watched while a script watches nothing: the wire, and the loop's own wake-ups."""


class _Selector(selectors.DefaultSelector):
    """Calls a function at the end of each turn of the loop.

    Args:
        at_turn: The function.
    """

    def __init__(self, at_turn: Callable[[], None]) -> None:
        super().__init__()
        self._at_turn = at_turn

    def select(self, timeout: float | None = None) -> Any:
        self._at_turn()
        return super().select(timeout)


class GuestLoop(asyncio.SelectorEventLoop):
    """An event loop with a function that is called at the end of each of its turns."""

    def __init__(self) -> None:
        self.at_turn: Callable[[], None] = _nothing
        self._watched = _Selector(lambda: self.at_turn())
        super().__init__(self._watched)

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
            and self._task_factory is None
            and not _thread._count()
            and len(self._watched.get_map()) == _DESCRIPTORS
        )


def _nothing() -> None:
    pass
