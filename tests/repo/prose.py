"""The sentences of pages, docstrings and messages, to be measured."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from support.workspace import ROOT, nodes_of, statements

MAX_WORDS: Final = 25
"""Words of one sentence."""

SOURCES: Final = [
    path
    for base in ("core", "libs", "plugins")
    for path in sorted((ROOT / base).rglob("*.py"))
    if "src" in path.parts
]
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "core").glob("*.md")),
    *sorted((ROOT / "libs").glob("*/*.md")),
    *sorted((ROOT / "plugins").glob("*/*.md")),
]
MESSAGE_ARGUMENTS: Final = {"hint", "default_hint", "help", "epilog", "short_help", "reason"}
RAISES: Final = re.compile(r"(Error|Exception|Mismatch|Warning|Refused|Exit|warn|warning)$")

_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_LEFT_OUT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK: Final = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE: Final = re.compile(r"`+[^`]*`+")
_END: Final = re.compile(r"(?<=[.!?:;…])[\"'”)*_]*\s+")
_BLOCK: Final = re.compile(r"^\s*([-*+]|\d+\.)\s+|^\s*#+\s+|^\s*>\s*")
_HEADING: Final = re.compile(r"^\s*#+\s")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence, and its place."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} ({words(self.text)}) {self.text}"


def words(sentence: str) -> int:
    """Count words; code counts as one word, and signs alone count as none."""
    return sum(bool(re.search(r"\w", word)) for word in _CODE.sub(" code ", sentence).split())


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences; a colon and a semicolon end one, too."""
    held: list[str] = []

    def hide(match: re.Match[str]) -> str:
        held.append(match[0])
        return f"`{len(held) - 1}`"

    plain = _CODE.sub(hide, " ".join(_LINK.sub(r"\1", text).split()))
    parts = [re.sub(r"`(\d+)`", lambda m: held[int(m[1])], part) for part in _END.split(plain)]
    return [part for part in parts if part.strip()]


def of_page(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a page in Markdown: cells of tables one by one, no code."""
    text = _LEFT_OUT.sub(lambda m: "\n" * m[0].count("\n"), path.read_text(encoding="utf-8"))
    fenced, paragraph, start = False, list[str](), 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if _FENCE.match(line):
            fenced = not fenced
        begins = bool(_BLOCK.match(line)) or line.lstrip().startswith("|")
        if (fenced or begins or not line.strip()) and paragraph:
            yield from (Sentence(path, start, one) for one in sentences(" ".join(paragraph)))
            paragraph = []
        if fenced or not line.strip() or _FENCE.match(line):
            continue
        if line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                yield from (Sentence(path, number, one) for one in sentences(cell))
            continue
        if not paragraph:
            start = number
        paragraph.append(_BLOCK.sub("", line))
        if _HEADING.match(line):
            yield from (Sentence(path, start, one) for one in sentences(paragraph.pop()))


@cache
def docstrings(path: Path) -> tuple[tuple[int, str], ...]:
    """Return the docstrings of a module, its classes and functions, and those under variables."""
    tree = ast.parse(path.read_text(encoding="utf-8"))  # not kept: the trees of all tests are large
    return tuple(
        (statement.lineno, text)
        for statement in statements(tree)
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(text := statement.value.value, str)
    )


def spoken(node: ast.expr) -> str | None:
    """Return the text of a literal or an f-string; a value in it is the word ``{}``."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                part.value
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
                else "{}"
                for part in parts
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (spoken(left) or "{}") + (spoken(right) or "{}")
        case ast.IfExp(body=body, orelse=orelse):
            return " | ".join(filter(None, (spoken(body), spoken(orelse)))) or None
        case ast.BoolOp(values=values):
            return " | ".join(filter(None, map(spoken, values))) or None
        case _:
            return None


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a module says to people: texts of errors, warnings, hints and help."""
    for node in nodes_of(path):
        message: list[ast.expr] = []
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                if RAISES.search(name):
                    message += node.args[:2]
                message += [kw.value for kw in node.keywords if kw.arg in MESSAGE_ARGUMENTS]
            case (
                ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name))
            ) if name.casefold().endswith(("hint", "help")) and node.value is not None:
                message.append(node.value)
            case _:
                pass
        for one in message:
            text = spoken(one)
            if text and " " in text:
                yield one.lineno, text


@cache
def of_messages(path: Path) -> tuple[Sentence, ...]:
    """The sentences that a module says to people."""
    return tuple(
        Sentence(path, line, part)
        for line, text in messages(path)
        for one in re.split(r" \| |\n", text)
        for part in sentences(one)
    )
