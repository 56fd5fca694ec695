"""Duties of every observer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, cast

import pytest

from delf.errors import DelfError
from delf.events import encode
from delf.protocols.observer import Observer
from delf_devkit.testing.contracts.base import Contract, fail_without, needs
from delf_devkit.testing.events import every_event

# A text in all events of a test, to search for what an observer leaves behind.
_MARK = "marmalade-7741"
_INSTANT = 0.05
_TASKS = 40


class ObserverContract(Contract):
    """Tests for an observer; needs a fixture ``observer``, which the suite closes.

    ``reports = True`` needs a fixture ``reported_texts``, a function that returns the texts that
    the observer has passed on so far, such as lines of a file or packets that a service got.
    ``fails = True`` needs a fixture ``failing_observer``, whose file or service is unavailable.
    """

    reports: ClassVar[bool] = False
    fails: ClassVar[bool] = False

    @pytest.fixture
    def reported_texts(self) -> Callable[[], Any]:
        """A function that returns the texts that the observer has passed on."""
        fail_without(self, "a fixture `reported_texts`, or reports = False")

    @pytest.fixture
    def failing_observer(self) -> Observer:
        """An observer like the one under test, whose file or service is unavailable."""
        fail_without(self, "a fixture `failing_observer`, or fails = False")

    @pytest.fixture
    def observer(self) -> Observer:
        """The observer under test."""
        fail_without(self, "a fixture `observer`")

    async def test_observer_accepts_every_event_without_changing_it(self, observer: Any) -> None:
        events = every_event()
        before = [encode(event) for event in events]
        for event in events:
            await observer.observe(event)
        assert [encode(event) for event in events] == before

    async def test_observer_can_join_a_running_task(self, observer: Any) -> None:
        # An observer that joins late gets ends without their beginnings, as in this order.
        for event in reversed(every_event()):
            await observer.observe(event)

    async def test_methods_do_not_block_the_event_loop(self, observer: Any) -> None:
        for event in every_event():
            await self.check_loop_stays_free(lambda event=event: observer.observe(event))
        await self.check_loop_stays_free(observer.aclose)

    async def test_observer_accepts_events_of_many_tasks(self, observer: Any) -> None:
        async def watch(task: str) -> None:
            for event in every_event(task):
                await observer.observe(event)

        await asyncio.gather(*(watch(f"t{number}") for number in range(10)))

    @needs("reports")
    async def test_close_flushes_all_events(
        self, observer: Any, reported_texts: Callable[[], Sequence[str]]
    ) -> None:
        for event in every_event("first"):
            await observer.observe(event)
        count_after_first_task = len(reported_texts())
        for event in every_event("second"):
            await observer.observe(event)
        await observer.aclose()
        texts_at_close = list(reported_texts())
        assert len(texts_at_close) > count_after_first_task, (
            "`reported_texts` returns nothing of the second task"
        )
        await asyncio.sleep(_INSTANT)
        assert list(reported_texts()) == texts_at_close, (
            "events were reported after aclose(): flush there, or a process that ends loses them"
        )

    @needs("reports")
    async def test_concurrent_tasks_are_reported_separately(
        self, observer: Any, reported_texts: Callable[[], Sequence[str]]
    ) -> None:
        pairs = list(zip(every_event("t1"), every_event("t2"), strict=True))
        for event_of_t1, event_of_t2 in pairs:
            await observer.observe(event_of_t1)
            await observer.observe(event_of_t2)
        await observer.aclose()
        texts = [str(text) for text in reported_texts()]
        texts_of_t1 = [text.replace("t1", "t*") for text in texts if "t1" in text]
        texts_of_t2 = [text.replace("t2", "t*") for text in texts if "t2" in text]
        assert sorted(texts_of_t1) == sorted(texts_of_t2), (
            "two equal tasks at one time are reported differently: keep what belongs to a task by "
            "its id, not in `self`"
        )

    @needs("fails")
    async def test_unavailable_service_stops_no_task(self, failing_observer: Any) -> None:
        for event in every_event():
            try:
                await failing_observer.observe(event)
            except DelfError:
                continue  # the engine logs the error
            except Exception as error:
                pytest.fail(
                    f"its service is away, and it raised {type(error).__name__}: {error}; log a "
                    "warning, or raise a DelfError that says what to do"
                )
        await failing_observer.aclose()

    @needs("fails", "secrets")
    async def test_failure_shows_no_secret(self, failing_observer: Any) -> None:
        async def observe_and_close() -> None:
            await failing_observer.observe(every_event()[0])
            await failing_observer.aclose()

        await self.check_no_secret_is_shown(failing_observer, observe_and_close)

    async def test_ended_tasks_are_released(self, observer: Any) -> None:
        async def watch(names: Iterable[str]) -> None:
            for name in names:
                for event in every_event(name):
                    await observer.observe(event)

        await watch(f"early-{number}" for number in range(_TASKS))
        size_early = _size_of(observer)
        await watch(f"later-{number}" for number in range(_TASKS))
        size_later = _size_of(observer)
        assert size_later < size_early + _TASKS // 2, (
            f"after {_TASKS} tasks it holds {size_early} objects, after as many more {size_later}: "
            "an agent that runs for months grows with each task; forget a task with its "
            "TaskFinished, and bound what waits to be sent"
        )

    async def test_use_leaves_the_process_unchanged(self, observer: Any) -> None:
        async def observe_all() -> None:
            for event in every_event(_MARK):
                await observer.observe(event)

        # No class and no module may contain the mark after the observer is closed.
        await self.check_nothing_remains(observer, observe_all, forbidden_texts=(_MARK,))

    async def test_secrets_are_never_shown(self, observer: Any) -> None:
        await self.check_no_secret_is_shown(observer, lambda: observer.observe(every_event()[0]))

    async def test_close_is_idempotent_and_works_unused(self, observer: Any) -> None:
        for _ in range(2):
            await observer.aclose()


def _size_of(observer: object) -> int:
    """Count the items in an observer's containers and in the containers directly inside them."""
    return sum(_count_items(value, 2) for value in getattr(observer, "__dict__", {}).values())


def _count_items(value: object, depth: int) -> int:
    """Count the items of a collection, and of the collections inside it down to a depth."""
    if isinstance(value, deque) and value.maxlen is not None:
        return 0  # a bounded deque cannot leak
    if isinstance(value, Mapping):
        items = list(cast("Mapping[Any, Any]", value).values())
    elif isinstance(value, (list, deque, AbstractSet)):
        items = list(cast("Sequence[Any]", value))
    else:
        return 0
    inner_counts = [_count_items(item, depth - 1) for item in items] if depth > 1 else []
    return len(items) + sum(inner_counts)
