"""``SemanticStore``: facts found by words and by meaning, with both rankings fused."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from delf.errors import DelfError, PluginError
from delf.machine.contexts import shared_task
from delf.notes import note
from delf.protocols.context import PluginContext
from delf.protocols.embedder import Embedder, SupportsLoading
from delf.settings import check_variables, source_of
from delf_memory_semantic.database import FactDatabase, StoredFact
from delf_memory_semantic.fusion import LOOKED_AT, fuse_rankings, share_of
from delf_memory_semantic.nearest import Nearest

_log = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

_BATCH: Final = 256
_THREADS: Final = 16
_READ_AT_ONCE: Final = 20
"""The number of facts loaded to check their similarity."""
_AWAY_SECONDS: Final = 60.0
"""The seconds for which an embedder that timed out is not used."""
AT_ONCE: Final = 1.0
FIRST_ANSWER: Final = 5.0
"""Seconds that a save waits for vectors; later they are added in the background."""
_WITHOUT: Final = "facts are found by words alone: no embedder is installed"
VECTOR_SECONDS: Final = 2.0
"""Seconds that the first search waits for facts that have no vector yet."""


class SemanticStore:
    """Facts of a namespace. Implements :class:`delf.protocols.memory.MemoryStore`.

    Args:
        context: The namespace, the folder for data, and the embedder.
        url: ``sqlite:///path`` or ``postgresql://…``; a file in the data folder when None.
        embedding_model: The embedder's name; the agent's own when None; ``"off"`` for words alone.
        guidelines: A text about what to remember, for the model that proposes facts.
    """

    def __init__(
        self,
        context: PluginContext,
        url: str | None = None,
        embedding_model: str | None = None,
        guidelines: str = "",
    ) -> None:
        self.guidelines = guidelines
        self.namespace = context.namespace
        login = (url or "").partition("://")[2].rpartition("@")[0]
        if (url or "").startswith("postgres") and ":" not in login:
            check_variables("the memory", source_of(url), ("PGPASSWORD",))
        self._database = FactDatabase(
            url or f"sqlite:///{context.data_dir / 'memory.db'}", context.namespace
        )
        self._embedder = embedder_of(context, embedding_model)
        self._is_off = embedding_model == "off"
        self._away_until = 0.0
        self._why_away = _WITHOUT
        self._reported_away = False
        self._load: asyncio.Task[None] | None = None
        self._loads_beside = False
        self._nearest = Nearest(self._database)
        self._threads: ThreadPoolExecutor | None = None
        self._filling: asyncio.Task[int] | None = None
        self._has_gaps = True
        """True if some facts may have no vector."""

    @property
    def loading(self) -> str | None:
        """The name of the embedding model if it is loading."""
        return self._model if self._load is not None and not self._load.done() else None

    async def warm_up(self) -> None:
        """Load the embedding model and wait.

        Until it is loaded, searches use words only and do not wait.
        """
        self._loads_beside = True
        if (load := self._begin_load()) is not None:
            await asyncio.wait({load})

    def _begin_load(self) -> asyncio.Task[None] | None:
        """Begin to load the embedding model; None if no loading is needed."""
        embedder = self._embedder
        if not isinstance(embedder, SupportsLoading) or embedder.is_loaded:
            return None
        if self._load is None or self._load.done():
            self._load = shared_task(embedder.load())
            self._load.add_done_callback(self._note_failed_load)
        return self._load

    def _note_failed_load(self, load: asyncio.Task[None]) -> None:
        """Take note of a failed load: a later search tries again."""
        error = None if load.cancelled() else load.exception()
        if error is not None:
            self._report_words_only(error)
            self._away_until = time.monotonic() + _AWAY_SECONDS

    async def save(
        self,
        facts: Sequence[str],
        source: str | None = None,
        saved_at: Sequence[float] | None = None,
    ) -> None:
        """Store facts atomically; an equivalent fact is replaced.

        Args:
            facts: Texts; empty ones are omitted.
            source: The source of the facts: a task, a document or a person.
            saved_at: When each was saved first, as Unix time; now when None.

        Raises:
            MemorySetupError: If they cannot be written.
        """
        filled = [n for n, text in enumerate(facts) if text.strip()]
        texts = [facts[n] for n in filled]
        if not texts:
            return
        moments = None if saved_at is None else [saved_at[n] for n in filled]
        vectors = await self._embed(texts) if self._is_loaded else None  # added later
        self._has_gaps = self._has_gaps or vectors is None
        rows = [(text, source) for text in texts]
        await self._in_thread(self._database.save, rows, vectors, self._model, moments)

    async def search(
        self, query: str, top_k: int = 5, threshold: float = 0.3
    ) -> Sequence[StoredFact]:
        """Return the facts that fit a query best, by words and by meaning.

        Args:
            query: Plain words.
            top_k: The maximum number of facts.
            threshold: The minimum score from 0 to 1, relative to the best fact; a fact's absolute
                similarity must be nearly as high.

        Raises:
            MemoryRetrievalError: If the database cannot be read.
        """
        if not query.strip() or top_k < 1:
            return []
        by_words, (vector, near) = await asyncio.gather(
            self._in_thread(self._database.with_words, query, LOOKED_AT), self._nearest_facts(query)
        )
        ranked, near = await self._in_thread(self._rank_facts, query, by_words, vector, near)
        return await self._in_thread(self._above_threshold, query, ranked, near, top_k, threshold)

    async def _nearest_facts(self, query: str) -> tuple[Any, dict[int, float]]:
        """Return the query's vector and the facts that are nearest.

        Without an embedder the vector is None and there are no facts.
        """
        vector = await self._query_vector(query)
        if vector is None:
            return None, {}
        is_filling = self._filling is not None and not self._filling.done()
        if self._has_gaps and not is_filling:
            self._has_gaps = False
            self._filling = shared_task(self.fill())
            self._filling.add_done_callback(_tell_failure)
            await asyncio.wait({self._filling}, timeout=VECTOR_SECONDS)
        return vector, await self._in_thread(self._nearest.find, vector, self._model, LOOKED_AT)

    def _rank_facts(
        self, query: str, by_words: dict[int, float], vector: Any, near: dict[int, float]
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Rank the found facts, best first; return scores and similarities."""
        if vector is not None:
            others = by_words.keys() - near.keys()
            near = near | self._nearest.likeness(vector, self._model, others)
        best = self._database.facts(tuple(by_words)[:1])
        share = max((share_of(query, fact.content) for fact in best.values()), default=0.0)
        return fuse_rankings(by_words, near, share), near

    def _above_threshold(
        self,
        query: str,
        scores: dict[int, float],
        near: dict[int, float],
        top_k: int,
        threshold: float,
    ) -> Sequence[StoredFact]:
        """Return the first of the ranked facts with sufficient scores.

        The relative score decides, because an additional word in a query lowers the absolute scores
        of all facts alike.
        """
        min_score = threshold * max(scores.values(), default=0.0)
        ranked = [number for number, score in scores.items() if score >= min_score]
        # Somewhat below the threshold (0.23 for 0.3), but equal to a threshold of 1.
        min_similarity = threshold * (2 + threshold) / 3
        found: list[StoredFact] = []
        size = max(2 * top_k, _READ_AT_ONCE)
        for start in range(0, len(ranked), size):
            facts = self._database.facts(ranked[start : start + size])
            found += (
                facts[number]
                for number in ranked[start : start + size]
                if number in facts
                and (
                    near.get(number, 0.0) >= min_similarity
                    or share_of(query, facts[number].content) >= min_similarity
                )
            )
            if len(found) >= top_k:
                break
        return found[:top_k]

    async def all(self) -> Sequence[StoredFact]:
        """Return all facts, oldest first."""
        return await self._in_thread(self._database.all)

    async def delete(self, facts: Sequence[str]) -> int:
        """Forget facts with exactly these texts; return their number."""
        return await self._in_thread(self._database.delete, facts)

    async def clear(self) -> None:
        """Forget everything in this namespace."""
        await self._in_thread(self._database.clear)

    async def fill(self) -> int:
        """Add missing vectors of the current model; return their number.

        Raises:
            DelfError: If the embedder fails.
        """
        filled = 0
        while self._embedder is not None:
            missing = await self._in_thread(self._database.without_vector, self._model, _BATCH)
            if not missing:
                break
            vectors = await self._embed([content for _, content in missing])
            if vectors is None:
                break
            pairs = [(number, vector) for (number, _), vector in zip(missing, vectors, strict=True)]
            await self._in_thread(self._database.add_vectors, pairs, self._model)
            filled += len(pairs)
        if filled:
            await self._in_thread(self._database.mark_altered)
        return filled

    async def stop_filling(self) -> None:
        """Stop adding vectors in the background; the next search continues."""
        filling, self._filling = self._filling, None
        if filling is not None:
            filling.cancel()
            await asyncio.wait({filling})

    async def aclose(self) -> None:
        """Close the database. Idempotent; a later use opens it again."""
        await self.stop_filling()
        load, self._load = self._load, None
        if load is not None:
            load.cancel()
        threads, self._threads = self._threads, None
        await asyncio.to_thread(self._close, threads)

    def _close(self, threads: ThreadPoolExecutor | None) -> None:
        if threads is not None:
            threads.shutdown(wait=True)
        self._nearest.close()
        self._database.close()

    @property
    def _model(self) -> str:
        return "" if self._embedder is None else self._embedder.model

    async def _query_vector(self, query: str) -> Any:
        """Return the query's vector; None without a working embedder."""
        if self._embedder is None or self._is_away:
            if not self._is_off:
                note(self._why_away)
            return None
        load = self._begin_load()
        if load is not None and self._loads_beside:
            note(f"facts are found by words alone: {self._model} is still being loaded")
            return None
        if load is not None:
            await asyncio.wait({load})  # without a timeout: slow loading is no failure
            if self._is_away:
                note(self._why_away)
                return None
        started = time.monotonic()
        try:
            async with asyncio.timeout(FIRST_ANSWER):
                (vector,) = await self._embedder.embed([query], "query")
        except (DelfError, TimeoutError) as error:
            self._report_words_only(error, started)
            return None
        return np.asarray(vector, dtype="float32")

    @property
    def _is_loaded(self) -> bool:
        return not isinstance(self._embedder, SupportsLoading) or self._embedder.is_loaded

    @property
    def _is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def _report_words_only(self, error: BaseException, started: float | None = None) -> None:
        """Report that only words are searched: once in the log, and in each task's trace.

        Args:
            error: The failure.
            started: The time of the request; an embedder that fails slowly is paused for some time.
        """
        now = time.monotonic()
        late = started is not None and now - started > AT_ONCE
        self._away_until = now + _AWAY_SECONDS if late else 0.0
        why = "no answer in time" if isinstance(error, TimeoutError) else repr(error)
        why = error.describe() if isinstance(error, DelfError) else why
        message = f"facts are found by words alone, the embedder failed: {why}"
        note(message)
        self._why_away = message
        (_log.info if self._reported_away else _log.warning)("%s", message)
        self._reported_away = True

    async def _embed(self, texts: Sequence[str]) -> list[bytes] | None:
        """Return a vector for each text; None without a working embedder (vectors follow later)."""
        if self._embedder is None or self._is_away:
            return None
        vectors: list[bytes] = []
        size = max(1, self._embedder.batch_size)
        started = time.monotonic()
        try:
            for start in range(0, len(texts), size):
                async with asyncio.timeout(None if vectors else FIRST_ANSWER):
                    rows = await self._embedder.embed(texts[start : start + size], "passage")
                vectors += [row.tobytes() for row in np.asarray(rows, dtype="<f4")]
        except (DelfError, TimeoutError) as error:
            self._report_words_only(error, started)
            return None
        return vectors

    async def _in_thread(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run blocking work in one of the store's threads."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="delf-memory")
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def embedder_of(context: PluginContext, name: str | None) -> Embedder | None:
    """Return the named embedder; None if the settings name no embedder and none is installed."""
    if name == "off":
        return None
    try:
        return context.embedder(name)
    except PluginError as error:
        if name is not None:
            raise
        _log.warning("facts are found by words alone: %s", error)
        return None


def _tell_failure(filling: asyncio.Task[int]) -> None:
    if not filling.cancelled() and (error := filling.exception()) is not None:
        _log.warning("facts could not be given their vectors: %s", error)
