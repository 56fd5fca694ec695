"""A real HTTP server on loopback that speaks the model providers' protocols, by script.

It answers OpenAI chat completions (``/v1/chat/completions``), Anthropic messages
(``/v1/messages``) and Gemini (``/v1beta/models/NAME:generateContent``), streaming and not::

    with OpenAIServer(["first answer", Reply(status=429, headers={"Retry-After": "1"})]) as server:
        agent = Agent(llm=LLMConfig(model="m", base_url=server.base_url, api_key="k"))
        ...
    assert server.requests[0].json["messages"]

The script is a sequence of :class:`Reply` (or ``str``, its text), or a callable that gets the
request and returns one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from support import provider_protocols as protocols

Drop = Literal["request", "stream", "quiet"]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The server's reaction to one request.

    Args:
        text: The answer; ``chunks`` gives its streamed pieces, or it is cut by words.
        usage: Tokens in, out and, if wanted, in from the cache and out for reasoning; None leaves
            usage out.
        calls: Names of tools that are asked for, with their arguments as JSON.
        status: Anything but 200 sends an error body with ``error`` as its message.
        headers: Extra response headers, as ``Retry-After``.
        error: The error's message; ``error_code`` its code.
        body: Sent instead of the protocol's own body, as it is.
        delay: Seconds before the answer, and with ``chunk_delay`` before each piece.
        hold: The answer waits until this is set.
        drop: Close the connection ``request``: after reading the request; ``stream``: after the
            first pieces; ``quiet``: the same, but as a normal end of the stream.
        model: The model's name in the answer; the requested one when omitted.
    """

    text: str = ""
    chunks: Sequence[str] | None = None
    usage: tuple[int, ...] | None = (11, 7)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    error: str = "the test server says no"
    error_code: str | None = None
    body: bytes | None = None
    delay: float = 0.0
    chunk_delay: float = 0.0
    hold: threading.Event | None = None
    drop: Drop | None = None
    model: str | None = None
    finish_reason: str | None = "stop"
    calls: tuple[tuple[str, str], ...] = ()

    @property
    def pieces(self) -> list[str]:
        """The text as it is streamed."""
        if self.chunks is not None:
            return list(self.chunks)
        if self.calls and not self.text:
            return []
        words = self.text.split(" ")
        return [word if i == 0 else " " + word for i, word in enumerate(words)]

    @property
    def whole(self) -> str:
        """The text as one."""
        return "".join(self.chunks) if self.chunks is not None else self.text


@dataclass(frozen=True)
class Request:
    """The request of a client."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)

    @property
    def prompt(self) -> str:
        """The text of all messages of a chat completion request."""
        texts: list[str] = []
        for message in self.json.get("messages", []):
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            texts.extend(part["text"] for part in parts or () if part.get("type") == "text")
        return "\n".join(texts)


Script = Sequence[Reply | str] | Callable[[Request], Reply | str]


class OpenAIServer:
    """The server; a context manager, synchronous or not. It runs in a thread of its own.

    Args:
        script: The replies in order, or a callable; past its end the server answers 400.
        api_key: Refuse other keys with 401; any key is fine when omitted.
        port: 0 takes a free one.
        models: Names that ``GET /v1/models`` lists, or what it answers, as it is.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        port: int = 0,
        models: Sequence[str] | bytes = (),
    ) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self._script = script
        self._next = 0
        self._key = api_key
        self._port = port
        listed = {"object": "list", "data": [{"id": name} for name in models]}
        whole = models if isinstance(models, bytes) else json.dumps(listed).encode()
        self._models = whole if models else None
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="openai-server", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    @property
    def root_url(self) -> str:
        """The server's root, for Anthropic and Gemini."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def base_url(self) -> str:
        """The OpenAI-compatible root, with its version."""
        return f"{self.root_url}/v1"

    @property
    def json(self) -> list[Any]:
        """The bodies of all requests, parsed."""
        return [request.json for request in self.requests]

    def start(self) -> Self:
        """Listen."""
        self._thread.start()
        if not self._ready.wait(50):
            raise RuntimeError("the test server did not start")
        return self

    def stop(self) -> None:
        """Close every connection and end. Safe to call twice."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(50)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *_exc: object) -> None:
        await asyncio.to_thread(self.stop)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", self._port, backlog=1024)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while (request := await _read_request(reader, number)) is not None:
                self.requests.append(request)
                if not await self._answer(request, writer):
                    break
        writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False closes the connection."""
        if self._models is not None and (request.method, request.path) == ("GET", "/v1/models"):
            await _send(writer, 200, {}, self._models)
            return True
        reply = self._reply(request)
        if reply.hold is not None:
            await asyncio.to_thread(reply.hold.wait, 30)
        if reply.delay:
            await asyncio.sleep(reply.delay)
        if reply.drop == "request":
            writer.transport.abort()
            return False
        protocol = protocols.of(request.path)
        if protocol is None:
            reply = Reply(status=404, error=f"no such path: {request.path}")
            protocol = protocols.OPENAI
        if reply.body is not None:
            await _send(writer, reply.status, reply.headers, reply.body)
        elif reply.status != 200:
            error = protocol.error(reply.status, reply.error, reply.error_code)
            await _send(writer, reply.status, reply.headers, json.dumps(error).encode())
        elif protocol.streams(request.path, request.json):
            return await self._stream(protocol, request, reply, writer)
        else:
            answer = protocol.answer(self._answered(request, reply))
            await _send(writer, 200, reply.headers, json.dumps(answer).encode())
        return True

    @staticmethod
    def _answered(request: Request, reply: Reply) -> protocols.Answer:
        model = reply.model or str(request.json.get("model", "fake"))
        options: Mapping[str, Any] = request.json.get("stream_options") or {}
        wants = bool(options.get("include_usage"))
        return protocols.Answer(
            model,
            reply.whole,
            reply.pieces,
            reply.usage,
            reply.finish_reason,
            wants,
            reply.calls,
        )

    async def _stream(
        self,
        protocol: protocols.Protocol,
        request: Request,
        reply: Reply,
        writer: asyncio.StreamWriter,
    ) -> bool:
        headers = {"Content-Type": "text/event-stream", **reply.headers}
        _head(writer, 200, {**headers, "Transfer-Encoding": "chunked"})
        for count, event in enumerate(protocol.events(self._answered(request, reply))):
            if reply.drop in ("stream", "quiet") and count == 3:
                break
            if reply.chunk_delay:
                await asyncio.sleep(reply.chunk_delay)
            writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
            await writer.drain()
        if reply.drop == "stream":
            await asyncio.sleep(0.05)  # let the pieces arrive before the reset
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _reply(self, request: Request) -> Reply:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = given or request.headers.get("x-api-key", "")
        given = given or request.headers.get("x-goog-api-key", "")
        if self._key is not None and self._key not in (given, request.path.partition("key=")[2]):
            return Reply(status=401, error=f"Incorrect API key provided: {given}")
        if callable(self._script):
            reply = self._script(request)
        elif self._next < len(self._script):
            reply = self._script[self._next]
            self._next += 1
        else:
            reply = Reply(status=400, error="the test server's script is at its end")
        return Reply(text=reply) if isinstance(reply, str) else reply


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Request | None:
    """Read a request; None if the client has closed the connection, perhaps within a request."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _version = head[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Request(method, path, headers, body, connection)


def _head(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
    writer.write("\r\n".join(lines).encode())


async def _send(
    writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    given = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    _head(writer, status, {**given, **headers})
    writer.write(body)
    await writer.drain()
