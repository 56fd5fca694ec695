"""The commands that a text asks people to type."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from support.workspace import nodes_of

_COMMAND: Final = re.compile(
    r"(?:^|[\s`(\"'])delf ((?:[a-z][a-z-]*|--[a-z-]+)(?: (?:(?! delf )[^\n`;()])*)?)"
)
_GOES_ON: Final = re.compile(
    "accepts|and|as|asks|begins|changes|does|for|frees?|goes|has|in|keeps|lists|looks|more|or|reads"
    "|says|shows|takes|tells|to|trusts|which|with|works|wrote|&&|[|]"
)
"""Words with which the sentence goes on after a command."""


@dataclass(frozen=True)
class Typed:
    """A command in a text.

    Args:
        words: What follows ``delf``; ``…`` is what the program puts in.
        is_quoted: True in backticks; otherwise it may be a sentence about the program.
    """

    words: tuple[str, ...]
    is_quoted: bool


def texts(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Texts of a module that people may read: all but docstrings, with … for what is put in."""
    parts: set[int] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
            yield text, node
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.add(id(node.value))
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value, node


def commands_in(text: str) -> Iterator[Typed]:
    """The commands of a text, each up to where the sentence goes on."""
    for match in _COMMAND.finditer(text):
        words: list[str] = []
        for word in match[1].split(" #")[0].split():
            if _GOES_ON.fullmatch(word.strip(",.:")):
                break
            if words and words[-1].startswith('"') and not words[-1].endswith('"'):
                words[-1] += f" {word}"
            else:
                words.append(word)
            if word[-1] in ",:" or (word[-1] == "." and word != "."):
                words[-1] = words[-1].rstrip(",.:")
                break
        yield Typed(tuple(words), text[match.start()] == "`")
