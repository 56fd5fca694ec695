"""Gemini's Live API, in text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from delf.messages import Message, ModelDelta, ModelRequest, Part, TextPart, ToolResult
from delf_model_http.answer import Answer, ReportedError, fields, items, required
from delf_model_http.dialect import system_texts
from delf_model_http.google import (
    generation_config,
    parts_of,
    role_of,
    tokens_of,
    tool_declarations,
)
from delf_model_providers.endpoint import Endpoint

_URL: Final = "https://generativelanguage.googleapis.com"
_PATH: Final = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"


class GeminiLive:
    """Gemini's Live API in one session. Implements :class:`delf_model_http.live.LiveDialect`."""

    def __init__(self, name: str) -> None:
        self._name = name if "/" in name else f"models/{name}"
        # The message with the instructions and tools of the first request. Each new connection
        # repeats the message.
        self._setup: dict[str, Any] = {}
        # The server's handle to continue the session on another connection, if there is any.
        self._handle: str | None = None
        self._is_closing = False
        # The ids of calls that the server cancelled, and whose results it no longer takes.
        self._cancelled_ids: set[str] = set()

    @property
    def must_reconnect(self) -> bool:
        """True if the server announced that it will close the connection."""
        return self._is_closing

    @property
    def can_reconnect(self) -> bool:
        """True if the server sent a handle with which another connection continues the session."""
        return self._handle is not None

    def address(self, endpoint: Endpoint, name: str) -> str:
        """Return the WebSocket URL of sessions; the setup message, not the URL, names the model."""
        # The path of a base URL, such as /v1beta, is that of the HTTP API.
        root = urlsplit(endpoint.base_url or _URL)
        scheme = "ws" if root.scheme == "http" else "wss"
        return urlunsplit((scheme, root.netloc, _PATH, root.query, ""))

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers with the key."""
        return {"x-goog-api-key": endpoint.api_key or ""}

    def opening(self, request: ModelRequest, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Return the message that sets up a session, with its instructions and tools."""
        if not self._setup:  # a later connection repeats the first message
            self._setup = {"model": self._name}
            self._setup["generationConfig"] = {
                "responseModalities": ["TEXT"],
                **generation_config(settings),
            }
            instructions = system_texts(request)
            if instructions:
                self._setup["systemInstruction"] = {
                    "parts": [{"text": text} for text in instructions]
                }
            if request.tools:
                self._setup["tools"] = tool_declarations(request.tools)
        resumption = {"handle": self._handle} if self._handle else {}
        self._is_closing = False  # the announced end was that of the previous connection
        return [{"setup": {**self._setup, "sessionResumption": resumption}}]

    def is_open(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event confirms that the session is established."""
        return "setupComplete" in event

    def client_events(self, request: ModelRequest, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Return a list with one event: the results of calls or, without results, the messages.

        A new session gets the messages of the whole conversation, even if these contain results.
        """
        turns = [message for message in request.messages if message.role != "system"]
        # The server refuses results of calls that it has cancelled, so these are sent as text.
        messages = [_with_cancelled_as_text(message, self._cancelled_ids) for message in turns]
        self._cancelled_ids = set()
        parts = list(chain.from_iterable(message.parts for message in messages))
        results = [part for part in parts if isinstance(part, ToolResult)]
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        # Only a new session gets the whole conversation, which has messages of the model.
        is_continuing = all(message.role == "user" for message in messages)
        if results and is_continuing:
            function_responses = [_response(result) for result in results]
            if texts:  # a separate text would interrupt the model
                function_responses[-1]["response"]["notice"] = "\n".join(texts)
            return [{"toolResponse": {"functionResponses": function_responses}}]
        contents = [
            {"role": role_of(message), "parts": parts_of(message.parts)} for message in messages
        ]
        return [{"clientContent": {"turns": contents, "turnComplete": True}}]

    def read_session_event(self, event: Mapping[str, Any]) -> None:
        """Store a session handle, the announced end of the connection, and cancelled calls."""
        if update := fields(event.get("sessionResumptionUpdate")):
            handle = update.get("newHandle")
            can_resume = bool(update.get("resumable") and handle)
            self._handle = str(handle) if can_resume else None
        if "goAway" in event:
            self._is_closing = True
        if cancelled := fields(event.get("toolCallCancellation")):
            self._cancelled_ids |= {str(each) for each in items(cancelled.get("ids"))}

    def event(self, event: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
        """Add an event to an answer; return the deltas to emit."""
        self.read_session_event(event)  # an event of an answer may have news of the session, too
        answer.tokens = tokens_of(event.get("usageMetadata"), "responseTokenCount") or answer.tokens
        pieces: list[ModelDelta] = []
        content = fields(event.get("serverContent"))
        for part in items(fields(content.get("modelTurn")).get("parts")):
            if not fields(part).get("thought"):
                pieces += answer.add_text(fields(part).get("text"))
        for call in items(fields(event.get("toolCall")).get("functionCalls")):
            arguments = json.dumps(fields(call).get("args") or {}, ensure_ascii=False)
            pieces += answer.add_call(fields(call).get("id"), required(call, "name"), arguments)
        if content.get("interrupted"):
            raise ReportedError(500, {"message": "the answer was interrupted"})
        if "toolCall" in event:
            answer.finish_reason, answer.has_model_finished = "tool_calls", True
        elif content.get("turnComplete"):
            answer.finish_reason, answer.has_model_finished = "stop", True
        return pieces


def _with_cancelled_as_text(message: Message, cancelled_ids: set[str]) -> Message:
    """Convert the results of cancelled calls to text: the server refuses results of such calls."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult) and part.id in cancelled_ids:
            text = f"(the call of {part.name} that you cancelled was made: {part.text})"
            parts.append(TextPart(text))
        else:
            parts.append(part)
    return replace(message, parts=tuple(parts))


def _response(result: ToolResult) -> dict[str, Any]:
    return {"id": result.id, "name": result.name, "response": {"result": result.text}}
