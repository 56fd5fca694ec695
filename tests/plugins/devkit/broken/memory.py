"""Memory stores that break one thing each."""

import asyncio
import re
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from planting import planting

from delf.errors import MemoryRetrievalError, MemorySetupError
from delf.protocols.memory import Fact
from delf.testing import MemoryContract


def words(text):
    return set(re.findall(r"\w+", text.lower()))


class Store:
    def __init__(self, facts=()):
        self.facts = list(facts)

    async def save(self, facts):
        self.facts += [Fact(content=text, saved_at=datetime.now(UTC)) for text in facts]

    async def search(self, query, top_k=5, threshold=0.3):
        wanted = words(query)
        scored = [(len(wanted & words(f.content)) / (len(wanted) or 1), f) for f in self.facts]
        best = sorted(scored, key=lambda item: -item[0])
        return [fact for score, fact in best if score >= max(threshold, 0.01)][:top_k]

    async def all(self):
        return tuple(self.facts)

    async def delete(self, facts):
        before = len(self.facts)
        self.facts = [fact for fact in self.facts if fact.content not in facts]
        return before - len(self.facts)

    async def clear(self):
        self.facts.clear()

    async def aclose(self):
        pass


class Suite(MemoryContract):
    seconds = 0.5
    kind = Store
    fails = False

    @pytest.fixture
    def store(self):
        return self.kind()


breaks = planting(Suite)


class Apart(Store):
    """A store limited to a namespace."""

    def __init__(self, namespace):
        super().__init__()
        self.namespace = namespace

    async def all(self):
        return tuple(replace(fact, namespace=self.namespace) for fact in self.facts)

    async def search(self, query, top_k=5, threshold=0.3):
        found = await super().search(query, top_k, threshold)
        return [replace(fact, namespace=self.namespace) for fact in found]


class TestGood(Suite):
    durable = True
    namespaces = True

    @pytest.fixture
    def reopen(self, store):
        def again():
            opened = Store()
            opened.facts = store.facts
            return opened

        return again

    @pytest.fixture
    def elsewhere(self):
        return lambda name: Apart(name)


class TestForgets(TestGood):
    breaks = ("test_data_survives_the_process",)

    @pytest.fixture
    def reopen(self):
        return Store


class TestSharesNamespaces(TestGood):
    breaks = (
        "test_namespaces_are_separate",
        "test_clear_keeps_a_namespace_with_a_longer_name",
        "test_two_namespaces_are_written_at_once",
    )

    @pytest.fixture
    def elsewhere(self, store):
        return lambda name: store


@breaks("test_facts_of_any_text_and_size_are_kept")
class TestCutsFacts(Store):
    async def save(self, facts):
        await super().save([text[:1000] for text in facts])


@breaks("test_many_facts_are_saved_at_once", says="of 300 facts")
class TestSavesOnePage(Store):
    async def save(self, facts):
        await super().save(facts[:100])


@breaks("test_search_returns_the_nearest_first", says="sort by similarity, not by age")
class TestFindsByAge(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        found = await super().search(query, 100, threshold)
        return sorted(found, key=lambda fact: fact.saved_at)[:top_k]


@breaks("test_list_returns_saved_facts_oldest_first", says="read them in the zone")
class TestStoresLocalTime(Store):
    async def all(self):
        zone = timezone(timedelta(hours=5))
        return [replace(f, saved_at=f.saved_at.replace(tzinfo=zone)) for f in self.facts]


@breaks("test_list_returns_saved_facts_oldest_first")
class TestNewestFirst(Store):
    async def all(self):
        return tuple(reversed(self.facts))


@breaks("test_search_returns_the_nearest_first")
class TestWorstFirst(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        return list(reversed(await super().search(query, top_k, threshold)))


@breaks("test_search_returns_the_nearest_first", "test_threshold_is_a_similarity_from_0_to_1")
class TestGivesAll(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        return [fact for fact in self.facts if fact.content] or await super().search(query)


@breaks("test_threshold_is_a_similarity_from_0_to_1")
class TestIgnoresTheThreshold(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        return await super().search(query, top_k)


@breaks("test_concurrent_calls_are_independent")
class TestMixesUpSearches(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        import asyncio

        self.query = query
        await asyncio.sleep(0)
        return await super().search(self.query, top_k, threshold)


@breaks("test_methods_do_not_block_the_event_loop", seconds=3.0)
class TestHoldsTheLoop(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        import time

        time.sleep(0.3)
        return await super().search(query, top_k, threshold)


@breaks("test_unusual_queries_are_accepted")
class TestFailsEmpty(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        assert self.facts
        return await super().search(query, top_k, threshold)


@breaks("test_unusual_queries_are_accepted")
class TestTakesQueriesForPatterns(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        re.compile(query)
        return await super().search(query, top_k, threshold)


@breaks("test_facts_can_be_deleted_one_by_one_and_all")
class TestKeepsWhatWasCleared(Store):
    async def clear(self):
        self.facts = self.facts[-1:]


@breaks("test_facts_can_be_deleted_one_by_one_and_all")
class TestForgetsTooMuch(Store):
    async def delete(self, facts):
        self.facts = []
        return 1


@breaks("test_concurrent_calls_are_independent")
class TestLosesWhatComesAtOnce(Store):
    async def save(self, facts):
        import asyncio

        before = list(self.facts)
        await asyncio.sleep(0)
        self.facts = before
        await super().save(facts)


@breaks("test_use_after_repeated_close_works")
class TestClosesOnce(Store):
    async def aclose(self):
        del self.facts


class TestGoodFailing(Suite):
    fails = True

    @pytest.fixture
    def failing_store(self):
        class Failing(Store):
            async def save(self, facts):
                raise MemorySetupError("the disk is full")

            async def search(self, query, top_k=5, threshold=0.3):
                raise MemoryRetrievalError("the disk is gone")

        return Failing()


class TestRaisesItsVendorsErrors(TestGoodFailing):
    breaks = ("test_failure_raises_a_delf_error",)
    says = "raise MemorySetupError"

    @pytest.fixture
    def failing_store(self):
        class Failing(Store):
            async def save(self, facts):
                raise sqlite3.OperationalError("disk I/O error")

        return Failing()


class TestShowsItsAddressAsItFails(TestGoodFailing):
    breaks = ("test_failure_shows_no_secret",)
    secrets = ("tok-secret",)

    @pytest.fixture
    def failing_store(self):
        class Failing(Store):
            async def search(self, query, top_k=5, threshold=0.3):
                raise MemoryRetrievalError("redis://:tok-secret@host is away")

        return Failing()


@breaks(
    "test_threshold_is_a_similarity_from_0_to_1",
    says="a fact that only resembles the query counts as equal",
)
class TestCountsInPercent(Store):
    async def search(self, query, top_k=5, threshold=0.3):
        return await super().search(query, top_k, threshold / 100)


@breaks("test_threshold_is_a_similarity_from_0_to_1", says="0 means unlike, and 1 means equal")
class TestShiftsItsCosine(Store):
    """The score is (1 + cosine) / 2, so that unrelated texts get 0.5."""

    async def search(self, query, top_k=5, threshold=0.3):
        wanted = words(query)
        scored = [
            (0.62 + 0.38 * len(wanted & words(f.content)) / (len(wanted) or 1), f)
            for f in self.facts
        ]
        best = sorted(scored, key=lambda item: -item[0])
        return [fact for score, fact in best if score >= threshold][:top_k]


@breaks("test_facts_of_any_text_and_size_are_kept")
class TestDeletesByPattern(Store):
    async def delete(self, facts):
        patterns = [fact.replace("%", ".*").replace("_", ".") for fact in facts]
        before = len(self.facts)
        self.facts = [
            fact
            for fact in self.facts
            if not any(re.fullmatch(pattern, fact.content) for pattern in patterns)
        ]
        return before - len(self.facts)


@breaks("test_calls_work_after_cancelled_calls", says="has not ended")
class TestKeepsItsLockWhenCancelled(Store):
    def __init__(self, facts=()):
        super().__init__(facts)
        self.turn = asyncio.Lock()

    async def search(self, query, top_k=5, threshold=0.3):
        await self.turn.acquire()
        await asyncio.sleep(0)
        found = await super().search(query, top_k, threshold)
        self.turn.release()
        return found


class TestReadsTheWholeFileBeforeItWrites(TestGood):
    """The file is rewritten from a copy, without what another open store wrote meanwhile."""

    breaks = ("test_two_open_instances_lose_nothing", "test_two_namespaces_are_written_at_once")
    says = "one overwrites what the other saved"

    class kind(Store):
        def __init__(self, file=None, namespace="default"):
            super().__init__()
            self.file = {"facts": ()} if file is None else file
            self.namespace = namespace

        async def save(self, facts):
            now = datetime.now(UTC)
            before = self.file["facts"]
            await asyncio.sleep(0)
            made = [Fact(content=f, saved_at=now, namespace=self.namespace) for f in facts]
            self.file["facts"] = (*before, *made)

        async def all(self):
            return [f for f in self.file["facts"] if f.namespace == self.namespace]

    @pytest.fixture
    def reopen(self, store):
        return lambda: self.kind(store.file)

    @pytest.fixture
    def elsewhere(self, store):
        return lambda name: self.kind(store.file, name)


@breaks("test_methods_do_not_block_the_event_loop", says="sqlite3.connect")
class TestOpensSQLiteOnTheLoop(Store):
    """Opening is quick, but blocks the event loop while the database is locked."""

    async def save(self, facts):
        sqlite3.connect(":memory:").close()
        await super().save(facts)


@breaks("test_search_returns_the_nearest_first", says="save has not ended after 0.5 s")
class TestNeverEndsSaving(Store):
    async def save(self, facts):
        await asyncio.Event().wait()


@breaks("test_delete_removes_exact_facts_only", says="compare whole texts")
class TestDeletesByTheBeginning(Store):
    async def delete(self, facts):
        before = len(self.facts)
        self.facts = [f for f in self.facts if not f.content.startswith(tuple(facts))]
        return before - len(self.facts)


class TestKeepsACopy(TestGood):
    breaks = ("test_store_sees_changes_of_another_instance",)
    says = "keep no copy"

    @pytest.fixture
    def reopen(self, store):
        return lambda: Store(store.facts)


@breaks("test_fact_is_unchanged_by_reading", says="changes as it is read")
class TestTellsTheTimeOfReading(Store):
    async def all(self):
        return tuple(replace(fact, saved_at=datetime.now(UTC)) for fact in self.facts)


@breaks("test_use_leaves_the_process_unchanged", says="the task TestIndexesForEver")
class TestIndexesForEver(Store):
    async def save(self, facts):
        self.indexing = asyncio.ensure_future(self.index())
        await super().save(facts)

    async def index(self):
        await asyncio.Event().wait()


@breaks("test_secrets_are_never_shown", secrets=("tok-secret",))
class TestShowsItsKey(Store):
    def __repr__(self):
        return "Store('tok-secret')"
