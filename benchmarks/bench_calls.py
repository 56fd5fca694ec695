"""Tool calls: a script's round trip through the wire and the gate, sequential and gathered.

    python benchmarks/bench_calls.py [COUNT]

Prints wall and CPU microseconds per call, beside two floors measured in the same run: a bare
in-process await of the same function, and one byte over a socket pair to another process. At the
end gathered ones once more, with garbage looked for as rarely as the program ``delf`` does.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import sys
import time
from collections.abc import Awaitable, Callable

from delf import Agent, tool
from support import script_agent


@tool(confirm=False)
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(confirm=False)
def add_plainly(a: int, b: int = 1) -> int:
    """Add two numbers, in a thread."""
    return a + b


def cpu_seconds() -> float:
    """Return the CPU time of this process, without the guest's."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def in_process(count: int) -> float:
    """Return the seconds for awaiting the function itself."""
    started = time.perf_counter()
    for number in range(count):
        await add.function(number, b=2)
    return time.perf_counter() - started


def socket_pair(count: int) -> float:
    """Return the seconds for sending a byte to a forked process and back."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        while theirs.recv(1):
            theirs.send(b"x")
        os._exit(0)
    theirs.close()
    started = time.perf_counter()
    for _ in range(count):
        ours.send(b"x")
        ours.recv(1)
    elapsed = time.perf_counter() - started
    os.kill(child, 9)
    os.waitpid(child, 0)
    return elapsed


async def measure(agent: Agent, make: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return wall and CPU seconds of a run, minus those of a run without calls."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    await make()
    return time.perf_counter() - wall, cpu_seconds() - cpu


async def main(count: int) -> None:
    """Measure and print."""
    cases = {
        "sequential, async tool": f"for i in range({count}): await add(i, b=2)",
        "gathered, async tool": f"await asyncio.gather(*(add(i, b=2) for i in range({count})))",
        "sequential, plain tool": f"for i in range({count}): await add_plainly(i, b=2)",
        "gathered, plain tool": f"await asyncio.gather(*(add_plainly(i) for i in range({count})))",
    }
    print(f"floor: in-process await     {await in_process(count) / count * 1e6:8.1f} µs")
    print(f"floor: socket pair, 1 byte  {socket_pair(count) / count * 1e6:8.1f} µs")
    async with script_agent(tools=[add, add_plainly]) as (agent, run):
        await run(agent, "print(1)")

        async def show(name: str) -> None:
            code = cases[name]
            best = min([await measure(agent, lambda: run(agent, code)) for _ in range(3)])
            wall, cpu = (seconds / count * 1e6 for seconds in best)
            print(f"{name:<27} {wall:8.1f} µs   host CPU {cpu:6.1f} µs   {1e6 / wall:9,.0f}/s")

        for name in cases:
            await show(name)
        gc.set_threshold(50_000)  # as delf.cli.start
        print("the same with the collector as in `delf run`")
        for name in cases:
            if name.startswith("gathered"):
                await show(name)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
