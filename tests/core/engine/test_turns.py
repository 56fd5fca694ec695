"""Tasks that come at once begin in turns of the event loop of their own."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from delf import Agent
from delf import events as ev
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
