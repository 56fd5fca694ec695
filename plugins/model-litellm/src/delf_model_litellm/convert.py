"""Between delf's messages and the shape that litellm takes and gives."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf.messages import (
    FilePart,
    ImagePart,
    Message,
    ModelTool,
    Price,
    TextPart,
    ToolCall,
    ToolResult,
    Usage,
)
from delf_model_litellm.endpoint import Endpoint

_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/yaml")
_CACHE_FROM: Final = 4000
"""Characters from which a system message is worth Anthropic's prompt cache (1,024 tokens)."""


def messages(given: Sequence[Message], endpoint: Endpoint) -> list[dict[str, Any]]:
    """Messages as chat completions take them."""
    result = [converted for message in given for converted in _message(message)]
    if endpoint.prefix == "anthropic":
        _mark_cached(result)
    return result


def _message(message: Message) -> list[dict[str, Any]]:
    """A message; each result of a call is one of its own, ahead of the rest."""
    said = [part for part in message.parts if not isinstance(part, (ToolCall, ToolResult))]
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    result: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": part.id, "content": part.text}
        for part in message.parts
        if isinstance(part, ToolResult)
    ]
    if said or not result:
        converted: dict[str, Any] = {"role": message.role, "content": _content(said)}
        if calls:
            converted["content"] = converted["content"] or None
            converted["tool_calls"] = [_call(call) for call in calls]
        result.append(converted)
    return result


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def tools(given: Sequence[ModelTool], *, must_call: bool) -> dict[str, Any]:
    """What a model may call, as chat completions take it."""
    if not given:
        return {}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in given
    ]
    choice: dict[str, Any] = {"tool_choice": "required"} if must_call else {}
    # Else litellm imports its proxy, which needs packages that it does not install.
    choice["_skip_mcp_handler"] = True
    return {"tools": [{"type": "function", "function": each} for each in functions], **choice}


def _content(parts: Sequence[TextPart | ImagePart | FilePart]) -> str | list[dict[str, Any]]:
    converted = [_part(part) for part in parts]
    if all(item["type"] == "text" for item in converted):
        return "".join(item["text"] for item in converted)
    return converted


def _part(part: TextPart | ImagePart | FilePart) -> dict[str, Any]:
    if isinstance(part, FilePart):
        return _file(part)
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": _data_url(part.data, part.media_type)}}
    return {"type": "text", "text": part.text}


def _file(part: FilePart) -> dict[str, Any]:
    """A document: text in place, an image as an image, anything else as a file."""
    if part.media_type.startswith("image/"):
        return _part(ImagePart(part.data, part.media_type))
    if part.media_type.startswith(_TEXT_TYPES):
        text = part.data.decode("utf-8", errors="replace")
        return {"type": "text", "text": f'\n<file name="{part.name}">\n{text}\n</file>\n'}
    file = {"filename": part.name, "file_data": _data_url(part.data, part.media_type)}
    return {"type": "file", "file": file}


def _data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def _mark_cached(given: list[dict[str, Any]]) -> None:
    """Mark the byte-stable prefix: Anthropic caches only what it is told to."""
    system = [message for message in given if message["role"] == "system"]
    if system and isinstance(text := system[0]["content"], str) and len(text) >= _CACHE_FROM:
        part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
        system[0]["content"] = [part]


def settings(config: Mapping[str, Any], request: Mapping[str, Any], endpoint: Endpoint) -> Any:
    """Generation settings under litellm's names; the request's go over the configuration's."""
    merged: dict[str, Any] = {k: v for k, v in {**config, **request}.items() if v is not None}
    merged.pop("timeout", None)
    if endpoint.provider == "openai" and not endpoint.custom:
        merged.pop("top_k", None)  # OpenAI itself refuses it; compatible servers know it
    return merged


def usage(given: Any) -> Usage:
    """Tokens as the provider counted them."""
    if given is None:
        return Usage()
    details = getattr(given, "prompt_tokens_details", None)
    thought = getattr(given, "completion_tokens_details", None)
    return Usage(
        input_tokens=int(getattr(given, "prompt_tokens", 0) or 0),
        cached_tokens=int(getattr(details, "cached_tokens", 0) or 0),
        output_tokens=int(getattr(given, "completion_tokens", 0) or 0),
        reasoning_tokens=int(getattr(thought, "reasoning_tokens", 0) or 0),
    )


def price(known: Mapping[str, Any]) -> Price | None:
    """USD per million tokens from litellm's entry of a model; None where it names no price."""
    given = known.get("input_cost_per_token"), known.get("output_cost_per_token")
    if given[0] is None or given[1] is None:
        return None
    cached = known.get("cache_read_input_token_cost")
    return Price(
        input=float(given[0]) * 1e6,
        output=float(given[1]) * 1e6,
        cached_input=float(given[0] if cached is None else cached) * 1e6,
        max_output_tokens=known.get("max_output_tokens"),
    )
