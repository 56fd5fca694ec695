"""A small task's time alone, and beside a busy loop, 100 MB of prints, and huge results.

    python benchmarks/bench_neighbours.py [COUNT]

Each neighbour runs by itself, then all together; a small task makes one call and prints.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import Any

from delf import tool
from support import SCRIPTS, script_agent

SMALL = "print(await small())"
NEIGHBOURS = {
    "a busy loop": "while True: pass",
    "100 MB of prints": "for _ in range(100): print('x' * 1_000_000)\nwhile True: pass",
    "results of 8 MB": "while True: await huge()",
}
HUGE = "y" * 8_000_000


@tool(confirm=False)
async def small() -> int:
    """Something small."""
    return 1


@tool(confirm=False)
async def huge() -> str:
    """Something huge."""
    return HUGE


async def times_of(agent: Any, run: Any, count: int) -> list[float]:
    """Milliseconds of each small task."""
    times: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        await run(agent, SMALL)
        times.append((time.perf_counter() - started) * 1000)
        await asyncio.sleep(0.05)
    return times


def line(name: str, times: list[float], alone: float) -> str:
    """The middle and the end of the times."""
    middle, late = statistics.median(times), sorted(times)[int(len(times) * 0.99)]
    return f"{name:<22} p50 {middle:7.1f} ms   p99 {late:7.1f} ms   {middle / alone:5.1f} x"


async def main(count: int) -> None:
    """Measure and print."""
    limits = {"cpu_seconds": 300, "output_bytes": 200_000_000}
    async with script_agent(tools=[small, huge], sandbox_config=limits) as (agent, run):
        await times_of(agent, run, 5)
        alone = await times_of(agent, run, count)
        middle = statistics.median(alone)
        print(line("alone", alone, middle))
        for names in (*([name] for name in NEIGHBOURS), list(NEIGHBOURS)):
            heavy = []
            for name in names:
                SCRIPTS.append(NEIGHBOURS[name])
                heavy.append(agent.submit(name))
                await asyncio.sleep(0.2)
            label = names[0] if len(names) == 1 else "all of them"
            print(line(label, await times_of(agent, run, count), middle), flush=True)
            for task in heavy:
                agent.cancel(task)
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60))
