"""``SemanticStore``: facts found by words and by meaning, both rankings fused by their places."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from delf.errors import DelfError, PluginError
from delf.protocols.context import PluginContext
from delf.protocols.embedder import Embedder
from delf.ranking import words_of
from delf_memory_semantic.database import FactDatabase, StoredFact
from delf_memory_semantic.index import VectorIndex

_log = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

_LOOKED_AT: Final = 50
"""How far down each ranking counts."""
_RANK: Final = 60
"""Reciprocal rank fusion: a place counts 1 / (60 + place), as in Cormack et al., SIGIR 2009."""
_BATCH: Final = 256
_THREADS: Final = 8


class SemanticStore:
    """Facts of a namespace. Implements :class:`delf.protocols.memory.MemoryStore`.

    Args:
        context: The namespace, the folder for data, and the embedder.
        url: ``sqlite:///path`` or ``postgresql://…``; a file in the data folder when None.
        embedding_model: The embedder's name; the agent's own when None; ``"off"`` for words alone.
        guidelines: What is worth remembering, for the model that proposes facts.
        exact: Up to how many facts each vector is compared; above, a graph is searched.
    """

    def __init__(
        self,
        context: PluginContext,
        url: str | None = None,
        embedding_model: str | None = None,
        guidelines: str = "",
        exact: int = 100_000,
    ) -> None:
        self.guidelines = guidelines
        self.namespace = context.namespace
        self._database = FactDatabase(
            url or f"sqlite:///{context.data_dir / 'memory.db'}", context.namespace
        )
        self._embedder = embedder_of(context, embedding_model)
        self._exact = exact
        self._index: VectorIndex | None = None
        self._seen = (0, 0)
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._filling: asyncio.Task[int] | None = None

    async def save(self, facts: Sequence[str], source: str | None = None) -> None:
        """Remember facts, all or none; one that says the same as another takes its place.

        Args:
            facts: Texts; empty ones are left out.
            source: Where they are from: a task, a document, a person.

        Raises:
            MemorySetupError: When they cannot be written.
        """
        texts = [text for text in facts if text.strip()]
        if not texts:
            return
        vectors = await self._embed(texts)
        rows = [(text, source) for text in texts]
        await self._in_thread(self._database.save, rows, vectors, self._model)

    async def search(
        self, query: str, top_k: int = 5, threshold: float = 0.3
    ) -> Sequence[StoredFact]:
        """The facts that fit a query best, by words and by meaning.

        Args:
            query: Plain words.
            top_k: How many at most.
            threshold: The least likeness, from 0 to 1: of the vectors, or the share of the
                query's words that a fact has.

        Raises:
            MemoryRetrievalError: When the database cannot be read.
        """
        if not query.strip() or top_k < 1:
            return []
        vector = await self._query_vector(query)
        self._fill_in_background()
        return await self._in_thread(self._search, query, vector, top_k, threshold)

    def _search(self, query: str, vector: Any, top_k: int, threshold: float) -> list[StoredFact]:
        near = dict(self._near(vector))
        ranked = _fused([list(near), self._database.with_words(query, _LOOKED_AT)])
        facts = self._database.facts(ranked)
        said = set(words_of(query))
        kept: list[StoredFact] = []
        for number in ranked:
            fact = facts.get(number)
            if fact is None:
                continue
            like = near.get(number)
            if like is None and vector is not None:
                like = self._likeness(number, vector)
            share = len(said.intersection(words_of(fact.content))) / (len(said) or 1)
            if max(share, like or 0.0) >= threshold:
                kept.append(fact)
                if len(kept) == top_k:
                    break
        return kept

    def _near(self, vector: Any) -> list[tuple[int, float]]:
        """The nearest facts by vectors; the index follows what other processes did."""
        if vector is None:
            return []
        with self._lock:
            self._follow(len(vector))
            return [] if self._index is None else self._index.nearest(vector, _LOOKED_AT)

    def _likeness(self, number: int, vector: Any) -> float | None:
        with self._lock:
            return None if self._index is None else self._index.likeness(number, vector)

    def _follow(self, dimension: int) -> None:
        state = self._database.state()
        highest, count = self._seen
        grown = state[0] - highest
        if self._index is not None and state == self._seen:
            return
        if self._index is not None and grown > 0 and state[1] - count == grown:
            self._index.add(self._database.vectors(self._model, after=highest))
        else:
            index = VectorIndex(dimension, self._exact)
            index.add(self._database.vectors(self._model))
            self._index = index
        self._seen = state

    def _forget_index(self) -> None:
        with self._lock:
            self._index, self._seen = None, (0, 0)

    async def list(self) -> Sequence[StoredFact]:
        """All facts, oldest first."""
        return await self._in_thread(self._database.all)

    async def delete(self, facts: Sequence[str]) -> int:
        """Forget facts with exactly these texts; how many there were."""
        return await self._in_thread(self._database.delete, facts)

    async def clear(self) -> None:
        """Forget everything in this namespace."""
        await self._in_thread(self._database.clear)

    async def fill(self) -> int:
        """Give vectors to the facts that have none of this model; how many they were.

        Raises:
            DelfError: When the embedder fails.
        """
        filled = 0
        while self._embedder is not None:
            missing = await self._in_thread(self._database.without_vector, self._model, _BATCH)
            if not missing:
                break
            made = await self._embed([content for _, content in missing])
            if made is None:
                break
            pairs = [(number, vector) for (number, _), vector in zip(missing, made, strict=True)]
            await self._in_thread(self._database.add_vectors, pairs, self._model)
            filled += len(pairs)
        if filled:
            self._forget_index()
        return filled

    def _fill_in_background(self) -> None:
        if self._embedder is not None and self._filling is None:
            self._filling = asyncio.ensure_future(self.fill())
            self._filling.add_done_callback(_tell_failure)

    async def stop_filling(self) -> None:
        """Stop giving vectors to facts in the background; the next search goes on with it."""
        filling, self._filling = self._filling, None
        if filling is not None:
            filling.cancel()
            await asyncio.wait({filling})

    async def aclose(self) -> None:
        """Close the database. Safe to call twice; used again, it is opened again."""
        await self.stop_filling()
        threads, self._threads = self._threads, None
        await asyncio.to_thread(self._close, threads)

    def _close(self, threads: ThreadPoolExecutor | None) -> None:
        if threads is not None:
            threads.shutdown(wait=True)
        self._database.close()
        self._forget_index()

    @property
    def _model(self) -> str:
        return "" if self._embedder is None else self._embedder.model

    async def _query_vector(self, query: str) -> Any:
        """The query's vector; None without an embedder, or while it fails."""
        if self._embedder is None:
            return None
        try:
            (vector,) = await self._embedder.embed([query], "query")
        except DelfError as error:
            _log.warning("words are searched alone, the embedder failed: %s", error)
            return None
        return np.asarray(vector, dtype="float32")

    async def _embed(self, texts: Sequence[str]) -> list[bytes] | None:
        """A vector for each text; None without an embedder, or while it fails: it comes later."""
        if self._embedder is None:
            return None
        made: list[bytes] = []
        size = max(1, self._embedder.batch_size)
        try:
            for start in range(0, len(texts), size):
                rows = await self._embedder.embed(texts[start : start + size], "passage")
                made += [row.tobytes() for row in np.asarray(rows, dtype="<f4")]
        except DelfError as error:
            _log.warning("facts are kept without vectors, the embedder failed: %s", error)
            return None
        return made

    async def _in_thread(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run what blocks in one of the store's own threads, so that nobody else waits for it."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="delf-memory")
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def embedder_of(context: PluginContext, name: str | None) -> Embedder | None:
    """The embedder of a name; None where none is installed and none was asked for."""
    if name == "off":
        return None
    try:
        return context.embedder(name)
    except PluginError as error:
        if name is not None:
            raise
        _log.info("facts are found by words alone: %s", error)
        return None


def _fused(rankings: Iterable[Sequence[int]]) -> list[int]:
    """One ranking of several; where places are equal the first of them decides."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for place, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (_RANK + place)
    return sorted(scores, key=lambda number: -scores[number])


def _tell_failure(filling: asyncio.Task[int]) -> None:
    if not filling.cancelled() and (error := filling.exception()) is not None:
        _log.warning("facts could not be given their vectors: %s", error)
