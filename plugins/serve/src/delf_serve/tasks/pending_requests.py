"""Pending requests: for which tasks wait, and which the people of the server may decide."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from delf.machine.contexts import shared_task
from delf.protocols.journal import RequestRecord
from delf.protocols.shared_journal import SharedJournal
from delf_cli.answering import why_not_approve
from delf_engine.elsewhere import MAX_REQUESTS
from delf_serve.keys import Caller

Waiting = Mapping[str, Sequence[RequestRecord]]
"""Pending requests by task id."""


class PendingRequests:
    """The pending requests of all tasks in the journal.

    Args:
        journal: Returns the journal.
    """

    def __init__(self, journal: Callable[[], SharedJournal]) -> None:
        self._journal = journal
        self._read_lock = asyncio.Lock()
        # The read that has not begun yet, which new callers share.
        self._next_read: asyncio.Task[Waiting] | None = None

    async def by_task(self) -> Waiting:
        """Return the pending requests by task id.

        Concurrent callers share a read of the journal that begins after their calls. A read that
        began earlier may have a request that was decided in the meantime.
        """
        if self._next_read is None:
            self._next_read = shared_task(self._read())
        # A caller that is cancelled must not cancel the read of the others.
        return await asyncio.shield(self._next_read)

    async def _read(self) -> Waiting:
        """Wait for a read in progress, then read the pending requests; return them by task id."""
        async with self._read_lock:
            # Until now, more callers of by_task() could share this read. Later callers start
            # another read, because this read may miss a request that is made from now on.
            self._next_read = None
            requests_by_task = dict[str, list[RequestRecord]]()
            for record in await self._journal().find_requests(waiting=True, limit=MAX_REQUESTS):
                requests_by_task.setdefault(record.task.task_id, []).append(record)
            return requests_by_task


def has_right(record: RequestRecord, caller: Caller) -> bool:
    """Return True if a caller has the right to decide a request.

    Approval rules are not considered: a rule may still forbid the decision. A question can also be
    answered by the user of its task.
    """
    user_of_task = record.task.user
    is_own_question = record.requested.is_question and user_of_task == caller.user
    return "decide" in caller.rights or (is_own_question and "run" in caller.rights)


def may_decide(record: RequestRecord, caller: Caller) -> bool:
    """Return True if a person may approve a pending request, or answer a pending question."""
    if not record.waits or not has_right(record, caller):
        return False
    return why_not_approve(record, caller.decider()) is None
