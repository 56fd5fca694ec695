"""A task's log: numbers events, journals them in order, then shows them to listeners."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from delf.events import Event, Printed
from delf.protocols.journal import Journal

_log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
"""Sees an event after it was journalled. Must be quick and must not raise."""


class TaskLog:
    """Writes one task's events.

    Args:
        task_id: The task.
        journal: Where events are kept first.
        listeners: Who sees them afterwards.
    """

    def __init__(self, task_id: str, journal: Journal, listeners: Sequence[Listener]) -> None:
        self.task_id = task_id
        self.events: list[Event] = []
        self._journal = journal
        self._listeners = tuple(listeners)
        self._lock = asyncio.Lock()
        self._printed: list[str] = []
        self._flushing: asyncio.Task[None] | None = None

    async def record(self, kind: Callable[..., Event], **fields: Any) -> None:
        """Journal an event; when this returns, it is kept.

        Args:
            kind: The event's class.
            fields: Its own fields; task, sequence number and time are added.
        """
        async with self._lock:
            await self._write_printed()
            await self._write(kind, fields)

    def say(self, text: str) -> None:
        """Journal printed text soon, and before any other event."""
        self._printed.append(text)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        async with self._lock:
            await self._write_printed()

    async def _write_printed(self) -> None:
        if self._printed:
            text = "".join(self._printed)
            self._printed.clear()
            await self._write(Printed, {"text": text})

    async def _write(self, kind: Callable[..., Event], fields: dict[str, Any]) -> None:
        seq = len(self.events) + 1
        event = kind(task_id=self.task_id, seq=seq, at=time.time(), **fields)
        try:
            await self._journal.append(event)
        except asyncio.CancelledError:
            self._show(event)  # it is kept nevertheless: no other event may have its number
            raise
        self._show(event)

    def _show(self, event: Event) -> None:
        self.events.append(event)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                _log.exception("a listener failed on %s", type(event).__name__)
