"""Clients that wait until a task ends or needs a person."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

from delf.events import ApprovalRequested, Event, TaskFinished
from delf.protocols.shared_journal import SharedJournal
from delf.protocols.states import state_of
from delf.types import TaskState
from delf_serve.tasks.pending_requests import PendingRequests

_LOOK_SECONDS: Final = 5.0


class Waits:
    """The clients that wait for a task of any process.

    Args:
        journal: Returns the journal.
        pending_requests: The requests for which tasks wait.
    """

    def __init__(
        self, journal: Callable[[], SharedJournal], pending_requests: PendingRequests
    ) -> None:
        self._journal = journal
        self._pending_requests = pending_requests
        self._is_shutting_down = False

    def start(self) -> None:
        """Accept waits of clients; needed again after :meth:`end`."""
        self._is_shutting_down = False

    def end(self) -> None:
        """Make waits for tasks end soon, because the server shuts down.

        A running wait ends after its next look at the task's state, a new wait at once.
        """
        self._is_shutting_down = True

    async def wait(self, task_id: str, seconds: float) -> None:
        """Wait until a task ends or needs a person, or until the server shuts down.

        Args:
            task_id: The id of the task, which may run in any process.
            seconds: The maximum time to wait.
        """
        # Subscribe before reading the state, so that an end between the two is not missed.
        events = self._journal().subscribe(task_id)
        deadline = time.monotonic() + seconds
        while not await self._is_over_or_waiting(task_id):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._is_shutting_down:
                return
            # Check the state again after a short time: the task's process may die without an event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(remaining, _LOOK_SECONDS)):
                    is_journal_open = await _receive_end_or_request(events)
                    if not is_journal_open:
                        return

    async def _is_over_or_waiting(self, task_id: str) -> bool:
        """Return True if a task has ended or waits for a person."""
        record = await self._journal().task(task_id)
        state = state_of(record, waiting=await self._pending_requests.by_task())
        return state.is_terminal or state is TaskState.WAITING


async def _receive_end_or_request(events: AsyncIterator[Event]) -> bool:
    """Receive events until a task ends or asks a person; return False if the journal was closed."""
    async for event in events:
        if isinstance(event, (TaskFinished, ApprovalRequested)):
            return True
    return False
