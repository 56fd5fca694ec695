"""A partial answer of any dialect, and its faults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast
from uuid import uuid4

from delf.messages import ModelDelta, ToolCall, Usage
from delf.records import dataclass
from delf_model_providers.chat import is_json
from delf_model_providers.failures import UnreadableError
from delf_model_providers.signatures import token_of

GENERATED_ID_PREFIX: Final = "delf-"
"""The prefix of ids that delf generates for calls without a provider's id."""

_MAX_CALLS: Final = 1000
_MAX_ID_CHARS: Final = 200
_FENCE: Final = "```"


class ReportedError(Exception):
    """The provider reported a failure within an answer.

    Args:
        status: The HTTP status that fits the failure.
        body: The parsed body or event with the failure.
    """

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The numbers of tokens of an answer, as its provider counted them.

    Args:
        input: All input tokens.
        cached: The input tokens read from the provider's prompt cache.
        written: The input tokens written to the provider's prompt cache.
        output: All output tokens.
        reasoning: The output tokens spent on thinking.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def usage(self) -> Usage:
        """The token counts as delf's ``Usage``."""
        return Usage(
            input_tokens=self.input,
            cached_tokens=min(self.cached, self.input),
            output_tokens=self.output,
            reasoning_tokens=min(self.reasoning, self.output),
        )


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list[str])
    token: str | None = None
    fields_to_send_back: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_emitted: bool = False

    def to_tool_call(self, message_fields: Mapping[str, Any]) -> ToolCall:
        """Convert the call; missing arguments become an empty object.

        The call's token is an opaque text with all that delf must send back to the server in the
        next request: the provider's own token, or else fields of the call and of its message.

        Args:
            message_fields: The fields of the message, outside of the call, to send back.
        """
        arguments = "".join(self.arguments) or "{}"
        token = self.token or token_of(message_fields, self.fields_to_send_back)
        return ToolCall(id=self.id, name=self.name, arguments=arguments, token=token)


@dataclass(slots=True)
class Answer:
    """The part of an answer received so far.

    Args:
        tokens: The token counts; None before their arrival.
        finish_reason: The provider's finish reason.
        has_model_finished: Whether the model has finished; only token counts may follow.
        is_stream_over: Whether nothing follows, not even token counts.
        searches: The number of web searches by the provider.
        reply_id: The provider's id of the answer.
        signed_blocks: The received blocks of thinking that belong to the next call. The provider
            expects these blocks back together with the call.
        fields_to_send_back: The fields of the message that the next request must send back with
            the message's calls.
    """

    tokens: Tokens | None = None
    finish_reason: str | None = None
    has_model_finished: bool = False
    is_stream_over: bool = False
    searches: int = 0
    reply_id: str | None = None
    signed_blocks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    fields_to_send_back: dict[str, Any] = field(default_factory=dict[str, Any])
    _texts: list[str] = field(default_factory=list[str])
    _thoughts: list[str] = field(default_factory=list[str])
    _index_by_number: dict[int, int] = field(default_factory=dict[int, int])
    _calls: list[_Call] = field(default_factory=list[_Call])

    def set_reply_id(self, name: Any) -> None:
        """Store the provider's id of the answer; ignore an invalid id."""
        if isinstance(name, str) and 0 < len(name) <= _MAX_ID_CHARS:
            self.reply_id = name

    @property
    def text(self) -> str:
        """The text received so far."""
        return "".join(self._texts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls received so far."""
        return tuple(self._tool_call(index) for index in range(len(self._calls)))

    def _tool_call(self, index: int) -> ToolCall:
        # The fields of the message, outside of its calls, are sent back with the first call.
        message_fields = self.fields_to_send_back if index == 0 else {}
        return self._calls[index].to_tool_call(message_fields)

    @property
    def has_no_text_or_call(self) -> bool:
        """True if neither text nor a call was received."""
        return not (self._texts or self._calls)

    @property
    def has_received_nothing(self) -> bool:
        """True if no text, call, reasoning or finish reason was received."""
        return self.has_no_text_or_call and not self._thoughts and self.finish_reason is None

    @property
    def has_calls(self) -> bool:
        """True if a call was received."""
        return bool(self._calls)

    @property
    def last_call_index(self) -> int:
        """The index of the latest call; -1 without calls."""
        return len(self._calls) - 1

    def add_text(self, text: Any) -> list[ModelDelta]:
        """Add a piece of text; return the deltas to emit."""
        if text is None or text == "":
            return []
        self._texts.append(_text(text))
        return [ModelDelta(text)]

    def add_reasoning(self, text: str | None) -> None:
        """Add a piece of the model's reasoning."""
        if text:
            self._thoughts.append(text)

    def collect_fields_to_send_back(self, message: Mapping[str, Any], names: Sequence[str]) -> None:
        """Collect the fields of a message that the next request must send back to the server.

        The server needs these fields, such as signed reasoning, beside the message's tool calls.

        Args:
            message: The message, or a streamed piece of the message.
            names: The names of the fields.
        """
        for name in names:
            # A field may be streamed in pieces, which are joined here.
            piece = message.get(name)
            collected = self.fields_to_send_back.get(name)
            if isinstance(piece, str):
                self.fields_to_send_back[name] = f"{collected or ''}{piece}"
            elif isinstance(piece, list):
                self.fields_to_send_back[name] = [*items(collected), *items(piece)]

    def use_reasoning_if_empty(self) -> list[ModelDelta]:
        """Use the reasoning as the answer's text if it has a fenced script and is all there is.

        Returns:
            The deltas to emit.
        """
        thoughts = "".join(self._thoughts)
        if self.has_no_text_or_call and _FENCE in thoughts:
            return self.add_text(thoughts)
        return []

    def index_of(self, number: int) -> int:
        """Return the index in this answer of the call that the provider numbers ``number``.

        A new number gets the next index. So indexes have no gaps, even if the provider skips
        numbers.
        """
        return self._index_by_number.setdefault(number, self.last_call_index + 1)

    def name_call(self, index: int, name: Any) -> None:
        """Set the name of a call whose earlier pieces had no name."""
        if name and 0 <= index < len(self._calls) and not self._calls[index].name:
            self._calls[index].name = _text(name)

    def add_call(
        self,
        id_: Any,
        name: Any,
        arguments: Any = "",
        token: str | None = None,
        fields_to_send_back: Mapping[str, Any] | None = None,
    ) -> list[ModelDelta]:
        """Add a call; return the deltas to emit.

        Args:
            id_: The provider's id; None or empty without an id.
            name: The name of the tool.
            arguments: The arguments as JSON, or the first piece of them.
            token: An opaque value of the call, such as a signature of the model's reasoning, which
                the next request must send back.
            fields_to_send_back: Fields of the call that the next request must send back unchanged.
        """
        if len(self._calls) >= _MAX_CALLS:
            raise UnreadableError(f"more than {_MAX_CALLS} calls")
        call_id = _text(id_) if id_ else f"{GENERATED_ID_PREFIX}{uuid4().hex[:12]}"
        # Calls are streamed one after the other, so the earlier calls may be complete now.
        deltas = self.emit_complete_calls(is_answer_over=False)
        self._calls.append(
            _Call(call_id, _text(name), token=token, fields_to_send_back=fields_to_send_back or {})
        )
        return [*deltas, *self.add_arguments(self.last_call_index, arguments)]

    def is_last(self, id_: Any) -> bool:
        """Return True if an id is the id of the latest call."""
        return bool(self._calls) and self._calls[-1].id == id_

    def is_emitted(self, index: int) -> bool:
        """Return True if the call at an index was already emitted."""
        return self._calls[index].is_emitted

    def is_new_call(self, index: int, id_: Any) -> bool:
        """Return True if a streamed piece begins a new call although its index is in use.

        Args:
            index: The index of the call in the piece.
            id_: The id of the call in the piece. A piece without an id begins a new call if the
                call that was received with this index is complete.
        """
        if not 0 <= index < len(self._calls):
            return False
        known_call = self._calls[index]
        if id_:
            return id_ != known_call.id
        return is_json("".join(known_call.arguments))

    def emit_complete_calls(self, *, is_answer_over: bool = True) -> list[ModelDelta]:
        """Return deltas with the calls that became complete.

        Args:
            is_answer_over: Whether no more pieces can follow, so that all calls are complete.
                Otherwise a call is complete if its arguments are valid JSON.
        """
        deltas: list[ModelDelta] = []
        for index, call in enumerate(self._calls):
            if is_answer_over and not call.name:
                raise UnreadableError("a call without a name")
            if call.is_emitted or not call.name:
                continue
            is_complete = is_answer_over or is_json("".join(call.arguments))
            if is_complete:
                call.is_emitted = True
                deltas.append(ModelDelta("", call=index, whole=self._tool_call(index)))
        return deltas

    def add_arguments(self, index: int, arguments: Any) -> list[ModelDelta]:
        """Add a piece of a call's arguments; return the deltas to emit."""
        if not 0 <= index < len(self._calls):
            raise UnreadableError("arguments of a call that was not begun")
        if not arguments:
            return []
        if self._calls[index].is_emitted:
            raise UnreadableError("arguments of a call that was complete")
        self._calls[index].arguments.append(_text(arguments))
        return [ModelDelta(arguments, call=index)]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnreadableError(f"a text is expected where {type(value).__name__} came")
    return value


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments as a dict.

    Text that is not a JSON object becomes the value of the key ``arguments``.
    """
    try:
        arguments: Any = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return dict(fields(arguments))
    return {"arguments": call.arguments}


def integer_field(record: Any, name: str) -> int:
    """Return the integer in a field of a JSON object; 0 if the field is missing or invalid."""
    value: Any = fields(record).get(name)
    return max(0, value) if type(value) is int else 0


def fields(value: Any) -> Mapping[str, Any]:
    """Return a JSON object as a mapping; empty for other values."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a JSON array as a list; empty for other values."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def listed(value: Any) -> list[Any]:
    """Return a list; a text becomes a list with one item."""
    return [value] if isinstance(value, str) else list(value)


def required(value: Any, name: str) -> Any:
    """Return the value of a required field in a JSON object.

    Raises:
        UnreadableError: If the field is missing.
    """
    field = fields(value).get(name)
    if field is None:
        raise UnreadableError(f"it has no {name!r}")
    return field
