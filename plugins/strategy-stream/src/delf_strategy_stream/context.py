"""Messages for the model: pure functions from events.

The beginning (rules, tools, history, the task) is the same in every turn, byte for byte. A finished
turn stays the same, too, until earlier turns are shortened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, cast

from delf.messages import Message, ToolCall, user
from delf_strategy_stream.events import Called, Invented, Misread, Result

CHARS_PER_TOKEN: Final = 4
"""The estimated characters per token, for the omitted part."""

_KEPT_WHOLE: Final = 2
_SHORT: Final = 200
_FEW: Final = 20
_QUOTED: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """An answer of the model, with the results of its calls.

    Args:
        thoughts: The reasoning.
        text: The text.
        calls: The requested calls in order.
        ids: The provider's ids of the calls, if it supports calls.
        results: The results of the calls, in order.
        problems: Unreadable or ignored parts of the answer.
        is_cut: Whether the answer broke off.
        notices: Further messages to the model.
    """

    thoughts: str = ""
    text: str = ""
    calls: tuple[Called, ...] = ()
    ids: tuple[ToolCall, ...] = ()
    results: tuple[Result, ...] = ()
    problems: tuple[Misread | Invented, ...] = ()
    is_cut: bool = False
    notices: tuple[str, ...] = ()


class Notation(Protocol):
    """The notation of thoughts, calls and results."""

    def written(self, turn: Turn) -> Message:
        """Return the model's answer in canonical form."""
        ...

    def messages_after(self, turn: Turn) -> tuple[Message, ...]:
        """Return the messages to the model after a turn."""
        ...


def assemble(
    beginning: Sequence[Message],
    turns: Sequence[Turn],
    notation: Notation,
) -> tuple[Message, ...]:
    """Assemble the complete conversation.

    Args:
        beginning: Rules, history, and the task; the task is last.
        turns: The turns so far.
        notation: The notation.
    """
    messages = list(beginning)
    for turn in turns:
        messages += (notation.written(turn), *notation.messages_after(turn))
    return tuple(messages)


def problems_text(turn: Turn) -> str:
    """Describe the model's mistakes and other events; empty for none."""
    lines: list[str] = []
    for problem in turn.problems:
        quoted = problem.text if len(problem.text) <= _QUOTED else f"{problem.text[:_QUOTED]}…"
        if isinstance(problem, Invented):
            lines.append(
                "What you wrote after your calls was cut off and counts for nothing: results come "
                f"from the tools only. It was: {quoted}"
            )
        else:
            lines.append(f"This call was not made, {problem.why}: {quoted}".rstrip(": "))
    if turn.is_cut:
        lines.append(
            "Your answer broke off here. Go on exactly where it stopped; calls without a result "
            "were not made, and those with one are not repeated."
        )
    lines += [f"Notice: {text}" for text in turn.notices]
    return "\n".join(lines)


def compact(turns: Sequence[Turn], budget: int, notation: Notation) -> tuple[Turn, ...]:
    """Shorten results and arguments and drop reasoning, oldest turns first, to fit a budget.

    The last two turns stay complete.

    Args:
        turns: The turns.
        budget: The approximate token limit.
        notation: The notation.
    """
    shorter = list(turns)
    for place in range(max(0, len(shorter) - _KEPT_WHOLE)):
        if tokens_of(shorter, notation) <= budget:
            break
        turn = shorter[place]
        results = tuple(_shorten_result(result) for result in turn.results)
        calls = tuple(replace(call, arguments=_brief(call.arguments)) for call in turn.calls)
        ids = tuple(map(_shorter_call, turn.ids))
        shorter[place] = replace(turn, thoughts="", results=results, calls=calls, ids=ids)
    return tuple(shorter)


def tokens_of(turns: Sequence[Turn], notation: Notation) -> int:
    """Estimate the tokens of some turns."""
    messages = assemble((user(""),), turns, notation)
    return sum(_length(message) for message in messages) // CHARS_PER_TOKEN


def _length(message: Message) -> int:
    return sum(
        len(getattr(part, "text", "")) + len(getattr(part, "arguments", ""))
        for part in message.parts
    )


def _shorten_result(result: Result) -> Result:
    text = json.dumps(result.value, ensure_ascii=False)
    return result if len(text) <= _SHORT else replace(result, value=_brief(text))


def _shorter_call(call: ToolCall) -> ToolCall:
    """Return a call with shortened arguments; whole if its provider may have signed it."""
    if call.token is not None or len(call.arguments) <= _SHORT:
        return call
    try:
        arguments = json.loads(call.arguments)
    except ValueError:  # the call was not made, and the model got the error
        return call
    return replace(call, arguments=json.dumps(_brief(arguments), ensure_ascii=False))


def _brief(value: Any) -> Any:
    """Return plain data with the beginnings of long texts and lists."""
    if isinstance(value, str):
        if len(value) <= _SHORT:
            return value
        return f"{value[:_SHORT]}… (shortened, of {len(value)} characters)"
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {name: _brief(item) for name, item in fields.items()}
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        mark = [] if len(items) <= _FEW else [f"… (shortened, of {len(items)} items)"]
        return [*map(_brief, items[:_FEW]), *mark]
    return value
