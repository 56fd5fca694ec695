"""Takes the script out of a model's answer, however it was wrapped."""

from __future__ import annotations

import ast
import difflib
import functools
import json
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from delf.messages import ModelReply, ToolCall

_OPEN = re.compile(r"^([ \t]*)(`{3,}(?=[^`]*$)|~{3,})[ \t]*([\w+#.-]*)")
_PYTHON = frozenset({"", "python", "py", "python3", "py3", "tool_code", "code", "ipython"})
_THINKING = ("think", "thinking", "reasoning")
_TAGS = ("code", "python", "script")
_CODE_START = re.compile(
    r"^(import |from \w+ import |async |await |def |class |@\w|#|for .+:|if .+:|while .+:|"
    r"try:|with .+:|print\(|[A-Za-z_][\w.]*(\[.*\])?\s*(:[^=]+)?=[^=]|[A-Za-z_][\w.]*\(|return\b)"
)
_DOES = (ast.Call, ast.Assign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.Await, ast.Return)
_MAX_LINES = 2000
_MAX_TRIES = 40
_MAX_LONGER = 50
_MAX_COMPARED = 20
_SIMILAR = 0.6


class _Fence(NamedTuple):
    """A line that opens or closes a block."""

    line: int
    indent: int
    marks: str
    language: str
    bare: bool


class _Block(NamedTuple):
    language: str
    code: str


def script_in(reply: ModelReply) -> str | None:
    """The script in a reply: in a call that it asks for, or in its text; None without one.

    A call may have been asked for without a tool being offered, and with broken JSON.

    Args:
        reply: What the model said.
    """
    call = call_with_script(reply)
    return extract_code(reply.text) if call is None else _from_arguments(call.arguments)


def call_with_script(reply: ModelReply) -> ToolCall | None:
    """The call in a reply that holds its script; None where the script is in the text.

    Args:
        reply: What the model said.
    """
    return next((c for c in reply.calls if _from_arguments(c.arguments) is not None), None)


def _from_arguments(arguments: str) -> str | None:
    try:
        content: Any = json.loads(arguments, strict=False)  # new lines are often left as they are
    except (ValueError, RecursionError):
        return extract_code(arguments)
    return extract_code(content) if isinstance(content, str) else _code_of(content)


def extract_code(text: str) -> str | None:
    """The script in an answer, or None when there is none.

    Takes fenced blocks (several that belong together are joined, later versions of the
    same script replace earlier ones), unfenced code, code between prose, an unclosed last
    fence, ``<code>`` tags and JSON with a ``code`` field. A fence inside a string of the
    script does not end it.

    Args:
        text: The whole answer.
    """
    text = _without_thinking(text.replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff"))
    whole = _clean(text)
    if whole is not None and _is_script(whole):
        return whole
    blocks = list(_blocks(text))
    scripts = [b for b in blocks if b.language in _PYTHON and b.code]
    if scripts:
        return _join(scripts)
    if blocks:
        return next((_from_json(b.code) for b in blocks if b.language == "json"), None)
    return _from_tags(text) or _from_json(text) or _from_prose(text)


def parse_script(code: str) -> ast.Module | None:
    """A script's syntax tree, or None where it is no Python. Warns of nothing."""
    tree = _parse(code)
    return tree if isinstance(tree, ast.Module) else None


@functools.lru_cache(maxsize=4)  # one answer is looked at in several ways
def _parse(code: str) -> ast.Module | SyntaxError | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            try:
                return ast.parse(code)
            except SystemError:
                # Python 3.11 parses wrongly while a finalizer, which the garbage collector
                # calls in the midst of it, parses too, as one that writes a traceback does.
                return ast.parse(code)
        except SyntaxError as error:
            return error
        except (ValueError, RecursionError, MemoryError):
            return None


def _is_script(code: str) -> bool:
    """Whether text is Python that does something; prose may parse, but does nothing."""
    tree = parse_script(code)
    return tree is not None and any(isinstance(node, _DOES) for node in ast.walk(tree))


def _without_thinking(text: str) -> str:
    """The answer without the reasoning ahead of it; nothing where the reasoning never ends."""
    start = text.lstrip()
    for tag in _THINKING:
        while start[: len(tag) + 2].lower() == f"<{tag}>":
            _, closed, rest = start.partition(f"</{start[1 : len(tag) + 1]}>")
            if not closed:
                return ""
            start = text = rest.lstrip()
        _, closed, rest = f"\n{text}".rpartition(f"\n</{tag}>\n")
        text = rest if closed else text
    return text


def _clean(code: str, indent: int = 0) -> str | None:
    """Code without empty lines around it and without an indentation of the whole."""
    code = code.strip("\n")
    if not code.strip():
        return None
    shorter = re.compile(rf"^[ \t]{{1,{max(indent, 1)}}}", re.MULTILINE)
    ways = (code, textwrap.dedent(code), shorter.sub("", code) if indent else code)
    return next((way for way in dict.fromkeys(ways) if parse_script(way) is not None), code)


def _fences(lines: list[str]) -> Iterator[_Fence]:
    for number, line in enumerate(lines):
        found = _OPEN.match(line)
        if found:
            indent, marks, language = found.groups()
            bare = line.strip() == marks
            yield _Fence(number, len(indent), marks, language.lower(), bare)


def _blocks(text: str) -> Iterator[_Block]:
    lines = text.split("\n")
    fences = list(_fences(lines))
    chances = _MAX_LONGER
    position = 0
    while position < len(fences):
        opened = fences[position]
        end = first = _closing(fences, position, opened)
        code = _between(lines, fences, position, end)
        while end < len(fences) and opened.language in _PYTHON and chances and _in_string(code):
            end, chances = _closing(fences, end, opened), chances - 1
            code = _between(lines, fences, position, end)
        if end == len(fences) > first:
            end, code = first, _between(lines, fences, position, first)
        yield _Block(opened.language, _clean(code, opened.indent) or "")
        position = end + 1


def _closing(fences: list[_Fence], after: int, opened: _Fence) -> int:
    """The index of the next fence that can close a block, or that of the text's end."""
    for index in range(after + 1, len(fences)):
        if fences[index].bare and fences[index].marks.startswith(opened.marks):
            return index
    return len(fences)


def _between(lines: list[str], fences: list[_Fence], start: int, end: int) -> str:
    last = fences[end].line if end < len(fences) else len(lines)
    return "\n".join(lines[fences[start].line + 1 : last])


def _in_string(code: str) -> bool:
    """Whether code stops within a string, so that the fence is part of the string."""
    problem = _parse(textwrap.dedent(code))
    return isinstance(problem, SyntaxError) and "unterminated triple-quoted" in problem.msg


def _join(blocks: list[_Block]) -> str | None:
    chosen = [block.code for block in blocks if block.language] or [b.code for b in blocks]
    scripts = [code for code in chosen if _is_script(code)]
    if not scripts:
        best = max(chosen, key=len)
        tree = parse_script(best)
        return None if tree is not None and not tree.body else best
    kept: list[str] = []
    for code in scripts:
        if len(scripts) <= _MAX_COMPARED:
            kept = [earlier for earlier in kept if not _same_script(earlier, code)]
        kept.append(code)
    return "\n\n".join(kept)


def _same_script(earlier: str, later: str) -> bool:
    """Whether a block is another version of an earlier one rather than its continuation."""
    first, second = _bound(earlier), _bound(later)
    if _needed(later) & first:
        return False
    shared = first & second
    if shared and len(shared) * 2 >= min(len(first), len(second)):
        return True
    matcher = difflib.SequenceMatcher(None, earlier.split("\n"), later.split("\n"))
    return matcher.quick_ratio() > _SIMILAR


def _bound(code: str) -> set[str]:
    """The names that a script defines."""
    return _stored(ast.parse(code).body)


def _needed(code: str) -> set[str]:
    """The names that a script uses before it defines them."""
    bound: set[str] = set()
    needed: set[str] = set()
    for node in ast.parse(code).body:
        own = _loaded([node])
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            own.add(node.target.id)
        value = getattr(node, "value", None)
        inner = _stored([value]) if isinstance(value, ast.expr) else _stored([node])
        needed |= own - inner - bound
        bound |= _stored([node])
    return needed


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        part.id
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    }


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                names.add(part.id)
            elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(part.name)
            elif isinstance(part, ast.arg):
                names.add(part.arg)
    return names


def _from_tags(text: str) -> str | None:
    lowered = text.lower()
    for tag in _TAGS:
        start = lowered.find(f"<{tag}>")
        end = lowered.find(f"</{tag}>", start)
        if 0 <= start < end:
            return _clean(text[start + len(tag) + 2 : end])
    return None


def _from_json(text: str) -> str | None:
    """The code in an object such as ``{"code": …}`` or ``{"arguments": {"code": …}}``."""
    try:
        content: Any = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return _code_of(content)


def _code_of(content: Any) -> str | None:
    for key in ("arguments", "parameters", "input", "code", "script", "python"):
        value = _field(content, key)
        if isinstance(value, dict):
            content = cast("Any", value)
        elif isinstance(value, str):
            return extract_code(value) or _clean(value)
    return None


def _field(content: Any, key: str) -> object:
    return cast("dict[str, Any]", content).get(key) if isinstance(content, dict) else None


def _from_prose(text: str) -> str | None:
    """Code that stands in the answer without a fence; cut before what is no Python."""
    lines = text.split("\n")[:_MAX_LINES]
    starts = [number for number, line in enumerate(lines) if _CODE_START.match(line)]
    chances = _MAX_TRIES
    for start in starts:
        end = len(lines)
        while end > start and chances:
            chances -= 1
            code = "\n".join(lines[start:end])
            problem = _parse(code)
            if isinstance(problem, ast.Module):
                if _is_script(code):
                    return code.rstrip()
                break
            if problem is None or problem.lineno is None:
                break
            end = min(end - 1, start + problem.lineno - 1)
    return None
