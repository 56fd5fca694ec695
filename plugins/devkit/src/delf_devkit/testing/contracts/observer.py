"""Duties of every observer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from delf.events import encode
from delf.protocols.observer import Observer
from delf_devkit.testing.contracts.base import Contract, missing
from delf_devkit.testing.events import every_event


class ObserverContract(Contract):
    """Tests for an observer; needs a fixture ``observer``, which the suite closes."""

    @pytest.fixture
    def observer(self) -> Observer:
        """The observer under test."""
        missing(self, "a fixture `observer`")

    async def test_observer_accepts_every_event_without_changing_it(self, observer: Any) -> None:
        events = every_event()
        before = [encode(event) for event in events]
        for event in events:
            await observer.observe(event)
        assert [encode(event) for event in events] == before

    async def test_observer_can_join_a_running_task(self, observer: Any) -> None:
        for event in reversed(every_event()):
            await observer.observe(event)

    async def test_methods_do_not_block_the_event_loop(self, observer: Any) -> None:
        for event in every_event():
            await self.leaves_the_loop(lambda event=event: observer.observe(event))
        await self.leaves_the_loop(observer.aclose)

    async def test_observer_accepts_events_of_many_tasks(self, observer: Any) -> None:
        async def watch(task: str) -> None:
            for event in every_event(task):
                await observer.observe(event)

        await asyncio.gather(*(watch(f"t{number}") for number in range(10)))

    async def test_close_is_idempotent_and_works_unused(self, observer: Any) -> None:
        for _ in range(2):
            await observer.aclose()
