"""A whole run with an instant model: delf's own time from task to answer.

    python benchmarks/bench_runs.py [COUNT]

Each run has its own sandbox process. Between two runs it waits until the pool has a warm one
again, so that what is measured is a run and not a start; the last line measures the start.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from delf import tool
from support import script_agent


@tool(confirm=False)
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def timed(agent: object, run: object, pause: float, count: int) -> list[float]:
    """Return the milliseconds of each run."""
    times: list[float] = []
    for _ in range(count):
        await asyncio.sleep(pause)
        started = time.perf_counter()
        await run(agent, "print(await add(1, b=2))")  # type: ignore[operator]
        times.append((time.perf_counter() - started) * 1000)
    return times


async def main(count: int) -> None:
    """Measure and print."""
    async with script_agent(tools=[add]) as (agent, run):
        warm = await timed(agent, run, 0.25, count)
        cold = await timed(agent, run, 0.0, max(4, count // 4))
    for name, times in (("warm sandbox", warm), ("back to back", cold)):
        print(
            f"{name:<14} min {min(times):6.2f} ms   median {statistics.median(times):6.2f} ms   "
            f"max {max(times):6.2f} ms   ({len(times)} runs)"
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
