"""Duties of every memory store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from delf.errors import DelfError
from delf.protocols.memory import MemoryStore
from delf_devkit.testing.contracts.base import (
    LOOP_ITERATIONS,
    Contract,
    cancel_after_iterations,
    fail_without,
    needs,
    open_with,
)

_AT_ONCE = 10
_INSTANT = 0.01
_MANY = 300
# The largest accepted difference between two clocks; time zones differ by at least 15 minutes.
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=10)
_MARK = "marmalade-7741"


class MemoryContract(Contract):
    """Tests for a memory store; needs a fixture ``store``, a fresh and empty store.

    ``query`` must find ``expected`` first among ``facts``. The default query shares words with the
    expected fact, so that a plain text search passes. The suite closes the store. ``durable =
    True`` needs a fixture ``reopen``, ``namespaces = True`` a fixture ``elsewhere`` that opens the
    store for a namespace, and ``fails = True`` a fixture ``failing_store`` whose file or service is
    unavailable.
    """

    facts: ClassVar[Sequence[str]] = (
        "The office closes at six.",
        "The office is in Turin.",
        "Zoë prefers tea ☕.",
    )
    query: ClassVar[str] = "In which city is the office?"
    expected: ClassVar[str] = "The office is in Turin."
    durable: ClassVar[bool] = False
    namespaces: ClassVar[bool] = False
    fails: ClassVar[bool] = True

    @pytest.fixture
    def store(self) -> MemoryStore:
        """The store under test."""
        fail_without(self, "a fixture `store`")

    @pytest.fixture
    def reopen(self) -> Callable[[], Any]:
        """A function that opens the store under test again."""
        fail_without(self, "a fixture `reopen`, or durable = False")

    @pytest.fixture
    def elsewhere(self) -> Callable[[str], Any]:
        """A function that opens the store under test for another namespace."""
        fail_without(self, "a fixture `elsewhere`, or namespaces = False")

    @pytest.fixture
    def failing_store(self) -> MemoryStore:
        """A store like the one under test, whose reads and writes fail.

        A suite with ``fails = True`` overrides this fixture. Otherwise, this method fails the test
        with a message that the suite needs the fixture.
        """
        fail_without(self, "a fixture `failing_store`, or fails = False")

    async def test_list_returns_saved_facts_oldest_first(self, store: Any) -> None:
        assert list(await store.all()) == []
        await store.save(self.facts[:1])
        await store.save(self.facts[1:])
        saved = await store.all()
        assert [fact.content for fact in saved] == list(self.facts)
        assert all(fact.saved_at.tzinfo is not None for fact in saved), "times have no zone"
        difference = max(abs(datetime.now(UTC) - fact.saved_at) for fact in saved)
        assert difference < _MAX_CLOCK_DIFFERENCE, (
            f"a fact that was saved now has a time {difference} away: store times in UTC, and "
            "read them in the zone in which they were stored"
        )

    async def test_search_returns_the_nearest_first(self, store: Any) -> None:
        for facts in (self.facts, self.facts[::-1]):
            await store.clear()
            for fact in facts:  # one by one, so that each fact gets a different time
                await store.save([fact])
            found = await store.search(self.query, threshold=0.0)
            assert found, "nothing was found"
            assert found[0].content == self.expected, (
                f"the first fact found is {found[0].content!r}: sort by similarity, not by age; a "
                "task is given the first facts only"
            )
        found = await store.search(self.query, top_k=1, threshold=0.0)
        assert [fact.content for fact in found] == [self.expected], "more than was asked for"
        assert len(await store.search(self.query, top_k=100, threshold=0.0)) <= len(self.facts)

    async def test_threshold_is_a_similarity_from_0_to_1(self, store: Any) -> None:
        await store.save(self.facts)
        for threshold in (0.6, 0.99):
            facts = await store.search("xylophone quartz", threshold=threshold)
            assert list(facts) == [], (
                f"a fact that has no word in common with the query is found with the threshold "
                f"{threshold}: 0 means unlike, and 1 means equal"
            )
        counts = [len(await store.search(self.query, 100, step / 10)) for step in range(11)]
        assert counts == sorted(counts, reverse=True), "a higher threshold finds more"
        assert counts[0] > 0, "a threshold of 0 leaves something out"
        facts = await store.search(self.query, threshold=0.999)
        assert list(facts) == [], "a fact that only resembles the query counts as equal"
        facts = await store.search(self.expected, threshold=0.9)
        assert [fact.content for fact in facts] == [self.expected], (
            "a search for the text of a fact does not find the fact"
        )

    async def test_facts_of_any_text_and_size_are_kept(self, store: Any) -> None:
        facts = ["It's Ann's.", 'He wrote "no".', "100% of a_b", "back\\slash", "'; --", "{x} $y"]
        facts += [
            "日本語の事務所。",
            "Ζοή πίνει τσάι 🦊.",
            "a\tb\nc",
            "The tower is tall. " * 55_000,
        ]
        await store.save(facts)
        assert [fact.content for fact in await store.all()] == facts
        fact_in_greek = "Ζοή πίνει τσάι 🦊."
        nearest = await store.search(fact_in_greek, top_k=1, threshold=0.0)
        assert [fact.content for fact in nearest] == [fact_in_greek]
        for fact in facts:
            assert await store.delete([fact]) == 1, fact[:40]
        assert list(await store.all()) == []

    async def test_calls_work_after_cancelled_calls(self, store: Any) -> None:
        await store.save(self.facts)
        # A lock that is held, or a connection that is half used, shows at the next call.
        for iterations in LOOP_ITERATIONS:
            await cancel_after_iterations(lambda: store.search(self.query), iterations)
            await cancel_after_iterations(lambda: store.save(["Half saved."]), iterations)
        await store.delete(["Half saved."])
        facts = await store.search(self.query, 1, 0.0)
        assert [fact.content for fact in facts] == [self.expected]
        # A cancelled call of save() may end after the deletion, and then saves the fact again.
        assert {fact.content for fact in await store.all()} <= {*self.facts, "Half saved."}

    @needs("fails")
    async def test_failure_raises_a_delf_error(self, failing_store: Any) -> None:
        for work in (failing_store.save(self.facts), failing_store.search(self.query)):
            with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it raises
                await work
            assert isinstance(caught.value, DelfError), (
                f"it raises {type(caught.value).__name__}: raise MemorySetupError or "
                "MemoryRetrievalError from it, so that the task goes on without memory"
            )
            assert caught.value.message.strip()

    @needs("fails", "secrets")
    async def test_failure_shows_no_secret(self, failing_store: Any) -> None:
        await self.check_no_secret_is_shown(failing_store, lambda: failing_store.save(self.facts))
        await self.check_no_secret_is_shown(failing_store, lambda: failing_store.search(self.query))

    @needs("durable")
    async def test_two_open_instances_lose_nothing(
        self, store: Any, reopen: Callable[[], Any]
    ) -> None:
        other = await open_with(reopen)
        await self._save_to_both_at_once(store, other)
        for each in (store, other):
            assert len(await each.all()) == 2 * _AT_ONCE, "one overwrites what the other saved"
        await other.aclose()

    async def _save_to_both_at_once(self, one: Any, other: Any) -> None:
        mine = (one.save([f"Fact {n} is mine."]) for n in range(_AT_ONCE))
        theirs = (other.save([f"Fact {n} is theirs."]) for n in range(_AT_ONCE))
        await asyncio.gather(*mine, *theirs)

    async def test_many_facts_are_saved_at_once(self, store: Any) -> None:
        facts = [f"Room {number} is on floor {number // 10}." for number in range(_MANY)]
        await store.save(facts)
        count = len(await store.all())
        assert count == _MANY, (
            f"of {_MANY} facts that were saved by one call {count} are left: save all in batches, "
            "or raise MemorySetupError"
        )

    async def test_concurrent_calls_are_independent(self, store: Any) -> None:
        await asyncio.gather(*(store.save([f"Fact {n}."]) for n in range(20)))
        assert {fact.content for fact in await store.all()} == {f"Fact {n}." for n in range(20)}
        await store.save(self.facts)
        alone = [await store.search(fact, 1, 0.0) for fact in self.facts]
        repeated_facts = [*self.facts] * 5
        together = await asyncio.gather(*(store.search(fact, 1, 0.0) for fact in repeated_facts))
        for results, expected in zip(together, alone * 5, strict=True):
            assert list(results) == list(expected), "searches are mixed up"

    async def test_methods_do_not_block_the_event_loop(self, store: Any) -> None:
        await self.check_loop_stays_free(lambda: store.save(self.facts))
        await self.check_loop_stays_free(lambda: store.search(self.query))
        await self.check_loop_stays_free(store.all)

    async def test_unusual_queries_are_accepted(self, store: Any) -> None:
        assert list(await store.search(self.query)) == []
        await store.save([])
        assert list(await store.all()) == []
        await store.save(self.facts)
        for query in ("", "   ", "'; DROP TABLE facts; --", "%_*?\\", "日本語 🦊", "word " * 5000):
            await store.search(query)
        assert len(await store.all()) == len(self.facts)

    @needs("namespaces")
    async def test_namespaces_are_separate(
        self, store: Any, elsewhere: Callable[[str], Any]
    ) -> None:
        other: Any = elsewhere("it's another")
        await store.save(self.facts[:1])
        await other.save(self.facts[1:])
        assert [fact.content for fact in await store.all()] == list(self.facts[:1])
        spaces = {fact.namespace for each in (store, other) for fact in await each.all()}
        assert len(spaces) == 2, f"facts of two namespaces say that they are of {spaces!r}"
        contents = {fact.content for fact in await store.search(self.query, 100, 0.0)}
        assert contents <= {*self.facts[:1]}, "a search finds a fact of another namespace"
        assert await store.delete(self.facts[1:]) == 0
        assert [fact.content for fact in await other.all()] == list(self.facts[1:])
        await store.clear()
        assert [fact.content for fact in await other.all()] == list(self.facts[1:])
        await other.aclose()

    @needs("namespaces")
    async def test_clear_keeps_a_namespace_with_a_longer_name(
        self, elsewhere: Callable[[str], Any]
    ) -> None:
        cleared, longer = elsewhere("it's another"), elsewhere("it's another one")
        await longer.save(self.facts[:1])
        await cleared.clear()
        assert [fact.content for fact in await longer.all()] == list(self.facts[:1]), (
            "a namespace whose name begins with that of another is forgotten with it"
        )
        await longer.clear()
        await longer.aclose()
        await cleared.save(self.facts[1:])
        assert await cleared.search(self.query, 100, 0.0), (
            "clear() of a namespace also makes facts of another namespace impossible to find"
        )
        await cleared.aclose()

    @needs("namespaces")
    async def test_two_namespaces_are_written_at_once(
        self, store: Any, elsewhere: Callable[[str], Any]
    ) -> None:
        other: Any = elsewhere("it's another")
        await self._save_to_both_at_once(store, other)
        # ``store`` has the facts with the word "mine", and ``other`` the facts with "theirs".
        assert len(await store.all()) == len(await other.all()) == _AT_ONCE
        assert all("mine" in fact.content for fact in await store.all())
        await other.aclose()

    async def test_facts_can_be_deleted_one_by_one_and_all(self, store: Any) -> None:
        await store.save(self.facts)
        assert await store.delete([self.facts[0], "No such fact."]) == 1
        assert [fact.content for fact in await store.all()] == list(self.facts[1:])
        facts = await store.search(self.facts[0], top_k=10, threshold=0.0)
        assert self.facts[0] not in [fact.content for fact in facts]
        await store.clear()
        assert list(await store.all()) == []
        assert list(await store.search(self.query, threshold=0.0)) == []
        await store.save(self.facts[:1])
        assert len(await store.all()) == 1

    async def test_delete_removes_exact_facts_only(self, store: Any) -> None:
        await store.save(self.facts)
        for part in (self.facts[1][:10], self.facts[1][10:], f"{self.facts[1]} And more.", "%"):
            assert await store.delete([part]) == 0, (
                f"delete([{part!r}]) deleted a fact with another text: compare whole texts"
            )
        assert [fact.content for fact in await store.all()] == list(self.facts)

    @needs("durable")
    async def test_store_sees_changes_of_another_instance(
        self, store: Any, reopen: Callable[[], Any]
    ) -> None:
        other = await open_with(reopen)
        assert list(await store.all()) == []
        assert list(await store.search(self.query, 1, 0.0)) == []
        await other.save(self.facts)
        assert len(await store.all()) == len(self.facts), (
            "what another process saved is not seen: keep no copy of what may change outside"
        )
        facts = await store.search(self.query, 1, 0.0)
        assert [fact.content for fact in facts] == [self.expected]
        await other.clear()
        assert list(await store.search(self.query, 1, 0.0)) == [], "it finds what is forgotten"
        await other.aclose()

    async def test_fact_is_unchanged_by_reading(self, store: Any) -> None:
        await store.save(self.facts[:1])
        (first,) = await store.all()
        await asyncio.sleep(_INSTANT)
        (again,) = await store.all()
        assert again == first, f"a fact changes as it is read: {first!r} became {again!r}"
        (fact,) = await store.search(self.facts[0], 1, 0.0)
        assert (fact.saved_at, fact.namespace) == (first.saved_at, first.namespace)

    async def test_use_leaves_the_process_unchanged(self, store: Any) -> None:
        async def use() -> None:
            await store.save([f"{_MARK} is a jam."])
            await store.search(f"What is {_MARK}?", 1, 0.0)
            await store.clear()

        await self.check_nothing_remains(store, use, forbidden_texts=(_MARK,))

    async def test_secrets_are_never_shown(self, store: Any) -> None:
        await self.check_no_secret_is_shown(store, lambda: store.search(self.query))

    async def test_use_after_repeated_close_works(self, store: Any) -> None:
        await store.save(self.facts)
        for _ in range(2):
            await store.aclose()
        await store.search(self.query)

    @needs("durable")
    async def test_data_survives_the_process(self, store: Any, reopen: Callable[[], Any]) -> None:
        await store.save(self.facts)
        await store.aclose()
        reopened = await open_with(reopen)
        assert [fact.content for fact in await reopened.all()] == list(self.facts)
        await reopened.aclose()
