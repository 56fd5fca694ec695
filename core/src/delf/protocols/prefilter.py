"""A prefilter: selects the actions that a task needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, overload

from delf.records import dataclass

Ask = Callable[[str], Awaitable[str]]
"""A function that asks the agent's light model one question, and returns the answer.

The light model is the setting ``light_llm``, or else the main model. The task pays for the call.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogEntry:
    """An action as a prefilter sees it.

    Args:
        name: ``connection.method``.
        summary: A one-line description.
        tags: Category tags, if any.
        parameters: The parameters' names and descriptions.
        values: Allowed values of parameters, and keys of record parameters.
        reads: Whether the action only reads.
        description: The full description, for searching.
    """

    name: str
    summary: str
    tags: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    values: tuple[str, ...] = ()
    reads: bool = False
    description: str = ""


class Catalog(Sequence[CatalogEntry]):
    """All actions that a task may use, in the order of the agent's tools.

    Args:
        entries: The actions.
    """

    def __init__(self, entries: Iterable[CatalogEntry] = ()) -> None:
        self._entries = tuple(entries)
        self.cache: dict[str, Any] = {}
        """Data that functions derive from this catalog and store here, such as a search index."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The actions that a prefilter selected for a task.

    The prompt shows the selected actions, and other actions that read the same resources, up to the
    prompt's limit of characters.

    Args:
        names: The names of the actions (``connection.method``), best first.
    """

    names: Sequence[str]


class Prefilter(Protocol):
    """Selects the actions that a task needs from a catalog of all allowed actions."""

    async def select(self, task: str, catalog: Catalog, ask: Ask) -> Selection:
        """Return the actions that this task needs.

        Raises:
            PrefilterError: If the prefilter cannot choose. The engine then falls back to word
                search.
        """
        ...
