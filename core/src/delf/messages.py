"""Messages to and from language models, neutral to the provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]
Purpose = Literal["generate", "prefilter", "summarize", "call", "setup"]
"""What a model call is for; usage is reported by purpose. ``setup`` is apart from a task's cost."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image, as bytes with their media type (``image/png``)."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class FilePart:
    """A document of another kind, as bytes with name and media type."""

    name: str
    data: bytes
    media_type: str


Part = TextPart | ImagePart | FilePart


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a model."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


def system(text: str) -> Message:
    """A system message."""
    return Message("system", (TextPart(text),))


def user(text: str, parts: Sequence[Part] = ()) -> Message:
    """A user message: text, then any further parts."""
    return Message("user", (TextPart(text), *parts))


def assistant(text: str) -> Message:
    """What the model said before."""
    return Message("assistant", (TextPart(text),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a model.

    Args:
        messages: The conversation, the byte-stable part first.
        purpose: What the call is for.
        settings: Normalised generation settings (``temperature``, ``max_tokens`` …).
    """

    messages: tuple[Message, ...]
    purpose: Purpose = "generate"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call or of many added up. ``cached_tokens`` are part of ``input_tokens``."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A model's whole answer.

    Args:
        text: What it said.
        model: The model that was asked, as the user named it.
        usage: Tokens as the provider counted them.
        cost_usd: The price by the provider's list, or None where it is not known.
        finish_reason: ``stop``, ``length`` or the provider's own word.
    """

    text: str
    model: str
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    finish_reason: str = "stop"


@dataclass(frozen=True, slots=True)
class ModelDelta:
    """A piece of an answer while it streams."""

    text: str
