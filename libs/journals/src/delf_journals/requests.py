"""Requests for approval as whoever answers from elsewhere finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from delf.events import ApprovalDecided, ApprovalRequested
from delf.protocols.journal import SupportsInbox, TaskRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request for approval, as a journal knows it.

    Args:
        requested: What was asked.
        decided: How it was decided, if it was.
        task: Its task; ``running`` only while a process that lives works on it.
    """

    requested: ApprovalRequested
    decided: ApprovalDecided | None
    task: TaskRecord

    @property
    def waits(self) -> bool:
        """Whether an answer would still count."""
        return self.decided is None and self.task.state == "running"


@runtime_checkable
class SupportsRequests(SupportsInbox, Protocol):
    """A journal with an inbox in which requests can be found, so that they can be answered."""

    async def find_requests(
        self, start: str = "", *, waiting: bool = False, limit: int = 1000
    ) -> Sequence[RequestRecord]:
        """Requests for approval, the oldest first.

        Args:
            start: Only those whose id begins so, with or without its ``req_``.
            waiting: Only those that wait for an answer.
            limit: How many at the most; the newest.
        """
        ...
