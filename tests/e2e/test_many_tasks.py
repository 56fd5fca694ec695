"""Many tasks at once: each has its own process, answer and share of the machine."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from delf import Agent, tool
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel

MANY = 150
pytestmark = pytest.mark.timeout(180)
SCRIPT = """
import posix
number = await nap({n})
print(number, posix.getpid())
"""
"""The module is built into the interpreter; importing it is allowed here for its getpid."""


@tool(confirm=False)
async def nap(n: int) -> int:
    """Wait a moment."""
    await asyncio.sleep(0.2)
    return n


def number_of(request: Any) -> int:
    return int(re.findall(r"number (\d+)", request.messages[-1].text)[-1])


@pytest.fixture
async def make_agent(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> AsyncIterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(answer: Callable[[int], str], **options: Any) -> Agent:
        scripted_model.default = lambda request: f"```python\n{answer(number_of(request))}\n```"
        options = {"tools": [nap], "llm": "scripted", "sandbox": "local", "timeout": 150, **options}
        made.append(Agent(host=delf_host, **options))
        return made[-1]

    yield make
    for agent in made:
        await agent.astop()


async def test_concurrent_tasks_have_their_own_process_and_output(
    make_agent: Callable[..., Agent],
) -> None:
    def script(n: int) -> str:
        return SCRIPT.format(n=n)

    agent = make_agent(script, allowed_libs=["posix"])
    ids = [await agent.asubmit(f"number {n}") for n in range(MANY)]
    responses = await asyncio.gather(*ids)
    assert [response.error for response in responses if not response.status] == []
    message = [tuple(map(int, response.text.split())) for response in responses]
    assert [number for number, _ in message] == list(range(MANY))
    assert len({pid for _, pid in message}) == MANY


HEAVY = {
    0: "await begun(0)\nwhile True: pass",
    1: "await begun(1)\nfor _ in range(100): print('x' * 1_000_000)\nwhile True: pass",
    2: "await begun(2)\nwhile True: await big()",
    3: "text = 'x' * 8_000_000\nawait begun(3)\nwhile True: await take(text)",
}


async def test_light_tasks_finish_beside_heavy_tasks(
    make_agent: Callable[..., Agent],
) -> None:
    began: set[int] = set()
    all_begun = asyncio.Event()

    @tool(confirm=False)
    async def begun(n: int) -> None:
        """Say that it runs."""
        began.add(n)
        if len(began) == len(HEAVY):
            loop.call_soon_threadsafe(all_begun.set)

    @tool(confirm=False)
    async def big() -> str:
        """A large answer."""
        return "y" * 8_000_000

    @tool(confirm=False)
    async def take(text: str) -> int:
        """A large argument."""
        return len(text)

    def script(n: int) -> str:
        return HEAVY.get(n, f"print(await nap({n}))")

    loop = asyncio.get_running_loop()
    agent = make_agent(
        script,
        tools=[nap, begun, big, take],
        sandbox_config={"cpu_seconds": 120},
        retry_count=0,
    )
    heavy = [await agent.asubmit(f"number {n}") for n in HEAVY]
    await asyncio.wait_for(all_begun.wait(), 60)
    others = [await agent.asubmit(f"number {n}") for n in range(10, 40)]
    texts = [(await handle).text for handle in others]
    assert texts == [str(n) for n in range(10, 40)]
    running = {handle: (await handle.asnapshot()).state for handle in heavy}
    assert [running[heavy[n]] for n in (0, 2, 3)] == ["running"] * 3
    printing = await heavy[1].asnapshot()
    assert printing.state == "running" or "printed more than" in str(printing.error)
    for handle in heavy:
        await handle.acancel()
