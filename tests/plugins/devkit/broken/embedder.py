"""Embedders that break one thing each."""

import asyncio
import math
import re
import time
import zlib

import pytest
from planting import planting

from delf.errors import ConfigurationError
from delf.testing import EmbedderContract


def vector(text, dimension=64):
    counts = [0.0] * dimension
    for word in re.findall(r"\w+", text.lower()):
        counts[zlib.crc32(word.encode()) % dimension] += 1.0
    norm = math.hypot(*counts) or 1.0
    return [count / norm for count in counts]


class Good:
    model = "words"
    dimension = 64
    batch_size = 32

    async def embed(self, texts, kind="passage"):
        return [vector(text) for text in texts]

    async def aclose(self):
        pass


class Suite(EmbedderContract):
    fails = False
    kind = Good

    @pytest.fixture
    def embedder(self):
        return self.kind()


breaks = planting(Suite)


class TestGood(Suite):
    pass


class TestGoodWithNothingToClose(Suite):
    class kind:
        model = "words"
        dimension = 64
        batch_size = 1
        embed = Good.embed


@breaks("test_embedder_returns_a_vector_per_text")
class TestSaysAnotherDimension(Good):
    dimension = 384


@breaks("test_embedder_returns_a_vector_per_text")
class TestIsNotNormal(Good):
    async def embed(self, texts, kind="passage"):
        return [[2 * value for value in row] for row in await super().embed(texts)]


@breaks("test_similar_texts_have_similar_vectors")
class TestEverythingIsAlike(Good):
    async def embed(self, texts, kind="passage"):
        return [vector("nothing") for _ in texts]


@breaks("test_equal_texts_have_equal_vectors")
class TestLooksAtTheNeighbours(Good):
    async def embed(self, texts, kind="passage"):
        return [vector(" ".join((*texts, text))) for text in texts]


@breaks("test_embedder_names_its_model_and_accepts_a_full_batch")
class TestDropsTheLast(Good):
    async def embed(self, texts, kind="passage"):
        return (await super().embed(texts))[: self.batch_size - 1]


@breaks("test_unusual_texts_are_accepted")
class TestDividesByNothing(Good):
    async def embed(self, texts, kind="passage"):
        return [vector(text) if text.strip() else [math.nan] * self.dimension for text in texts]


@breaks("test_embedder_serves_concurrent_callers")
class TestMixesUpCalls(Good):
    async def embed(self, texts, kind="passage"):
        self.texts = texts
        await asyncio.sleep(0)
        return [vector(text) for text in self.texts]


@breaks("test_methods_do_not_block_the_event_loop")
class TestHoldsTheLoop(Good):
    async def embed(self, texts, kind="passage"):
        time.sleep(0.3)
        return await super().embed(texts)


@breaks("test_embedder_names_its_model_and_accepts_a_full_batch")
class TestHasNoName(Good):
    model = ""


@breaks("test_close_is_idempotent_and_works_unused")
class TestClosesOnce(Good):
    lock = True

    async def aclose(self):
        assert self.lock
        self.lock = False


@breaks("test_vectors_are_equal_in_every_process", says="use zlib.crc32")
class TestHashesWords(Good):
    async def embed(self, texts, kind="passage"):
        return [self.vector(text) for text in texts]

    def vector(self, text):
        counts = [0.0] * self.dimension
        for word in re.findall(r"\w+", text.lower()):
            counts[hash(word) % self.dimension] += 1.0
        norm = math.hypot(*counts) or 1.0
        return [count / norm for count in counts]


@breaks("test_calls_work_after_cancelled_calls", says="has not ended", seconds=0.5)
class TestKeepsItsLockWhenCancelled(Good):
    def __init__(self):
        self.turn = asyncio.Lock()

    async def embed(self, texts, kind="passage"):
        await self.turn.acquire()
        await asyncio.sleep(0)
        vectors = await super().embed(texts, kind)
        self.turn.release()
        return vectors


@breaks("test_methods_do_not_block_the_event_loop", says="time.sleep")
class TestSleepsOnTheLoop(Good):
    async def embed(self, texts, kind="passage"):
        time.sleep(0.01)
        return await super().embed(texts, kind)


@breaks("test_late_words_change_the_vector", says="can never be found")
class TestReadsTheBeginningOnly(Good):
    async def embed(self, texts, kind="passage"):
        return await super().embed([text[:100] for text in texts])


@breaks("test_order_of_a_batch_is_kept", says="has the vector of another")
class TestSortsLargeBatches(Good):
    async def embed(self, texts, kind="passage"):
        rows = await super().embed(texts)
        return sorted(rows) if len(rows) > 8 else rows


@breaks("test_use_leaves_the_process_unchanged", says="cache keeps what one user's call was about")
class TestCachesInItsClass(Good):
    cache: dict = {}

    async def embed(self, texts, kind="passage"):
        return [self.cache.setdefault(text, vector(text)) for text in texts]


@breaks("test_secrets_are_never_shown", secrets=("tok-secret",))
class TestShowsItsKey(Good):
    def __repr__(self):
        return "Embedder('tok-secret')"


@breaks("test_order_of_a_batch_is_kept", says="two of them equal")
class TestEmbedsEqualTextsOnce(Good):
    async def embed(self, texts, kind="passage"):
        return await super().embed(list(dict.fromkeys(texts)), kind)


@breaks("test_order_of_a_batch_is_kept")
class TestUsesOneBuffer(Good):
    buffer = None

    async def embed(self, texts, kind="passage"):
        rows = await super().embed(texts, kind)
        self.buffer = self.buffer or [[0.0] * 64 for _ in range(self.batch_size)]
        for place, row in zip(self.buffer, rows, strict=False):
            place[:] = row
        return self.buffer[: len(rows)]


class TestGoodFailing(Suite):
    fails = True
    secrets = ("tok-secret",)
    failure: Exception = ConfigurationError("the service does not answer")

    @pytest.fixture
    def failing_embedder(self):
        failure = self.failure

        class Failing(Good):
            async def embed(self, texts, kind="passage"):
                raise failure

        return Failing()


class TestRaisesItsVendorsErrors(TestGoodFailing):
    breaks = ("test_failure_raises_a_delf_error",)
    says = "it raises ConnectionRefusedError"
    failure = ConnectionRefusedError("the service is away")


class TestShowsItsKeyAsItFails(TestGoodFailing):
    breaks = ("test_failure_shows_no_secret",)
    failure = ConfigurationError("https://host?key=tok-secret does not answer")
