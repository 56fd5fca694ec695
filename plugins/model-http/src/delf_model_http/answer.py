"""A partial answer of any dialect, and its faults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, cast
from uuid import uuid4

from delf.messages import ModelDelta, ToolCall, Usage
from delf.records import dataclass
from delf_model_providers.failures import UnreadableError
from delf_model_providers.signatures import token_of

MADE_UP: Final = "delf-"
"""The id prefix of calls without a provider's id."""

_MAX_CALLS: Final = 1000
_LONGEST_ID: Final = 200
_FENCE: Final = "```"


class ReportedError(Exception):
    """The provider reported a failure within an answer.

    Args:
        status: The equivalent HTTP status.
        body: The body.
    """

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The tokens of an answer, as its provider counted them.

    Args:
        input: All input.
        cached: Input tokens read from the cache.
        written: Input tokens written to the cache.
        output: All output.
        reasoning: Output tokens spent on thinking.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def usage(self) -> Usage:
        """The token counts in delf's form."""
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
    kept: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_emitted: bool = False

    def whole(self, kept: Mapping[str, Any]) -> ToolCall:
        """Return the complete call; missing arguments become an empty object.

        Args:
            kept: The fields of its message that its server wants back.
        """
        arguments = "".join(self.arguments) or "{}"
        token = self.token or token_of(kept, self.kept)
        return ToolCall(id=self.id, name=self.name, arguments=arguments, token=token)


@dataclass(slots=True)
class Answer:
    """The part of an answer received so far.

    Args:
        tokens: The token counts; None until received.
        finish_reason: The finish reason in the provider's own words.
        ended: Whether the provider marked the answer as whole.
        last: Whether nothing more follows, not even the token counts.
        searches: The number of searches by the provider.
        reply_id: The provider's id of the answer.
        signed: The blocks of thinking before the next call, which the provider wants back.
        kept: The fields of the message that the server wants back with the calls.
    """

    tokens: Tokens | None = None
    finish_reason: str | None = None
    ended: bool = False
    last: bool = False
    searches: int = 0
    reply_id: str | None = None
    signed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    kept: dict[str, Any] = field(default_factory=dict[str, Any])
    _texts: list[str] = field(default_factory=list[str])
    _thoughts: list[str] = field(default_factory=list[str])
    _places: dict[int, int] = field(default_factory=dict[int, int])
    _calls: list[_Call] = field(default_factory=list[_Call])

    def set_reply_id(self, name: Any) -> None:
        """Store the provider's reply id, if valid."""
        if isinstance(name, str) and 0 < len(name) <= _LONGEST_ID:
            self.reply_id = name

    @property
    def text(self) -> str:
        """The text received so far."""
        return "".join(self._texts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls."""
        return tuple(self._whole(place) for place in range(len(self._calls)))

    def _whole(self, place: int) -> ToolCall:
        return self._calls[place].whole({} if place else self.kept)

    @property
    def is_empty(self) -> bool:
        """True if nothing was passed on."""
        return not (self._texts or self._calls)

    @property
    def is_nothing(self) -> bool:
        """True if nothing from a model was received: no text, reasoning or finish reason."""
        return self.is_empty and not self._thoughts and self.finish_reason is None

    @property
    def last_call(self) -> int:
        """The index of the latest call; -1 without calls."""
        return len(self._calls) - 1

    def add_text(self, text: Any) -> list[ModelDelta]:
        """Add a piece of text; return its deltas."""
        if text is None or text == "":
            return []
        self._texts.append(_text(text))
        return [ModelDelta(text)]

    def add_reasoning(self, text: str | None) -> None:
        """Add a piece of the model's reasoning, which is not part of the answer."""
        if text:
            self._thoughts.append(text)

    def keep(self, message: Mapping[str, Any], names: Sequence[str]) -> None:
        """Add a piece of the fields that the server wants back with the calls.

        Args:
            message: The message, or a piece of it.
            names: The names of such fields.
        """
        for name in names:
            piece, collected = message.get(name), self.kept.get(name)
            if isinstance(piece, str):
                self.kept[name] = f"{collected or ''}{piece}"
            elif isinstance(piece, list):
                self.kept[name] = [*items(collected), *items(piece)]

    def use_reasoning(self) -> list[ModelDelta]:
        """Use the reasoning as the answer if it is all there is and has a script; return deltas."""
        thoughts = "".join(self._thoughts)
        return self.add_text(thoughts) if self.is_empty and _FENCE in thoughts else []

    def place_of(self, index: int) -> int:
        """Return the index of the call with a provider's number; these numbers may have gaps."""
        return self._places.setdefault(index, self.last_call + 1)

    def name_call(self, place: int, name: Any) -> list[ModelDelta]:
        """Set the name of a call that arrived after the call's start."""
        if name and 0 <= place < len(self._calls) and not self._calls[place].name:
            self._calls[place].name = _text(name)
        return []

    def call(
        self,
        id_: Any,
        name: Any,
        arguments: Any = "",
        token: str | None = None,
        kept: Mapping[str, Any] | None = None,
    ) -> list[ModelDelta]:
        """Add a call with its arguments, or with the first piece of its arguments.

        Args:
            id_: The provider's id, if any.
            name: The name of the tool.
            arguments: The arguments as JSON, or their first piece.
            token: The value that the provider wants back with the call.
            kept: The fields of the call that its server wants back.
        """
        if len(self._calls) >= _MAX_CALLS:
            raise UnreadableError(f"more than {_MAX_CALLS} calls")
        call_id = _text(id_) if id_ else f"{MADE_UP}{uuid4().hex[:12]}"
        complete = self.complete(is_over=False)
        self._calls.append(_Call(call_id, _text(name), token=token, kept=kept or {}))
        return [*complete, *self.add_arguments(self.last_call, arguments)]

    def is_last(self, id_: Any) -> bool:
        """Return True if an id is the id of the latest call."""
        return bool(self._calls) and self._calls[-1].id == id_

    def is_emitted(self, place: int) -> bool:
        """Return True if the call at index ``place`` was already emitted as a whole."""
        return self._calls[place].is_emitted

    def is_another(self, place: int, id_: Any) -> bool:
        """Return True if a call at an occupied index is a new call.

        Args:
            place: The index.
            id_: The call's id. A call without an id is new if the existing call is complete.
        """
        if not 0 <= place < len(self._calls):
            return False
        there = self._calls[place]
        return id_ != there.id if id_ else _is_json("".join(there.arguments))

    def complete(self, *, is_over: bool = True) -> list[ModelDelta]:
        """Emit the calls that became complete; return their deltas.

        Args:
            is_over: Whether no more pieces can follow; otherwise calls count as complete if their
                arguments are valid JSON.
        """
        deltas: list[ModelDelta] = []
        for place, call in enumerate(self._calls):
            if is_over and not call.name:
                raise UnreadableError("a call without a name")
            if not call.is_emitted and call.name and (is_over or _is_json("".join(call.arguments))):
                call.is_emitted = True
                deltas.append(ModelDelta("", call=place, whole=self._whole(place)))
        return deltas

    def add_arguments(self, place: int, arguments: Any) -> list[ModelDelta]:
        """Add a piece of a call's arguments."""
        if not 0 <= place < len(self._calls):
            raise UnreadableError("arguments of a call that was not begun")
        if not arguments:
            return []
        if self._calls[place].is_emitted:
            raise UnreadableError("arguments of a call that was complete")
        self._calls[place].arguments.append(_text(arguments))
        return [ModelDelta(arguments, call=place)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UnreadableError(f"a text is expected where {type(value).__name__} came")
    return value


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments as an object; invalid ones unchanged."""
    try:
        arguments: Any = json.loads(call.arguments)
    except ValueError:
        arguments = None
    return dict(fields(arguments)) if isinstance(arguments, dict) else {"arguments": call.arguments}


def count(counts: Any, name: str) -> int:
    """Return a number of tokens; 0 if it is missing."""
    value: Any = fields(counts).get(name)
    return max(0, value) if type(value) is int else 0


def fields(value: Any) -> Mapping[str, Any]:
    """Return an object's fields; empty for other values."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return a list's items; empty for other values."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def listed(value: Any) -> list[Any]:
    """Return a list unchanged, and a text as a list with one item."""
    return [value] if isinstance(value, str) else list(value)


def required(value: Any, name: str) -> Any:
    """Return a required field of an answer.

    Raises:
        UnreadableError: If the field is missing.
    """
    field = fields(value).get(name)
    if field is None:
        raise UnreadableError(f"it has no {name!r}")
    return field
