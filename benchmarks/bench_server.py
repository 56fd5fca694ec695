"""A web server that has an agent: how long a ping waits while many requests are worked on.

    python benchmarks/bench_server.py [COUNT]

A FastAPI application answers ``/ask`` with an agent's task, each in a sandbox of its own with two
tool calls, and ``/ping`` at once. COUNT requests (400) come at once from a second process, pings
one after another from a third. Printed are the pings' times, and the longest that the server's
event loop was held: one turn of it, by the clock and by the processor's time, which does not
count what other processes took.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from delf import tool
from support import SCRIPTS, script_agent

COUNT = 400
SCRIPT = "print(await add(await look(1), 2))"


@tool(confirm=False)
async def look(n: int) -> int:
    """Look something up."""
    await asyncio.sleep(0.05)
    return n


@tool(confirm=False)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


class Turns:
    """Watches the turns of an event loop."""

    def __init__(self) -> None:
        self.held: list[tuple[float, float]] = []
        self._loop = asyncio.get_running_loop()
        self._last = time.perf_counter(), time.thread_time()

    def watch(self) -> None:
        """Note how long the last turn took, and look again in the next one."""
        now = time.perf_counter(), time.thread_time()
        self.held.append((now[0] - self._last[0], now[1] - self._last[1]))
        self._last = now
        self._loop.call_soon(self.watch)


def application() -> Any:
    """The server's application."""
    from fastapi import FastAPI

    turns: list[Turns] = []
    agents: list[Any] = []

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with script_agent(tools=[look, add], max_tasks=COUNT) as (agent, _run):
            agents.append(agent)
            gc.collect()
            gc.freeze()  # as servers do: what is there now is not looked through again and again
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/ping")
    async def ping() -> str:
        return "pong"

    @app.post("/ask")
    async def ask() -> str:
        SCRIPTS.append(SCRIPT)
        return (await agents[0].arun("benchmark")).raise_for_status().text

    @app.post("/watch")
    async def watch() -> None:
        turns.append(Turns())
        turns[0].watch()

    @app.get("/turns")
    async def told() -> list[tuple[float, float]]:
        return turns[0].held

    return app


def serve(port: int) -> None:
    """Be the server."""
    import uvicorn

    uvicorn.run(application(), host="127.0.0.1", port=port, log_level="warning")


async def ask_all(port: int, count: int) -> None:
    """Be those who ask, all at once."""
    head = b"POST /ask HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    async def one() -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        answer = await reader.read()
        writer.close()
        return answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'"3"')

    started = time.perf_counter()
    answers = await asyncio.gather(*(one() for _ in range(count)))
    print(json.dumps([sum(answers), time.perf_counter() - started]))


def request(port: int, method: str, path: str) -> Any:
    """What the server answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until the server answers."""
    while True:
        try:
            request(port, "GET", "/ping")
            return
        except OSError:
            time.sleep(0.05)


def measure(count: int) -> None:
    """Measure and print."""
    port = free_port()
    command = [sys.executable, Path(__file__)]
    server = subprocess.Popen([*command, "serve", str(port)])
    try:
        wait_for(port)
        for _ in range(3):
            request(port, "POST", "/ask")
        request(port, "POST", "/watch")
        asking = subprocess.Popen([*command, "ask", str(port), str(count)], stdout=subprocess.PIPE)
        pings: list[float] = []
        while asking.poll() is None:
            started = time.perf_counter()
            request(port, "GET", "/ping")
            pings.append(time.perf_counter() - started)
            time.sleep(0.002)
        answered, seconds = json.loads(asking.communicate()[0])
        turns = request(port, "GET", "/turns")
    finally:
        server.terminate()
        server.wait()
    print(f"{answered} of {count} answered in {seconds:.2f} s")
    pings.sort()
    at = {name: pings[min(len(pings) - 1, int(len(pings) * part))] for name, part in _PARTS.items()}
    said = "   ".join(f"{name} {value * 1000:6.1f} ms" for name, value in at.items())
    print(f"{len(pings)} pings: {said}")
    wall, processor = (max(turn[n] for turn in turns) * 1000 for n in (0, 1))
    print(f"longest turn of the loop: {wall:.1f} ms, {processor:.1f} ms of the processor")


_PARTS = {"p50": 0.5, "p99": 0.99, "max": 1.0}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", port]:
            serve(int(port))
        case ["ask", port, count]:
            asyncio.run(ask_all(int(port), int(count)))
        case words:
            measure(int(words[0]) if words else COUNT)
