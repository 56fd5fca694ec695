"""``SemanticStore``: facts found by words and by meaning, with both rankings fused."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np

from delf.errors import DelfError, PluginError
from delf.machine.contexts import shared_task
from delf.machine.forks import reset_in_forks
from delf.notes import note
from delf.protocols.context import PluginContext
from delf.protocols.embedder import Embedder, SupportsLoading, Vectors
from delf.protocols.embedding import embed_or_refuse, is_refusal
from delf.settings import source_of
from delf_memory_semantic.database import FactDatabase, NewFact, StoredFact, storable_text
from delf_memory_semantic.fusion import RANKING_SIZE, fuse_rankings, word_coverage
from delf_memory_semantic.nearest import VectorSearch
from delf_postgresql.login import check_login

_log = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

# The number of facts whose missing vectors are computed and stored at once.
_FILL_BATCH: Final = 256
# The number of statements that a store runs at once on its database.
_THREADS: Final = 16
# The number of seconds for which an embedder that failed slowly is not used.
_PAUSE_SECONDS: Final = 60.0
SLOW_SECONDS: Final = 1.0
FIRST_ANSWER_SECONDS: Final = 5.0
"""The maximum seconds that a save or a search waits for the embedder's first answer.

Without an answer, a search uses words alone, and a save leaves the vectors to be added later.
"""
_NO_EMBEDDER: Final = "facts are found by words alone: no embedder is installed"
VECTOR_SECONDS: Final = 2.0
"""The number of seconds that the first search waits while missing vectors are computed."""


class SemanticStore:
    """A memory store that finds the facts of a namespace by words and by meaning.

    Implements :class:`delf.protocols.memory.MemoryStore`.

    Args:
        context: The context of the plugin, with the namespace, the data folder and the embedders.
        url: The URL of the database: ``sqlite:///path`` or ``postgresql://…``; by default
            a file in the data folder.
        embedding_model: The name of the embedder; by default the agent's. With ``"off"``, facts are
            found by words alone.
        guidelines: Instructions on what is worth remembering, for the model that proposes facts.
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
        if url is not None:
            check_login("the memory", url, source_of(url))
        default_url = f"sqlite:///{context.data_dir / 'memory.db'}"
        self._database = FactDatabase(url or default_url, context.namespace)
        self._embedder = embedder_of(context, embedding_model)
        self._is_switched_off = embedding_model == "off"
        # The monotonic time until which the embedder is not used, after it failed to load, or
        # failed slowly.
        self._paused_until = 0.0
        self._failure_message: str | None = None  # of the embedder's last failure
        # The loading of the embedding model. Searches wait for it, unless warm_up() was called.
        self._load: asyncio.Task[Vectors] | None = None
        self._loads_in_background = False
        self._nearest = VectorSearch(self._database)
        self._threads: ThreadPoolExecutor | None = None
        # The computation of missing vectors by fill(), which goes on after a search.
        self._embedding: asyncio.Task[int] | None = None
        # True if some facts may have no vector.
        self._has_gaps = True
        # The numbers of the facts whose texts the embedder has refused.
        self._refused: set[int] = set()
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """Forget threads and background work in a forked process; they belong to the parent."""
        self._threads = self._load = self._embedding = None

    @property
    def loading(self) -> str | None:
        """The name of the embedding model while it is loading, else None."""
        if self._load is not None and not self._load.done():
            return self._model
        return None

    async def warm_up(self) -> None:
        """Load the embedding model, and wait until it is loaded.

        Until then, searches use words only and do not wait.
        """
        self._loads_in_background = True
        load = self._begin_load()
        if load is not None:
            await asyncio.wait({load})

    def _begin_load(self) -> asyncio.Task[Vectors] | None:
        """Load the embedding model by embedding a word; return the asyncio task that does this.

        None if the model is loaded, or needs no loading.
        """
        embedder = self._embedder
        if embedder is None or self._is_loaded:
            return None
        if self._load is None or self._load.done():
            self._load = shared_task(embedder.embed(["word"], "query"))
            self._load.add_done_callback(self._handle_load_end)
        return self._load

    def _handle_load_end(self, load: asyncio.Task[Vectors]) -> None:
        """Report a failure to load the model, and prevent another try for ``_PAUSE_SECONDS``.

        The first search after this pause tries to load the model again.
        """
        error = None if load.cancelled() else load.exception()
        if error is not None:
            self._report_failure(error)
            self._paused_until = time.monotonic() + _PAUSE_SECONDS

    async def save(
        self,
        facts: Sequence[str],
        source: str | None = None,
        saved_at: Sequence[float] | None = None,
    ) -> None:
        """Store facts in one transaction.

        A new fact replaces a stored fact that differs only in case, spaces and word endings.

        Args:
            facts: The texts of the facts; empty texts are skipped.
            source: The name of the task, document or person from which the facts come, if known.
            saved_at: The Unix time at which each fact was first saved; the present time when None.

        Raises:
            MemorySetupError: If the facts cannot be written.
        """
        new_facts: list[NewFact] = []
        source = None if source is None else storable_text(source)
        for index, text in enumerate(facts):
            if text.strip():
                moment = None if saved_at is None else saved_at[index]
                new_facts.append(NewFact(storable_text(text), source, moment))
        if not new_facts:
            return
        if self._is_loaded:  # otherwise the next search adds the vectors
            new_facts = await self._with_vectors(new_facts)
        await self._in_thread(self._store, new_facts)

    async def _with_vectors(self, facts: list[NewFact]) -> list[NewFact]:
        """Return facts with vectors; without a working embedder, return the facts unchanged."""
        outcomes = await self._embed([fact.content for fact in facts])
        if outcomes is None:
            return facts
        embedded_facts: list[NewFact] = []
        for fact, outcome in zip(facts, outcomes, strict=True):
            vector = None if isinstance(outcome, DelfError) else outcome
            embedded_facts.append(fact._replace(vector=vector))
        return embedded_facts

    def _store(self, facts: Sequence[NewFact]) -> None:
        """Write facts to the database, and note whether vectors are missing."""
        try:
            self._database.save(facts, self._model)
        finally:
            # Set the flag after the facts are stored: otherwise fill() could clear the flag and
            # read the facts in between. Also after an error, the facts may be stored.
            if any(fact.vector is None for fact in facts):
                self._has_gaps = True

    async def search(
        self, query: str, top_k: int = 5, threshold: float = 0.3
    ) -> Sequence[StoredFact]:
        """Return the facts that match a query by words and by meaning, best first.

        Args:
            query: The query in plain words.
            top_k: The maximum number of facts.
            threshold: A number from 0 to 1. The higher the number, the better a fact must match the
                query, and the closer its score must be to the best score.

        Raises:
            MemoryRetrievalError: If the database cannot be read.
        """
        if not query.strip() or top_k < 1:
            return []
        query = storable_text(query)
        word_scores, vector_and_similarities = await asyncio.gather(
            self._in_thread(self._database.with_words, query, RANKING_SIZE),
            self._nearest_facts(query),
        )
        vector, similarities = vector_and_similarities
        if vector is not None:
            found_by_words_only = word_scores.keys() - similarities.keys()
            similarities |= await self._in_thread(
                self._nearest.similarities, vector, self._model, found_by_words_only
            )
        return await self._in_thread(
            self._above_threshold, query, word_scores, similarities, top_k, threshold
        )

    async def _nearest_facts(self, query: str) -> tuple[Any, dict[int, float]]:
        """Return the vector of a query, and the similarities of the nearest facts by fact number.

        If there are facts without a vector, start to add their vectors in the background, and wait
        for at most VECTOR_SECONDS. If an earlier search is still doing this work, do not wait.
        Without a vector (see :meth:`_query_vector`), return None and an empty mapping.
        """
        vector = await self._query_vector(query)
        if vector is None:
            return None, {}
        is_embedding = self._embedding is not None and not self._embedding.done()
        if self._has_gaps and not is_embedding:
            self._embedding = shared_task(self.fill())
            self._embedding.add_done_callback(_log_failure)
            await asyncio.wait({self._embedding}, timeout=VECTOR_SECONDS)
        return vector, await self._in_thread(self._nearest.find, vector, self._model, RANKING_SIZE)

    def _text_of(self, number: int) -> str:
        fact = self._database.facts([number]).get(number)
        return "" if fact is None else fact.content  # the fact may have been removed meanwhile

    def _above_threshold(
        self,
        query: str,
        word_scores: Mapping[int, float],
        similarities: Mapping[int, float],
        top_k: int,
        threshold: float,
    ) -> Sequence[StoredFact]:
        """Return at most ``top_k`` of the facts that match the query well enough, best first.

        Args:
            query: The query.
            word_scores: The score of each fact found by words, by the fact's number, best first.
            similarities: The similarity of a fact's vector to the query's, by the fact's number.
            top_k: The maximum number of facts.
            threshold: The threshold, from 0 to 1.
        """
        scores = fuse_rankings(query, word_scores, similarities, self._text_of)
        # A fact must be nearly as good as the best fact. Scores have no fixed scale: a further word
        # in a query lowers the scores of all facts.
        min_score = threshold * max(scores.values(), default=0.0)
        ranked = [number for number, score in scores.items() if score >= min_score]
        # A fact must also match by itself, by meaning or by words: even the best one may not match.
        min_match = _min_match(threshold)
        selected: list[StoredFact] = []
        facts = self._database.facts(ranked)
        for number in ranked:
            fact = facts.get(number)
            if fact is None:
                continue  # it has been removed meanwhile
            matches_by_meaning = similarities.get(number, 0.0) >= min_match
            if matches_by_meaning or word_coverage(query, fact.content) >= min_match:
                selected.append(fact)
        return selected[:top_k]

    async def all(self) -> Sequence[StoredFact]:
        """Return all facts of the namespace, oldest first."""
        return await self._in_thread(self._database.all)

    async def delete(self, facts: Sequence[str]) -> int:
        """Remove the facts with exactly these texts, and return the number of removed facts."""
        return await self._in_thread(self._database.delete, facts)

    async def clear(self) -> None:
        """Remove all facts of the namespace."""
        await self._in_thread(self._database.clear)

    async def fill(self) -> int:
        """Store a vector for each fact that the current embedding model has not embedded yet.

        Returns:
            The number of added vectors.
        """
        if self._embedder is None:
            return 0
        filled = 0
        last_number = 0
        # Clear the flag first: while this runs, save() and _vectors_of() set the flag again if a
        # fact gets no vector.
        self._has_gaps = False
        try:
            while missing := await self._in_thread(
                self._database.without_vector, self._model, _FILL_BATCH, last_number
            ):
                last_number, _text = missing[-1]
                vectors = await self._vectors_of(missing)
                if vectors is None:  # no embedder works at present
                    break
                if vectors:  # the embedder may refuse every fact of a batch
                    await self._in_thread(self._database.add_vectors, vectors, self._model)
                filled += len(vectors)
        except BaseException:
            self._has_gaps = True
            raise
        finally:
            # Even after an exception, searches have to load the vectors that were stored before it.
            if filled:
                await self._in_thread(self._database.mark_invalidated)
        return filled

    async def _vectors_of(self, facts: Sequence[tuple[int, str]]) -> list[tuple[int, bytes]] | None:
        """Return the number and vector of each fact that the embedder accepts.

        If the embedder fails for a fact, the next search tries the fact again.

        Args:
            facts: The numbers and texts of the facts.

        Returns:
            The numbers and vectors; None if no embedder works at present.
        """
        accepted = [fact for fact in facts if fact[0] not in self._refused]
        outcomes = await self._embed([content for _, content in accepted])
        if outcomes is None:
            self._has_gaps = True
            return None
        vectors: list[tuple[int, bytes]] = []
        for (number, _), outcome in zip(accepted, outcomes, strict=True):
            if not isinstance(outcome, DelfError):
                vectors.append((number, outcome))
            elif is_refusal(outcome):
                self._report_refusal(number, outcome)
            else:
                self._has_gaps = True
        return vectors

    def _report_refusal(self, number: int, error: DelfError) -> None:
        """Log that the embedder refused the text of a fact, without the text.

        The error's message may quote the text, so that only the error's code is logged.
        """
        self._refused.add(number)
        _log.warning(
            "the fact %d is found by words alone: the embedder %s refused its text (%s)",
            number,
            self._model,
            error.code,
        )

    async def stop_embedding(self) -> None:
        """Stop adding vectors in the background; the next search adds the missing vectors."""
        embedding, self._embedding = self._embedding, None
        if embedding is not None:
            embedding.cancel()
            await asyncio.wait({embedding})

    async def aclose(self) -> None:
        """Close the database. Idempotent. A later use opens it again."""
        await self.stop_embedding()
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

    async def _wait_for_load(self) -> bool:
        """Wait until the model is loaded; return at once if it loads in the background.

        Return True if the model can be used.
        """
        load = self._begin_load()
        if load is None:
            return True
        if self._loads_in_background:
            note(f"facts are found by words alone: {self._model} is still being loaded")
            return False
        await asyncio.wait({load})  # without a timeout: slow loading is no failure
        if self._is_paused:
            # The report of the failed load went to the task whose search began the load.
            note(self._failure_message or _NO_EMBEDDER)
            return False
        return True

    async def _query_vector(self, query: str) -> Any:
        """Return the vector of a query, or None if the search must use words only.

        The result is None without an embedder, after a failure and during the pause that follows,
        and while the model is loaded in the background. A note then tells the user, unless the
        settings switch the embedder off.
        """
        if self._embedder is None or self._is_paused:
            if not self._is_switched_off:
                note(self._failure_message or _NO_EMBEDDER)
            return None
        if not await self._wait_for_load():
            return None
        started = time.monotonic()
        try:
            async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                (vector,) = await self._embedder.embed([query], "query")
        except (DelfError, TimeoutError) as error:
            self._handle_failure(error, started)
            return None
        return np.asarray(vector, dtype="float32")

    @property
    def _is_loaded(self) -> bool:
        return is_loaded(self._embedder)

    @property
    def _is_paused(self) -> bool:
        return time.monotonic() < self._paused_until

    def _handle_failure(self, error: BaseException, started: float) -> None:
        """Report a failure of the embedder.

        If the failure came slowly, the embedder is not used for a while.

        Args:
            error: The error of the embedder.
            started: The monotonic time of the request.
        """
        self._report_failure(error)
        if time.monotonic() - started > SLOW_SECONDS:
            self._paused_until = time.monotonic() + _PAUSE_SECONDS

    def _report_failure(self, error: BaseException) -> None:
        """Report that facts are found by words only, because the embedder failed.

        The first report is logged as a warning, and later reports as information. The notes of each
        task get the report, too.
        """
        message = f"facts are found by words alone, the embedder failed: {reason_of(error)}"
        note(message)
        is_first_failure = self._failure_message is None
        _log.log(logging.WARNING if is_first_failure else logging.INFO, "%s", message)
        self._failure_message = message

    async def _embed(self, texts: Sequence[str]) -> list[bytes | DelfError] | None:
        """Return for each text the vector as bytes, or the error if the embedder refused the text.

        None without a working embedder.
        """
        embedder = self._embedder
        if embedder is None or self._is_paused:
            return None
        # After its first answer, the embedder works and may take as long as it needs.
        timeout: float | None = FIRST_ANSWER_SECONDS

        async def embed(batch: Sequence[str]) -> Vectors:
            nonlocal timeout
            async with asyncio.timeout(timeout):
                rows = await embedder.embed(batch, "passage")
            timeout = None  # the embedder has answered, so it works
            return rows

        outcomes: list[bytes | DelfError] = []
        size = max(1, embedder.batch_size)
        started = time.monotonic()
        try:
            for start in range(0, len(texts), size):
                for row in await embed_or_refuse(embed, texts[start : start + size]):
                    if isinstance(row, DelfError):
                        outcomes.append(row)
                    else:
                        outcomes.append(np.asarray(row, dtype="<f4").tobytes())
        except (DelfError, TimeoutError) as error:
            self._handle_failure(error, started)
            return None
        return outcomes

    async def _in_thread(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking function in one of the store's threads, and return its result."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="delf-memory")
        call = functools.partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


def embedder_of(context: PluginContext, name: str | None) -> Embedder | None:
    """Return the embedder with a name; without a name, the configured or installed embedder.

    None if ``name`` is ``"off"``, or if there is neither a name nor such an embedder.

    Raises:
        PluginError: If there is no embedder with the name.
    """
    if name == "off":
        return None
    try:
        return context.embedder(name)
    except PluginError as error:
        if name is not None:
            raise
        _log.warning("facts are found by words alone: %s", error)
        return None


def is_loaded(embedder: Embedder | None) -> bool:
    """Return False if an embedder still has to load its model."""
    return not isinstance(embedder, SupportsLoading) or embedder.is_loaded


def reason_of(error: BaseException) -> str:
    """Describe the failure of an embedder for a message."""
    if isinstance(error, DelfError):
        return error.describe()
    return "no answer in time" if isinstance(error, TimeoutError) else repr(error)


def _min_match(threshold: float) -> float:
    """Convert a search's threshold to the similarity or coverage that a fact needs: 0.3 → 0.23."""
    # Even the best fact seldom has a similarity near 1, so the result is below the threshold,
    # except for the thresholds 0 and 1.
    return threshold * (2 + threshold) / 3


def _log_failure(embedding: asyncio.Task[int]) -> None:
    if not embedding.cancelled() and (error := embedding.exception()) is not None:
        _log.warning("facts could not be given their vectors: %s", error)
