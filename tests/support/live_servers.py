"""Loopback servers that speak OpenAI's Realtime API and Gemini's Live API, in text.

Their answer is a function of all received messages, joined to one text: a list of pieces, each a
text or a call ``(name, arguments)``. Whatever a client sends is kept, and validated by the
provider's own types in :attr:`requests`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Self

from pydantic import TypeAdapter
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

Piece = str | tuple[str, dict[str, Any]]
Answers = Callable[[str], Sequence[Piece]]

CHARS = 7
"""The number of characters of a text in one event."""


@cache
def _realtime() -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    """The types of clients and servers of OpenAI, whose import takes a second."""
    from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent

    return TypeAdapter(RealtimeClientEvent), TypeAdapter(RealtimeServerEvent)


@cache
def _gemini() -> Any:
    """The types of Gemini, which take half a second to import."""
    from google.genai import types

    return types


class CutError(Exception):
    """The server drops the connection here."""


class LiveServer:
    """The common parts of both servers.

    Args:
        answers: What is answered.
        cut: Whether the connection is dropped after an event, by its kind; asked for each.
        refuse: An HTTP status with which connections are refused.
    """

    path = ""

    def __init__(
        self,
        answers: Answers,
        cut: Callable[[str], bool] = lambda kind: False,
        refuse: int | None = None,
    ) -> None:
        self._answers = answers
        self._cut = cut
        self._refuse = refuse
        self.requests: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.kinds: list[str] = []
        self.connections = 0
        self.sent_chars = 0
        self._ids = itertools.count(1)
        self._server: Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            process_request=self._admit,
            close_timeout=0.5,
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return next(iter(self._server.sockets)).getsockname()[1]

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """The address of a model's sessions, as `live_model` takes it."""
        return f"ws://127.0.0.1:{self.port}{self.path}?model=live"

    def _admit(self, connection: ServerConnection, request: Any) -> Any:
        if self._refuse is not None:
            return connection.respond(self._refuse, '{"error": {"message": "no sessions today"}}')
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        self.connections += 1
        self.headers.append({k.lower(): v for k, v in connection.request.headers.raw_items()})
        self.paths.append(connection.request.path)
        try:
            await self.talk(connection)
        except CutError:
            connection.transport.abort()
        except ConnectionClosed:
            return

    async def talk(self, connection: ServerConnection) -> None:
        raise NotImplementedError

    def saw(self, kind: str) -> None:
        """An event went by; drop the connection if that is wanted."""
        self.kinds.append(kind)
        if self._cut(kind):
            raise CutError

    def id(self, kind: str) -> str:
        return f"{kind}_{next(self._ids)}"


class RealtimeServer(LiveServer):
    """OpenAI's."""

    path = "/v1/realtime"

    async def talk(self, connection: ServerConnection) -> None:
        received: list[str] = []
        session: dict[str, Any] = {"type": "realtime", "model": "gpt-realtime"}

        async def say(kind: str, **fields: Any) -> None:
            event = {"type": kind, "event_id": self.id("event"), **fields}
            _realtime()[1].validate_python(event)
            await connection.send(json.dumps(event))
            self.saw(f"server {kind}")

        await say("session.created", session=session)
        async for data in connection:
            self.sent_chars += len(data)
            event = json.loads(data)
            self.requests.append(_realtime()[0].validate_python(event))
            self.saw(f"client {event['type']}")
            match event["type"]:
                case "session.update":
                    session |= event["session"]
                    received.append(session.get("instructions", ""))
                    await say("session.updated", session=session)
                case "conversation.item.create":
                    item = {"id": self.id("item"), **event["item"]}
                    received.append(_receive(item))
                    await say("conversation.item.added", item=item)
                case "response.create":
                    await self._answer("\n".join(received), received, say)

    async def _answer(self, text: str, received: list[str], say: Any) -> None:
        response = {"object": "realtime.response", "id": self.id("resp"), "status": "in_progress"}
        await say("response.created", response=response)
        items: list[dict[str, Any]] = []
        for place, piece in enumerate(self._answers(text)):
            where = {"response_id": response["id"], "output_index": place}
            item_id = self.id("item")
            if isinstance(piece, str):
                item = await self._text(piece, item_id, where, say)
            else:
                item = await self._call(piece, item_id, where, say)
            items.append(item)
            received.append(_receive(item))
            await say("response.output_item.done", item=item, **where)
        words = sum(len(_receive(item)) for item in items) // 4
        usage = {"input_tokens": len(text) // 4, "output_tokens": words}
        usage["total_tokens"] = sum(usage.values())
        done = {**response, "status": "completed", "output": items, "usage": usage}
        await say("response.done", response=done)

    async def _text(self, text: str, item_id: str, where: dict[str, Any], say: Any) -> Any:
        head = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress"}
        await say("response.output_item.added", item={**head, "content": []}, **where)
        place = {**where, "item_id": item_id, "content_index": 0}
        await say("response.content_part.added", part={"type": "text", "text": ""}, **place)
        for start in range(0, len(text), CHARS):
            await say("response.output_text.delta", delta=text[start : start + CHARS], **place)
        await say("response.output_text.done", text=text, **place)
        await say("response.content_part.done", part={"type": "text", "text": text}, **place)
        content = [{"type": "output_text", "text": text}]
        return {**head, "status": "completed", "content": content}

    async def _call(self, call: Any, item_id: str, where: dict[str, Any], say: Any) -> Any:
        name, arguments = call[0], json.dumps(call[1])
        head = {"id": item_id, "type": "function_call", "name": name, "call_id": self.id("call")}
        item = {**head, "status": "in_progress", "arguments": ""}
        await say("response.output_item.added", item=item, **where)
        place = {**where, "item_id": item_id, "call_id": head["call_id"]}
        for start in range(0, len(arguments), CHARS):
            piece = arguments[start : start + CHARS]
            await say("response.function_call_arguments.delta", delta=piece, **place)
        await say("response.function_call_arguments.done", arguments=arguments, name=name, **place)
        return {**head, "status": "completed", "arguments": arguments}


def _receive(item: dict[str, Any]) -> str:
    if item["type"] == "message":
        return "".join(part.get("text", "") for part in item["content"])
    return json.dumps({key: item[key] for key in ("name", "arguments", "output") if key in item})


class GeminiServer(LiveServer):
    """Google's.

    Args:
        farewell: After this many answers in a connection the server says that it goes away.
        resumable: Whether it gives handles with which a conversation goes on.
        cancels: How many calls it takes back, each at once.
    """

    path = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"

    def __init__(
        self,
        *args: Any,
        farewell: int = 0,
        resumable: bool = True,
        cancels: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._farewell = farewell
        self._resumable = resumable
        self._cancels = cancels
        self.cancelled: list[str] = []
        self._kept: dict[str, list[str]] = {}
        self.resumed: list[str] = []

    async def talk(self, connection: ServerConnection) -> None:
        received: list[str] = []
        answers = 0

        async def say(event: dict[str, Any]) -> None:
            _gemini().LiveServerMessage.model_validate(event)
            await connection.send(json.dumps(event))
            self.saw(f"server {next(iter(event))}")

        async for data in connection:
            self.sent_chars += len(data)
            event = json.loads(data)
            event = {_camel(key): value for key, value in event.items()}
            self.requests.append(_gemini().LiveClientMessage.model_validate(event))
            (kind,) = event
            self.saw(f"client {kind}")
            if kind == "setup":
                handle = event["setup"].get("sessionResumption", {}).get("handle")
                if handle is not None:
                    self.resumed.append(handle)
                    received = self._kept[handle]
                else:
                    rules = event["setup"].get("systemInstruction", {"parts": []})
                    received.append(json.dumps(rules["parts"]))
                await say({"setupComplete": {}})
                continue
            received.append(json.dumps(event, ensure_ascii=False))
            await self._answer(received, say)
            answers += 1
            if self._resumable:
                name = self.id("handle")
                self._kept[name] = received
                update = {"newHandle": name, "resumable": True}
                await say({"sessionResumptionUpdate": update})
            if answers == self._farewell:
                await say({"goAway": {"timeLeft": "10s"}})

    async def _answer(self, received: list[str], say: Any) -> None:
        text = "\n".join(received)
        pieces = self._answers(text)
        calls: list[dict[str, Any]] = []
        for piece in pieces:
            if isinstance(piece, str):
                for start in range(0, len(piece), CHARS):
                    parts = [{"text": piece[start : start + CHARS]}]
                    await say({"serverContent": {"modelTurn": {"parts": parts}}})
            else:
                calls.append({"id": self.id("call"), "name": piece[0], "args": piece[1]})
        received.append(json.dumps(pieces))
        words = len(received[-1]) // 4
        usage = {"promptTokenCount": len(text) // 4, "responseTokenCount": words}
        usage["totalTokenCount"] = sum(usage.values())
        if calls:
            await say({"toolCall": {"functionCalls": calls}, "usageMetadata": usage})
            if self._cancels:
                self._cancels -= 1
                self.cancelled.append(calls[0]["id"])
                await say({"toolCallCancellation": {"ids": [calls[0]["id"]]}})
            return
        await say({"serverContent": {"generationComplete": True}})
        await say({"serverContent": {"turnComplete": True}, "usageMetadata": usage})


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
