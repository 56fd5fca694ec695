"""Messages to and from language models, neutral to the provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from textwrap import shorten
from typing import Any, Final, Literal, cast

from delf.errors import PluginError
from delf.records import dataclass
from delf.types import Trust

Role = Literal["system", "user", "assistant"]
_MAKES: Final = "system(text), user(text) and assistant(text) of delf.messages make messages"
Purpose = Literal["generate", "prefilter", "summarize", "call", "setup", "learn", "outline"]
"""The purpose of a model call; usage is reported by purpose.

``setup`` is apart from a task's cost.
"""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a :class:`ModelTool` that the model asks for.

    Args:
        id: The id that the result refers to.
        name: The tool.
        arguments: JSON as the model wrote it, unchecked.
        token: An opaque value of the provider to send back with the call, if any.
    """

    id: str
    name: str
    arguments: str
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a call, for a message of the user's that follows it."""

    id: str
    name: str
    text: str


Part = TextPart | ImagePart | FilePart | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a model.

    Args:
        role: The author of the message.
        parts: The content.
        trust: Of an earlier answer: ``own`` if its task had read nothing that others wrote.
    """

    role: Role
    parts: tuple[Part, ...]
    trust: Trust = "outside"

    def __post_init__(self) -> None:
        if isinstance(self.parts, str):
            raise PluginError(f"a message has parts, and {_cut(self.parts)} is a text", hint=_MAKES)

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


def system(text: str) -> Message:
    """Return a system message."""
    return Message("system", (TextPart(text),))


def user(text: str, parts: Sequence[Part] = ()) -> Message:
    """Return a user message: text, then any further parts."""
    return Message("user", (TextPart(text), *parts))


def as_messages(given: object) -> tuple[Message, ...]:
    """Convert a conversation to the messages for a model.

    Raises:
        PluginError: If an item is not a message, such as a text.
    """
    if isinstance(given, (str, Message)) or not isinstance(given, Iterable):
        what = f"{type(given).__name__} {_cut(given)}"
        raise PluginError(f"a model is asked with a list of messages, not {what}", hint=_MAKES)
    messages = tuple(cast("Iterable[object]", given))
    for item in messages:
        if not isinstance(item, Message):
            what = f"the {type(item).__name__} {_cut(item)}"
            raise PluginError(f"a request to a model has messages, not {what}", hint=_MAKES)
    return cast("tuple[Message, ...]", messages)


def _cut(value: object) -> str:
    return shorten(repr(value), 80, placeholder="…")


def assistant(text: str, calls: Sequence[ToolCall] = ()) -> Message:
    """Make the model's earlier message: text, then the requested calls."""
    parts = (TextPart(text),) if text or not calls else ()
    return Message("assistant", (*parts, *calls))


def results(given: Sequence[ToolResult]) -> Message:
    """Make the message with the results of the calls before."""
    return Message("user", tuple(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTool:
    """A function that a model may call instead of answering.

    Args:
        name: Letters, digits, ``_`` and ``-``; at most 64.
        description: The effect of the tool.
        parameters: JSON Schema of its arguments: an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One request to a model.

    Args:
        messages: The conversation, the byte-stable part first.
        purpose: The use of the answer.
        settings: Normalised generation settings (``temperature``, ``max_tokens`` …).
        tools: The tools that the model may call; see :class:`delf.protocols.model.SupportsTools`.
        must_call: Whether the answer has to be a call.
    """

    messages: tuple[Message, ...]
    purpose: Purpose = "generate"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tools: tuple[ModelTool, ...] = ()
    must_call: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, or of several calls added up.

    ``cached_tokens`` are part of ``input_tokens``, ``reasoning_tokens`` of ``output_tokens``.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model, in USD per million tokens.

    Args:
        input: Tokens of the request.
        output: Tokens of the answer.
        cached_input: Tokens of the request that the provider had seen before.
        max_output_tokens: The longest answer that the model can give, where that is known.
    """

    input: float
    output: float
    cached_input: float
    max_output_tokens: int | None = None

    def cost(self, usage: Usage) -> float:
        """Return the price of some tokens, in USD."""
        fresh = usage.input_tokens - usage.cached_tokens
        total = (
            fresh * self.input
            + usage.cached_tokens * self.cached_input
            + usage.output_tokens * self.output
        )
        return total / 1_000_000


BrokenBy = Literal["length", "filter", "refusal", "break"]
"""The reason of an incomplete answer: its length, a filter, a refusal, or a failure."""

_REASONS: Final[Mapping[BrokenBy, str]] = {
    "length": "length max_tokens max_output_tokens max_completion_tokens max_length model_length "
    "model_context_window_exceeded context_length context_length_exceeded token_limit error_limit",
    "filter": "content_filter content_filtered safety recitation blocklist prohibited_content spii "
    "image_safety language guardrail_intervened sensitive moderation error_toxic",
    "refusal": "refusal",
    "break": "cut error abort aborted cancelled canceled user_cancel network_error incomplete "
    "malformed_function_call unexpected_tool_call insufficient_system_resource",
}
_BROKEN: Final[dict[str, BrokenBy]] = {
    word: why for why, words in _REASONS.items() for word in words.split()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A model's whole answer.

    Args:
        text: The text of the answer.
        model: The model that was asked, as the user named it.
        usage: Tokens as the provider counted them.
        cost_usd: The price by the provider's list, or None where it is not known.
        finish_reason: ``stop``, ``length``, ``tool_calls``, ``cut`` for a truncated answer, or the
            provider's own word. :attr:`broken_by` interprets it.
        calls: The calls that the model requests.
        reasoning: The model's reasoning, which is no part of the answer.
        max_tokens: The most that delf, and not the provider, let the answer have.
        fees_usd: The price of services other than tokens, such as searches by the provider; a part
            of ``cost_usd``. None if unknown.
        reply_id: The provider's name for the answer, by which it can be asked about there.
    """

    text: str
    model: str
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = None
    finish_reason: str = "stop"
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    max_tokens: int | None = None
    fees_usd: float | None = 0.0
    reply_id: str | None = None

    @property
    def broken_by(self) -> BrokenBy | None:
        """Return the reason for which the answer is truncated; None if the answer is whole.

        A truncated answer is never used.
        """
        return _BROKEN.get(self.finish_reason.lower())


@dataclass(frozen=True, slots=True)
class ModelDelta:
    """A piece of an answer while it streams.

    Args:
        text: The new text.
        call: Which of the reply's calls it is a piece of the arguments of; None for its text.
        whole: The call, once all of its arguments have come.
    """

    text: str
    call: int | None = None
    whole: ToolCall | None = None
