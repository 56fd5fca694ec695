"""Duties of every embedder."""

from __future__ import annotations

import asyncio
import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from delf.errors import DelfError
from delf.protocols.connection import SupportsClose
from delf.protocols.embedder import Embedder
from delf_devkit.testing.contracts.base import (
    LOOP_ITERATIONS,
    Contract,
    cancel_after_iterations,
    fail_without,
    needs,
)

# How often a sentence is repeated before the words in which two texts differ.
_LENGTHS = (1, 8)
_BATCH = 40
_UNUSUAL_WORD = "marmalade-7741"
# The tolerance between two embeddings of one text, because batches sum in another order.
_TOLERANCE = 1e-3


class EmbedderContract(Contract):
    """Tests for an embedder; needs a fixture ``embedder``, which the suite closes.

    ``expected`` must be the nearest of ``passages`` to ``query``. In the defaults, these two texts
    share words, so that an embedder that only counts words passes. ``fails = True`` needs a fixture
    ``failing_embedder``, whose model cannot be loaded or whose service is down.
    """

    passages: ClassVar[Sequence[str]] = (
        "The office closes at six.",
        "The office is in the city of Turin.",
        "Zoë prefers tea ☕.",
    )
    query: ClassVar[str] = "In which city is the office?"
    expected: ClassVar[str] = "The office is in the city of Turin."
    fails: ClassVar[bool] = True

    @pytest.fixture
    def embedder(self) -> Embedder:
        """The embedder under test."""
        fail_without(self, "a fixture `embedder`")

    @pytest.fixture
    def failing_embedder(self) -> Embedder:
        """An embedder like the one under test, whose model or service is unavailable."""
        fail_without(self, "a fixture `failing_embedder`, or fails = False")

    async def test_embedder_returns_a_vector_per_text(self, embedder: Any) -> None:
        rows = await self._rows(embedder, self.passages)
        assert len(rows) == len(self.passages)
        dimensions = {len(row) for row in rows} | {len(await self._query(embedder, self.query))}
        assert len(dimensions) == 1, f"vectors of different dimensions: {sorted(dimensions)}"
        assert dimensions == {embedder.dimension}, (
            f"the embedder's dimension is {embedder.dimension}, and its vectors have {dimensions}"
        )
        assert len(await self._rows(embedder, self.passages[:1])) == 1
        for row in rows:
            norm = math.sqrt(sum(value * value for value in row))
            assert math.isclose(norm, 1.0, abs_tol=0.01), f"a vector has the norm {norm:g}, not 1"

    async def test_similar_texts_have_similar_vectors(self, embedder: Any) -> None:
        wanted = await self._query(embedder, self.query)
        similarities = [_dot(wanted, row) for row in await self._rows(embedder, self.passages)]
        nearest = similarities.index(max(similarities))
        assert self.passages[nearest] == self.expected

    async def test_equal_texts_have_equal_vectors(self, embedder: Any) -> None:
        together = await self._rows(embedder, self.passages)
        # Embed each text alone, in another order than in the batch. A text's vector must depend
        # neither on the texts beside it nor on the texts that were embedded before it.
        for text, row in reversed(list(zip(self.passages, together, strict=True))):
            (alone,) = await self._rows(embedder, [text])
            assert _distance(row, alone) < _TOLERANCE, "it depends on the texts beside it"

    async def test_vectors_are_equal_in_every_process(
        self, embedder: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real_hash = hash

        def hash_of_process(seed: int) -> Callable[[Any], int]:
            def seeded_hash(value: Any) -> int:
                # Only the hashes of texts depend on the seed of a process.
                return real_hash(value) ^ seed if isinstance(value, str) else real_hash(value)

            return seeded_hash

        rows: list[list[float]] = []
        # Simulate two processes with different hash seeds.
        for seed in (1, 0x5EED):
            with monkeypatch.context() as patch:
                patch.setattr(builtins, "hash", hash_of_process(seed))
                rows += await self._rows(embedder, ["Kumquats and marmalade."])
        assert _distance(*rows) < _TOLERANCE, (
            "its vectors come from hash(), which is another in each process: use zlib.crc32"
        )

    async def test_calls_work_after_cancelled_calls(self, embedder: Any) -> None:
        (before,) = await self._rows(embedder, self.passages[:1])
        for iterations in LOOP_ITERATIONS:
            await cancel_after_iterations(lambda: embedder.embed(self.passages), iterations)
        (after,) = await self._rows(embedder, self.passages[:1])
        assert _distance(before, after) < _TOLERANCE

    async def test_embedder_names_its_model_and_accepts_a_full_batch(self, embedder: Any) -> None:
        assert isinstance(embedder.model, str)
        assert embedder.model.strip()
        assert embedder.batch_size >= 1
        texts = [f"Fact {number}." for number in range(min(embedder.batch_size, 256))]
        assert len(await self._rows(embedder, texts)) == len(texts)

    async def test_unusual_texts_are_accepted(self, embedder: Any) -> None:
        for text in ("", "   ", "日本語 🦊", "\x00\n\t", "word " * 5000):
            (row,) = await self._rows(embedder, [text])
            assert all(map(math.isfinite, row)), f"{text[:20]!r} has no finite vector"

    async def test_embedder_serves_concurrent_callers(self, embedder: Any) -> None:
        expected = [(await self._rows(embedder, [text]))[0] for text in self.passages]
        texts = [*self.passages] * 5
        results = await asyncio.gather(*(self._rows(embedder, [text]) for text in texts))
        for (row,), expected_row in zip(results, expected * 5, strict=True):
            assert _distance(row, expected_row) < _TOLERANCE, "calls at the same time are mixed up"

    async def test_methods_do_not_block_the_event_loop(self, embedder: Any) -> None:
        texts = [f"Fact {number}." for number in range(min(embedder.batch_size, 64))]
        await self.check_loop_stays_free(lambda: embedder.embed(texts))

    async def test_late_words_change_the_vector(self, embedder: Any) -> None:
        for size in _LENGTHS:
            common = "The minutes of the meeting. " * size
            one, other = await self._rows(embedder, [common + text for text in self.passages[:2]])
            assert _distance(one, other) > 0, (
                f"two texts that differ after {len(common)} characters have one vector: what is "
                "cut off, or left out of a cache's key, can never be found"
            )

    async def test_order_of_a_batch_is_kept(self, embedder: Any) -> None:
        texts = [f"Fact {number} is about {number * 7}." for number in range(_BATCH)]
        # Texts for at most one batch; the last text equals the first.
        texts = [*texts[: embedder.batch_size - 1], texts[0]]
        vectors = await embedder.embed(texts, "passage")
        await embedder.embed(self.passages[:1], "passage")  # must not change an earlier result
        together = [[float(value) for value in row] for row in vectors]
        assert len(together) == len(texts), (
            f"{len(texts)} texts, two of them equal, have {len(together)} vectors: each text of a "
            "batch needs a vector at its place"
        )
        for index in (0, len(texts) // 2, len(texts) - 1):
            (alone,) = await self._rows(embedder, [texts[index]])
            assert _distance(together[index], alone) < _TOLERANCE, (
                f"text {index} of {len(texts)} has the vector of another: facts would be found "
                "under other words"
            )

    async def test_use_leaves_the_process_unchanged(self, embedder: Any) -> None:
        async def close() -> None:
            if isinstance(embedder, SupportsClose):
                await embedder.aclose()

        # The check fails if a class or module still contains the unusual word of the embedded text.
        texts = [f"A {_UNUSUAL_WORD} is a jam."]
        await self.check_nothing_remains(
            embedder, lambda: embedder.embed(texts), close, forbidden_texts=(_UNUSUAL_WORD,)
        )

    @needs("fails")
    async def test_failure_raises_a_delf_error(self, failing_embedder: Any) -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it raises
            await failing_embedder.embed(self.passages[:1])
        assert isinstance(caught.value, DelfError), (
            f"it raises {type(caught.value).__name__}: raise a DelfError from it, so that the task "
            "says what to do"
        )
        self.check_message_explains(caught.value)

    @needs("fails", "secrets")
    async def test_failure_shows_no_secret(self, failing_embedder: Any) -> None:
        texts = self.passages[:1]
        await self.check_no_secret_is_shown(failing_embedder, lambda: failing_embedder.embed(texts))

    async def test_secrets_are_never_shown(self, embedder: Any) -> None:
        texts = self.passages[: embedder.batch_size]
        await self.check_no_secret_is_shown(embedder, lambda: embedder.embed(texts))

    async def test_close_is_idempotent_and_works_unused(self, embedder: Any) -> None:
        for _ in range(2):
            if isinstance(embedder, SupportsClose):
                await embedder.aclose()

    async def _rows(self, embedder: Any, texts: Sequence[str]) -> list[list[float]]:
        vectors = await embedder.embed(texts, "passage")
        return [[float(value) for value in row] for row in vectors]

    async def _query(self, embedder: Any, text: str) -> list[float]:
        (row,) = await embedder.embed([text], "query")
        return [float(value) for value in row]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _distance(one: Sequence[float], other: Sequence[float]) -> float:
    return max((abs(a - b) for a, b in zip(one, other, strict=True)), default=0.0)
