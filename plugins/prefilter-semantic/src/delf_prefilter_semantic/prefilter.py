"""``SemanticPrefilter``: words, and meaning where an embedder is installed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from delf.errors import DelfError, PluginError
from delf.machine.contexts import shared_task
from delf.protocols.context import PluginContext
from delf.protocols.embedder import Embedder
from delf.protocols.prefilter import Ask, Catalog, Selection
from delf.tools.catalogs import score_actions
from delf_prefilter_semantic.vectors import CatalogVectors

_log = logging.getLogger(__name__)

# The number of best actions of each ranking that are combined.
_MAX_RANKED: Final = 100
PAUSE_SECONDS: Final = 60.0
"""The seconds from the start of a failed attempt until a catalog's vectors are tried again."""
# The weight of word scores, from 0 to 1; vector similarities have the remaining weight.
_WORD_WEIGHT: Final = 0.6


class SemanticPrefilter:
    """Selects actions for a task by common words and, with an embedder, by similar meaning.

    Words are scored by BM25 over names, summaries, parameters and tags, for the whole task and for
    the step of the task that fits best (:func:`delf.tools.catalogs.score_actions`). With an
    embedder, a weighted sum of the word score and the vector similarity decides. The sum uses
    scores, not ranks (rank fusion), so that a ranking of poor scores cannot displace the matches of
    good scores. Only the whole task is embedded, because vectors of its steps would take several
    times as long without better results.

    A catalog's vectors are computed once in the background and cached on disk. Until then, only
    words count. If the embedder fails, a later task computes the vectors again.

    Args:
        context: The plugin's context, with the cache folder and the embedders.
        limit: The maximum number of actions to select.
        embedding_model: The name of the embedder; by default the agent's. ``"off"`` compares
            words only.
        wait_seconds: The seconds that a task waits for the vectors of a new catalog.
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
        self._embedder = _find_embedder(context, embedding_model)
        self._folder = context.data_dir / "prefilter-semantic"
        self._catalog: Catalog | None = None
        self._vectors_task: asyncio.Task[CatalogVectors] | None = None
        self._vectors_started = 0.0

    async def select(self, task: str, catalog: Catalog, ask: Ask) -> Selection:
        """Return the actions that fit the task best; all actions if they are within the limit."""
        if len(catalog) <= self._limit:
            return Selection(names=tuple(entry.name for entry in catalog))
        chosen = await self.rank(task, catalog)
        return Selection(names=tuple(catalog[number].name for number in chosen))

    async def rank(self, task: str, catalog: Catalog) -> Sequence[int]:
        """Return the catalog indexes of the actions that fit a task, best first."""
        vectors = await self._vectors(catalog)
        word_scores = score_actions(catalog, task, max(self._limit, _MAX_RANKED))
        if vectors is None:
            return list(word_scores)[: self._limit]
        try:
            similarities = await vectors.similarities(task)
        except DelfError as error:
            _log.warning(
                "actions are chosen by words only, because the embedder failed: %s",
                error.describe(),
            )
            return list(word_scores)[: self._limit]
        return _best_indexes(word_scores, similarities)[: self._limit]

    async def _vectors(self, catalog: Catalog) -> CatalogVectors | None:
        """Return the catalog's vectors; None if they are not ready within ``wait_seconds``."""
        if self._embedder is None or not catalog:
            return None
        task = self._vectors_task
        is_other_catalog = self._catalog is not catalog
        if task is None or is_other_catalog or self._may_retry(task):
            if task is not None:
                task.cancel()
            task = shared_task(CatalogVectors.make(catalog, self._embedder, self._folder))
            task.add_done_callback(_log_failure)
            self._catalog = catalog
            self._vectors_task = task
            self._vectors_started = time.monotonic()
        # During this wait, another task or aclose() may replace self._vectors_task.
        await asyncio.wait({task}, timeout=self._wait_seconds)
        has_vectors = task.done() and not task.cancelled() and task.exception() is None
        return task.result() if has_vectors else None

    def _may_retry(self, task: asyncio.Task[CatalogVectors]) -> bool:
        """Return True if a task that computes vectors failed, and the pause before a retry is over.

        The pause is counted from the start of the failed task.
        """
        has_failed = task.done() and (task.cancelled() or task.exception() is not None)
        return has_failed and time.monotonic() >= self._vectors_started + PAUSE_SECONDS

    async def aclose(self) -> None:
        """Cancel the computation of vectors."""
        task, self._vectors_task = self._vectors_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


def _find_embedder(context: PluginContext, name: str | None) -> Embedder | None:
    """Return the embedder with a name; without a name, the agent's embedder.

    None if ``name`` is ``"off"``, or if there is neither a name nor an embedder of the agent.

    Raises:
        PluginError: If there is no embedder with the name.
    """
    if name == "off":
        return None
    try:
        return context.embedder(name)
    except PluginError:
        if name is not None:
            raise
        return None


def _log_failure(task: asyncio.Task[CatalogVectors]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        message = error.describe() if isinstance(error, DelfError) else error
        _log.warning("actions are chosen by words only, because embedding failed: %s", message)


def _best_indexes(word_scores: Mapping[int, float], similarities: Any) -> list[int]:
    """Return the indexes of the actions that fit best by words or by vectors, best first.

    Args:
        word_scores: A mapping from the index of an action to its word score.
        similarities: The vector similarity of each action.
    """
    # Sorting all similarities would be slow: partition off the largest ones first.
    partition = min(_MAX_RANKED, len(similarities) - 1)
    nearest = np.argpartition(-similarities, partition)[:_MAX_RANKED].tolist()
    indexes = np.fromiter({*word_scores, *nearest}, dtype=np.int64)
    aligned_word_scores = np.fromiter(
        (word_scores.get(i, 0.0) for i in indexes.tolist()), dtype=np.float64
    )
    scores = _WORD_WEIGHT * aligned_word_scores + (1 - _WORD_WEIGHT) * similarities[indexes]
    # lexsort() sorts by its last key first: by score, and for equal scores by index.
    return indexes[np.lexsort((indexes, -scores))].tolist()
