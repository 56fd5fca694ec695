"""POST /run beside a bare Starlette that inserts one row: requests a second, by turns.

Each server is a process of its own, with the same uvicorn and a SQLite file in WAL mode. The tasks
are only taken in: the agent's single place is held by the first of them. Each server gets some
requests before it is measured. Prints requests a second and processor microseconds of the server a
request.

    python benchmarks/bench_serve.py [--requests 2000] [--clients 32] [--turns 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_UP = 320
"""Requests to each server before it is measured."""

BARE = """
import asyncio, json, sqlite3, sys, time
import uvicorn
from concurrent.futures import ThreadPoolExecutor
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
db = sqlite3.connect(sys.argv[2], isolation_level=None, check_same_thread=False)
db.execute("PRAGMA journal_mode = WAL")
db.execute("PRAGMA synchronous = NORMAL")
db.execute("CREATE TABLE tasks (id INTEGER PRIMARY KEY, at REAL, body TEXT)")
one = ThreadPoolExecutor(1)
def insert(body):
    return db.execute("INSERT INTO tasks (at, body) VALUES (?, ?)", (time.time(), body)).lastrowid
async def run(request):
    body = await request.json()
    loop = asyncio.get_running_loop()
    key = await loop.run_in_executor(one, insert, json.dumps(body))
    return JSONResponse({"task_id": key}, 202)
app = Starlette(routes=[Route("/run", run, methods=["POST"])])
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")
"""
DELF = """
import sys
sys.path.insert(0, sys.argv[3])
import asyncio, os
os.environ["DELF_JOURNAL_SQL_URL"] = sys.argv[2]
from delf_serve.app import make_app
from delf_serve.server import bind, serve
from support.serving import Outbox, make_agent
agent = make_agent(os.path.dirname(sys.argv[2]), Outbox(), max_tasks=1)
options = {"open_tasks": 1_000_000, "grace_seconds": 0, "access_log": False}
serve(make_app(agent, options, {}), bind("127.0.0.1", int(sys.argv[1])))
"""


def processor(pid: int) -> float:
    """Return the processor seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def free_port() -> int:
    """Return an unused port."""
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def ask(port: int, body: bytes, times: int) -> None:
    """Send requests one after another on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /run HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    for _ in range(times):
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 202 " not in answer.partition(b"\r\n")[0]:
            raise RuntimeError(answer.decode())
        fields = answer.lower().partition(b"content-length: ")[2]
        await reader.readexactly(int(fields.partition(b"\r\n")[0]))
    writer.close()


def turn(program: str, requests: int, clients: int) -> tuple[float, float]:
    """Return requests per second, and the server's processor microseconds per request."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        server = subprocess.Popen(
            [sys.executable, "-c", program, str(port), f"{folder}/j.db", str(ROOT / "tests")],
            stderr=subprocess.DEVNULL,
        )
        hold = "hold on\n```run\nprint(await hold())\n```"
        body = json.dumps({"task": hold}).encode()
        try:
            return asyncio.run(measure(server, port, body, requests, clients))
        finally:
            server.kill()
            server.wait()


async def measure(
    server: subprocess.Popen[bytes], port: int, body: bytes, requests: int, clients: int
) -> tuple[float, float]:
    """Return the result of :func:`turn`, for a server that has just been started."""
    while True:
        try:
            await ask(port, body, 1)
            break
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"the server ended with {server.returncode}") from None
            await asyncio.sleep(0.05)
    # The first task also prepares what later ones use: imports, a sandbox, the model's client.
    await asyncio.gather(*(ask(port, body, _WARM_UP // clients) for _ in range(clients)))
    await asyncio.sleep(1)
    before, began = processor(server.pid), time.perf_counter()
    await asyncio.gather(*(ask(port, body, requests // clients) for _ in range(clients)))
    took = time.perf_counter() - began
    return requests / took, (processor(server.pid) - before) * 1e6 / requests


def main() -> None:
    """Measure both by turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"bare Starlette": [], "delf": []}
    for _ in range(options.turns):
        for name, program in (("bare Starlette", BARE), ("delf", DELF)):
            found[name].append(turn(program, options.requests, options.clients))
    print("| | requests a second | processor, µs a request |")
    print("|---|---|---|")
    for name, turns in found.items():
        rate, used = (statistics.median(column) for column in zip(*turns, strict=True))
        print(f"| {name} | {rate:,.0f} | {used:,.0f} |")


if __name__ == "__main__":
    main()
