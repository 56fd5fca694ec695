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
