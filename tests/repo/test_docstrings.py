"""Docstrings begin with a verb or a noun, and old words do not come back."""

from __future__ import annotations

import re
from typing import Final

from support.workspace import ROOT

from .prose import PAGES, SOURCES, docstrings

OPENING: Final = re.compile(
    r"(what|whatever|whether|which|whichever|who|whose|whom|whoever|when|why|where|wherever|how|"
    r"however)\b",
    re.IGNORECASE,
)
OLD_WORDS: Final = {
    "Surroundings": "Resources",
    "RuntimeParts": "Resources",
    "Judgement": "Verdict",
    "Allowance": "ResourceBudget",
    "Settled": "AlreadyDone",
    "unsettled": "outcome_unknown",
    "hopeless": "non-retryable",
    "relive": "resume",
    "Slot": "Permit",
    "relived": "resumed",
}
"""Words that were given up, with the word for the same idea. Page and prose are held to it, too."""
BESIDE: Final = [
    path for base in ("benchmarks", "scripts", "examples") for path in (ROOT / base).rglob("*.py")
]


def test_no_docstring_begins_with_a_question_word():
    found = [
        f"{path.relative_to(ROOT)}:{line} {text.strip().splitlines()[0]}"
        for path in (*SOURCES, *sorted(BESIDE))
        for line, text in docstrings(path)
        if OPENING.match(text.strip())
    ]
    assert not found, "\n".join(["begin with a verb or a noun:", *found])


def test_no_word_that_was_given_up_is_in_code_or_pages():
    found = [
        f"{path.relative_to(ROOT)}: {word} is {OLD_WORDS[word]} now"
        for path in (*SOURCES, *PAGES)
        for word in re.findall(rf"\b(?:{'|'.join(OLD_WORDS)})\b", path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
