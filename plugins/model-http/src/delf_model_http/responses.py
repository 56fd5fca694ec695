"""OpenAI's Responses API, which its newer models require for tools together with reasoning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from delf.messages import (
    FilePart,
    ImagePart,
    Message,
    ModelDelta,
    TextPart,
    ToolCall,
    ToolResult,
)
from delf_model_http.address import joined
from delf_model_http.answer import (
    Answer,
    ReportedError,
    Tokens,
    fields,
    integer_field,
    items,
    required,
)
from delf_model_http.catalog import Facts
from delf_model_http.dialect import RequestParts
from delf_model_http.openai import is_reasoning
from delf_model_providers import chat, searches
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.families import OPENAI_URL

_SETTINGS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_output_tokens",
    "service_tier": "service_tier",
}
# The names of settings that reasoning models refuse.
_REFUSED_SETTINGS: Final = ("temperature", "top_p")
_REASONING_FIELDS: Final = ("id", "type", "summary", "encrypted_content")
_STATUSES: Final = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
}


class Responses:
    """OpenAI's Responses API. Implements :class:`delf_model_http.dialect.Dialect`.

    The provider stores nothing. So each request sends the model's earlier reasoning, which is
    encrypted, back to the provider.
    """

    finish_reasons: ClassVar[Mapping[str, str]] = {
        "completed": "stop",
        "max_output_tokens": "length",
    }

    def address(self, endpoint: Endpoint, *, stream: bool) -> str:
        """Return the URL for requests."""
        return joined(endpoint.base_url or OPENAI_URL, "responses")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers with the key."""
        return {"Authorization": f"Bearer {endpoint.api_key}"}

    def body(self, parts: RequestParts) -> dict[str, Any]:
        """Return the JSON body of a request."""
        request = parts.request
        settings = parts.settings
        is_reasoning_model = is_reasoning(parts)
        role = settings.get(chat.SYSTEM_ROLE) or "system"
        result: dict[str, Any] = {
            "model": parts.endpoint.name,
            "input": [item for message in request.messages for item in _items(message, role)],
            "store": False,
        }
        for name, value in settings.items():
            is_refused = is_reasoning_model and name in _REFUSED_SETTINGS
            if name in _SETTINGS and not is_refused:
                result[_SETTINGS[name]] = value
        if is_reasoning_model:  # with "store": False, delf has to send the reasoning back itself
            result["include"] = ["reasoning.encrypted_content"]
        thinking = dict(settings.get("thinking") or {})
        if effort := settings.get("reasoning_effort"):
            thinking = {"effort": effort, **thinking}  # an effort in "thinking" has precedence
        if thinking:
            result["reasoning"] = thinking
        if tools := _tools(parts):
            result["tools"] = tools
        if request.tools and request.must_call:
            result["tool_choice"] = "required"
        if parts.stream:
            result["stream"] = True
        return result

    def max_tokens(self, facts: Facts) -> int | None:
        """Return None, because the API does not require a maximum."""
        return None

    def parse(self, data: Any) -> Answer:
        """Parse a complete answer that was not streamed."""
        _check(data)
        answer = Answer()
        required(data, "output")
        for item in items(fields(data).get("output")):
            _start_item(fields(item), answer)
            _finish_item(fields(item), answer)
            # _start_item() and _finish_item() add no texts or arguments: a stream sends these
            # separately.
            if fields(item).get("type") == "message":
                for part in items(fields(item).get("content")):
                    answer.add_text(fields(part).get("text") or fields(part).get("refusal"))
            if fields(item).get("type") == "function_call":
                answer.add_arguments(answer.last_call_index, item.get("arguments"))
        _finish(fields(data), answer)
        return answer

    def event(self, data: Any, answer: Answer) -> list[ModelDelta]:
        """Add an event to an answer; return the deltas to emit."""
        piece = fields(data)
        match piece.get("type"):
            case "error":
                raise ReportedError(_status(piece), piece)
            case "response.output_item.added":
                return _start_item(fields(piece.get("item")), answer)
            case "response.output_item.done":
                _finish_item(fields(piece.get("item")), answer)
            case "response.output_text.delta" | "response.refusal.delta":
                return answer.add_text(piece.get("delta"))
            case "response.function_call_arguments.delta":
                return answer.add_arguments(answer.last_call_index, piece.get("delta"))
            case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
                answer.add_reasoning(piece.get("delta"))
            case "response.completed" | "response.incomplete" | "response.failed":
                _check(piece.get("response"))
                _finish(fields(piece.get("response")), answer)
                answer.is_stream_over = True
            case _:
                pass
        return []


def _tools(parts: RequestParts) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
            "strict": False,
        }
        for tool in parts.request.tools
    ]
    if parts.search is not None:
        tools.append(searches.of_responses(parts.search))
    return tools


def _items(message: Message, system_role: str) -> list[dict[str, Any]]:
    """Convert a message to input items: results of calls, the content as one item, calls."""
    input_items: list[dict[str, Any]] = []
    contents: list[TextPart | ImagePart | FilePart] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            input_items.append(
                {"type": "function_call_output", "call_id": part.id, "output": part.text}
            )
        elif isinstance(part, ToolCall):
            input_items += _call_items(part)
        else:
            contents.append(part)
    if contents or not input_items:
        role = system_role if message.role == "system" else message.role
        content_item = {"role": role, "content": _content(contents)}
        if message.role == "assistant":
            input_items.insert(0, content_item)  # before its calls
        else:
            input_items.append(content_item)  # after the results of calls
    if len(input_items) == 1:
        return input_items  # a message has at least one item, even an empty one
    # The API refuses empty content beside other items, such as calls.
    return [item for item in input_items if item.get("content") != ""]


def _call_items(call: ToolCall) -> list[dict[str, Any]]:
    """Convert a call to input items: the reasoning before the call, then the call.

    Each request must repeat a call together with the model's reasoning items before the call.
    _start_item() has stored these items in the call's token, as a JSON array.
    """
    reasoning_items = [dict(fields(item)) for item in items(json.loads(call.token or "[]"))]
    call_item = {
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
    }
    return [*reasoning_items, call_item]


def _content(parts: Sequence[TextPart | ImagePart | FilePart]) -> str | list[dict[str, Any]]:
    converted = [_part(part) for part in parts]
    if all(part["type"] == "input_text" for part in converted):
        return "".join(part["text"] for part in converted)
    return converted


def _part(part: TextPart | ImagePart | FilePart) -> dict[str, Any]:
    """Convert a part of a message to an input part."""
    [content] = chat.content([part])
    kind = content["type"]
    if kind == "text":
        return {"type": "input_text", "text": content["text"]}
    if kind == "file":
        return {"type": "input_file", **content["file"]}
    return {"type": "input_image", "detail": "auto", "image_url": content["image_url"]["url"]}


def _start_item(item: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
    """Add the start of an output item, such as a call; return the deltas to emit."""
    if item.get("type") != "function_call":
        return []
    # When a call is sent back to the API, the signed reasoning that came before the call must be
    # sent, too. So the call, but no later call, gets the reasoning as its opaque token.
    token = json.dumps(answer.signed_blocks) if answer.signed_blocks else None
    answer.signed_blocks.clear()
    return answer.add_call(item.get("call_id"), required(item, "name"), "", token)


def _finish_item(item: Mapping[str, Any], answer: Answer) -> None:
    """Add a complete output item: store reasoning, and count web searches."""
    if item.get("type") == "reasoning":
        block = {name: item[name] for name in _REASONING_FIELDS if item.get(name)}
        block.setdefault("summary", [])  # required in the next request
        answer.signed_blocks.append(block)
    if item.get("type") == "web_search_call":
        answer.searches += 1


def _finish(response: Mapping[str, Any], answer: Answer) -> None:
    """Finish an answer with the token counts, the id and the finish reason of the response."""
    answer.tokens = _tokens(response.get("usage")) or answer.tokens
    answer.set_reply_id(response.get("id"))
    status = response.get("status")
    if status == "completed" and answer.has_calls:
        answer.finish_reason = "tool_calls"
    else:
        incomplete_reason = fields(response.get("incomplete_details")).get("reason")
        answer.finish_reason = incomplete_reason or status
    answer.has_model_finished = True


def _check(reply: Any) -> None:
    """Raise ReportedError if a response with status 200 reports a failure."""
    error = fields(reply).get("error")
    if error or fields(reply).get("status") == "failed":
        raise ReportedError(_status(fields(error)), reply)


def _status(error: Mapping[str, Any]) -> int:
    return _STATUSES.get(str(error.get("code")), 500)


def _tokens(used: Any) -> Tokens | None:
    if not fields(used):
        return None
    return Tokens(
        input=integer_field(used, "input_tokens"),
        cached=integer_field(fields(used).get("input_tokens_details"), "cached_tokens"),
        output=integer_field(used, "output_tokens"),
        reasoning=integer_field(fields(used).get("output_tokens_details"), "reasoning_tokens"),
    )
