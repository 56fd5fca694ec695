"""What tracing costs a run, in per cent: the same task with and without `observers = ["otel"]`.

    python benchmarks/bench_otel.py [ROUNDS]

Both agents work in one session and by turns; a collector of its own process takes what is sent.
What is compared is processor time of delf's process, its exporter's thread included.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from delf import tool
from support import script_agent

RUNS = 10
SCRIPTS = {
    "a run with one call": "print(await add(1, b=2))",
    "a run with 50 calls": "for n in range(50):\n    await add(n)",
}
COLLECTOR = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@tool(confirm=False)
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def block(agent: Any, run: Any, code: str) -> tuple[float, float]:
    """Processor time and time of some runs, in milliseconds a run."""
    used, begun = time.process_time(), time.perf_counter()
    for _ in range(RUNS):
        await run(agent, code)
    return (
        (time.process_time() - used) / RUNS * 1000,
        (time.perf_counter() - begun) / RUNS * 1000,
    )


async def compare(code: str, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of a processor without and with tracing, and the ratios of neighbours."""
    plainly, traced_by = script_agent(tools=[add]), script_agent(tools=[add], observers=["otel"])
    off, on, ratios = [], [], []
    async with plainly as (plain, run), traced_by as (traced, _):
        both = (plain, traced)
        for agent in both:
            await block(agent, run, code)
        for number in range(rounds):
            order = both if number % 2 else both[::-1]
            took = {id(agent): (await block(agent, run, code))[0] for agent in order}
            off.append(took[id(plain)])
            on.append(took[id(traced)])
            ratios.append(on[-1] / off[-1])
    return off, on, ratios


async def main(rounds: int) -> None:
    """Measure and print."""
    for name, code in SCRIPTS.items():
        off, on, ratios = await compare(code, rounds)
        print(
            f"{name}: {statistics.median(off):.2f} ms without, {statistics.median(on):.2f} ms with "
            f"otel: {(statistics.median(ratios) - 1) * 100:+.1f} % "
            f"(quartiles {(quartile(ratios, 1) - 1) * 100:+.1f}, "
            f"{(quartile(ratios, 3) - 1) * 100:+.1f})",
            flush=True,
        )


def quartile(values: list[float], which: int) -> float:
    return statistics.quantiles(values, n=4)[which - 1]


if __name__ == "__main__":
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdout=subprocess.PIPE) as collector:
        assert collector.stdout is not None
        port = int(collector.stdout.readline())
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        try:
            asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
        finally:
            collector.kill()
