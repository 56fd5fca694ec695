"""A prefilter: which of many actions a task needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Ask = Callable[[str], Awaitable[str]]
"""Asks the light model one question; its cost is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One action as a prefilter sees it: ``connection.method`` and a line about it."""

    name: str
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The names that a prefilter kept."""

    names: frozenset[str]


class Prefilter(Protocol):
    """Chooses from the catalog. What is not allowed was left out of it already."""

    async def select(self, task: str, catalog: Sequence[CatalogEntry], ask: Ask) -> Selection:
        """The actions that this task needs.

        Raises:
            PrefilterError: When it cannot choose; the engine goes on with all of them.
        """
        ...
