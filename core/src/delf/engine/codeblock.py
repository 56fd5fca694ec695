"""Takes the script out of a model's answer, however it was wrapped."""

from __future__ import annotations

import ast
import difflib
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_OPEN = re.compile(r"^\s*(`{3,}|~{3,})\s*([\w+#.-]*)")
_PYTHON = frozenset({"", "python", "py", "python3", "py3", "tool_code", "code", "ipython"})
_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_TAGGED = re.compile(r"<(code|python|script)>\s*\n?(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_CODE_START = re.compile(
    r"^(import |from \w+ import |async |await |def |class |@\w|#|for .+:|if .+:|while .+:|"
    r"try:|with .+:|print\(|[A-Za-z_][\w.]*(\[.*\])?\s*(:[^=]+)?=[^=]|[A-Za-z_][\w.]*\(|return\b)"
)
_MAX_LINES = 2000
_SIMILAR = 0.6


@dataclass(frozen=True, slots=True)
class _Block:
    language: str
    code: str


def extract_code(text: str) -> str | None:
    """The script in an answer, or None when there is none.

    Takes fenced blocks (several that belong together are joined, later versions of the
    same script replace earlier ones), unfenced code, code between prose, an unclosed last
    fence, ``<code>`` tags and JSON with a ``code`` field. A fence inside a string of the
    script does not end it.

    Args:
        text: The whole answer.
    """
    text = _normalise(text)
    tagged = _TAGGED.search(text)
    if tagged is not None and "```" not in text:
        return _clean(tagged.group(2))
    blocks = [b for b in _blocks(text) if b.language in _PYTHON and b.code.strip()]
    if blocks:
        return _join(blocks)
    if _OPEN.search(text) is None or not any(_fences(text)):
        return _from_json(text) or _from_prose(text)
    return None


def _normalise(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    return _THINKING.sub("", text)


def _clean(code: str) -> str | None:
    code = code.strip("\n")
    if not code.strip():
        return None
    if not _parses(code):
        dedented = textwrap.dedent(code)
        if _parses(dedented):
            return dedented
    return code


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _fences(text: str) -> Iterator[tuple[int, str, str]]:
    """Lines that open or close a fence: number, marks, language."""
    for number, line in enumerate(text.split("\n")):
        found = _OPEN.match(line)
        if found:
            yield number, found.group(1), found.group(2).lower()


def _blocks(text: str) -> list[_Block]:
    lines = text.split("\n")
    fences = list(_fences(text))
    blocks: list[_Block] = []
    position = 0
    while position < len(fences):
        number, marks, language = fences[position]
        closing = [
            index
            for index in range(position + 1, len(fences))
            if fences[index][1][0] == marks[0]
            and len(fences[index][1]) >= len(marks)
            and lines[fences[index][0]].strip() == fences[index][1]
        ]
        end = _closing_fence(lines, fences, number, closing, language)
        stop = fences[end][0] if end is not None else len(lines)
        code = _clean("\n".join(lines[number + 1 : stop])) or ""
        blocks.append(_Block(language, code))
        position = len(fences) if end is None else end + 1
    return blocks


def _closing_fence(
    lines: list[str],
    fences: list[tuple[int, str, str]],
    start: int,
    closing: list[int],
    language: str,
) -> int | None:
    """The first closing fence with which the block is Python; else the first at all."""
    if language in _PYTHON:
        for index in closing:
            if _parses(textwrap.dedent("\n".join(lines[start + 1 : fences[index][0]]))):
                return index
    return closing[0] if closing else None


def _join(blocks: list[_Block]) -> str | None:
    named = [block for block in blocks if block.language]
    chosen = named or blocks
    runnable = [block.code for block in chosen if _parses(block.code)]
    if not runnable:
        return max((block.code for block in chosen), key=len)
    kept: list[str] = []
    for code in runnable:
        kept = [earlier for earlier in kept if not _same_script(earlier, code)]
        kept.append(code)
    return "\n\n".join(kept)


def _same_script(earlier: str, later: str) -> bool:
    """Whether a block is another version of an earlier one rather than its continuation."""
    first, second = _bound(earlier), _bound(later)
    shared = first & second
    if shared and len(shared) * 2 >= min(len(first), len(second)):
        return True
    return difflib.SequenceMatcher(None, earlier, later, autojunk=False).ratio() > _SIMILAR


def _bound(code: str) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(code).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return names


def _from_json(text: str) -> str | None:
    stripped = text.strip()
    if not stripped.startswith("{"):
        return None
    try:
        content: dict[str, Any] = json.loads(stripped)
    except ValueError:
        return None
    for key in ("code", "script", "python"):
        value: Any = content.get(key)
        if isinstance(value, str):
            return _clean(value)
    return None


def _from_prose(text: str) -> str | None:
    """Code that stands in the answer without a fence."""
    whole = _clean(text)
    if whole is not None and _is_script(whole):
        return whole
    lines = text.split("\n")[:_MAX_LINES]
    starts = [number for number, line in enumerate(lines) if _CODE_START.match(line)]
    for start in starts[:40]:
        for end in range(len(lines), start, -1):
            if not lines[end - 1].strip():
                continue
            code = "\n".join(lines[start:end])
            if _is_script(code):
                return code
            if len(lines) - end > 60:
                break
    return None


def _is_script(code: str) -> bool:
    """Whether text is Python that does something; prose may parse, but does nothing."""
    if not _parses(code):
        return False
    doing = (ast.Call, ast.Assign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.Await)
    return any(isinstance(node, doing) for node in ast.walk(ast.parse(code)))
