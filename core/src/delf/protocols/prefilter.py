"""A prefilter: which of many actions a task needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cached_property
from typing import Final, Protocol, overload

from delf.ranking import Ranking
from delf.records import dataclass

Ask = Callable[[str], Awaitable[str]]
"""Asks the light model one question; its cost is counted."""

_NAME: Final = 2.0
_TAGS: Final = 1.0
_SUMMARY: Final = 2.0
_PARAMETERS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """One action as a prefilter sees it.

    Args:
        name: ``connection.method``.
        summary: A line about it.
        tags: Words that it is sorted under, if there are any.
        parameters: Its parameters, each by its name and what it means.
    """

    name: str
    summary: str
    tags: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()


class Catalog(Sequence[CatalogEntry]):
    """All actions that a task may use, in the order of the agent's tools.

    Args:
        entries: The actions.
    """

    def __init__(self, entries: Iterable[CatalogEntry] = ()) -> None:
        self._entries = tuple(entries)

    @overload
    def __getitem__(self, index: int) -> CatalogEntry: ...
    @overload
    def __getitem__(self, index: slice) -> Catalog: ...
    def __getitem__(self, index: int | slice) -> CatalogEntry | Catalog:
        if isinstance(index, slice):
            return Catalog(self._entries[index])
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<Catalog of {len(self)} actions>"

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking(
            (
                (e.name, _NAME),
                (e.summary, _SUMMARY),
                (" ".join(e.tags), _TAGS),
                (" ".join(map(" ".join, e.parameters)), _PARAMETERS),
            )
            for e in self
        )

    def search(self, words: str, limit: int = 20) -> tuple[CatalogEntry, ...]:
        """The actions that fit some words, best first; names and parameters count, too.

        The first search makes an index of all actions; those after it take well under a
        millisecond for a thousand of them.

        Args:
            words: What is looked for, as plain words.
            limit: The most actions.
        """
        return tuple(self[number] for number in self.ranking(words, limit))

    def ranking(self, words: str, limit: int = 20) -> list[int]:
        """What :meth:`search` finds, as places in the catalog."""
        return self._ranking.find(words, limit)

    def shares(self, words: str, limit: int = 20) -> list[tuple[int, float]]:
        """What :meth:`ranking` finds, each with its share, from 0 to 1, of a perfect fit."""
        return self._ranking.shares(words, limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The names that a prefilter kept."""

    names: frozenset[str]


class Prefilter(Protocol):
    """Chooses from the catalog. What is not allowed was left out of it already."""

    async def select(self, task: str, catalog: Catalog, ask: Ask) -> Selection:
        """The actions that this task needs.

        Raises:
            PrefilterError: When it cannot choose; the engine goes on with all of them.
        """
        ...
