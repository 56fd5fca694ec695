"""Tasks that come at once begin in turns of the event loop of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from delf import Agent
from delf import events as ev
from delf.engine.waiting import Turns
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel


class Clock:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.turn = 0
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._count)

    def _count(self) -> None:
        self.turn += 1
        self._handle = self._loop.call_soon(self._count)

    def stop(self) -> None:
        self._handle.cancel()


@pytest.fixture
async def clock() -> Any:
    clock = Clock()
    yield clock
    clock.stop()


async def test_one_after_the_other_in_their_order(clock: Clock) -> None:
    turns, had = Turns(), list[tuple[int, int]]()

    async def come(number: int) -> None:
        await turns.mine()
        had.append((number, clock.turn))

    await asyncio.gather(*map(come, range(10)))
    assert [number for number, _ in had] == list(range(10))
    assert len({turn for _, turn in had}) == 10


async def test_who_comes_alone_does_not_wait(clock: Clock) -> None:
    turns = Turns()
    for _ in range(3):
        before = clock.turn
        await turns.mine()
        assert clock.turn == before
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_who_leaves_is_passed_over() -> None:
    turns = Turns()
    work = [asyncio.ensure_future(turns.mine()) for _ in range(4)]
    await asyncio.sleep(0)
    for gone in work[1:3]:
        gone.cancel()
    async with asyncio.timeout(5):
        await work[3]
        await asyncio.wait(work)
        await turns.mine()


async def test_no_two_tasks_begin_in_one_turn(
    clock: Clock, delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    """A task's beginning is most of what it asks of the event loop in one piece."""
    scripted_model.default = "```python\nprint(1)\n```"
    begun: list[int] = []

    def listen(event: ev.Event) -> None:
        if isinstance(event, ev.TaskStarted):
            begun.append(clock.turn)

    async with Agent(llm="scripted", sandbox="local", host=delf_host) as agent:
        tasks = [agent.arun(f"task {n}", listeners=[listen]) for n in range(20)]
        responses = await asyncio.gather(*tasks)
    assert [response.text for response in responses] == ["1"] * 20
    assert len(begun) == 20
    assert Counter(begun).most_common(1)[0][1] == 1
