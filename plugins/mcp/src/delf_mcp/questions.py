"""Questions to a person on behalf of a server, which show everything that the person approves."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import mcp_types as types

from delf.terminal import visible

INDENT: Final = "    "
_LINE_ENDS: Final = re.compile("\r\n|\r|\n")
_MAX_CHARACTERS: Final = 100_000


class Unshowable(Exception):  # noqa: N818 - it ends a question, and is no fault of ours
    """A question of a server cannot be shown to a person, for example because of its length."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def form_question(server: str, message: str, schema: Mapping[str, Any]) -> str:
    """Return the text that asks a person to fill in a server's form.

    Args:
        server: The connection's name.
        message: The server's text.
        schema: The schema of the form, whose field descriptions are quoted.

    Raises:
        Unshowable: If the question is too long.
    """
    lines = [
        f"The MCP server {visible(server)} asks you; what you approve is sent to it. In its words:",
        *quote_lines(message),
    ]
    properties = schema.get("properties")
    fields = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    if fields:
        lines.append("Its words about the fields:")
    declared_required = schema.get("required")
    required = cast("list[Any]", declared_required) if isinstance(declared_required, list) else []
    for name, field in fields.items():
        description = json.dumps(field, ensure_ascii=False)
        required_note = ", required" if name in required else ""
        lines += quote_lines(
            f"{json.dumps(name, ensure_ascii=False)}{required_note}: {description}"
        )
    return _join(lines)


def url_question(server: str, params: types.ElicitRequestURLParams) -> str:
    """Return the text that asks a person to open a URL for a server.

    Raises:
        Unshowable: If the question is too long.
    """
    return _join(
        [
            f"The MCP server {visible(server)} wants you to open an address in your browser:",
            *quote_lines(params.url),
            "In its words:",
            *quote_lines(params.message),
        ]
    )


def model_question(server: str, model: str, params: types.CreateMessageRequestParams) -> str:
    """Return the text that asks a person whether a server may use the agent's model.

    Args:
        server: The connection's name.
        model: The model's name.
        params: The server's request, whose messages are quoted.

    Raises:
        Unshowable: If the question is too long.
    """
    lines = [
        f"The MCP server {visible(server)} wants the agent's model {visible(model)} to be asked.",
        "You pay for it, and the answer goes to the server.",
        f"At most {params.max_tokens:,} tokens.",
    ]
    if params.temperature is not None:
        lines.append(f"Temperature {params.temperature:g}.")
    if params.stop_sequences:
        lines += ["The answer ends at:", *quote_lines(_json(params.stop_sequences))]
    if params.system_prompt:
        lines += ["System prompt, in its words:", *quote_lines(params.system_prompt)]
    for number, message in enumerate(params.messages, 1):
        lines.append(f"Message {number} of {len(params.messages)}, as {visible(message.role)}:")
        content: Any = message.content
        for block in cast("list[Any]", content if isinstance(content, list) else [content]):
            lines += quote_lines(_block_text(block))
    return _join(lines)


def _block_text(block: Any) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent):
        # A person's decision may be remembered for the same text. With the digest, the text of
        # another picture differs.
        digest = hashlib.sha256(block.data.encode()).hexdigest()[:16]
        size = len(base64.b64decode(block.data))
        return f"(a picture, {block.mime_type}, {size:,} bytes, sha256 {digest})"
    return _json(block)


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    plain = value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value
    return json.dumps(plain, ensure_ascii=False, default=str)


def quote_lines(text: str) -> list[str]:
    """Return the lines of a server's text, indented to differ from delf's own lines."""
    return [INDENT + visible(line) for line in _LINE_ENDS.split(text.rstrip("\r\n"))]


def _join(lines: list[str]) -> str:
    text = "\n".join(lines)
    if len(text) > _MAX_CHARACTERS:
        raise Unshowable(f"it is too long to be shown to the user: {len(text):,} characters")
    return text
