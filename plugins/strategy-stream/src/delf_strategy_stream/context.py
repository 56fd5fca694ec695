"""The messages for the model, made from the turns of a task.

The beginning (rules, tools, history, the task) is the same in every turn, byte for byte. A finished
turn stays the same, too, until earlier turns are shortened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from delf.messages import Message, ToolCall
from delf_strategy_stream.events import Called, InventedResults, Result, UnparsableCall

CHARS_PER_TOKEN: Final = 4
"""The estimated number of characters per token."""

_COMPLETE_TURNS: Final = 2
_MAX_SHORT_CHARS: Final = 200
_MAX_SHORT_ITEMS: Final = 20
_MAX_QUOTED_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An answer of the model, with the results of its calls.

    Args:
        thoughts: The model's reasoning.
        text: The text for the user.
        calls: The calls in written order.
        provider_calls: The calls as the provider reported them; empty for calls written as text.
        results: The results of the calls, in the same order.
        problems: The parts of the answer that are unreadable or ignored.
        is_cut: Whether the answer is truncated.
        notices: Further messages to the model.
    """

    thoughts: str = ""
    text: str = ""
    calls: tuple[Called, ...] = ()
    provider_calls: tuple[ToolCall, ...] = ()
    results: tuple[Result, ...] = ()
    problems: tuple[UnparsableCall | InventedResults, ...] = ()
    is_cut: bool = False
    notices: tuple[str, ...] = ()


class Notation(Protocol):
    """The form in which thoughts, calls and results are written in messages."""

    def answer_message(self, turn: Turn) -> Message:
        """Return the message with the model's answer, as later requests repeat it."""
        ...

    def messages_after(self, turn: Turn) -> tuple[Message, ...]:
        """Return the messages that follow a turn: the results of calls, and remarks on problems.

        A problem is a call that could not be parsed, or a result that the model invented.
        """
        ...


def assemble(
    beginning: Sequence[Message],
    turns: Sequence[Turn],
    notation: Notation,
) -> tuple[Message, ...]:
    """Return the messages of the whole conversation.

    Args:
        beginning: The messages before the first turn: rules, history and last the task.
        turns: The turns so far.
        notation: Writes the messages of each turn.
    """
    messages = list(beginning)
    for turn in turns:
        messages += (notation.answer_message(turn), *notation.messages_after(turn))
    return tuple(messages)


def problems_text(turn: Turn) -> str:
    """Return a text for the model about its mistakes in a turn, and the turn's notices.

    The text is empty if there are no mistakes and notices.
    """
    lines: list[str] = []
    for problem in turn.problems:
        if len(problem.text) <= _MAX_QUOTED_CHARS:
            quoted = problem.text
        else:
            quoted = f"{problem.text[:_MAX_QUOTED_CHARS]}…"
        if isinstance(problem, InventedResults):
            lines.append(
                "What you wrote after your calls was cut off and counts for nothing: results come "
                f"from the tools only. It was: {quoted}"
            )
        else:
            quotation = f": {quoted}" if quoted else ""
            lines.append(f"This call was not made, {problem.why}{quotation}")
    if turn.is_cut:
        lines.append(
            "Your answer broke off here. Go on exactly where it stopped; calls without a result "
            "were not made, and those with one are not repeated."
        )
    lines += [f"Notice: {text}" for text in turn.notices]
    return "\n".join(lines)


def compact(turns: Sequence[Turn], budget: int, notation: Notation) -> tuple[Turn, ...]:
    """Shorten the oldest turns until all turns fit a budget of tokens.

    A shortened turn has no reasoning, and only the beginnings of long arguments and results. The
    last two turns are never shortened.

    Args:
        turns: The turns.
        budget: The maximum number of tokens, as :func:`tokens_of` estimates them.
        notation: Writes the messages of each turn.
    """
    shorter = list(turns)
    for index in range(max(0, len(shorter) - _COMPLETE_TURNS)):
        if tokens_of(shorter, notation) <= budget:
            break
        turn = shorter[index]
        results = tuple(_shorten_result(result) for result in turn.results)
        calls = tuple(
            replace(call, arguments=_shorten_value(call.arguments)) for call in turn.calls
        )
        provider_calls = tuple(map(_shorten_call, turn.provider_calls))
        shorter[index] = replace(
            turn, thoughts="", results=results, calls=calls, provider_calls=provider_calls
        )
    return tuple(shorter)


def tokens_of(turns: Sequence[Turn], notation: Notation) -> int:
    """Estimate the number of tokens of turns."""
    messages = assemble((), turns, notation)
    return sum(_length(message) for message in messages) // CHARS_PER_TOKEN


def _length(message: Message) -> int:
    return sum(
        len(getattr(part, "text", "")) + len(getattr(part, "arguments", ""))
        for part in message.parts
    )


def _shorten_result(result: Result) -> Result:
    text = json.dumps(result.value, ensure_ascii=False)
    if len(text) <= _MAX_SHORT_CHARS:
        return result
    return replace(result, value=_shorten_value(text))


def _shorten_call(call: ToolCall) -> ToolCall:
    """Shorten a call's arguments, unless the provider attached a token to the call.

    The token may be a signature of the arguments, which must then stay unchanged.
    """
    if call.token is not None or len(call.arguments) <= _MAX_SHORT_CHARS:
        return call
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):  # the call was not made, and the model got the error
        return call
    return replace(call, arguments=json.dumps(_shorten_value(arguments), ensure_ascii=False))


def _shorten_value(value: Any) -> Any:
    """Shorten long texts and lists in plain data to their beginnings."""
    if isinstance(value, str):
        if len(value) <= _MAX_SHORT_CHARS:
            return value
        return f"{value[:_MAX_SHORT_CHARS]}… (shortened, of {len(value)} characters)"
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {name: _shorten_value(item) for name, item in fields.items()}
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        shortened_items = [_shorten_value(item) for item in items[:_MAX_SHORT_ITEMS]]
        if len(items) > _MAX_SHORT_ITEMS:
            shortened_items.append(f"… (shortened, of {len(items)} items)")
        return shortened_items
    return value
