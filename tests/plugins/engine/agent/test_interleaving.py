"""Tests that a script whose course depends on what ends first takes the same course on resume."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from delf import Agent, tool
from delf import events as ev
from delf.specs import JournalSpec
from support.cut_journal import CutJournal

SCRIPTS = {
    "the first of two": """
async def race(n):
    calls = [asyncio.ensure_future(look(2 * n)), asyncio.ensure_future(look(2 * n + 1))]
    done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    print(n, sorted(call.result() for call in done), len(pending))
    for call in pending:
        call.cancel()
    await write(f"{n}: {len(done)}")
    return sorted(call.result() for call in done)
for n in range(4):
    print(await race(n))
""",
    "whatever is done": """
pending = {asyncio.create_task(look(n)) for n in range(8)}
while pending:
    done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    for call in done:
        await write(str(call.result()))
        print(call.result())
""",
    "timeouts": """
for n in range(6):
    try:
        seen = await asyncio.wait_for(look(n), 0.012)
    except TimeoutError:
        seen = "late"
    print(n, seen)
    if n % 2:
        await write(f"{n}: {seen}")
""",
    "a queue between coroutines": """
queue, order = asyncio.Queue(), []
async def producer(n):
    for i in range(3):
        await queue.put(await look(10 * n + i))
async def consumer(name):
    while True:
        item = await queue.get()
        order.append(f"{name}{item}")
        await write(f"{item} of {queue.qsize()}")
        queue.task_done()
consumers = [asyncio.ensure_future(consumer(name)) for name in "ab"]
await asyncio.gather(*map(producer, range(3)))
await queue.join()
for task in consumers:
    task.cancel()
print(order)
""",
    "large arguments beside small ones": """
sizes = [3, 90_000, 5, 90_001, 3]
print([len(text) for text in await asyncio.gather(*(write("x" * n) for n in sizes))])
for ended in asyncio.as_completed([write("y" * n) for n in sizes]):
    print(len(await ended))
""",
    "calls without await": """
def both(n):
    first = look(n)
    return first + look(n + 1)
class Desk:
    def __init__(self, n):
        self.n = n
    @property
    def seen(self):
        return look(self.n)
for n in range(2):
    print(both(n), Desk(n).seen, sum(look(m) for m in range(3)))
    write(f"{n}: {max([1, 2], key=look)}")
""",
    "functions that wait by themselves, side by side": """
class Desk:
    def level(self, n):
        return look(n) + look(n + 1)
async def work(n):
    best = sorted([n, n + 1], key=lambda m: -look(m))
    print(n, best)
    write(f"{n}: {best}")
    return Desk().level(n)
print(await asyncio.gather(*[work(10 * n) for n in range(4)]))
""",
}


def tools(world: list[str]) -> list[Any]:
    numbers = itertools.count()

    @tool(effect="read", confirm=False)
    async def look(n: int) -> int:
        """Look; how long that takes is another each time."""
        await asyncio.sleep((0.0, 0.01, 0.011, 0.012, 0.0121, 0.02, 0.0)[next(numbers) * 5 % 7])
        return n

    @tool(effect="read", confirm=False)
    async def write(text: str) -> str:
        """Note something."""
        await asyncio.sleep((0.0, 0.003)[next(numbers) % 2])
        world.append(text)
        return text

    return [look, write]


@pytest.mark.parametrize("name", SCRIPTS)
async def test_resume_works_from_every_event(
    delf_host: Any, scripted_model: Any, name: str
) -> None:
    """Cut the journal after each event in turn, as when a process is killed."""
    journal, world = CutJournal(), list[str]()
    delf_host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: journal)
    scripted_model.writes(SCRIPTS[name])
    async with Agent(
        tools=tools(world),
        llm="scripted",
        sandbox="local",
        host=delf_host,
        journal="test",
        retry_count=0,
    ) as agent:
        whole = (await agent.arun("Do it.")).raise_for_status()
        task = whole.trace.task_id
        events = await journal.read(task)
        first = next(i for i, e in enumerate(events) if isinstance(e, ev.SandboxOpened))
        for end in range(first, len(events)):
            past = events[:end]
            await journal.ended_after(past)
            response = await agent.aresume(task)
            assert response.error is None, f"{end} of {len(events)}: {past[-1]}"
            printed = "".join(e.text for e in past if isinstance(e, ev.Printed))
            assert response.text.startswith(printed.strip()[:-1] or ""), f"{end}: {past[-1]}"
