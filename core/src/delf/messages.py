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
"""The purpose of a model call. Usage is reported by purpose.

Calls for ``setup`` are not part of a task's cost.
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
    """A file that is not an image, as bytes with name and media type."""

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
        token: An opaque value of the provider, to send back with the result; None if the provider
            sent no value.
    """

    id: str
    name: str
    arguments: str
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool call, sent to the model in the next user message."""

    id: str
    name: str
    text: str


Part = TextPart | ImagePart | FilePart | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of a conversation with a model.

    Args:
        role: The author of the message.
        parts: The content.
        trust: The trust in an earlier answer of the model: ``own`` if its task read only text of
            the user, else ``outside``. Not used for other messages.
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
    """Make a system message."""
    return Message("system", (TextPart(text),))


def user(text: str, parts: Sequence[Part] = ()) -> Message:
    """Make a user message of a text and optional further parts."""
    return Message("user", (TextPart(text), *parts))


def as_messages(value: object) -> tuple[Message, ...]:
    """Convert a conversation to the messages for a model.

    Raises:
        PluginError: If the value is not a collection, or an item is not a :class:`Message`.
    """
    if isinstance(value, (str, Message)) or not isinstance(value, Iterable):
        type_and_value = f"{type(value).__name__} {_cut(value)}"
        raise PluginError(
            f"a request to a model needs a list of messages, not {type_and_value}", hint=_MAKES
        )
    messages = tuple(cast("Iterable[object]", value))
    for item in messages:
        if not isinstance(item, Message):
            type_and_value = f"the {type(item).__name__} {_cut(item)}"
            raise PluginError(
                f"a request to a model needs messages, not {type_and_value}", hint=_MAKES
            )
    return cast("tuple[Message, ...]", messages)


def _cut(value: object) -> str:
    return shorten(repr(value), 80, placeholder="…")


def assistant(text: str, calls: Sequence[ToolCall] = ()) -> Message:
    """Make an assistant message of a text and the tool calls that the model requested."""
    if calls and not text:
        return Message("assistant", tuple(calls))
    return Message("assistant", (TextPart(text), *calls))


def results(tool_results: Sequence[ToolResult]) -> Message:
    """Make the message with the results of the previous message's tool calls."""
    return Message("user", tuple(tool_results))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTool:
    """A function that a model may call instead of answering.

    Args:
        name: The tool's name: at most 64 letters, digits, ``_`` and ``-``.
        description: The effect of the tool.
        parameters: JSON Schema of its arguments: an object.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request to a model.

    Args:
        messages: The conversation. The messages that are the same in every request come first, so
            that providers can cache them.
        purpose: The purpose of the call, for usage reports.
        settings: Normalised generation settings (``temperature``, ``max_tokens`` …).
        tools: The tools that the model may call; see :class:`delf.protocols.model.SupportsTools`.
        must_call: Whether the model must answer with a tool call.
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

    @property
    def text(self) -> str:
        """The tokens in words: ``1,200 tokens in (800 cached), 300 out (250 reasoning)``."""
        cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
        thought = f" ({self.reasoning_tokens:,} reasoning)" if self.reasoning_tokens else ""
        return f"{self.input_tokens:,} tokens in{cached}, {self.output_tokens:,} out{thought}"

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens - other.input_tokens,
            cached_tokens=self.cached_tokens - other.cached_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            reasoning_tokens=self.reasoning_tokens - other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model, in USD per million tokens.

    Args:
        input: Price of input tokens.
        output: Price of output tokens.
        cached_input: Price of input tokens read from the provider's cache.
        max_output_tokens: The maximum number of tokens of an answer, if known.
    """

    input: float
    output: float
    cached_input: float
    max_output_tokens: int | None = None

    def cost(self, usage: Usage) -> float:
        """Return the cost in USD of a call's tokens."""
        uncached_tokens = usage.input_tokens - usage.cached_tokens
        total = (
            uncached_tokens * self.input
            + usage.cached_tokens * self.cached_input
            + usage.output_tokens * self.output
        )
        return total / 1_000_000


BrokenBy = Literal["length", "filter", "refusal", "break"]
"""The reason that an answer is incomplete.

``length``: the token limit. ``filter``: the provider's content filter. ``refusal``: the model
refused. ``break``: the answer broke off.
"""

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
    """A model's complete answer.

    Args:
        text: The text of the answer.
        model: The model that was asked, as the user named it.
        usage: Tokens as the provider counted them.
        cost_usd: The cost in USD by the provider's price list; None if unknown.
        finish_reason: ``stop``, ``length``, ``tool_calls``, ``cut`` for a truncated answer, or the
            provider's own word. :attr:`broken_by` interprets it.
        calls: The calls that the model requests.
        reasoning: The model's reasoning, separate from the answer.
        max_tokens: The token limit that delf set for the answer, if any.
        fees_usd: The price of services other than tokens, such as searches by the provider; a part
            of ``cost_usd``. None if unknown.
        reply_id: The provider's id of the answer, for support requests.
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
        """The reason that the answer is truncated; None if the answer is complete."""
        return _BROKEN.get(self.finish_reason.lower())


@dataclass(frozen=True, slots=True)
class ModelDelta:
    """A piece of an answer while it streams.

    Args:
        text: The new text.
        call: The index of the tool call whose arguments ``text`` continues; None for answer text.
        whole: The complete tool call, set in the delta that completes the call's arguments.
        kind: The part of the answer that the piece belongs to, as a strategy determines it:
            ``think`` for reasoning, ``respond`` for text to the user, ``call`` for a call as JSON,
            or ``text`` for a piece as the model sent it.
    """

    text: str
    call: int | None = None
    whole: ToolCall | None = None
    kind: Literal["text", "think", "respond", "call"] = "text"
