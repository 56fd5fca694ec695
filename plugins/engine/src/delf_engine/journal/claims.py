"""``Claims``: the tasks that an agent works on, so that no task has two owners."""

from __future__ import annotations

import asyncio
import logging
from asyncio import sleep
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic
from typing import Any, Final

from delf.errors import DelfError
from delf.events import Event, end_event, make_end_event
from delf.protocols.journal import Journal
from delf.protocols.shared_journal import SharedJournal
from delf.records import dataclass
from delf_engine.journal.forks import is_incomplete_fork
from delf_engine.waiting import await_despite_cancellation

_log = logging.getLogger(__name__)
# The maximum wait for the journal when a claim is released; an unreleased claim expires.
_RELEASE_SECONDS: Final = 2.0
_INCOMPLETE_FORK: Final = "the process that forked the task died before all events were copied"


@dataclass(frozen=True)
class PreviousOwner:
    """The process that owned a claimed task before, and may still be alive.

    Args:
        process: A description of the process, such as ``pid 7 on host``.
        until: The time, on the clock of ``time.monotonic()``, by which the process must have
            noticed that it lost its claim.
    """

    process: str
    until: float

    async def wait_until_expired(self) -> None:
        """Wait until the lease of the previous process has expired.

        That process has then stopped its calls.
        """
        # Part of the lease has usually passed while a person was asked.
        if (seconds := self.until - monotonic()) > 0:
            await sleep(seconds)


class Claims:
    """The tasks that one agent has claimed."""

    def __init__(self) -> None:
        self.claimed: set[str] = set()
        """The ids of the tasks that this agent has claimed."""
        self.previous_owners: dict[str, PreviousOwner] = {}
        """The previous owners that may still be alive, by id of the claimed task."""

    async def release(self, journal: Journal, task_id: str) -> None:
        """Release the claim on an unfinished task.

        If the journal is unreachable, the claim ends when the lease expires.
        """
        self.claimed.discard(task_id)
        self.previous_owners.pop(task_id, None)
        if isinstance(journal, SharedJournal):
            try:
                # A release that is cancelled halfway would leave the task idle until its lease
                # expires.
                await await_despite_cancellation(self._release(journal, task_id))
            except (DelfError, TimeoutError) as error:
                cause = str(error) or "the journal does not answer"
                _log.warning("task %s is not released for other processes yet: %s", task_id, cause)

    @staticmethod
    async def _release(journal: SharedJournal, task_id: str) -> None:
        # Limit the time, so that a shutdown does not hang while the journal is unreachable. A claim
        # that is not released ends with its lease.
        async with asyncio.timeout(_RELEASE_SECONDS):
            await journal.release(task_id)

    async def claim(
        self, journal: Journal, task_id: str, *, even_if_ended_at_limit: bool = False
    ) -> Sequence[Event]:
        """Claim a task for this agent, unless the task is over; return its events in any case.

        A task that was claimed is in :attr:`claimed`.

        Args:
            journal: The journal.
            task_id: The id of the task.
            even_if_ended_at_limit: Whether to claim the task even if the task ended at its timeout
                or budget.

        Returns:
            The task's events.

        Raises:
            UnknownTaskError: If the journal does not have the task.
            DelfError: If this agent or another live process works on the task.
        """
        if task_id in self.claimed:
            raise DelfError(f"task {task_id} is being worked on by this agent", hint="wait for it")
        can_go_on = partial(_can_go_on, even_if_ended_at_limit=even_if_ended_at_limit)
        # The end of the block undoes the claim, unless pop_all() is called.
        async with AsyncExitStack() as undo:
            # Before the first await: two callers on this loop must not both pass the check above.
            self.claimed.add(task_id)
            undo.callback(self.claimed.discard, task_id)
            events = await journal.read(task_id)
            if can_go_on(events) and isinstance(journal, SharedJournal):
                events = await self._claim_in_journal(journal, task_id, events, undo)
            events = await _end_incomplete_fork(journal, events)
            # Keep the claim only if the task can still go on. Another process may have ended the
            # task before the claim, or _end_incomplete_fork() may have ended it now.
            if can_go_on(events):
                undo.pop_all()
            return events

    async def _claim_in_journal(
        self,
        journal: SharedJournal,
        task_id: str,
        events: Sequence[Event],
        undo: AsyncExitStack,
    ) -> Sequence[Event]:
        """Claim a task in the journal, and return the task's events as of the claim.

        Args:
            journal: The journal.
            task_id: The id of the task.
            events: The events before the claim.
            undo: Gets a callback that releases the claim.
        """
        claiming = asyncio.ensure_future(_claim(journal, task_id, events))
        undo.push_async_callback(self._release_if_granted, journal, task_id, claiming)
        # Wait for the end of the claim even if this method is cancelled: a claim that was cancelled
        # halfway could succeed unnoticed and never be released.
        previous_owner = await await_despite_cancellation(claiming)
        if previous_owner is not None:
            self.previous_owners[task_id] = previous_owner
        # The previous owner may have appended events shortly before the claim.
        return await journal.read(task_id)

    async def _release_if_granted(
        self, journal: SharedJournal, task_id: str, claiming: asyncio.Future[Any]
    ) -> None:
        """Release the claim on a task if the journal has granted the claim.

        Unreleased, the claim would keep other processes away until its lease expires.

        Args:
            journal: The journal.
            task_id: The task.
            claiming: The finished request for the claim, which may have failed.
        """
        if not claiming.cancelled() and claiming.exception() is None:
            await self.release(journal, task_id)


def _can_go_on(events: Sequence[Event], *, even_if_ended_at_limit: bool) -> bool:
    """Return whether a task can go on, because it has not ended.

    With ``even_if_ended_at_limit``, a task that ended at its timeout or budget can go on, too.
    """
    if even_if_ended_at_limit and ended_at_limit(events):
        return True
    return not is_over(events)


async def _end_incomplete_fork(journal: Journal, events: Sequence[Event]) -> Sequence[Event]:
    """End the task if it is an incomplete fork, which must not be resumed.

    Returns:
        The task's events, with the event of the end if the task was ended.
    """
    if is_over(events) or not is_incomplete_fork(events):
        return events
    error = DelfError(_INCOMPLETE_FORK, hint="fork it once more")
    await journal.append(make_end_event(events, error))
    return await journal.read(events[0].task_id)


async def _claim(
    journal: SharedJournal, task_id: str, events: Sequence[Event]
) -> PreviousOwner | None:
    """Claim a task for this process, and reopen it if it has ended.

    Returns:
        The previous owner of the task if that process may still be alive, else None.

    Raises:
        DelfError: If the task cannot be claimed.
    """
    claim = journal.reopen if is_over(events) else journal.claim
    owner = await claim(task_id)
    if owner is None:
        return None
    return PreviousOwner(owner.process, until=monotonic() + owner.lease)


def is_over(events: Sequence[Event]) -> bool:
    """Return True if a task has ended and was not continued afterwards."""
    return end_event(events) is not None


def ended_at_limit(events: Sequence[Event]) -> bool:
    """Return True if a task has ended because it reached its timeout or budget."""
    end = end_event(events)
    return end is not None and end.at_limit
