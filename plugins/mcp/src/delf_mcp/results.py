"""Results of servers, as values that a script can use."""

from __future__ import annotations

import base64
import json
import mimetypes
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast
from urllib.parse import unquote

import mcp_types as types

from delf.errors import ToolExecutionError
from delf.messages import ImagePart, Message, Part, TextPart
from delf.network.urls import split_url
from delf.terminal import visible
from delf_mcp.limits import MAX_ERROR_CHARACTERS
from delf_mcp.repair import data_of

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_ENDINGS: Final = {"audio/wav": ".wav", "image/webp": ".webp"}  # unknown to mimetypes
_MAX_NAME_CHARACTERS: Final = 60
_MAX_EXTENSION_CHARACTERS: Final = 10


class UnreadableContentError(ToolExecutionError):
    """A server's answer has content that cannot be decoded."""


def result_of(tool: str, result: types.CallToolResult) -> Any:
    """Return the value of a tool's result for a script.

    The value is the structured data. Without structured data, the value is the content: a text, or
    a list if the content has pictures, sounds or resources.

    Args:
        tool: The tool's name, for messages.
        result: The result.

    Raises:
        UnreadableContentError: If the content cannot be decoded.
        ToolExecutionError: If the tool reports a failure.
    """
    if result.is_error:
        message = visible(_text_of(result.content)[:MAX_ERROR_CHARACTERS])
        raise ToolExecutionError(message or f"{tool} failed, and does not say why")
    if result.structured_content is not None:
        return data_of(result.meta, result.structured_content)
    return content_of(result.content)


def files_of(blocks: Sequence[Any]) -> Iterator[tuple[str, bytes]]:
    """Yield a file name and the bytes for each picture, sound and resource in content."""
    for number, block in enumerate(blocks, 1):
        if isinstance(block, (types.ImageContent, types.AudioContent)):
            yield f"{number}{_suffix_of_type(block.mime_type)}", _bytes(block.data)
        elif isinstance(block, types.EmbeddedResource):
            content = _contents(block.resource)
            data = content.encode("utf-8", "replace") if isinstance(content, str) else content
            yield f"{number}-{_file_name(block.resource)}", data


def _file_name(resource: Any) -> str:
    """Return a file name made from the last part of a resource's URI."""
    parts = split_url(str(resource.uri))
    path = "" if parts is None else unquote(parts.path)
    last_part = path.rpartition("/")[2]
    has_dot = "." in last_part
    stem, written_extension = last_part.rsplit(".", 1) if has_dot else (last_part, "")
    safe_stem = _NOT_IN_NAMES.sub("-", stem).strip("-")
    name = safe_stem[:_MAX_NAME_CHARACTERS] or "resource"
    extension = _NOT_IN_NAMES.sub("", written_extension)[:_MAX_EXTENSION_CHARACTERS]
    if extension:
        return f"{name}.{extension}"
    return f"{name}{_suffix_of_type(resource.mime_type)}"


def _suffix_of_type(media_type: str | None) -> str:
    """Return the file suffix of a media type; ``.bin`` for an unknown type."""
    kind = (media_type or "").partition(";")[0].strip().lower()
    return _ENDINGS.get(kind) or mimetypes.guess_extension(kind) or ".bin"


def content_of(blocks: Sequence[Any]) -> Any:
    """Return the value of a tool result's content blocks.

    The value is a text if all blocks are texts, otherwise a list with a text or a dict per block.
    """
    values = [_value_of(block) for block in blocks]
    if all(isinstance(value, str) for value in values):
        return "\n".join(values)
    return values


def resource_of(contents: Sequence[Any]) -> Any:
    """Return the content of a resource: text or bytes; for several parts, a list of them."""
    parts = [_contents(item) for item in contents]
    return parts[0] if len(parts) == 1 else parts


def _value_of(block: Any) -> Any:
    """Convert a content block to a text, or to a dict with decoded bytes."""
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, (types.ImageContent, types.AudioContent)):
        return {"type": block.type, "media_type": block.mime_type, "data": _bytes(block.data)}
    if isinstance(block, types.EmbeddedResource):
        return {
            "type": "resource",
            "uri": str(block.resource.uri),
            "media_type": block.resource.mime_type,
            "content": _contents(block.resource),
        }
    return block.model_dump(mode="json", by_alias=True, exclude_none=True)


def blocks_of(text: str) -> list[types.ContentBlock]:
    """Convert a result in JSON to content blocks.

    A result with a picture, a sound or a resource has a block for each piece; any other result has
    one block, whose text is the JSON. If redaction has replaced the digits of a number, the text is
    no JSON, and also becomes one block.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return [types.TextContent(type="text", text=text)]
    pieces = cast("list[Any]", value) if isinstance(value, list) else [value]
    if any(_is_media(piece) for piece in pieces):
        return [_block(piece) for piece in pieces]
    return [types.TextContent(type="text", text=text)]


def _is_media(piece: Any) -> bool:
    """Return True if a piece of a result is a picture, sound or resource.

    The piece is parsed from the JSON of a value that :func:`content_of` returned.
    """
    if not isinstance(piece, dict):
        return False
    fields = cast("dict[str, Any]", piece)
    kind = fields.get("type")
    if kind not in ("image", "audio", "resource"):
        return False
    required = ("uri", "content") if kind == "resource" else ("media_type", "data")
    return all(isinstance(fields.get(name), str) for name in required)


def _block(piece: Any) -> types.ContentBlock:
    """Convert a piece of a result to a content block of the protocol."""
    if not _is_media(piece):
        text = piece if isinstance(piece, str) else json.dumps(piece)
        return types.TextContent(type="text", text=text)
    if piece["type"] == "image":
        return types.ImageContent(type="image", data=piece["data"], mime_type=piece["media_type"])
    if piece["type"] == "audio":
        return types.AudioContent(type="audio", data=piece["data"], mime_type=piece["media_type"])
    resource = types.TextResourceContents(
        uri=piece["uri"], mime_type=piece.get("media_type"), text=piece["content"]
    )
    return types.EmbeddedResource(type="resource", resource=resource)


def _contents(item: Any) -> Any:
    if isinstance(item, types.TextResourceContents):
        return item.text
    return _bytes(item.blob)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii.Error among them
        raise UnreadableContentError(f"the server sent invalid bytes: {error}") from None


def _text_of(blocks: Sequence[Any]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, types.TextContent))


def as_message(message: types.SamplingMessage) -> Message:
    """Convert a message that a server wants to send to the agent's model.

    Raises:
        ToolExecutionError: If the message has content that no model supports.
    """
    content: Any = message.content
    parts: list[Part] = []
    for block in cast("list[Any]", content if isinstance(content, list) else [content]):
        if isinstance(block, types.TextContent):
            parts.append(TextPart(block.text))
        elif isinstance(block, types.ImageContent):
            parts.append(ImagePart(_bytes(block.data), block.mime_type))
        else:
            raise ToolExecutionError(f"a model is not asked about {block.type}")
    return Message(message.role, tuple(parts))
