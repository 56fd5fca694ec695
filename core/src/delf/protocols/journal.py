"""A journal: the append-only record of everything that happened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from delf.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """One task in a list of tasks."""

    task_id: str
    task: str
    started_at: float
    state: str


class Journal(Protocol):
    """Keeps events in order, once each, before anyone acts on them."""

    async def append(self, event: Event) -> None:
        """Keep an event. When this returns, it is kept.

        Whoever waits may be cancelled: an event that was begun to be kept is kept all the
        same, before those that are appended later.
        """
        ...

    async def read(self, task_id: str, after: int = 0) -> Sequence[Event]:
        """A task's events with ``seq`` greater than ``after``, in order.

        Raises:
            UnknownTaskError: When no such task is known.
        """
        ...

    def subscribe(self, task_id: str | None = None) -> AsyncIterator[Event]:
        """Events as they are appended, of one task or of all, from now on."""
        ...

    async def find(self, limit: int = 100) -> Sequence[TaskRecord]:
        """The newest tasks first."""
        ...

    async def aclose(self) -> None:
        """Free what is held. Safe to call twice."""
        ...


@runtime_checkable
class SupportsClaims(Protocol):
    """A journal that several processes share: it knows which of them works on a task."""

    async def claim(self, task_id: str) -> None:
        """Make a task whose process is gone this one's own, to resume it.

        Raises:
            UnknownTaskError: When no such task is known.
            DelfError: When a process that lives works on it.
        """
        ...
