"""Tests that awaiting in another context changes only the ContextVars."""

from __future__ import annotations

import asyncio
from contextvars import Context, ContextVar

import pytest

from delf.machine.contexts import awaited_in, in_context, shared_task, without_context

who: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def of_ann() -> Context:
    context = Context()
    context.run(who.set, "Ann")
    return context


async def test_awaited_in_runs_each_step_in_the_given_context(of_ann: Context) -> None:
    async def look() -> list[str]:
        seen = [who.get()]
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        seen.append(who.get())
        seen.append(await asyncio.create_task(asyncio.to_thread(who.get)))
        who.set("left behind")
        return seen

    who.set("Bob")
    assert await awaited_in(of_ann, look()) == ["Ann"] * 3
    assert (who.get(), of_ann[who]) == ("Bob", "Ann")


async def test_cancelling_awaited_in_waits_until_the_coroutine_ends(of_ann: Context) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0)
            ended.append(who.get())

    async def outer() -> None:
        await awaited_in(of_ann, work())

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["Ann"]


async def test_awaited_in_context_passes_on_the_coroutines_error(of_ann: Context) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError(who.get())

    with pytest.raises(KeyError, match="Ann"):
        await awaited_in(of_ann, fail())


async def test_shared_task_runs_without_the_callers_context(of_ann: Context) -> None:
    async def look() -> str:
        await asyncio.sleep(0)
        return who.get()

    who.set("Bob")
    assert await shared_task(look()) == "nobody"
    assert without_context(who.get) == "nobody"
    assert in_context(of_ann, who.get) == "Ann"
