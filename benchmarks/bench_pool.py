"""``model-http``'s connections: what many requests leave behind, and how soon a cancelled one ends.

    python benchmarks/bench_pool.py [REQUESTS]

The server is another process on loopback that answers at once. Prints connections, tasks, objects
and memory after the first hundred requests and after all, and how long after a cancellation the
server sees its connection closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

from delf import LLMConfig
from delf.messages import ModelRequest, user
from delf.protocols.model import ModelContext
from delf_model_http.model import HttpModel

_AT_ONCE = 50
_CANCELLED = 100
_REPLY = {
    "choices": [{"message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1},
}
_PIECE = {"choices": [{"index": 0, "delta": {"content": "fi"}}]}
_ASK = ModelRequest(messages=(user("hi"),))


class Seen(NamedTuple):
    """What a server saw of requests that it begins to answer: each came, and its end, and when."""

    came: asyncio.Queue[None]
    closed: asyncio.Queue[float]


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen | None
) -> None:
    """Answer requests; or, where it tells what it saw, begin to and stop."""
    body = json.dumps(_REPLY).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            request = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(request.split(b"content-length:")[1].split(b"\r\n")[0])
            content = json.loads(await reader.readexactly(size))
            if seen is None:
                writer.write(head % len(body) + body)
                continue
            if content.get("stream"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                writer.write(b"data: %s\n\n" % json.dumps(_PIECE).encode())
            else:
                writer.write(head % len(body) + body[:10])
            seen.came.put_nowait(None)
            await reader.read()
            seen.closed.put_nowait(time.perf_counter())
            break
    writer.close()


@contextlib.asynccontextmanager
async def server(seen: Seen | None = None) -> AsyncGenerator[str]:
    """A server of this process."""
    serving = await asyncio.start_server(lambda r, w: answer(r, w, seen), "127.0.0.1", 0)
    async with serving:
        yield f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}/v1"


async def serve() -> None:
    """Be a server that tells its address, until nobody is there."""
    async with server() as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


def state() -> tuple[int, int, int, float]:
    """Open files, tasks, objects that garbage is looked for in, and megabytes."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    open_files = len([*Path("/proc/self/fd").iterdir()])
    size = pages * os.sysconf("SC_PAGESIZE") / 1e6
    return open_files, len(asyncio.all_tasks()), len(gc.get_objects()), size


async def leaks(count: int) -> None:
    """Make requests over one pool, and print what is there afterwards."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", stdin=pipe, stdout=pipe
    )
    assert child.stdout is not None
    assert child.stdin is not None
    url = (await child.stdout.readline()).decode().strip()
    model = HttpModel(LLMConfig("m", base_url=url), ModelContext())

    async def ask(times: int) -> None:
        for _ in range(times // _AT_ONCE):
            await asyncio.gather(*(model.complete(_ASK) for _ in range(_AT_ONCE)))

    await ask(100)
    before = state()
    started, used = time.perf_counter(), time.process_time()
    await ask(count)
    wall, cpu = time.perf_counter() - started, time.process_time() - used
    after = state()
    print(
        f"{count:,} requests, {_AT_ONCE} at once: {count / wall:,.0f}/s, {cpu / count * 1e6:.0f} µs"
    )
    for name, first, last in zip(("files", "tasks", "objects", "MB"), before, after, strict=True):
        print(f"  {name:<8} {first:10,.1f} before {last:10,.1f} after {last - first:+8,.1f}")
    await model.aclose()
    child.stdin.close()
    await child.wait()


async def cancellations() -> None:
    """Cancel requests of which something has come, and print when the server sees it."""
    seen = Seen(asyncio.Queue(), asyncio.Queue())
    async with server(seen) as url:
        model = HttpModel(LLMConfig("m", base_url=url), ModelContext())
        for kind in ("whole", "streamed"):
            seconds = [await cancelled(model, seen, kind) for _ in range(_CANCELLED)]
            middle, most = statistics.median(seconds) * 1e3, max(seconds) * 1e3
            print(f"cancelled, {kind:<9} seen closed after {middle:5.2f} ms, at most {most:5.2f}")
        await model.aclose()


async def cancelled(model: HttpModel, seen: Seen, kind: str) -> float:
    """Seconds from a cancellation until the server sees its connection closed."""
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in model.stream(_ASK):
            begun.set()

    task = asyncio.ensure_future(read() if kind == "streamed" else model.complete(_ASK))
    await seen.came.get()
    if kind == "streamed":
        await begun.wait()
    started = time.perf_counter()
    task.cancel()
    await asyncio.wait({task})
    return await seen.closed.get() - started


async def main(count: int) -> None:
    """Measure and print."""
    await leaks(count)
    await cancellations()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        asyncio.run(serve())
    else:
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
