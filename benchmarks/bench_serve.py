"""How much the server takes: requests a second, event streams, and its answers while tasks run.

The server is a process of its own with one worker; the load comes from this one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

CONNECTIONS = 64
PAUSE = 0.005
HELD = "await hold()"
BUSY = "for n in range(100_000):\n    await look(n)"


def serve(places: int) -> None:
    """The server's process: an agent whose tasks are their scripts."""
    from delf import Agent, tool
    from delf_devkit.testing.hosts import TestHost
    from delf_devkit.testing.models import ScriptedModel, script

    @tool(confirm=False)
    async def look(number: int) -> int:
        """Look."""
        await asyncio.sleep(0.01)
        return number

    @tool(confirm=False)
    async def hold() -> None:
        """Wait."""
        await asyncio.sleep(3600)

    def write(request):
        return script("\n".join(m.text for m in request.messages).rpartition("run:\n")[2])

    host = TestHost.discover(environ={})
    model = ScriptedModel(default=write)
    host.provide(model.spec, model.factory)
    agent = Agent(
        tools=[look, hold], llm="scripted", sandbox="local", host=host, journal="sql",
        max_tasks=places, timeout=3600,
    )  # fmt: skip
    agent.serve(port=0, open_tasks=1_000_000, grace_seconds=0)


class Server:
    """A server that runs in another process.

    Args:
        places: How many tasks run at once.
    """

    def __init__(self, places: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        environ = {**os.environ, "DELF_JOURNAL_SQL_URL": str(Path(self._folder.name) / "j.db")}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(places)],
            stderr=subprocess.PIPE, env=environ, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://([\d.]+):(\d+)", line):
                self.host, self.port = found[1], int(found[2])
                break

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._folder.cleanup()

    @property
    def megabytes(self) -> float:
        """The memory that it has."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", text)
        return int(found[1]) / 1024 if found else 0.0

    @property
    def seconds(self) -> float:
        """The processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client(asyncio.Protocol):
    """A connection that sends the same request again and again; takes the times."""

    def __init__(self, request: bytes, count: list[int], times: list[float]) -> None:
        self._request, self._count, self._times = request, count, times
        self.done = asyncio.get_running_loop().create_future()
        self._got = b""

    def connection_made(self, transport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if self._count[0] <= 0:
            self._transport.close()
            return
        self._count[0] -= 1
        self._at = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(re.search(rb"content-length: (\d+)", head)[1])
        if len(body) >= length:
            assert head[9:10] == b"2", head
            self._times.append(time.perf_counter() - self._at)
            self._got = b""
            self._send()

    def connection_lost(self, exc) -> None:
        self.done.set_result(None)


def request_of(method: str, path: str, body: object = None) -> bytes:
    """A request as bytes."""
    data = b"" if body is None else json.dumps(body).encode()
    kind = "content-type: application/json\r\n" if data else ""
    return (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{kind}content-length: {len(data)}\r\n\r\n"
    ).encode() + data


async def load(server: Server, request: bytes, total: int, connections: int = CONNECTIONS):
    """Requests a second, and the times of all, in milliseconds."""
    loop, count, times = asyncio.get_running_loop(), [total], []
    started = time.perf_counter()
    place = (server.host, server.port)
    opened = [
        await loop.create_connection(lambda: Client(request, count, times), *place)
        for _ in range(connections)
    ]
    await asyncio.gather(*(client.done for _, client in opened))
    seconds = time.perf_counter() - started
    return len(times) / seconds, sorted(one * 1000 for one in times)


def p99(times: list[float]) -> float:
    """What all but one of a hundred are below."""
    return statistics.quantiles(times, n=100)[98]


async def tell(server: Server, name: str, request: bytes, total: int) -> None:
    """Load it and print how it did."""
    before = server.seconds
    rate, times = await load(server, request, total)
    each = 1000 * (server.seconds - before) / total
    print(f"{name}: {rate:,.0f}/s, p99 {p99(times):.1f} ms, {each:.3f} ms of processor time each")


async def hand_in(server: Server, words: str) -> str:
    """A task that is taken in; its id."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(request_of("POST", "/run", {"task": words}))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head)[1])
    answer = json.loads(await reader.readexactly(length))
    writer.close()
    return answer["task_id"]


async def answer_of(server: Server, path: str) -> str:
    """What is answered to a GET."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(request_of("GET", path))
    head = await reader.readuntil(b"\r\n\r\n")
    body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))
    writer.close()
    return body.decode()


async def calls_of(server: Server) -> int:
    """How many events of 100 tasks there are, halved: each call has two."""
    tasks = json.loads(await answer_of(server, "/tasks?limit=100"))["tasks"]
    return sum(task["events"] for task in tasks) // 2


async def all_run(server: Server, total: int) -> None:
    """Wait until so many tasks make calls."""
    while True:
        tasks = json.loads(await answer_of(server, f"/tasks?limit={total}"))["tasks"]
        if len(tasks) == total and all(task["events"] > 30 for task in tasks):
            return
        await asyncio.sleep(0.1)


async def paced(server: Server, request: bytes, total: int) -> list[float]:
    """The times of requests with a pause after each, in milliseconds."""
    times: list[float] = []
    for _ in range(total):
        _, one = await load(server, request, 1, connections=1)
        times += one
        await asyncio.sleep(PAUSE)
    return sorted(times)


async def streams(server: Server, total: int) -> None:
    """The memory of many open streams, and how soon all have an event."""
    late = "run:\nimport asyncio\nawait asyncio.sleep(6)\nprint('x')\nawait hold()"
    task = await hand_in(server, late)
    before = server.megabytes
    opened = []
    for _ in range(total):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(request_of("GET", f"/tasks/{task}/events"))
        opened.append((reader, writer))
    started = time.perf_counter()

    async def until_printed(reader) -> float:
        while b'"Printed"' not in await reader.readline():
            continue
        return time.perf_counter()

    seen = await asyncio.gather(*(until_printed(reader) for reader, _ in opened))
    after = server.megabytes
    spread = 1000 * (max(seen) - min(seen))
    print(f"{total} event streams: {after - before:+.0f} MB")
    print(f"  an event reached all of them within {spread:.0f} ms")
    assert seen[0] > started
    for _, writer in opened:
        writer.close()


async def main() -> None:
    try:
        import uvloop

        print(f"uvloop {uvloop.__version__}")
    except ImportError:
        print("asyncio's own loop")
    with Server(places=1) as server:
        await load(server, request_of("GET", "/health"), 2000)
        await tell(server, "GET /health", request_of("GET", "/health"), 60_000)
        await hand_in(server, f"run:\n{HELD}")
        order = request_of("POST", "/run", {"task": f"run:\n{HELD}"})
        await tell(server, "POST /run, queued", order, 5000)
        listed = request_of("GET", "/tasks?limit=20")
        await tell(server, "GET /tasks?limit=20 of 5,000", listed, 1000)
    with Server(places=4) as server:
        await streams(server, 1000)
    with Server(places=100) as server:
        await asyncio.gather(*(hand_in(server, f"run:\n{BUSY}") for _ in range(100)))
        await all_run(server, 100)
        for path in ("/health", "/tasks?limit=20"):
            before, calls = server.seconds, await calls_of(server)
            times = await paced(server, request_of("GET", path), 1000)
            share = 100 * (server.seconds - before) / (sum(times) / 1000 + 1000 * PAUSE)
            made = await calls_of(server) - calls
            cut = statistics.quantiles(times, n=100)
            print(f"GET {path} while 100 tasks run: p50 {cut[49]:.1f} ms, p99 {cut[98]:.1f} ms")
            print(f"  meanwhile {made:,} calls, {share:.0f} % of a processor")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]))
    else:
        asyncio.run(main())
