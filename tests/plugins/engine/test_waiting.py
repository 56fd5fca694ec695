"""Tests of permits to run and of the clock, while a person decides and afterwards."""

import asyncio
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any, cast

import pytest

from delf.events import StoppedBy
from delf_engine.waiting import Permit, Stops, TaskClock
from support.until import until


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def pass_time(seconds: float) -> None:
    """Wait for a time in which nothing should happen."""
    end = time.monotonic() + seconds
    await until(lambda: time.monotonic() > end)


async def ask(permit: Permit, answer: asyncio.Event) -> None:
    async with permit.released():
        await answer.wait()


@pytest.fixture
async def places() -> asyncio.Semaphore:
    """One place."""
    return asyncio.Semaphore(1)


class Other:
    """Another task, which takes the permit while a call of the first task waits for a person."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._entered, self.go_on = asyncio.Event(), asyncio.Event()
        self._work = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with Permit(self._places):
            self._entered.set()
            await self.go_on.wait()

    async def entered(self) -> None:
        await self._entered.wait()

    async def ended(self) -> None:
        self.go_on.set()
        await self._work


async def cancel(call: asyncio.Task[None]) -> None:
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


async def is_waiting(back: asyncio.Task[None]) -> bool:
    await turns()
    return not back.done()


async def test_task_waits_for_a_free_place_after_an_abandoned_call(
    places: asyncio.Semaphore,
) -> None:
    permit = Permit(places)
    async with permit:
        call = asyncio.create_task(ask(permit, asyncio.Event()))
        other = Other(places)
        await other.entered()
        await cancel(call)
        back = asyncio.create_task(permit.wait_until_held())
        assert await is_waiting(back)
        await other.ended()
        await back
        assert places.locked()
    assert not places.locked()


async def test_task_waits_while_an_abandoned_call_journals_its_end(
    places: asyncio.Semaphore,
) -> None:
    """The script continues at once after it abandons a call, whose end is journalled only later."""
    permit, journalled = Permit(places), asyncio.Event()

    async def ask_and_journal() -> None:
        async with permit.released():
            try:
                await asyncio.Event().wait()
            finally:
                await journalled.wait()

    async with permit:
        call = asyncio.create_task(ask_and_journal())
        other = Other(places)
        await other.entered()
        call.cancel()
        back = asyncio.create_task(permit.wait_until_held())
        assert await is_waiting(back)
        journalled.set()
        assert await is_waiting(back)
        await other.ended()
        await back
        assert places.locked()
    assert not places.locked()


async def test_task_goes_on_while_a_person_still_decides(places: asyncio.Semaphore) -> None:
    permit = Permit(places)
    async with permit:
        call = asyncio.create_task(ask(permit, asyncio.Event()))
        await turns()
        back = asyncio.create_task(permit.wait_until_held())
        await turns()
        assert back.done()
        assert not places.locked()
        await cancel(call)


async def test_task_that_ends_during_a_wait_reacquires_no_permit(places: asyncio.Semaphore) -> None:
    permit = Permit(places)
    async with permit:
        late = asyncio.create_task(ask(permit, asyncio.Event()))
        call = asyncio.create_task(ask(permit, asyncio.Event()))
        other = Other(places)
        await other.entered()
        await cancel(call)
    await other.ended()
    await cancel(late)
    await turns()
    assert not places.locked()


async def test_pauses_extend_the_time_of_a_task() -> None:
    clock = TaskClock(0)
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with clock.paused():
        waiting = asyncio.create_task(clock.wait(work))
        with clock.paused():
            assert await is_waiting(waiting)
        assert await is_waiting(waiting)
        assert not clock.is_over
    await waiting
    assert clock.is_over


async def test_second_wait_has_only_the_remaining_seconds() -> None:
    clock = TaskClock(0)
    loop = asyncio.get_running_loop()
    done, unfinished = loop.create_future(), loop.create_future()
    done.set_result(None)
    await clock.wait(done)
    assert not clock.is_over
    await clock.wait(unfinished)
    assert clock.is_over


async def test_clock_that_ignores_pauses_goes_on_in_a_pause() -> None:
    clock = TaskClock(0, ignores_pauses=True)
    with clock.paused():
        await clock.wait(asyncio.get_running_loop().create_future())
    assert clock.is_over


class SlowJournal:
    """The part of a journal that answers whether tasks must stop, once ``answer`` is set."""

    place = "slow"

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.polls = 0

    async def asked_to_stop(self, task_ids: Collection[str]) -> dict[str, StoppedBy]:
        self.polls += 1
        await self.answer.wait()
        return {}


async def test_task_that_begins_during_a_poll_starts_no_second_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("delf_engine.waiting.POLL_SECONDS", 0.01)
    monkeypatch.setattr("delf_engine.waiting.SharedJournal", SlowJournal)
    journal = SlowJournal()
    stops = Stops(cast("Any", journal))
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with stops.stoppable("first", work):
        await pass_time(0.05)
    assert journal.polls == 1
    with stops.stoppable("second", work):
        journal.answer.set()
        await turns()
        journal.answer.clear()
        await pass_time(0.1)
        assert journal.polls == 2
    work.cancel()
