"""Messages and tools in the format of OpenAI's chat completions."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any, Final

from delf.messages import (
    FilePart,
    ImagePart,
    Message,
    ModelTool,
    TextPart,
    ToolCall,
    ToolResult,
)
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.signatures import fields_of

SYSTEM_ROLE: Final = "system_role"
"""The setting for servers that do not support the role "system"."""
_WANTS_REASONING: Final = re.compile("deepseek|kimi", re.IGNORECASE)
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/yaml")


def messages(
    history: Sequence[Message], endpoint: Endpoint | None = None, *, system_role: Any = None
) -> list[dict[str, Any]]:
    """Convert messages to the chat completions format.

    Args:
        history: The messages.
        endpoint: The endpoint. DeepSeek and Kimi refuse tool calls without ``reasoning_content``
            while they reason, so calls that another model made get an empty text there.
        system_role: The role for instructions if "system" is not supported, such as "developer".
            With "user" the instructions are prepended to the user's message, because such models
            require alternating roles.
    """
    converted = [one for message in history for one in _message(message)]
    if endpoint is not None and _WANTS_REASONING.search(f"{endpoint.provider} {endpoint.name}"):
        for one in converted:
            if "tool_calls" in one:
                one.setdefault("reasoning_content", "")
    if system_role in (None, "system"):
        return converted
    if system_role != "user":
        return [
            {**one, "role": system_role} if one["role"] == "system" else one for one in converted
        ]
    return _without_system(converted)


def _without_system(chat_messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Prepend instructions to the next user message."""
    merged_messages: list[dict[str, Any]] = []
    waiting = ""
    for one in chat_messages:
        if one["role"] == "system":
            waiting += f"{one['content']}\n\n"
        elif waiting and one["role"] == "user":
            merged_messages.append({**one, "content": _prepended(waiting, one["content"])})
            waiting = ""
        else:
            merged_messages.append(one)
    return [*merged_messages, *([{"role": "user", "content": waiting.strip()}] if waiting else [])]


def _prepended(first: str, content: Any) -> Any:
    if isinstance(content, str):
        return first + content
    return [{"type": "text", "text": first.strip()}, *content]


def _message(message: Message) -> list[dict[str, Any]]:
    """Convert a message; its tool results become separate messages, which come first."""
    texts = [part for part in message.parts if not isinstance(part, (ToolCall, ToolResult))]
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    result: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": part.id, "content": part.text}
        for part in message.parts
        if isinstance(part, ToolResult)
    ]
    if texts or not result:
        converted: dict[str, Any] = {"role": message.role, "content": _content(texts)}
        if calls:
            converted["content"] = converted["content"] or None
            converted["tool_calls"] = [_call(call) for call in calls]
            for call in calls:
                converted = {**fields_of(call, "message"), **converted}
        result.append(converted)
    return result


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    kept_fields = fields_of(call, "call")
    return {**kept_fields, "id": call.id, "type": "function", "function": function}


def tools(model_tools: Sequence[ModelTool], *, must_call: bool) -> dict[str, Any]:
    """Describe the tools for a model, as chat completions take them."""
    if not model_tools:
        return {}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in model_tools
    ]
    choice: dict[str, Any] = {"tool_choice": "required"} if must_call else {}
    return {"tools": [{"type": "function", "function": each} for each in functions], **choice}


def content(parts: Sequence[TextPart | ImagePart | FilePart]) -> list[dict[str, Any]]:
    """Convert texts, images and documents."""
    return [_part(part) for part in parts]


def _content(parts: Sequence[TextPart | ImagePart | FilePart]) -> str | list[dict[str, Any]]:
    converted = content(parts)
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
    """Return a document: text in place, an image as an image, anything else as a file."""
    if part.media_type.startswith("image/"):
        return _part(ImagePart(part.data, part.media_type))
    if (text := text_of_file(part)) is not None:
        return {"type": "text", "text": text}
    file = {"filename": part.name, "file_data": _data_url(part.data, part.media_type)}
    return {"type": "file", "file": file}


def text_of_file(part: FilePart) -> str | None:
    """Return a text file as message text; None for any other file."""
    if not part.media_type.startswith(_TEXT_TYPES):
        return None
    text = part.data.decode("utf-8", errors="replace")
    return f'\n<file name="{part.name}">\n{text}\n</file>\n'


def base64_of(data: bytes) -> str:
    """Encode bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def _data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64_of(data)}"
