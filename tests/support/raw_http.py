"""A loopback HTTP server that shows requests as they came, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class Seen:
    """A request as it came."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers if k.lower() == name.lower()), None)


@dataclass
class Reply:
    """The response."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


@dataclass
class RawServer:
    """A running server.

    Args:
        answer: Makes the reply to a request; an empty JSON object when None.
    """

    answer: Callable[[Seen], Reply] | None = None
    seen: list[Seen] = field(default_factory=list[Seen])
    url: str = ""

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.strip().split("\r\n")
                method, target, _ = first.split(" ")
                pairs = [line.partition(":") for line in lines]
                headers = [
                    (k, v.strip().encode("latin-1").decode("utf-8", "replace")) for k, _, v in pairs
                ]
                size = next((int(v) for k, v in headers if k.lower() == "content-length"), 0)
                seen = Seen(method, target, headers, await reader.readexactly(size))
                self.seen.append(seen)
                reply = self.answer(seen) if self.answer else Reply()
                fields = {**reply.headers, "Content-Length": str(len(reply.body))}
                lines = [
                    f"HTTP/1.1 {reply.status} Status",
                    *(f"{k}: {v}" for k, v in fields.items()),
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode("utf-8"))
                writer.write(b"" if method == "HEAD" else reply.body)
                await writer.drain()


@contextlib.asynccontextmanager
async def raw_server(answer: Callable[[Seen], Reply] | None = None) -> AsyncIterator[RawServer]:
    """A server on a free port of loopback."""
    server = RawServer(answer)
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        connections[task] = writer
        task.add_done_callback(connections.pop)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await server.serve(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(on_connection, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()
        open_connections = dict(connections)
        for task, writer in open_connections.items():
            task.cancel()
            # Its socket is closed in the next turn of the loop, also where `serve` never began.
            writer.transport.abort()
        await asyncio.gather(*open_connections, return_exceptions=True)
        await asyncio.sleep(0)


@contextlib.contextmanager
def threaded_server(answer: Callable[[Seen], Reply] | None = None) -> Iterator[RawServer]:
    """A server in a thread of its own, for programs that run in this one."""
    ready: queue.Queue[tuple[RawServer, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def main() -> None:
        async with raw_server(answer) as server:
            over = asyncio.Event()
            ready.put((server, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    server, loop, over = ready.get(timeout=50)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(timeout=50)
