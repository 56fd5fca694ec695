"""Messages and tools in the format of OpenAI's chat completions."""

from __future__ import annotations

import base64
import json
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
"""The name of the setting that replaces the role "system" for servers without that role."""
_NEEDS_REASONING_CONTENT: Final = re.compile("deepseek|kimi", re.IGNORECASE)
_TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/yaml")


def messages(
    history: Sequence[Message], endpoint: Endpoint | None = None, *, system_role: Any = None
) -> list[dict[str, Any]]:
    """Convert messages to the chat completions format.

    Args:
        history: The messages.
        endpoint: The endpoint, whose model may require more fields, such as ``reasoning_content``.
        system_role: The role for instructions if "system" is not supported, such as "developer".
            With "user", the instructions are put at the beginning of the next user message, because
            models without "system" require that the roles alternate.
    """
    converted = [each for message in history for each in _converted(message)]
    if endpoint is not None:
        _add_required_reasoning(converted, endpoint)
    if system_role == "user":
        return _without_system(converted)
    if system_role is not None:
        for chat_message in converted:
            if chat_message["role"] == "system":
                chat_message["role"] = system_role
    return converted


def _add_required_reasoning(chat_messages: list[dict[str, Any]], endpoint: Endpoint) -> None:
    """Add an empty ``reasoning_content`` where a model requires reasoning and there is none.

    DeepSeek and Kimi refuse messages with tool calls but without ``reasoning_content``, such as
    messages that another model wrote.
    """
    if _NEEDS_REASONING_CONTENT.search(f"{endpoint.provider} {endpoint.name}"):
        for message in chat_messages:
            if "tool_calls" in message:
                message.setdefault("reasoning_content", "")


def _without_system(chat_messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Move instructions with the role "system" to the beginning of the next user message.

    Without a later user message, the instructions become a user message.
    """
    merged_messages: list[dict[str, Any]] = []
    instructions = ""
    for message in chat_messages:
        if message["role"] == "system":
            instructions += f"{message['content']}\n\n"
        elif instructions and message["role"] == "user":
            content = _prepended(instructions, message["content"])
            merged_messages.append({**message, "content": content})
            instructions = ""
        else:
            merged_messages.append(message)
    if instructions:
        merged_messages.append({"role": "user", "content": instructions.strip()})
    return merged_messages


def _prepended(first: str, content: Any) -> Any:
    if isinstance(content, str):
        return first + content
    return [{"type": "text", "text": first.strip()}, *content]


def _converted(message: Message) -> list[dict[str, Any]]:
    """Convert a message to chat messages: one for each tool result, then one for the rest."""
    contents = [part for part in message.parts if not isinstance(part, (ToolCall, ToolResult))]
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    converted_results: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": result.id, "content": result.text} for result in results
    ]
    # A message with results has no calls: results go to the model, and calls come from the model.
    if results and not contents:
        return converted_results
    converted: dict[str, Any] = {"role": message.role, "content": _content(contents)}
    if calls:
        converted["content"] = converted["content"] or None  # beside calls, null in place of ""
        converted["tool_calls"] = [_call(call) for call in calls]
    # The provider's own fields of the message, such as ``reasoning_content``, are kept with the
    # calls, and go back into the message.
    for call in calls:
        for name, value in fields_of(call, "message").items():
            converted.setdefault(name, value)
    return [*converted_results, converted]


def _call(call: ToolCall) -> dict[str, Any]:
    """Convert a tool call to an item of ``tool_calls`` in a chat message.

    The item also gets the extra fields that the provider sent with the call, such as a signature,
    because the provider requires them in later requests.
    """
    function = {"name": call.name, "arguments": call.arguments}
    provider_fields = fields_of(call, "call")
    return {**provider_fields, "id": call.id, "type": "function", "function": function}


def tools(model_tools: Sequence[ModelTool], *, must_call: bool) -> dict[str, Any]:
    """Return the fields of a chat completions request that describe the tools."""
    if not model_tools:
        return {}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in model_tools
    ]
    choice: dict[str, Any] = {"tool_choice": "required"} if must_call else {}
    return {"tools": [{"type": "function", "function": each} for each in functions], **choice}


def content(parts: Sequence[TextPart | ImagePart | FilePart]) -> list[dict[str, Any]]:
    """Convert texts, images and files to content parts of a chat message."""
    return [_part(part) for part in parts]


def _content(parts: Sequence[TextPart | ImagePart | FilePart]) -> str | list[dict[str, Any]]:
    converted = content(parts)
    if all(item["type"] == "text" for item in converted):
        return "".join(item["text"] for item in converted)
    return converted


def _part(part: TextPart | ImagePart | FilePart) -> dict[str, Any]:
    if isinstance(part, FilePart):
        return _file_part(part)
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": _data_url(part.data, part.media_type)}}
    return {"type": "text", "text": part.text}


def _file_part(part: FilePart) -> dict[str, Any]:
    """Convert a file to a text part, an image part, or for other media types a file part."""
    if part.media_type.startswith("image/"):
        return _part(ImagePart(part.data, part.media_type))
    if (text := text_of_file(part)) is not None:
        return {"type": "text", "text": text}
    file = {"filename": part.name, "file_data": _data_url(part.data, part.media_type)}
    return {"type": "file", "file": file}


def text_of_file(part: FilePart) -> str | None:
    """Return the content of a text file between ``<file>`` tags; None if the file is not a text."""
    if not part.media_type.startswith(_TEXT_TYPES):
        return None
    text = part.data.decode("utf-8", errors="replace")
    return f'\n<file name="{part.name}">\n{text}\n</file>\n'


def base64_of(data: bytes) -> str:
    """Encode bytes as base64 text."""
    return base64.b64encode(data).decode("ascii")


def _data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64_of(data)}"


def is_json(text: str) -> bool:
    """Return True if a text is JSON: the arguments of a streamed call are then complete."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
