"""Docstrings begin with a verb or a noun, and old words do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.workspace import ROOT

OPENING: Final = re.compile(
    r"(what|whatever|whether|who|whose|whoever|where|wherever|how|however)\b", re.IGNORECASE
)
OLD_WORDS: Final = {
    "Surroundings": "Resources",
    "RuntimeParts": "Resources",
    "TaskState": "TaskRun",
    "Judgement": "Verdict",
    "Allowance": "ResourceBudget",
    "Settled": "AlreadyDone",
    "unsettled": "outcome_unknown",
    "hopeless": "non-retryable",
    "relive": "resume",
    "relived": "resumed",
}
"""Words that were given up, with the word for the same idea. Page and prose are held to it, too."""
SOURCES: Final = [
    path
    for base in ("core", "libs", "plugins")
    for path in sorted((ROOT / base).rglob("*.py"))
    if "src" in path.parts
]


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings of a module, its classes and functions, and those beneath variables."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text
                case _:
                    pass


def test_no_docstring_begins_with_a_question_word():
    found = [
        f"{path.relative_to(ROOT)}:{line} {text.strip().splitlines()[0]}"
        for path in SOURCES
        for line, text in docstrings(path)
        if OPENING.match(text.strip())
    ]
    assert not found, "\n".join(["begin with a verb or a noun:", *found])


def test_no_word_that_was_given_up_is_in_code_or_pages():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "plugins").glob("*/*.md")]
    found = [
        f"{path.relative_to(ROOT)}: {word} is {OLD_WORDS[word]} now"
        for path in (*SOURCES, *pages)
        for word in re.findall(rf"\b(?:{'|'.join(OLD_WORDS)})\b", path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
