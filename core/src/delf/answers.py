"""Read a model's answer: split off its reasoning and detect truncation.

Many models think aloud in the text of the answer, each family between marks of its own. Reasoning
is a draft: it is neither run nor taken for the answer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from delf.errors import LLMExecutionError
from delf.messages import BrokenBy, ModelReply

_WORD: Final = (
    r"(?:[a-z]+[:_])?(?:ant)?"
    r"(?:think(?:ing)?|thoughts?|reasoning|reflection|scratch_?pad|(?:inner_)?monologue)"
)
# Pairs of the pattern of an opening mark and the template of its closing mark. In the template,
# ``{}`` stands for the word that the pattern matched.
_MARK_PATTERNS: Final = (
    (rf"<({_WORD})(?:\s[^<>\n]*)?>", r"</{}>"),  # a tag
    (rf"\[({_WORD})\]", r"[/{}]"),  # a tag in square brackets
    (rf"◁({_WORD})▷", r"◁/{}▷"),  # a tag between triangles
    (rf"<\|begin_of_({_WORD})\|>", r"<|end_of_{}|>"),  # a pair of special tokens
    (rf"<\|start_({_WORD})\|>", r"<|end_{}|>"),
    (rf"<\|({_WORD})\|>", r"<|/{}|>"),  # a tag as special tokens
    (r"<\|(inner)_prefix\|>", r"<|{}_suffix|>"),  # a prefix and a suffix
    (r"<\|channel>(thought)(?=\s)", r"<channel|>"),  # a channel and its end
    # A channel of the harmony format.
    (r"(?:<\|start\|>assistant)?<\|channel\|>(analysis)<\|message\|>", r"<|end|>"),
)
_ANY_OPENING: Final = re.compile("|".join(opened for opened, _ in _MARK_PATTERNS), re.IGNORECASE)
_CLOSING: Final = re.compile(
    rf"(?:</{_WORD}>|\[/{_WORD}\]|◁/{_WORD}▷|<\|end_(?:of_)?{_WORD}\|>)", re.IGNORECASE
)
_FENCE: Final = re.compile(r"^[^\S\n]*```", re.MULTILINE)
_HARMONY: Final = re.compile(
    r"(?P<before>(?:<\|start\|>[^<]*)?)<\|channel\|>(?P<channel>\w+)(?P<after>[^<\n]*)"
    r"(?:<\|constrain\|>\w*)?<\|message\|>"
    r"(?P<body>.*?)(?=<\|(?:end|return|call|start|channel)\|>|\Z)",
    re.DOTALL,
)
_HARMONY_MARK: Final = re.compile(r"<\|channel\|>\w+[^<\n]*(?:<\|constrain\|>\w*)?<\|message\|>")
_UNMARKED_REASONING: Final = (
    # The harmony format after a server removed the tokens.
    re.compile(r"\s*analysis(?=[^a-z])(?P<reasoning>.*)assistantfinal", re.DOTALL),
    # Headings in prose, which some models write instead of tokens.
    re.compile(r"(?is)\s*here is my thought process:?(?P<reasoning>.*?)here is my response:?\s"),
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

_REQUEST_CONTINUATION: Final = (
    "Your answer broke off at the limit of its length, and nothing of it was used. "
    "Go on exactly where it stopped, and repeat nothing; or write all of it again, shorter, "
    "in a block of its own."
)
_REQUEST_WHOLE_ANSWER: Final = (
    "Your answer broke off at the limit of its length, and nothing of it was used. "
    "Answer once more from the beginning, and in fewer words."
)
_COMPARED_CHARACTERS: Final = 40
_LONGEST_MARK: Final = 64
_MIN_REPEATED_CHARACTERS: Final = 4
_MAX_QUOTED: Final = 600


class SplitAnswer(NamedTuple):
    """A model's answer, split by :func:`split_reasoning`."""

    reasoning: str
    text: str
    is_complete: bool
    """False if the answer ends before its text, such as in the reasoning."""


def split_reasoning(text: str) -> SplitAnswer:
    """Split a model's answer into its reasoning and its text.

    The answer ``<think>Two and two.</think>4`` has the reasoning ``Two and two.`` and the text
    ``4``. An opening mark in the middle of the text is ordinary text.

    Some servers remove the opening mark. The reasoning then ends at the last closing mark that is
    at the start or end of a line.

    Args:
        text: The whole answer.
    """
    if _HARMONY_MARK.search(text):  # such as <|channel|>final<|message|>
        return _split_channels(text)
    for pattern in _UNMARKED_REASONING:  # such as "Here is my thought process:"
        if (start := pattern.match(text)) is not None:
            rest = _strip_control_tokens(text[start.end() :])
            return SplitAnswer(start["reasoning"].strip(), rest, is_complete=True)
    thoughts: list[str] = []
    rest = text
    while (opening := find_reasoning_opening(rest)) is not None:
        ending = opening.closing_pattern.search(rest, opening.length)
        if ending is None:
            unfinished_thought = rest[opening.length :].strip()
            reasoning = "\n\n".join([*thoughts, unfinished_thought])
            return SplitAnswer(reasoning, "", is_complete=False)
        thoughts.append(rest[opening.length : ending.start()].strip())
        rest = rest[ending.end() :].lstrip()
    unopened_span = _find_unopened_closing(rest)
    if unopened_span is not None:
        begin, end = unopened_span
        thoughts.append(rest[:begin].strip())
        rest = rest[end:].lstrip()
    return SplitAnswer("\n\n".join(thoughts), _strip_control_tokens(rest), is_complete=True)


class Opening(NamedTuple):
    """The mark with which a model's reasoning begins.

    Args:
        length: Number of characters that the mark takes up in the text.
        closing_pattern: Pattern that finds the mark at the end of the reasoning.
        closing_mark: The mark at the end of the reasoning, such as ``</think>``.
    """

    length: int
    closing_pattern: re.Pattern[str]
    closing_mark: str


def find_reasoning_opening(text: str) -> Opening | None:
    """Return the opening mark of reasoning if the text starts with such a mark, else None."""
    start = len(text) - len(text.lstrip())  # the index of the first character that is not a blank
    for opening_pattern, closing_template in _MARK_PATTERNS:
        opening_match = re.compile(opening_pattern, re.IGNORECASE).match(text, start)
        if opening_match is not None:
            # The closing mark repeats the word of the opening mark: <thought> ends at </thought>.
            closing_mark = closing_template.format(opening_match[1])
            closing_pattern = re.compile(re.escape(closing_mark), re.IGNORECASE)
            return Opening(opening_match.end(), closing_pattern, closing_mark)
    return None


def may_be_reasoning(text: str) -> bool:
    """Return True if an incomplete text may still turn out to begin with reasoning.

    Reasoning begins with a mark such as ``<think>``, ``[THINK]`` or ``◁think▷``.
    """
    start = text.lstrip()
    if start and start[0] not in "<[◁":
        return False
    if len(start) >= _LONGEST_MARK or "\n" in start:  # more than a mark
        return False
    if start.startswith("<|channel"):
        return True  # this mark of the harmony format consists of several tags
    is_mark_complete = re.search(r"[>\]▷]", start) is not None
    return not is_mark_complete


def _find_unopened_closing(text: str) -> tuple[int, int] | None:
    """Return the span of the last closing tag, such as ``</think>``; None if a tag opens before.

    Closing tags in the middle of a line and in a fenced code block do not count.
    """
    last: tuple[int, int] | None = None
    fence_positions = [fence.start() for fence in _FENCE.finditer(text)]
    for closing in _CLOSING.finditer(text):
        text_before = text[: closing.start()]
        begins_line = text_before.endswith("\n") or not text_before.strip()
        rest_of_line, _, _ = text[closing.end() :].partition("\n")
        ends_line = not rest_of_line.strip()
        is_in_code_block = _is_in_code_block(closing.start(), fence_positions)
        if (begins_line or ends_line) and not is_in_code_block:
            last = closing.span()
    if last is None:
        return None
    start, _ = last
    # If an opening mark precedes the closing mark, the answer merely talks about such marks.
    if _ANY_OPENING.search(text, 0, start):
        return None
    return last


def _is_in_code_block(position: int, fence_positions: Sequence[int]) -> bool:
    """Return True if a position is between the opening and closing fence of a code block.

    Return False for any position if the text has an odd number of fences: one fence is then without
    a counterpart, and nobody knows which one.
    """
    has_unpaired_fence = len(fence_positions) % 2 == 1
    if has_unpaired_fence:
        return False
    # The first fence opens a block, the second closes it, the third opens the next block.
    fence_count_before = bisect_left(fence_positions, position)
    return fence_count_before % 2 == 1


def _split_channels(text: str) -> SplitAnswer:
    """Split an answer in the harmony format; see :func:`split_reasoning`.

    Each part of such an answer names a channel. The text is in the parts of the channel ``final``.
    If this channel has no text, the arguments of the tool calls are the text. Everything else is
    reasoning.
    """
    first_part = _HARMONY.search(text)
    unlabelled_text = text if first_part is None else text[: first_part.start()]
    thoughts = [unlabelled_text.strip()]  # text before the first channel is reasoning
    final_texts = list[str]()
    call_arguments = list[str]()
    for part in _HARMONY.finditer(text):
        if part["channel"] == "final":
            final_texts.append(part["body"])
        # A tool call names its recipient before or after its channel: ``to=functions.search``.
        elif "to=" in part["before"] + part["after"]:
            call_arguments.append(part["body"])
        else:
            thoughts.append(part["body"].strip())
    reasoning = "\n\n".join(filter(None, thoughts))
    answer = "".join(final_texts).strip() or "\n".join(call_arguments).strip()
    return SplitAnswer(reasoning, answer, is_complete=answer != "")


def _strip_control_tokens(text: str) -> str:
    """Strip a model's control tokens, such as ``<|im_end|>``, from the start and end of a text."""
    # Searching all of a long answer would be slow, so only its end is searched.
    while (tail := _TAIL.search(text.rstrip()[-_LONGEST_MARK:])) is not None:
        text = text.rstrip().removesuffix(tail[0])
    head = _HEAD.match(text)
    if head is None:
        return text
    return text[head.end() :]


def without_reasoning(reply: ModelReply) -> ModelReply:
    """Return a reply whose reasoning is in ``reasoning`` instead of ``text``.

    A reply whose reasoning has no closing mark gets the finish reason of a truncated answer, unless
    the reply has tool calls.
    """
    thoughts, text, is_complete = split_reasoning(reply.text)
    if text == reply.text and not thoughts:
        return reply
    reasoning = "\n\n".join(filter(None, (reply.reasoning, thoughts)))
    # A complete tool call is used even if the reasoning before the call has no closing mark.
    is_truncated = not is_complete and not reply.calls
    finish_reason = reply.finish_reason
    if is_truncated and reply.broken_by is None:  # else the reply is marked already
        finish_reason = "cut"
    return replace(reply, text=text, reasoning=reasoning, finish_reason=finish_reason)


# -- truncated answers ---------------------------------------------------------------------


def continuation_request(*, must_restart: bool) -> str:
    """Build the request that asks a model to continue a truncated answer.

    Args:
        must_restart: Whether to ask for the whole answer again, because the truncated answer has
            tool calls, which cannot be continued, or no text to continue.
    """
    return _REQUEST_WHOLE_ANSWER if must_restart else _REQUEST_CONTINUATION


def join_continuation(first: str, second: str) -> str | None:
    """Join a truncated answer and its continuation.

    Before a model continues, it may repeat the last line, all code or the whole answer. The
    repeated part is removed from the end of the truncated answer. If the answer breaks off in code,
    a continuation with a code block of its own replaces the whole answer.

    Args:
        first: The truncated answer.
        second: The answer to the request of :func:`continuation_request`.

    Returns:
        The whole answer; None if it is unclear whether the model repeats the last line.
    """
    code_start = _find_unclosed_code(first)
    if code_start is not None:
        return _join_code(first, code_start, second)
    first_characters = first.strip()[:_COMPARED_CHARACTERS]
    repeats_answer = second.lstrip().startswith(first_characters)  # True if ``first`` is empty
    return second if repeats_answer else first + second


def _join_code(first: str, code_start: int, second: str) -> str | None:
    """Join an answer that was truncated in a code block and its continuation.

    Args:
        first: The truncated answer.
        code_start: The index in ``first`` at which the code starts.
        second: The continuation.

    Returns:
        The whole answer; None if it is unclear whether the model repeats the last line.
    """
    # Only a fence that names a language counts: a bare fence may close the block of ``first``.
    has_code_block = re.search(r"^[ \t]*`{3,}[\w+-]+", second, re.MULTILINE) is not None
    if has_code_block:
        return second
    code = first[code_start:]
    first_line = code.strip().split("\n")[0]
    repeats_code = first_line != "" and second.lstrip("\n").startswith(first_line)
    if repeats_code:
        return first[:code_start] + second.lstrip("\n")
    *whole_lines, broken_line = code.split("\n")
    if broken_line.strip():
        return _join_at_broken_line(first, broken_line, second)
    # If the first text ends with the line ``page = next_page()`` and the second begins with the
    # same line, either the model repeated the line, or the code really has the line twice.
    last_line = whole_lines[-1].strip() if whole_lines else ""
    is_ambiguous = last_line != "" and last_line == _first_line(second)
    return None if is_ambiguous else first + second


def _join_at_broken_line(first: str, broken_line: str, second: str) -> str:
    """Join code that breaks off in a line, such as ``total = pri``, and its continuation.

    The continuation is the rest of the line, ``ce``, or the whole line, ``total = price``.

    Args:
        first: The truncated answer.
        broken_line: The last line of the truncated answer.
        second: The continuation.
    """
    is_long_enough = len(broken_line) >= _MIN_REPEATED_CHARACTERS
    repeats_line = is_long_enough and _first_line(second).startswith(broken_line.strip())
    if not repeats_line:
        return first + second
    if second.startswith((" ", "\t")):
        return first.removesuffix(broken_line) + second
    # Some providers strip the indentation of an answer: keep that of the broken line.
    broken_text = broken_line.lstrip()
    return first.removesuffix(broken_text) + second


def _first_line(text: str) -> str:
    return text.split("\n", maxsplit=1)[0].strip()


def _find_unclosed_code(text: str) -> int | None:
    """Return the index at which the code of an unclosed fenced block starts, or None."""
    code_start: int | None = None
    line_end = 0
    for line in text.splitlines(keepends=True):
        line_end += len(line)
        if line.lstrip().startswith("```"):
            # A fence opens a block, or closes the block that is open.
            code_start = line_end if code_start is None else None
    return code_start


_CAUSES_AND_HINTS: Final[dict[BrokenBy, tuple[str, str]]] = {
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
    """Make the error for a truncated answer, with an excerpt of its text.

    Args:
        reply: The truncated reply, or a continuation of this reply that cannot be joined to it.
    """
    # The continuation is a complete reply, without ``broken_by``, but the answer broke off.
    cause, hint = _CAUSES_AND_HINTS[reply.broken_by or "break"]
    has_limit = reply.broken_by == "length" and reply.max_tokens
    limit = f" ({reply.max_tokens:,} tokens)" if has_limit else ""
    excerpt = quote_answer(reply.text or reply.reasoning)
    return LLMExecutionError(f"{cause}{limit}; {excerpt}", hint=hint)


def quote_answer(text: str) -> str:
    """Quote a model's answer for an error message; the middle of a long answer is left out."""
    text = " ".join(text.split())
    if not text:
        return "its answer is empty"
    if len(text) > _MAX_QUOTED:
        half = _MAX_QUOTED // 2
        text = f"{text[:half]} … {text[-half:]}"
    return f"its answer: {text}"
