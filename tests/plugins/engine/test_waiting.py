"""Places among the tasks that run: given up while a person decides, and taken again."""

import asyncio
from contextlib import suppress

import pytest

from delf_engine.waiting import Permit


async def turns():
    for _ in range(20):
        await asyncio.sleep(0)


async def ask(permit, answer):
    async with permit.released():
        await answer.wait()


@pytest.fixture
async def places():
    """One place."""
    return asyncio.Semaphore(1)


async def other(places, entered, go_on):
    async with Permit(places):
        entered.set()
        await go_on.wait()


async def cancel(call):
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


async def test_task_waits_for_its_permit_after_an_abandoned_call(places):
    permit, entered, go_on = Permit(places), asyncio.Event(), asyncio.Event()
    async with permit:
        call = asyncio.create_task(ask(permit, asyncio.Event()))
        beside = asyncio.create_task(other(places, entered, go_on))
        await entered.wait()
        await cancel(call)
        back = asyncio.create_task(permit.regained())
        await turns()
        assert not back.done()
        go_on.set()
        await asyncio.gather(back, beside)
        assert places.locked()
    assert not places.locked()


async def test_task_waits_while_an_abandoned_call_journals_its_end(places):
    """A script goes on at once after it gave up a call, whose end is journalled only later."""
    permit, journalled = Permit(places), asyncio.Event()

    async def ask_and_journal():
        async with permit.released():
            try:
                await asyncio.Event().wait()
            finally:
                await journalled.wait()

    entered, go_on = asyncio.Event(), asyncio.Event()
    async with permit:
        call = asyncio.create_task(ask_and_journal())
        beside = asyncio.create_task(other(places, entered, go_on))
        await entered.wait()
        call.cancel()
        back = asyncio.create_task(permit.regained())
        await turns()
        assert not back.done()
        journalled.set()
        await turns()
        assert not back.done()
        go_on.set()
        await asyncio.gather(back, beside)
        assert places.locked()
    assert not places.locked()


async def test_task_goes_on_while_a_person_still_decides(places):
    permit = Permit(places)
    async with permit:
        call = asyncio.create_task(ask(permit, asyncio.Event()))
        await turns()
        back = asyncio.create_task(permit.regained())
        await turns()
        assert back.done()
        assert not places.locked()
        await cancel(call)


async def test_task_ending_meanwhile_reacquires_no_permit(places):
    permit, entered, go_on = Permit(places), asyncio.Event(), asyncio.Event()
    async with permit:
        late = asyncio.create_task(ask(permit, asyncio.Event()))
        call = asyncio.create_task(ask(permit, asyncio.Event()))
        beside = asyncio.create_task(other(places, entered, go_on))
        await entered.wait()
        await cancel(call)
    go_on.set()
    await beside
    await cancel(late)
    await turns()
    assert not places.locked()
