"""Memory stores that break one thing each."""

import re
from datetime import UTC, datetime

import pytest

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

    async def list(self):
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

    @pytest.fixture
    def store(self):
        return self.kind()


class TestGood(Suite):
    durable = True
    namespaces = True

    @pytest.fixture
    def reopen(self, store):
        return lambda: Store(store.facts)

    @pytest.fixture
    def elsewhere(self):
        return lambda name: Store()


class TestForgets(TestGood):
    breaks = ("test_outlives_the_process",)

    @pytest.fixture
    def reopen(self):
        return Store


class TestSharesNamespaces(TestGood):
    breaks = ("test_namespaces_are_apart",)

    @pytest.fixture
    def elsewhere(self, store):
        return lambda name: store


class TestSearchesAllNamespaces(TestGood):
    breaks = ("test_namespaces_are_apart",)

    @pytest.fixture
    def store(self):
        return self.kind()

    @pytest.fixture
    def elsewhere(self, store):
        other = Store()

        async def search(*args):
            return [*await Store.search(store, *args), *await Store.search(other, *args)]

        store.search = search
        return lambda name: other


class TestCutsFacts(Suite):
    breaks = ("test_facts_of_all_scripts_and_sizes",)

    class kind(Store):
        async def save(self, facts):
            await super().save([text[:1000] for text in facts])


class TestNewestFirst(Suite):
    breaks = ("test_lists_what_was_saved_oldest_first",)

    class kind(Store):
        async def list(self):
            return tuple(reversed(self.facts))


class TestWorstFirst(Suite):
    breaks = ("test_finds_the_nearest_first",)

    class kind(Store):
        async def search(self, query, top_k=5, threshold=0.3):
            return list(reversed(await super().search(query, top_k, threshold)))


class TestGivesAll(Suite):
    breaks = (
        "test_gives_no_more_than_was_asked_for",
        "test_a_high_threshold_leaves_the_unlike_out",
    )

    class kind(Store):
        async def search(self, query, top_k=5, threshold=0.3):
            return [fact for fact in self.facts if fact.content] or await super().search(query)


class TestIgnoresTheThreshold(Suite):
    breaks = ("test_the_threshold_counts",)

    class kind(Store):
        async def search(self, query, top_k=5, threshold=0.3):
            return await super().search(query, top_k)


class TestMixesUpSearches(Suite):
    breaks = ("test_searches_at_one_time_are_kept_apart",)

    class kind(Store):
        async def search(self, query, top_k=5, threshold=0.3):
            import asyncio

            self.query = query
            await asyncio.sleep(0)
            return await super().search(self.query, top_k, threshold)


class TestHoldsTheLoop(Suite):
    seconds = 3.0
    breaks = ("test_leaves_the_event_loop_alone",)

    class kind(Store):
        async def search(self, query, top_k=5, threshold=0.3):
            import time

            time.sleep(0.3)
            return await super().search(query, top_k, threshold)


class TestFailsEmpty(Suite):
    breaks = ("test_an_empty_store_finds_nothing",)

    class kind(Store):
        async def search(self, query, top_k=5, threshold=0.3):
            assert self.facts
            return await super().search(query, top_k, threshold)


class TestTakesQueriesForPatterns(Suite):
    breaks = ("test_odd_queries_do_no_harm",)

    class kind(Store):
        async def search(self, query, top_k=5, threshold=0.3):
            re.compile(query)
            return await super().search(query, top_k, threshold)


class TestKeepsWhatWasCleared(Suite):
    breaks = ("test_forgets_everything",)

    class kind(Store):
        async def clear(self):
            self.facts = self.facts[-1:]


class TestForgetsTooMuch(Suite):
    breaks = ("test_forgets_single_facts",)

    class kind(Store):
        async def delete(self, facts):
            self.facts = []
            return 1


class TestLosesWhatComesAtOnce(Suite):
    breaks = ("test_can_be_used_by_many_at_once",)

    class kind(Store):
        async def save(self, facts):
            import asyncio

            before = list(self.facts)
            await asyncio.sleep(0)
            self.facts = before
            await super().save(facts)


class TestClosesOnce(Suite):
    breaks = ("test_can_be_closed_twice_and_used_again",)

    class kind(Store):
        async def aclose(self):
            del self.facts
