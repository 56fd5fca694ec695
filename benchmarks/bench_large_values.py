"""How long one task's large values keep all others from their turn on the event loop.

    python benchmarks/bench_large_values.py

For each kind of value: the whole task, and the longest time between two turns of a ticker that
runs beside it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from delf import tool
from support import script_agent

TEXTS = {"8 MB": "y" * 8_000_000, "60 MB": "y" * 60_000_000}
ROW = "{'id': i, 'name': f'row {i}', 'price': i * 1.5}"
ROWS = [{"id": i, "name": f"row {i}", "price": i * 1.5} for i in range(150_000)]
SCRIPTS = {
    "result, text of 8 MB": "x = await text('8 MB')",
    "result, text of 60 MB": "x = await text('60 MB')",
    "result, 150,000 rows": "x = await rows()",
    "argument, text of 8 MB": "await take('y' * 8_000_000)",
    "argument, 150,000 rows": f"await take([{ROW} for i in range(150_000)])",
    "answer, text of 8 MB": "final = 'y' * 8_000_000\nfinal",
    "print of 8 MB": "print('y' * 8_000_000)",
    "200,000 lines": "for i in range(200_000): print('line', i, 'of those that are printed')",
}


@tool(confirm=False)
async def text(size: str) -> str:
    """A large text."""
    return TEXTS[size]


@tool(confirm=False)
async def rows() -> list[dict[str, object]]:
    """Many rows."""
    return ROWS


@tool(confirm=False)
async def take(value: object) -> None:
    """Take something large."""


async def tick(holds: list[float]) -> None:
    """Note the time between one turn and the next."""
    last = time.perf_counter()
    while True:
        await asyncio.sleep(0)
        now = time.perf_counter()
        holds.append(now - last)
        last = now


async def main() -> None:
    """Measure and print."""
    limits: dict[str, Any] = {"cpu_seconds": 300, "output_bytes": 200_000_000}
    async with script_agent(tools=[text, rows, take], sandbox_config=limits) as (agent, run):
        holds: list[float] = []
        ticking = asyncio.create_task(tick(holds))
        await run(agent, "print(1)")
        for name, script in SCRIPTS.items():
            holds.clear()
            started = time.perf_counter()
            await run(agent, script)
            took = (time.perf_counter() - started) * 1000
            print(f"{name:<24} {took:7.0f} ms   longest hold {max(holds) * 1000:6.1f} ms")
        ticking.cancel()


if __name__ == "__main__":
    asyncio.run(main())
