"""Tasks of the past: looked through, and forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from delf.protocols.journal import Journal, SupportsRecords, TaskRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be.

    Args:
        tasks: Their ids, the oldest first.
        events: How many events they have.
    """

    tasks: tuple[str, ...]
    events: int


@runtime_checkable
class SupportsHistory(Journal, SupportsRecords, Protocol):
    """A journal that can be looked through, and told to forget: what ``delf runs`` asks of one."""

    @property
    def place(self) -> str:
        """Where it is, for people; no login."""
        ...

    async def find(
        self,
        limit: int = 100,
        *,
        state: str | None = None,
        text: str | None = None,
        since: float | None = None,
    ) -> Sequence[TaskRecord]:
        """The newest tasks first.

        Args:
            limit: How many at the most.
            state: Only those in this state.
            text: Only those whose task holds this text, in any case.
            since: Only those that started at this Unix time or later.
        """
        ...

    async def resolve(self, text: str) -> str:
        """The id that a text abbreviates.

        Raises:
            UnknownTaskError: When no id or more than one begins so.
        """
        ...

    async def prune(
        self, older_than: float | None = None, keep: int = 0, *, dry_run: bool = False
    ) -> Pruned:
        """Remove old tasks with all their events; never one that runs.

        Args:
            older_than: Only those that ended so many seconds ago.
            keep: How many of the newest stay in any case.
            dry_run: Only say which.
        """
        ...
