"""Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from delf.messages import (
    ImagePart,
    Message,
    ModelDelta,
    Part,
    TextPart,
    ToolCall,
    ToolResult,
)
from delf_model_http.address import joined
from delf_model_http.answer import (
    Answer,
    ReportedError,
    Tokens,
    arguments_of,
    fields,
    integer_field,
    items,
    listed,
    required,
)
from delf_model_http.catalog import Facts
from delf_model_http.dialect import RequestParts
from delf_model_providers import chat, searches
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.signatures import may_think

_URL: Final = "https://api.anthropic.com"
_VERSION: Final = "2023-06-01"

_SETTINGS: Final = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop": "stop_sequences",
    "service_tier": "service_tier",
}
# A mapping from reasoning effort to tokens for thinking, with litellm's numbers.
_THINKING_BUDGETS: Final = {"minimal": 1024, "low": 1024, "medium": 2048, "high": 4096}
_SAMPLING: Final = ("temperature", "top_p", "top_k")

# The default maximum of output tokens, which is more than a script needs.
_DEFAULT_MAX_TOKENS: Final = 16_384

# The default maximum of output tokens for models that are not in the catalogue.
_UNKNOWN_MODEL_MAX_TOKENS: Final = 8_192

_THINKING_DELTAS: Final = ("thinking_delta", "signature_delta")

# The number of characters, about 1,024 tokens, from which a system message is cached.
_MIN_CACHED_CHARS: Final = 4000

_STATUSES: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Messages:
    """Anthropic's Messages API. Implements :class:`delf_model_http.dialect.Dialect`."""

    finish_reasons: ClassVar[Mapping[str, str]] = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "tool_use": "tool_calls",
    }

    def address(self, endpoint: Endpoint, *, stream: bool) -> str:
        """Return the URL for requests."""
        return joined(endpoint.base_url or _URL, "messages", version="v1")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers with the key and the version of the API."""
        return {"x-api-key": endpoint.api_key or "", "anthropic-version": _VERSION}

    def body(self, parts: RequestParts) -> dict[str, Any]:
        """Return the JSON body of a request."""
        request = parts.request
        thinking = _thinking(parts)
        result: dict[str, Any] = {
            "model": parts.endpoint.name,
            "max_tokens": self._output_limit(parts, thinking),
            "messages": [
                {"role": message.role, "content": content_of(message.parts)}
                for message in request.messages
                if message.role != "system"
            ],
            **thinking,
        }
        if system := _system(request.messages):
            result["system"] = system
        refuses_sampling = parts.facts.refuses_sampling or _is_on(thinking)
        for name, value in parts.settings.items():
            is_refused = refuses_sampling and name in _SAMPLING
            if name in _SETTINGS and not is_refused:
                result[_SETTINGS[name]] = listed(value) if name == "stop" else value
        if tools := _tools(parts):
            result["tools"] = tools
        must_call = request.tools and request.must_call
        # With a thinking budget, the API refuses to force a call.
        if must_call and not _has_budget(thinking):
            result["tool_choice"] = {"type": "any"}
        if parts.stream:
            result["stream"] = True
        return result

    def _output_limit(self, parts: RequestParts, thinking: Mapping[str, Any]) -> int:
        """Return the maximum number of output tokens of a request, including those of thinking."""
        limit = parts.settings.get("max_tokens")
        if limit is None:
            limit = self.max_tokens(parts.facts)  # of the answer alone
            if _is_on(thinking):
                limit += integer_field(thinking["thinking"], "budget_tokens")
        # The API refuses a request for more tokens than the model can give.
        highest_limit = parts.facts.max_output_tokens  # 0 if unknown
        return min(limit, highest_limit) if highest_limit else limit

    def max_tokens(self, facts: Facts) -> int:
        """Return the default of ``max_tokens``, which every request to this API must contain."""
        if facts.max_output_tokens:
            return min(_DEFAULT_MAX_TOKENS, facts.max_output_tokens)
        return _UNKNOWN_MODEL_MAX_TOKENS

    def parse(self, data: Any) -> Answer:
        """Parse a complete answer that was not streamed."""
        _check(data)
        used = fields(data).get("usage")
        answer = Answer(tokens=_tokens(used), searches=_searches(used), has_model_finished=True)
        answer.set_reply_id(fields(data).get("id"))
        required(data, "content")
        for block in items(fields(data).get("content")):
            _start_block(fields(block), answer)
        answer.finish_reason = fields(data).get("stop_reason")
        return answer

    def event(self, data: Any, answer: Answer) -> list[ModelDelta]:
        """Add an event to an answer; return the deltas to emit."""
        _check(data)
        piece = fields(data)
        match piece.get("type"):
            case "message_start":
                answer.tokens = _tokens(fields(piece.get("message")).get("usage"))
                answer.set_reply_id(fields(piece.get("message")).get("id"))
            case "content_block_start":
                return _start_block(fields(piece.get("content_block")), answer, is_whole=False)
            case "content_block_delta":
                return _add_delta(fields(piece.get("delta")), answer)
            case "message_delta":  # its counts are those of the whole message so far
                delta = fields(piece.get("delta"))
                answer.finish_reason = delta.get("stop_reason") or answer.finish_reason
                answer.tokens = _tokens(piece.get("usage"), answer.tokens)
                answer.searches = max(answer.searches, _searches(piece.get("usage")))
            case "message_stop":
                answer.has_model_finished = answer.is_stream_over = True
            case _:
                pass
        return []


def _thinking(parts: RequestParts) -> dict[str, Any]:
    """Return the fields of a request that configure thinking."""
    thinking = parts.settings.get("thinking")
    effort = parts.settings.get("reasoning_effort")
    if thinking is not None:
        chosen = {"thinking": dict(thinking)}
        # The API refuses a thinking budget in a turn of calls that began without thinking.
        if _has_budget(chosen) and not may_think(parts.request):
            return {}
        return chosen
    if effort is None or effort == "none":
        return {}
    # Models that refuse sampling settings are new, and new models take an effort, not a budget.
    takes_effort = parts.facts.refuses_sampling
    if takes_effort:
        level = "low" if effort == "minimal" else effort
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}
    if not may_think(parts.request):
        return {}
    budget = _THINKING_BUDGETS.get(effort, _THINKING_BUDGETS["high"])
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _is_on(thinking: Mapping[str, Any]) -> bool:
    """Return True if the request's field ``thinking`` is present and does not disable thinking."""
    return bool(thinking) and fields(thinking["thinking"]).get("type") != "disabled"


def _has_budget(thinking: Mapping[str, Any]) -> bool:
    """Return True if the request's field ``thinking`` has a token budget.

    The API then refuses a request that forces the model to call a tool.
    """
    return fields(thinking.get("thinking")).get("type") == "enabled"


def _system(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the blocks of the system messages; mark the first block as cached if it is long."""
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": message.text}
        for message in messages
        if message.role == "system" and message.text.strip()
    ]
    if blocks and len(blocks[0]["text"]) >= _MIN_CACHED_CHARS:
        blocks[0]["cache_control"] = {"type": "ephemeral"}
    return blocks


def content_of(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Convert parts to content blocks; omit empty blocks, which the API refuses."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    first_call = calls[0] if calls else None
    # The first call's thinking must begin the message, even before a text. Later thinking precedes
    # its call.
    blocks = _thinking_before(first_call) if first_call is not None else []
    for part in parts:
        if isinstance(part, ToolCall) and part is not first_call:
            blocks += _thinking_before(part)
        blocks.append(_block(part))
    # Only blocks of text can be empty; a block of another type, such as an image, has no text.
    non_empty = [block for block in blocks if "text" not in block or block["text"].strip()]
    return non_empty or [{"type": "text", "text": "(nothing)"}]


def _thinking_before(call: ToolCall) -> list[dict[str, Any]]:
    """Return the blocks of thinking before a call, which must be sent back to the provider.

    The call's token holds these blocks as JSON.
    """
    if not call.token:
        return []
    return [dict(fields(block)) for block in items(json.loads(call.token))]


def _block(part: Part) -> dict[str, Any]:
    """Convert a part of a message to a content block."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ToolCall):
        arguments = arguments_of(part)
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
    if isinstance(part, ImagePart):
        return {"type": "image", "source": _source(part.data, part.media_type)}
    if isinstance(part, ToolResult):
        return {"type": "tool_result", "tool_use_id": part.id, "content": part.text}
    if (text := chat.text_of_file(part)) is not None:
        return {"type": "text", "text": text}
    source = _source(part.data, part.media_type)
    if part.media_type.startswith("image/"):
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": part.name}


def _source(data: bytes, media_type: str) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": chat.base64_of(data)}


def _tools(parts: RequestParts) -> list[Any]:
    tools: list[Any] = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": dict(tool.parameters),
        }
        for tool in parts.request.tools
    ]
    if parts.search is not None:
        tools.append(searches.of_anthropic(parts.search))
    return tools


def _start_block(
    block: Mapping[str, Any], answer: Answer, *, is_whole: bool = True
) -> list[ModelDelta]:
    """Add a content block to the answer; return the deltas to emit.

    Args:
        block: The content block.
        answer: The answer so far.
        is_whole: Whether the block is complete; otherwise the arguments of a call follow.
    """
    if block.get("type") == "text":
        return answer.add_text(block.get("text"))
    if block.get("type") == "tool_use":
        arguments = ""
        if is_whole:
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
        # The API requires the thinking back together with the first call after it. So delf keeps
        # the thinking as the opaque token of this call.
        token = json.dumps(answer.signed_blocks) if answer.signed_blocks else None
        answer.signed_blocks.clear()
        return answer.add_call(block.get("id"), required(block, "name"), arguments, token)
    if block.get("type") in ("thinking", "redacted_thinking"):
        answer.signed_blocks.append(dict(block))
        answer.add_reasoning(block.get("thinking"))
    return []


def _check(reply: Any) -> None:
    if fields(reply).get("type") == "error":
        kind = fields(fields(reply).get("error")).get("type")
        raise ReportedError(_STATUSES.get(str(kind), 500), reply)


def _searches(used: Any) -> int:
    return integer_field(fields(used).get("server_tool_use"), "web_search_requests")


def _add_delta(delta: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
    """Add a delta to the content block that is being received; return the deltas to emit."""
    if delta.get("type") == "text_delta":
        return answer.add_text(delta.get("text"))
    if delta.get("type") == "input_json_delta":
        return answer.add_arguments(answer.last_call_index, delta.get("partial_json"))
    if delta.get("type") in _THINKING_DELTAS and answer.signed_blocks:
        block = answer.signed_blocks[-1]
        for name in ("thinking", "signature"):
            block[name] = f"{block.get(name) or ''}{delta.get(name) or ''}"
        answer.add_reasoning(delta.get("thinking"))
    return []


def _tokens(counts: Any, earlier: Tokens | None = None) -> Tokens | None:
    """Parse token counts.

    Args:
        counts: The counts that the API sent. In a stream, the last event has only output tokens.
        earlier: The counts of earlier events.
    """
    if not fields(counts):
        return earlier
    has_input_tokens = fields(counts).get("input_tokens") is not None
    if earlier is not None and not has_input_tokens:
        return Tokens(
            input=earlier.input,
            cached=earlier.cached,
            written=earlier.written,
            output=integer_field(counts, "output_tokens") or earlier.output,
            reasoning=_thought(counts) or earlier.reasoning,
        )
    read = integer_field(counts, "cache_read_input_tokens")
    written = integer_field(counts, "cache_creation_input_tokens")
    return Tokens(
        input=integer_field(counts, "input_tokens") + read + written,
        cached=read,
        written=written,
        output=integer_field(counts, "output_tokens"),
        reasoning=_thought(counts),
    )


def _thought(used: Any) -> int:
    return integer_field(fields(used).get("output_tokens_details"), "thinking_tokens")
