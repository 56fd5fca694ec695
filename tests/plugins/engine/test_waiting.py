"""Tests of permits to run: released while a person decides, and acquired again."""

import asyncio
from contextlib import suppress

import pytest

from delf_engine.waiting import Permit


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


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


async def test_task_ending_meanwhile_reacquires_no_permit(places: asyncio.Semaphore) -> None:
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
