"""Extraction of the script from a model's answer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

from delf.answers import find_reasoning_opening, split_reasoning
from delf.messages import ModelReply, ToolCall
from delf.protocols.sandbox import MAX_SCRIPT
from delf_strategy_codegen.blocks import JSON_LABELS, Block, blocks_of
from delf_strategy_codegen.choice import AMBIGUOUS, Reading, choose_script
from delf_strategy_codegen.python import (
    has_call,
    is_script,
    parse_script,
    repair_script,
    tree_or_syntax_error,
)
from delf_strategy_codegen.written_calls import TaggedText, from_arguments, from_json, from_tags

_CODE_START: Final = re.compile(
    r"^(import |from \w+ import|async |await |def |class |@\w|#|for .+:|if .+:|while .+:|"
    r"try:|with .+:|print\(|[A-Za-z_][\w.]*(\[.*\])?\s*(:[^=]+)?=[^=]|[A-Za-z_][\w.]*\(|return\b)"
)
_LOOKS_LIKE_CODE: Final = re.compile(
    r"^\s*(?:await |print\(|async def |def \w+\(|from \w+ import |import [\w.]+\s*$|"
    r"[A-Za-z_][\w.]*\(.*\)\s*$|[A-Za-z_]\w*\s*=\s*\S+[(\[{\"'\d]|[)\]}]+\s*$|return [\w(\[{\"'])"
)
_TURN_END: Final = re.compile(
    r"<\|(?:im_end|im_start|eot_id|eom_id|endoftext|end_of_text|end_of_turn_token)\|>"
    r"|<end_of_turn>|<｜end▁of▁sentence｜>",
    re.IGNORECASE,
)
_SPECIAL_TOKENS: Final = re.compile(r"^(?:\s*<\|\w+\|>)+|<\|\w+\|>\s*\Z")
_TAG_AT_LINE_START: Final = re.compile(r"^[ \t]*(?=[<\[◁])", re.MULTILINE)
_MAX_ANSWER: Final = 2 * MAX_SCRIPT
_TOO_LONG: Final = (
    f"That answer is too long: scripts of more than {MAX_SCRIPT:,} letters are not run. "
    "Put no data into the script."
)
_MAX_LINES: Final = 2000
_MAX_TRIES: Final = 40


def read_reply(reply: ModelReply) -> Reading:
    """Return the script in a reply's tool calls; without calls, the script in its text.

    The scripts of several calls are joined; if one call is faulty, the result has no script. The
    calls count even if no tool was offered.
    """
    readings = [from_arguments(call.arguments, find_script) for call in reply.calls]
    codes = [reading.code for reading in readings if reading.code is not None]
    faulty_readings = [reading for reading in readings if reading.why]
    if codes:
        # If a call is faulty, do not run the other scripts without the script of that call.
        return faulty_readings[0] if faulty_readings else Reading("\n\n".join(codes))
    from_text = find_script(reply.text)
    if from_text.code is None and faulty_readings:
        return faulty_readings[0]
    return from_text


def calls_with_script(reply: ModelReply) -> tuple[ToolCall, ...]:
    """Return the tool calls that have a script as argument."""
    return tuple(
        c for c in reply.calls if from_arguments(c.arguments, find_script).code is not None
    )


def find_script(text: str) -> Reading:
    """Return the script in an answer's text.

    The script may be bare, between sentences, in a fence, in tags, or in a tool call written as
    JSON. Scripts in the model's reasoning do not count. The forms are tried in this order: the
    whole answer as Python with a call, fences, calls as JSON, tags, the whole answer as Python
    without a call, and lines between sentences.

    Args:
        text: The whole answer.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    _, text, is_complete = split_reasoning(text)
    if not is_complete:  # the whole text is reasoning
        return Reading()
    if len(text) > _MAX_ANSWER:
        return Reading(why=_TOO_LONG)
    bare_script = _bare_script(text)
    # A list of objects may be tool calls as JSON, which is valid Python, too.
    may_be_json = bare_script.lstrip().startswith("[{")
    if has_call(bare_script) and not may_be_json:
        return Reading(bare_script)
    # Unlike a bare script, the other forms may be followed by text after the end of the model's
    # turn: drop this text.
    text = _answer_text(text)
    marked_script = _marked_script(text)
    if marked_script is not None:
        return marked_script
    # Python without a call may be prose, so it counts only if the answer has no other script.
    if is_script(bare_script):
        return Reading(bare_script)
    return _script_in_prose(text)


def _bare_script(answer: str) -> str:
    """Return the whole answer as a script; empty if the answer is not a script."""
    script = repair_script(_SPECIAL_TOKENS.sub("", answer)) or ""
    is_json_object = script.lstrip().startswith("{")
    return "" if is_json_object else script


def _marked_script(text: str) -> Reading | None:
    """Return the script in the code fences of a text, or else in a tool call in JSON or in tags.

    Return None if the text has no fence, tool call or tag.
    """
    blocks = blocks_of(text)
    possible_scripts = [block.code for block in blocks] if blocks else [text]
    if any(len(script) > MAX_SCRIPT for script in possible_scripts):
        return Reading(why=_TOO_LONG)
    if blocks:
        return _script_in_blocks(blocks, text)
    # find_script() reads the text in the call, which may again be a script in a fence.
    if (call_reading := from_json(text, find_script)) is not None:
        return call_reading
    if tagged_blocks := _tagged_blocks(text):
        return choose_script(tagged_blocks)
    return None


def _script_in_blocks(blocks: list[Block], text: str) -> Reading:
    """Return the script in fenced blocks.

    Blocks of Python are preferred, then calls written as JSON, then any other blocks, and last
    scripts between tags such as ``<python>``.
    """
    python_blocks = [block for block in blocks if block.is_python]
    if python_blocks:
        return choose_script(python_blocks)
    json_blocks = [block for block in blocks if block.language in JSON_LABELS]
    unlabelled_blocks = [block for block in blocks if not block.language]
    for block in (*json_blocks, *unlabelled_blocks):
        call_reading = from_json(block.code, find_script)
        if call_reading is not None:
            return call_reading
    # A fence labelled JSON may contain Python.
    python_in_json_blocks = [block for block in json_blocks if has_call(block.code)]
    if possible_scripts := [*unlabelled_blocks, *python_in_json_blocks]:
        return choose_script(possible_scripts)
    if tagged_blocks := _tagged_blocks(text):
        return choose_script(tagged_blocks)
    return Reading()


def _tagged_blocks(answer: str) -> list[Block]:
    return [_tagged_block(tagged, answer) for tagged in from_tags(answer)]


def _tagged_block(tagged: TaggedText, answer: str) -> Block:
    """Make a block from a text between two tags of an answer.

    The text is the script itself, a Markdown fence with the script, or a tool call as JSON with the
    script.
    """
    content = tagged.content
    fences = blocks_of(content)
    if fences:
        script = _script_in_blocks(fences, text="").code  # do not search for tags within tags
    elif (call := from_json(content, find_script)) is not None:
        script = call.code
    else:
        script = repair_script(content)
    end_of_previous_tag = answer.rfind(">", 0, tagged.start) + 1
    return Block(
        language="python",
        code=script or "",
        text_before=answer[end_of_previous_tag : tagged.start],
        start=tagged.start,
        end=tagged.end,
    )


def _answer_text(text: str) -> str:
    """Remove tagged reasoning, and everything after the end of the model's turn, from an answer.

    Tags and end marks within a script are kept, because they are text of the script.
    """
    scripts = [block for block in blocks_of(text) if parse_script(block.code) is not None]
    for mark in _TURN_END.finditer(text):
        is_before_answer = mark.start() == 0
        if not is_before_answer and not _is_within(scripts, mark.start()):
            text = text[: mark.start()]
            break
    return _without_reasoning(text, scripts)


def _is_within(blocks: Sequence[Block], position: int) -> bool:
    return any(block.start <= position < block.end for block in blocks)


def _without_reasoning(text: str, scripts: Sequence[Block]) -> str:
    """Remove reasoning between tags that begin a line outside of the scripts."""
    answer = ""
    end_of_reasoning = 0
    for tag in _TAG_AT_LINE_START.finditer(text):
        start = tag.start()
        if start < end_of_reasoning or _is_within(scripts, start):
            continue
        opening = find_reasoning_opening(text[start:])
        if opening is None:
            continue
        answer += text[end_of_reasoning:start]
        closing = opening.closing_pattern.search(text, start + opening.length)
        if closing is None:  # the rest of the text is reasoning
            return answer
        end_of_reasoning = closing.end()
    return answer + text[end_of_reasoning:]


def _script_in_prose(text: str) -> Reading:
    """Return the script that stands without a fence between lines of prose."""
    lines = text.split("\n")[:_MAX_LINES]
    for start, end in itertools.islice(_ranges_of_code(lines), _MAX_TRIES):
        code = "\n".join(lines[start:end])
        if has_call(code):
            other_lines = lines[:start] + lines[end:]
            is_ambiguous = any(map(_LOOKS_LIKE_CODE.match, other_lines))
            return Reading(None, AMBIGUOUS) if is_ambiguous else Reading(code.rstrip())
    return Reading()


def _ranges_of_code(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each range of lines that may be a script.

    For each line that looks like code, the first range goes from this line to the last line. If
    Python reports a syntax error, the next range ends before the line with the error.
    """
    for start, first_line in enumerate(lines):
        if not _CODE_START.match(first_line):
            continue
        end = len(lines)
        while end > start:
            yield start, end
            error = tree_or_syntax_error("\n".join(lines[start:end]))
            if not isinstance(error, SyntaxError) or error.lineno is None:
                break  # for example, prose that happens to be valid Python
            # The error may be reported after the last line.
            line_with_error = start + error.lineno - 1
            end = min(end - 1, line_with_error)
