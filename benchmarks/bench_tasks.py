"""Many tasks at once, each with a tool of 0.2 s and a sandbox process of its own.

    python benchmarks/bench_tasks.py [COUNT …] [--memory] [--fresh]

Wall and processor time from the first ``submit`` to the last result, and the peak of the host's
memory. ``--memory`` adds that of its children, with pages that they share divided among them;
to look at them costs time of its own. ``--fresh`` begins with an agent that has done nothing yet,
and does the same once more.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from delf import Agent, tool
from support import SCRIPTS, script_agent

COUNTS = (100, 300, 1000)
_TICKS = os.sysconf("SC_CLK_TCK")
SCRIPT = "print(await nap())"


@tool(confirm=False)
async def nap() -> str:
    """Wait a moment."""
    await asyncio.sleep(0.2)
    return "rested"


def children_of(pid: int) -> list[int]:
    """Return the descendants of a process."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, tasks.read_text(encoding="ascii").split()):
            found += [child, *children_of(child)]
    return found


def share_of(pid: int) -> int:
    """Return the proportional set size of a process in kB."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        return 0  # it has ended
    return 0


async def watch(peaks: list[tuple[int, int]]) -> None:
    """Record the number and memory of child processes until cancelled."""
    while True:
        children = children_of(os.getpid())
        shares = [share_of(pid) for pid in children[:: max(1, len(children) // 10)]]
        if shares:
            peaks.append((sum(shares) * len(children) // len(shares), len(children)))
        await asyncio.sleep(0.5)


def processor_seconds() -> float:
    """Return the processor seconds of this process and its descendants."""
    seconds = 0.0
    for pid in (os.getpid(), *children_of(os.getpid())):
        try:
            line = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        except OSError:
            continue
        seconds += sum(map(int, line.rpartition(")")[2].split()[11:15])) / _TICKS
    return seconds


async def measure(agent: Agent, count: int, *, memory: bool) -> str:
    """Submit tasks and wait; return a line with the measurements."""
    SCRIPTS.extend([SCRIPT] * count)
    peaks: list[tuple[int, int]] = []
    watching = asyncio.ensure_future(watch(peaks)) if memory else None
    before, started = processor_seconds(), time.perf_counter()
    ids = [await agent.asubmit(f"task {n}") for n in range(count)]
    results = [await agent.await_task(task_id) for task_id in ids]
    wall, used = time.perf_counter() - started, processor_seconds() - before
    if watching is not None:
        watching.cancel()
    wrong = [result.error for result in results if result.text != "rested"]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {count} tasks failed: {wrong[0]}")
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = f"{count:>5} tasks   {wall:6.2f} s wall   {used:6.2f} s processor   host {host:4.0f} MB"
    if peaks:
        size, processes = max(peaks)
        line += f"   children {size / 1024:4.0f} MB ({processes} processes)"
    return line


async def main(counts: Sequence[int], *, memory: bool, fresh: bool) -> None:
    """Measure and print."""
    for count in counts:
        async with script_agent(tools=[nap]) as (agent, run):
            if not fresh:
                await run(agent, SCRIPT)
            for state in ("fresh  ", "warm   ") if fresh else ("",):
                print(f"{state}{await measure(agent, count, memory=memory)}", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    numbers = [int(word) for word in words if word.isdigit()] or COUNTS
    asyncio.run(main(numbers, memory="--memory" in words, fresh="--fresh" in words))
