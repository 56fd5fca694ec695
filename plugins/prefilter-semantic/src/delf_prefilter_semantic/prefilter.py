"""``SemanticPrefilter``: words, and meaning where an embedder is installed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from delf.errors import DelfError, PluginError
from delf.machine.contexts import shared_task
from delf.protocols.context import PluginContext
from delf.protocols.embedder import Embedder
from delf.protocols.prefilter import Ask, Catalog, Selection
from delf.tools.catalogs import fit
from delf_prefilter_semantic.vectors import CatalogVectors

_log = logging.getLogger(__name__)

_LOOKED_AT: Final = 100
"""The number of entries of each ranking that are fused."""
_BY_WORDS: Final = 0.6
"""The weight of word scores, from 0 to 1; vectors have the remaining weight."""


class SemanticPrefilter:
    """Ranks actions for a task and its steps.

    Words are scored by BM25 over names, summaries, parameters and tags, for the whole task and for
    its best step (:func:`delf.tools.catalogs.fit`). With an embedder, word scores and vector
    similarities are added, because rank fusion would let the weaker ranking spoil the other. Only
    the whole task is embedded: vectors of its steps would take several times as long without
    better results.

    A catalog's vectors are computed once in the background and cached on disk; until then only
    words count.

    Args:
        context: The cache folder and the embedder.
        limit: The maximum number of actions to select.
        embedding_model: The embedder's name; the agent's own when None; ``"off"`` for words alone.
        wait_seconds: Seconds that a task waits for the vectors of a new catalog.
    """

    def __init__(
        self,
        context: PluginContext,
        limit: int = 60,
        embedding_model: str | None = None,
        wait_seconds: float = 2.0,
    ) -> None:
        self._limit = limit
        self._wait_seconds = wait_seconds
        self._embedder = _embedder(context, embedding_model)
        self._folder = context.data_dir / "prefilter-semantic"
        self._catalog: Catalog | None = None
        self._making: asyncio.Task[CatalogVectors] | None = None

    async def select(self, task: str, catalog: Catalog, ask: Ask) -> Selection:
        """Return the actions that fit the task best; all actions if the limit allows."""
        if len(catalog) <= self._limit:
            return Selection(names=tuple(entry.name for entry in catalog))
        chosen = await self.rank(task, catalog)
        return Selection(names=tuple(catalog[number].name for number in chosen))

    async def rank(self, task: str, catalog: Catalog) -> Sequence[int]:
        """Return the catalog indexes of the actions that fit a task, best first."""
        vectors = await self._vectors(catalog)
        by_words = fit(catalog, task, max(self._limit, _LOOKED_AT))
        if vectors is None:
            return list(by_words)[: self._limit]
        try:
            likeness = await vectors.likeness(task)
        except DelfError as error:
            _log.warning("words decide alone, the embedder failed: %s", error.describe())
            return list(by_words)[: self._limit]
        return _fused(by_words, likeness)[: self._limit]

    async def _vectors(self, catalog: Catalog) -> CatalogVectors | None:
        """Return the catalog's vectors, if ready within the task's wait."""
        if self._embedder is None or not catalog:
            return None
        if self._making is None or self._catalog is not catalog:
            if self._making is not None:
                self._making.cancel()
            self._catalog = catalog
            made = CatalogVectors.make(catalog, self._embedder, self._folder)
            self._making = shared_task(made)
            self._making.add_done_callback(_tell_failure)
        await asyncio.wait({self._making}, timeout=self._wait_seconds)
        if not self._making.done() or self._making.cancelled() or self._making.exception():
            return None
        return self._making.result()

    async def aclose(self) -> None:
        """Stop making vectors."""
        making, self._making = self._making, None
        if making is not None:
            making.cancel()
            await asyncio.wait({making})


def _embedder(context: PluginContext, name: str | None) -> Embedder | None:
    """Return the embedder; None if the settings name no embedder and none is installed."""
    if name == "off":
        return None
    try:
        return context.embedder(name)
    except PluginError:
        if name is not None:
            raise
        return None


def _tell_failure(making: asyncio.Task[CatalogVectors]) -> None:
    if not making.cancelled() and (error := making.exception()) is not None:
        message = error.describe() if isinstance(error, DelfError) else error
        _log.warning("words decide alone, the tools could not be embedded: %s", message)


def _fused(by_words: Mapping[int, float], likeness: Any) -> list[int]:
    """Return the indexes of the best actions, scored by words and by vector similarity."""
    some = min(_LOOKED_AT, len(likeness) - 1)
    nearest = np.argpartition(-likeness, some)[:_LOOKED_AT].tolist()
    numbers = np.fromiter({*by_words, *nearest}, dtype=np.int64)
    words = np.fromiter((by_words.get(n, 0.0) for n in numbers.tolist()), dtype=np.float64)
    scores = _BY_WORDS * words + (1 - _BY_WORDS) * likeness[numbers]
    return numbers[np.lexsort((numbers, -scores))].tolist()
