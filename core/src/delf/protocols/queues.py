"""Queues: tasks that wait for runners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from delf.errors import DelfError
from delf.protocols.journal import TaskRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How much of a queue is worked on, by all processes together; None is no limit.

    Args:
        at_once: How many of its tasks.
        per_second: How many of them begin in a second.
        key_at_once: How many of those with one key.
        key_per_second: How many of those begin in a second.
    """

    at_once: int | None = None
    per_second: float | None = None
    key_at_once: int | None = None
    key_per_second: float | None = None


@runtime_checkable
class SupportsQueues(Protocol):
    """A journal in which tasks wait for runners."""

    async def take(
        self,
        queues: Mapping[str, QueueLimits],
        most: int,
        *,
        without: Collection[str] = (),
        dry_run: bool = False,
    ) -> Sequence[TaskRecord]:
        """Take tasks that may be worked on now: first those whose process is gone.

        Nobody else is given them until somebody claims them, they are given back, or this process
        ends or is silent for longer than its lease.

        Args:
            queues: Where they wait, and the limits there.
            most: How many at the most.
            without: The ids of tasks that are passed over.
            dry_run: Only say which.
        """
        ...

    async def give_back(self, task_ids: Collection[str]) -> None:
        """Let somebody else take tasks that were not claimed."""
        ...

    async def give_up(self, task_id: str, error: DelfError) -> None:
        """End a task that was taken and not claimed, as failed."""
        ...
