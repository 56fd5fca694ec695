"""Read a model's answer: split off its reasoning and detect truncation.

Many models think aloud in the text of the answer, each family between marks of its own. Reasoning
is a draft: it is neither run nor taken for the answer.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from delf.errors import LLMExecutionError
from delf.messages import BrokenBy, ModelReply

_WORD: Final = (
    r"(?:[a-z]+[:_])?(?:ant)?"
    r"(?:think(?:ing)?|thoughts?|reasoning|reflection|scratch_?pad|(?:inner_)?monologue)"
)
_MARKS: Final = (
    (rf"<({_WORD})(?:\s[^<>\n]*)?>", r"</{}>"),  # many open models
    (rf"\[({_WORD})\]", r"[/{}]"),  # Magistral
    (rf"◁({_WORD})▷", r"◁/{}▷"),  # Kimi
    (rf"<\|begin_of_({_WORD})\|>", r"<|end_of_{}|>"),  # Sky-T1, OpenThinker
    (rf"<\|start_({_WORD})\|>", r"<|end_{}|>"),  # Command
    (rf"<\|({_WORD})\|>", r"<|/{}|>"),
    (r"<\|(inner)_prefix\|>", r"<|{}_suffix|>"),  # Apertus
    (r"<\|channel>(thought)(?=\s)", r"<channel|>"),  # Gemma
    (r"(?:<\|start\|>assistant)?<\|channel\|>(analysis)<\|message\|>", r"<|end|>"),  # gpt-oss
)
_ANY_OPENING: Final = re.compile("|".join(opened for opened, _ in _MARKS), re.IGNORECASE)
_CLOSING: Final = re.compile(
    rf"(?:</{_WORD}>|\[/{_WORD}\]|◁/{_WORD}▷|<\|end_(?:of_)?{_WORD}\|>)", re.IGNORECASE
)
_HARMONY: Final = re.compile(
    r"(?P<from>(?:<\|start\|>[^<]*)?)<\|channel\|>(?P<channel>\w+)(?P<to>[^<\n]*)"
    r"(?:<\|constrain\|>\w*)?<\|message\|>"
    r"(?P<body>.*?)(?=<\|(?:end|return|call|start|channel)\|>|\Z)",
    re.DOTALL,
)
_HARMONY_MARK: Final = re.compile(r"<\|channel\|>\w+[^<\n]*(?:<\|constrain\|>\w*)?<\|message\|>")
_UNMARKED_REASONING: Final = (
    re.compile(
        r"\s*analysis(?=[^a-z])(?P<reasoning>.*)assistantfinal", re.DOTALL
    ),  # gpt-oss without its marks
    re.compile(
        r"(?is)\s*here is my thought process:?(?P<reasoning>.*?)here is my response:?\s"
    ),  # Granite
)
_LAST_MARK: Final = (
    r"<\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|end|return|end_of_turn_token|user|"
    r"end_of_solution|end_response|end_of_box)\|>|</s>|<end_of_turn>|<｜end▁of▁sentence｜>"
)
_TAIL: Final = re.compile(rf"(?:{_LAST_MARK})\Z", re.IGNORECASE)
_HEAD: Final = re.compile(
    r"\s*(?:(?:<s>|<\|(?:assistant|begin_of_solution|start_response|begin_of_box)\|>"
    r"|<\|im_start\|>assistant|\[/INST\])\s*)+",
    re.IGNORECASE,
)

_GO_ON: Final = (
    "Your answer broke off at the limit of its length, and nothing of it was used. "
    "Go on exactly where it stopped, and repeat nothing; or write all of it again, shorter, "
    "in a block of its own."
)
_AGAIN: Final = (
    "Your answer broke off at the limit of its length, and nothing of it was used. "
    "Answer once more from the beginning, and in fewer words."
)
_SAME_START: Final = 40
_LONGEST_MARK: Final = 64
_MIN_SAME: Final = 4
_SHOWN: Final = 600


def split_reasoning(text: str) -> tuple[str, str, bool]:
    """Return an answer's reasoning, its text, and whether the reasoning has an end.

    Reasoning stands at the beginning or, where a server has swallowed its opening mark, before the
    last closing mark. Marks elsewhere are ordinary text.

    Args:
        text: The whole answer.
    """
    if _HARMONY_MARK.search(text):
        return _split_channels(text)
    for pattern in _UNMARKED_REASONING:
        if (start := pattern.match(text)) is not None:
            return start["reasoning"].strip(), _strip_control_marks(text[start.end() :]), True
    thoughts: list[str] = []
    rest = text
    while (opening := reasoning_in(rest)) is not None:
        ending = opening.end.search(rest, opening.length)
        if ending is None:
            return "\n\n".join([*thoughts, rest[opening.length :].strip()]), "", False
        thoughts.append(rest[opening.length : ending.start()].strip())
        rest = rest[ending.end() :].lstrip()
    unopened = _find_unopened_end(rest)
    if unopened is not None:
        begin, end = unopened
        thoughts.append(rest[:begin].strip())
        rest = rest[end:].lstrip()
    return "\n\n".join(thoughts), _strip_control_marks(rest), True


class Opening(NamedTuple):
    """The mark with which a model's reasoning begins.

    Args:
        length: Number of characters that the mark takes up in the text.
        end: Pattern that finds the mark at the end of the reasoning.
        mark: The mark itself, such as ``<think>``.
    """

    length: int
    end: re.Pattern[str]
    mark: str


def reasoning_in(text: str) -> Opening | None:
    """Return the opening mark of reasoning if the text starts with such a mark, else None."""
    start = len(text) - len(text.lstrip())
    if not _ANY_OPENING.match(text, start):
        return None
    for opening, end in _MARKS:
        opening_match = re.compile(opening, re.IGNORECASE).match(text, start)
        if opening_match is not None:
            mark = end.format(opening_match[1])
            return Opening(opening_match.end(), re.compile(re.escape(mark), re.IGNORECASE), mark)
    return None


def may_be_reasoning(text: str) -> bool:
    """Return True if an incomplete text may still turn out to begin with reasoning."""
    start = text.lstrip()
    if start and start[0] not in "<[◁":
        return False
    is_open = start.startswith("<|channel") or not re.search(r"[>\]▷]", start)
    return len(start) < _LONGEST_MARK and "\n" not in start and is_open


def _find_unopened_end(text: str) -> tuple[int, int] | None:
    """Return the span of the last closing mark of reasoning that has no opening mark.

    None if there is none, or if an opening mark comes before it.
    """
    last: tuple[int, int] | None = None
    for closing in _CLOSING.finditer(text):
        begins_line = text[: closing.start()].endswith("\n") or not text[: closing.start()].strip()
        ends_line = not text[closing.end() :].partition("\n")[0].strip()
        if begins_line or ends_line:
            last = closing.span()
    # With an opening mark in front of the closing one, the text is about such marks.
    if last is None or _ANY_OPENING.search(text, 0, last[0]) is not None:
        return None
    return None if _in_block(text, last[0]) else last


def _in_block(text: str, place: int) -> bool:
    """Return True if a position is inside a fenced code block that is closed after it."""
    before = sum(line.lstrip().startswith("```") for line in text[:place].split("\n"))
    after = sum(line.lstrip().startswith("```") for line in text[place:].split("\n"))
    return before % 2 == 1 and after % 2 == 1


def _split_channels(text: str) -> tuple[str, str, bool]:
    """Split an answer in the harmony format, whose parts are labelled by channel."""
    thoughts, messages, calls = [text[: _first(text)].strip()], list[str](), list[str]()
    for part in _HARMONY.finditer(text):
        if part["channel"] == "final":
            messages.append(part["body"])
        elif "to=" in part["from"] + part["to"]:
            calls.append(part["body"])
        else:
            thoughts.append(part["body"].strip())
    spoken = "".join(messages).strip() or "\n".join(calls).strip()
    return "\n\n".join(filter(None, thoughts)), spoken, bool(spoken)


def _first(text: str) -> int:
    marker = _HARMONY.search(text)
    return len(text) if marker is None else marker.start()


def _strip_control_marks(text: str) -> str:
    """Strip control marks that a server should have removed from both ends of a text."""
    while (tail := _TAIL.search(text.rstrip()[-_LONGEST_MARK:])) is not None:
        text = text.rstrip()[: -len(tail.group())]
    head = _HEAD.match(text)
    return text if head is None else text[head.end() :]


def without_reasoning(reply: ModelReply) -> ModelReply:
    """Return a reply with its reasoning split off from its text.

    Reasoning that never ends makes the reply truncated.
    """
    thoughts, text, has_end = split_reasoning(reply.text)
    if text == reply.text and not thoughts:
        return reply
    reasoning = "\n\n".join(filter(None, (reply.reasoning, thoughts)))
    finish_reason = reply.finish_reason
    if not has_end and reply.broken_by is None and not reply.calls:
        finish_reason = "cut"
    return replace(reply, text=text, reasoning=reasoning, finish_reason=finish_reason)


# -- truncated answers ---------------------------------------------------------------------


def continuation_request(*, is_cut_call: bool) -> str:
    """Build the request that asks a model to continue a truncated answer.

    Args:
        is_cut_call: Ask for the whole answer again, which an answer with tool calls needs.
    """
    return _AGAIN if is_cut_call else _GO_ON


def join_continuation(first: str, second: str) -> str | None:
    """Join a truncated answer and its continuation.

    A model may continue within the line or begin the line again. A continuation that has a fence of
    its own, or begins as the first answer did, replaces the first answer.

    Args:
        first: The truncated answer.
        second: The answer to the request of :func:`continuation_request`.

    Returns:
        The whole answer; None if it is unclear how the two fit together.
    """
    if not first.strip():
        return second
    fence = _fence_of(first)
    if fence is None:
        repeated_start = first.strip()[:_SAME_START]
        return second if second.lstrip().startswith(repeated_start) else first + second
    if re.search(r"^[ \t]*`{3,}[\w+-]+", second, re.MULTILINE):
        return second
    code = first[fence:]
    opening = code.strip().split("\n")[0]
    if opening and second.lstrip("\n").startswith(opening):
        return first[:fence] + second.lstrip("\n")
    *lines, last = code.split("\n")
    following = second.split("\n", maxsplit=1)[0]
    if last.strip() and len(last) >= _MIN_SAME and following.strip().startswith(last.strip()):
        return first[: len(first) - len(last)] + second.lstrip("\n")
    if not last.strip() and lines and following.strip() and lines[-1].strip() == following.strip():
        return None  # unclear: the model repeats its last line, or the script has the line twice
    return first + second


def _fence_of(text: str) -> int | None:
    """Return the index where the content of an unclosed fence begins; None without such a fence."""
    open_fence: int | None = None
    place = 0
    for line in text.splitlines(keepends=True):
        place += len(line)
        if line.lstrip().startswith("```"):
            open_fence = place if open_fence is None else None
    return open_fence


_WHY: Final[dict[BrokenBy, tuple[str, str]]] = {
    "length": (
        "the model's answer broke off at the limit of its length",
        "raise max_tokens in the model's settings, or split the task into smaller ones",
    ),
    "filter": (
        "the provider's content filter stopped the model's answer",
        "say the task in other words, or ask another model",
    ),
    "refusal": (
        "the model refused to answer",
        "say the task in other words, or ask another model",
    ),
    "break": (
        "the model's answer broke off before its end",
        "try again; where it stays so, ask another model or server",
    ),
}


def truncation_error(reply: ModelReply) -> LLMExecutionError:
    """Make the error for a truncated answer, with an excerpt of its text."""
    cause, hint = _WHY[reply.broken_by or "break"]
    limit = f" ({reply.max_tokens:,} tokens)" if reply.max_tokens else ""
    limit = limit if reply.broken_by == "length" else ""
    excerpt = quote_answer(reply.text or reply.reasoning)
    return LLMExecutionError(f"{cause}{limit}; {excerpt}", hint=hint)


def quote_answer(text: str) -> str:
    """Quote a model's answer in full for an error message."""
    text = " ".join(text.split())
    if len(text) > _SHOWN:
        text = f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"
    return f"its answer: {text}" if text else "its answer is empty"
