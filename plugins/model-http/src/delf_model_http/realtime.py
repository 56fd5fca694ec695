"""OpenAI's Realtime API, in text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from delf.errors import LLMExecutionError
from delf.messages import (
    FilePart,
    ImagePart,
    Message,
    ModelDelta,
    ModelRequest,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)
from delf_model_http.address import joined
from delf_model_http.answer import Answer, ReportedError, Tokens, fields, integer_field, required
from delf_model_http.dialect import system_texts
from delf_model_providers import chat
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.families import OPENAI_URL

_DELTAS: Final = frozenset({"response.output_text.delta", "response.text.delta"})
_STATUS: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "rate_limit_error": 429,
}


class Realtime:
    """OpenAI's Realtime API in one session.

    Implements :class:`delf_model_http.live.LiveDialect`.
    """

    must_reconnect = False
    can_reconnect = False

    def __init__(self) -> None:
        self._session: dict[str, Any] = {}  # as last sent to the server
        # The calls of the current response: the index in the answer, by the server's item id.
        self._call_indexes: dict[str, int] = {}

    def address(self, endpoint: Endpoint, name: str) -> str:
        """Return the WebSocket URL for sessions with a model."""
        address = joined(endpoint.base_url or OPENAI_URL, f"realtime?model={quote(name)}")
        return f"ws{address.removeprefix('http')}"  # ws:// or wss://

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers with the key."""
        return {"Authorization": f"Bearer {endpoint.api_key}"}

    def opening(self, request: ModelRequest, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Return no messages, because the server begins the session."""
        return ()

    def is_open(self, event: Mapping[str, Any]) -> bool:
        """Return whether an event confirms that the session is established."""
        _check(event)
        return event.get("type") == "session.created"

    def client_events(self, request: ModelRequest, settings: Mapping[str, Any]) -> Sequence[Any]:
        """Return the events that send a request's messages and ask for an answer.

        The first event updates the session's instructions, tools and settings, if they have
        changed. Each part of a message becomes an item of the server's conversation.
        """
        self._call_indexes.clear()
        session = self._session_for(request, settings)
        events: list[Any] = []
        if session != self._session:
            self._session = session
            events.append({"type": "session.update", "session": session})
        for message in request.messages:
            if message.role != "system":
                items = _items(message)
                events += [{"type": "conversation.item.create", "item": item} for item in items]
        return [*events, {"type": "response.create"}]

    def _session_for(self, request: ModelRequest, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration of the session that a request needs."""
        new_instructions = "\n\n".join(system_texts(request))
        session: dict[str, Any] = {"type": "realtime", "output_modalities": ["text"]}
        if "max_tokens" in settings:
            session["max_output_tokens"] = settings["max_tokens"]
        # Only the first request of a session has instructions, which apply to later requests, too.
        instructions = new_instructions or self._session.get("instructions")
        if instructions is not None:
            session["instructions"] = instructions
        has_tools_in_session = bool(self._session.get("tools"))
        if request.tools or has_tools_in_session:  # an empty list removes the session's tools
            session["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                }
                for tool in request.tools
            ]
            session["tool_choice"] = "required" if request.must_call else "auto"
        return session

    def read_session_event(self, event: Mapping[str, Any]) -> None:
        """Raise ReportedError for an error; ignore other events."""
        _check(event)

    def event(self, event: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
        """Add an event to an answer; return the deltas to emit."""
        _check(event)
        kind = event.get("type")
        if kind in _DELTAS:
            return answer.add_text(event.get("delta"))
        if kind == "response.output_item.added":
            return self._begin(fields(event.get("item")), answer)
        if kind == "response.function_call_arguments.delta":
            index = self._call_indexes.get(str(event.get("item_id")), -1)
            return answer.add_arguments(index, event.get("delta"))
        if kind == "response.function_call_arguments.done":
            return answer.emit_complete_calls(is_answer_over=False)
        if kind == "response.done":
            _finish(fields(event.get("response")), answer)
        return []

    def _begin(self, item: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
        if item.get("type") != "function_call":
            return []
        self._call_indexes[str(item.get("id"))] = answer.last_call_index + 1
        return answer.add_call(item.get("call_id"), required(item, "name"), item.get("arguments"))


def _check(event: Mapping[str, Any]) -> None:
    if event.get("type") == "error":
        error = fields(event.get("error"))
        raise ReportedError(_STATUS.get(str(error.get("type")), 500), {"error": dict(error)})


def _finish(response: Mapping[str, Any], answer: Answer) -> None:
    """Set an answer's finish reason and token counts; raise ReportedError if the answer failed."""
    status = response.get("status")
    details = fields(response.get("status_details"))
    if status in {"failed", "cancelled"}:
        error = fields(details.get("error"))
        message = error.get("message") or details.get("reason") or status
        code = _STATUS.get(str(error.get("type")), 500)
        raise ReportedError(code, {"message": f"the answer is {status}: {message}"})
    used = fields(response.get("usage"))
    if used:
        answer.tokens = Tokens(
            input=integer_field(used, "input_tokens"),
            cached=integer_field(used.get("input_token_details"), "cached_tokens"),
            output=integer_field(used, "output_tokens"),
        )
    answer.set_reply_id(response.get("id"))
    answer.finish_reason = "tool_calls" if answer.has_calls else "stop"
    if status == "incomplete":
        answer.finish_reason = "length"
    answer.has_model_finished = answer.is_stream_over = True


def _items(message: Message) -> list[dict[str, Any]]:
    """Convert a message to items of the server's conversation.

    The texts of the model precede its calls; the texts of the user follow the results of calls.
    """
    items: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            items.append(
                {
                    "type": "function_call",
                    "call_id": part.id,
                    "name": part.name,
                    "arguments": part.arguments,
                }
            )
        elif isinstance(part, ToolResult):
            output = {"type": "function_call_output", "call_id": part.id, "output": part.text}
            items.append(output)
        else:
            content.append(_content(part, message.role))
    if content:
        message_item = {"type": "message", "role": message.role, "content": content}
        if message.role == "assistant":
            items.insert(0, message_item)  # before its calls
        else:
            items.append(message_item)  # after the results of calls
    return items


def _content(part: Part, role: str) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.text}
    if isinstance(part, ImagePart):
        data = f"data:{part.media_type};base64,{chat.base64_of(part.data)}"
        return {"type": "input_image", "image_url": data}
    text = chat.text_of_file(part) if isinstance(part, FilePart) else None
    if text is None:
        raise LLMExecutionError("a Realtime session takes texts and images only")
    return {"type": "input_text", "text": text}
