"""Extraction of the script from a model's answer."""

from __future__ import annotations

import re
from typing import Final

from delf.answers import reasoning_in, split_reasoning
from delf.messages import ModelReply, ToolCall
from delf.protocols.sandbox import MAX_SCRIPT
from delf_strategy_codegen.blocks import JSON, Block, blocks_of
from delf_strategy_codegen.choice import SEVERAL, Reading, choose_script
from delf_strategy_codegen.python import acts, is_script, parse_script, parsed, repair_script
from delf_strategy_codegen.written_calls import from_arguments, from_json, from_tags

_CODE_START: Final = re.compile(
    r"^(import |from \w+ import|async |await |def |class |@\w|#|for .+:|if .+:|while .+:|"
    r"try:|with .+:|print\(|[A-Za-z_][\w.]*(\[.*\])?\s*(:[^=]+)?=[^=]|[A-Za-z_][\w.]*\(|return\b)"
)
_LOOKS_LIKE_CODE: Final = re.compile(
    r"^\s*(?:await |print\(|async def |def \w+\(|from \w+ import |import [\w.]+\s*$|"
    r"[A-Za-z_][\w.]*\(.*\)\s*$|[A-Za-z_]\w*\s*=\s*\S+[(\[{\"'\d]|[)\]}]+\s*$|return [\w(\[{\"'])"
)
_TURN: Final = re.compile(
    r"<\|(?:im_end|im_start|eot_id|eom_id|endoftext|end_of_text|end_of_turn_token)\|>"
    r"|<end_of_turn>|<｜end▁of▁sentence｜>",
    re.IGNORECASE,
)
_MARKS: Final = re.compile(r"^(?:\s*<\|\w+\|>)+|<\|\w+\|>\s*\Z")
_PASSAGE: Final = re.compile(r"^[ \t]*(?=[<\[◁])", re.MULTILINE)
_LONGEST: Final = 2 * MAX_SCRIPT
_TOO_LONG: Final = (
    f"That answer is too long: scripts of more than {MAX_SCRIPT:,} letters are not run. "
    "Put no data into the script."
)
_MAX_LINES: Final = 2000
_MAX_TRIES: Final = 40


def read_reply(reply: ModelReply) -> Reading:
    """Return the script of a reply, in its calls or its text.

    A model may call a tool that was not offered. Several scripts become one.

    Args:
        reply: The reply.
    """
    readings = [(call, from_arguments(call.arguments, read)) for call in reply.calls]
    codes = [reading.code for _, reading in readings if reading.code is not None]
    broken = next((reading for _, reading in readings if reading.why), None)
    if codes:
        return Reading("\n\n".join(codes)) if broken is None else broken
    from_text = read(reply.text)
    return broken if broken is not None and from_text.code is None else from_text


def calls_with_script(reply: ModelReply) -> tuple[ToolCall, ...]:
    """Return the calls with the script; none if the script is in the text."""
    return tuple(c for c in reply.calls if from_arguments(c.arguments, read).code is not None)


def read(text: str) -> Reading:
    """Parse the parts of an answer's text.

    A script may be in fences, tags and calls of every kind, alone or between sentences. Reasoning
    is not part of the answer.

    Args:
        text: The whole answer.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    _, text, is_closed = split_reasoning(text)
    if not is_closed:
        return Reading()
    if len(text) > _LONGEST:
        return Reading(why=_TOO_LONG)
    script = repair_script(_MARKS.sub("", text))
    if script is not None and acts(script) and not script.lstrip().startswith(("{", "[{")):
        return Reading(script)
    text = _answer_text(text)
    blocks = blocks_of(text)
    if any(len(part) > MAX_SCRIPT for part in ([block.code for block in blocks] or [text])):
        return Reading(why=_TOO_LONG)
    if blocks:
        return _of_blocks(blocks, text)
    if (call_reading := from_json(text, read)) is not None:
        return call_reading
    tagged = [_block(*item, text) for item in from_tags(text)]
    if tagged:
        return choose_script(tagged)
    if script is not None and is_script(script) and not script.lstrip().startswith("{"):
        return Reading(script)
    return _from_prose(text)


def _of_blocks(blocks: list[Block], text: str) -> Reading:
    python_blocks = [block for block in blocks if block.is_python]
    if python_blocks:
        return choose_script(python_blocks)
    data = [block for block in blocks if block.language in JSON]
    data += [block for block in blocks if not block.language]
    for block in data:
        call_reading = from_json(block.code, read)
        if call_reading is not None:
            return call_reading
    unnamed = [block for block in blocks if not block.language]
    # A fence labelled JSON may contain Python.
    unnamed += [b for b in blocks if b.language in JSON and acts(b.code)]
    if unnamed:
        return choose_script(unnamed)
    tagged = [_block(*item, text) for item in from_tags(text)]
    return choose_script(tagged) if tagged else Reading()


def _block(code: str, start: int, end: int, text: str) -> Block:
    """Return the text between tags as a block, unwrapping a fence or a call."""
    blocks = blocks_of(code)
    reading = _of_blocks(blocks, "") if blocks else from_json(code, read)
    inner = repair_script(code) if reading is None else reading.code
    behind = text.rfind(">", 0, start) + 1
    return Block("python", inner or "", text[behind:start], start, end)


def _answer_text(text: str) -> str:
    """Return the answer without inner reasoning and invented turns."""
    code = [(b.start, b.end) for b in blocks_of(text) if parse_script(b.code) is not None]

    def is_code(place: int) -> bool:
        return any(start <= place < end for start, end in code)

    turn = next((m for m in _TURN.finditer(text, 1) if not is_code(m.start())), None)
    if turn is not None:
        text = text[: turn.start()]
    passages: list[str] = []
    place = 0
    for match in _PASSAGE.finditer(text):
        opening = None
        if match.start() >= place and not is_code(match.start()):
            opening = reasoning_in(text[match.start() :])
        if opening is None:
            continue
        passages.append(text[place : match.start()])
        end = opening.end.search(text, match.start() + opening.length)
        place = len(text) if end is None else end.end()
    return "".join([*passages, text[place:]])


def _from_prose(text: str) -> Reading:
    """Return unfenced code surrounded by prose."""
    lines = text.split("\n")[:_MAX_LINES]
    chances = _MAX_TRIES
    for start in [number for number, line in enumerate(lines) if _CODE_START.match(line)]:
        end = len(lines)
        while end > start and chances:
            chances -= 1
            code = "\n".join(lines[start:end])
            tree = parsed(code)
            if tree is None:
                break
            if not isinstance(tree, SyntaxError):
                if not acts(code):
                    break
                rest = [*lines[:start], *lines[end:]]
                is_all = not any(map(_LOOKS_LIKE_CODE.match, rest))
                return Reading(code.rstrip()) if is_all else Reading(None, SEVERAL)
            if tree.lineno is None:
                break
            end = min(end - 1, start + tree.lineno - 1)
    return Reading()
