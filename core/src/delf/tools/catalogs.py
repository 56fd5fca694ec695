"""The tools of a catalog that fit some words."""

from __future__ import annotations

from typing import Final

from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.ranking import Ranking

_KEPT: Final = "ranking"
_NAME: Final = 2.0
_TAGS: Final = 1.0
_SUMMARY: Final = 2.0
_PARAMETERS: Final = 1.0


def search(catalog: Catalog, words: str, limit: int = 20) -> tuple[CatalogEntry, ...]:
    """The actions that fit some words, best first; names and parameters count, too.

    The first search makes an index of all actions, which the catalog keeps.

    Args:
        catalog: The actions.
        words: What is looked for, as plain words.
        limit: The most actions.
    """
    return tuple(catalog[number] for number in places(catalog, words, limit))


def places(catalog: Catalog, words: str, limit: int = 20) -> list[int]:
    """Return the results of :func:`search` as places in the catalog."""
    return _ranking(catalog).find(words, limit)


def shares(catalog: Catalog, words: str, limit: int = 20) -> list[tuple[int, float]]:
    """Return the results of :func:`places` with their shares of a perfect fit, from 0 to 1."""
    return _ranking(catalog).shares(words, limit)


def _ranking(catalog: Catalog) -> Ranking:
    kept = catalog.kept.get(_KEPT)
    if not isinstance(kept, Ranking):
        kept = catalog.kept[_KEPT] = Ranking(
            (
                (e.name, _NAME),
                (e.summary, _SUMMARY),
                (" ".join(e.tags), _TAGS),
                (" ".join(map(" ".join, e.parameters)), _PARAMETERS),
            )
            for e in catalog
        )
    return kept
