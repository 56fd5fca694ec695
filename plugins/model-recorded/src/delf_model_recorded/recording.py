"""The file of a recording: one JSON object a line.

::

    {"about": "What this recording is; written by hand."}
    {"request": {"messages": […], "purpose": "generate", "settings": {}},
     "reply": {"text": "…", "usage": {"input_tokens": 9, "output_tokens": 4}, "model": "gpt-5.5"}}
    {"request": {"contains": ["revenue", "March"]}, "reply": {"text": "…"}}

A request is either whole, as it was recorded, or by hand: ``contains`` texts that must occur in its
messages, with a ``purpose`` if that matters. Images and files are kept as their digests. Fields
that an entry's request omits match any value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from delf.errors import ModelConfigurationError
from delf.messages import (
    FilePart,
    ImagePart,
    Message,
    ModelReply,
    ModelRequest,
    ToolCall,
    ToolResult,
    Usage,
)

_USAGE: Final = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
_REQUEST_FIELDS: Final = ("messages", "purpose", "settings", "tools", "must_call")


@dataclass(frozen=True)
class Entry:
    """A recorded request and its reply.

    Args:
        line: The line number in the file.
        request: The expected request, as the file describes requests.
        reply: The reply, as the file describes replies.
    """

    line: int
    request: Mapping[str, Any]
    reply: Mapping[str, Any]

    @property
    def contains(self) -> tuple[str, ...] | None:
        """The texts that a request must contain to match; None if the entry has a whole request."""
        texts: Any = self.request.get("contains")
        return None if texts is None else tuple(texts)

    def matches(self, description: Mapping[str, Any], text: str) -> bool:
        """Return True if a request matches this entry.

        A field that the entry omits matches any value.

        Args:
            description: The request, as plain data from :func:`describe_request`.
            text: The text of the request's messages.
        """
        if not all(wanted in text for wanted in self.contains or ()):
            return False
        return all(
            description.get(name) == self.request[name]
            for name in _REQUEST_FIELDS
            if name in self.request
        )

    def model_reply(self, model: str) -> ModelReply:
        """Return the recorded reply.

        Args:
            model: The name of the model, if the recorded reply has none.
        """
        usage: dict[str, int] = self.reply.get("usage") or {}
        return ModelReply(
            text=self.reply["text"],
            model=self.reply.get("model") or model,
            usage=Usage(**usage),
            cost_usd=self.reply.get("cost_usd"),
            finish_reason=self.reply.get("finish_reason") or "stop",
            calls=tuple(ToolCall(**call) for call in self.reply.get("calls") or ()),
        )


def describe_request(request: ModelRequest) -> dict[str, Any]:
    """Convert a model request to JSON data for a recording file."""
    described: dict[str, Any] = {
        "messages": [_message(message) for message in request.messages],
        "purpose": request.purpose,
        "settings": json.loads(json.dumps(dict(request.settings), default=str)),
    }
    if request.tools:
        described["tools"] = json.loads(json.dumps([asdict(tool) for tool in request.tools]))
        described["must_call"] = request.must_call
    return described


def describe_reply(reply: ModelReply) -> dict[str, Any]:
    """Convert a reply to the JSON object that is written to the recording file."""
    described: dict[str, Any] = {
        "text": reply.text,
        "usage": {name: getattr(reply.usage, name) for name in _USAGE},
        "cost_usd": reply.cost_usd,
        "model": reply.model,
        "finish_reason": reply.finish_reason,
    }
    if reply.calls:
        described["calls"] = [asdict(call) for call in reply.calls]
    return described


def text_of(request: Mapping[str, Any]) -> str:
    """Return the text of all messages in a request as read from a recording file."""
    return "\n".join(message["text"] for message in request["messages"])


def _message(message: Message) -> dict[str, Any]:
    """Describe a message for a recording: its role, its text and any parts of another type."""
    described: dict[str, Any] = {"role": message.role, "text": message.text}
    parts: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ImagePart):
            parts.append({"type": "image", **_digest(part.data, part.media_type)})
        elif isinstance(part, FilePart):
            data = _digest(part.data, part.media_type)
            parts.append({"type": "file", "name": part.name, **data})
        elif isinstance(part, ToolCall):
            parts.append({"type": "call", "name": part.name, "arguments": part.arguments})
        elif isinstance(part, ToolResult):
            parts.append({"type": "result", "name": part.name, "text": part.text})
    return {**described, "parts": parts} if parts else described


def _digest(data: bytes, media_type: str) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    return {"media_type": media_type, "size": len(data), "sha256": digest}


def read(path: Path) -> list[Entry]:
    """Read the entries of a recording.

    Raises:
        ModelConfigurationError: If the file is missing or malformed; the error names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelConfigurationError(
            f"there is no recording at {path}",
            hint="the name of a recorded model is recorded:PATH; --record PATH makes one",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelConfigurationError(f"the recording {path} cannot be read: {error}") from error
    return list(_entries(path, text))


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Message(BaseModel):
    role: str
    text: str


class _RecordedRequest(_StrictModel):
    messages: list[_Message]
    purpose: Any = None
    settings: Any = None
    tools: Any = None
    must_call: Any = None


class _HandwrittenRequest(_StrictModel):
    contains: list[str]
    purpose: Any = None


class _Usage(_StrictModel):
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


class _Call(_StrictModel):
    id: str
    name: str
    arguments: str
    token: Any = None


class _Reply(_StrictModel):
    text: str
    usage: _Usage | None = None
    cost_usd: float | None = None
    model: str | None = None
    finish_reason: str | None = None
    calls: list[_Call] | None = None


class _Line(_StrictModel):
    request: dict[str, Any]
    reply: _Reply


def _entries(path: Path, text: str) -> Iterator[Entry]:
    """Yield the entries of a recording; skip an optional first line about the recording."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _malformed(path, number, f"not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise _malformed(path, number, "not a JSON object")
        line_fields = cast("dict[str, Any]", fields)
        if number == 1 and set(line_fields) == {"about"}:
            continue
        if problem := _problem(line_fields):
            raise _malformed(path, number, problem)
        yield Entry(number, line_fields["request"], line_fields["reply"])


def _problem(fields: dict[str, Any]) -> str | None:
    """Return what is wrong with a parsed line of a recording; None for a valid line."""
    try:
        request = _Line.model_validate(fields).request
    except ValidationError as error:
        return _describe(error, ())
    is_written_by_hand = "contains" in request
    schema = _HandwrittenRequest if is_written_by_hand else _RecordedRequest
    try:
        schema.model_validate(request)
    except ValidationError as error:
        return _describe(error, ("request",))
    return None


def _describe(error: ValidationError, location: tuple[str, ...]) -> str:
    """Describe one problem of an invalid line, with the path of its field.

    Args:
        error: The error.
        location: The path of the validated part of the line.
    """
    problems = error.errors(include_url=False, include_input=False)
    reported = problems[0]
    for problem in problems:
        # Report an unknown field first: it is probably a misspelt required field.
        if problem["type"] == "extra_forbidden":
            reported = problem
            break
    path = (*location, *reported["loc"])
    return f"{'.'.join(map(str, path))}: {reported['msg']}"


def _malformed(path: Path, line: int, problem: str) -> ModelConfigurationError:
    return ModelConfigurationError(
        f"{path}, line {line}: {problem}",
        hint='a line is {"request": {…}, "reply": {"text": "…"}}; the first may be {"about": "…"}',
    )
