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
_MAX: Final = 100_000
"""The maximum number of characters of a question."""


class Unshowable(Exception):  # noqa: N818 - it ends a question, and is no fault of ours
    """A question is too long to be shown."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def form_question(server: str, message: str, schema: Mapping[str, Any]) -> str:
    """Return the question for a form, with the server's text and field descriptions.

    Raises:
        Unshowable: If the question is too long.
    """
    lines = [
        f"The MCP server {visible(server)} asks you; what you approve is sent to it. In its words:",
        *inside(message),
    ]
    properties = schema.get("properties")
    fields = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    if fields:
        lines.append("Its words about the fields:")
    declared_required = schema.get("required")
    required = cast("list[Any]", declared_required) if isinstance(declared_required, list) else []
    for name, field in fields.items():
        about = json.dumps(field, ensure_ascii=False)
        mark = ", required" if name in required else ""
        lines += inside(f"{json.dumps(name, ensure_ascii=False)}{mark}: {about}")
    return _joined(lines)


def url_question(server: str, params: types.ElicitRequestURLParams) -> str:
    """Return the question whether to open a URL.

    Raises:
        Unshowable: If the question is too long.
    """
    return _joined(
        [
            f"The MCP server {visible(server)} wants you to open an address in your browser:",
            *inside(params.url),
            "In its words:",
            *inside(params.message),
        ]
    )


def model_question(server: str, model: str, params: types.CreateMessageRequestParams) -> str:
    """Return the question whether the agent's model may be asked.

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
        lines += ["The answer ends at:", *inside(_json(params.stop_sequences))]
    if params.system_prompt:
        lines += ["System prompt, in its words:", *inside(params.system_prompt)]
    for number, message in enumerate(params.messages, 1):
        lines.append(f"Message {number} of {len(params.messages)}, as {visible(message.role)}:")
        content: Any = message.content
        for block in cast("list[Any]", content if isinstance(content, list) else [content]):
            lines += inside(_block_text(block))
    return _joined(lines)


def _block_text(block: Any) -> str:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent):
        # The digest distinguishes this picture from others in later questions.
        mark = hashlib.sha256(block.data.encode()).hexdigest()[:16]
        size = len(base64.b64decode(block.data))
        return f"(a picture, {block.mime_type}, {size:,} bytes, sha256 {mark})"
    return _json(block)


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value
    plain = value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value
    return json.dumps(plain, ensure_ascii=False, default=str)


def inside(text: str) -> list[str]:
    """Quote foreign text in lines that cannot be taken for delf's own."""
    return [INDENT + visible(line) for line in _LINE_ENDS.split(text.rstrip("\r\n"))]


def _joined(lines: list[str]) -> str:
    text = "\n".join(lines)
    if len(text) > _MAX:
        raise Unshowable(f"it is too long to be shown to the user: {len(text):,} characters")
    return text
