"""Pages and messages are plain English: short sentences, and common words for private ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from support.workspace import ROOT

from .prose import (
    MAX_WORDS,
    PAGES,
    SOURCES,
    of_messages,
    of_page,
    sentences,
    words,
)

PRIVATE: Final = {
    r"anew": "again",
    r"beneath": "under",
    r"likeness": "similarity",
    r"dearest": "most expensive",
    r"nevertheless": "anyway",
}
"""Words that only this project used, with the common ones. Case does not count."""
PHRASES: Final = {
    r"what (becomes|became) of": "what happens to, what happened to",
    r"what came of": "the result of",
    r"(cannot|could not) be had": "is not available",
    r"exclude each other": "cannot be used together",
    r"for ever": "forever",
    r"(says?|said|tells?) of (itself|themselves)": "says about itself",
    r"(handed|hands) in": "submitted, submits",
    r"(?<!there )(is|are) no (JSON|text|file|folder|object|list|name|number|Python)": "is not a",
}
"""Phrases that only this project used: code has none of them as a name."""


def test_sentences_of_pages_are_short() -> None:
    found = [str(one) for page in PAGES for one in of_page(page) if words(one.text) > MAX_WORDS]
    assert not found, "\n".join([f"at most {MAX_WORDS} words a sentence:", *found])


def test_sentences_of_errors_hints_and_help_are_short() -> None:
    found = [
        str(one) for path in SOURCES for one in of_messages(path) if words(one.text) > MAX_WORDS
    ]
    assert not found, "\n".join([f"at most {MAX_WORDS} words a sentence:", *found])


def _uses(paths: list[Path], listed: dict[str, str]) -> Iterator[str]:
    pattern = re.compile(rf"\b(?:{'|'.join(listed)})\b", re.IGNORECASE)
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for match in pattern.finditer(line):
                better = next(
                    say for word, say in listed.items() if re.search(word, match[0], re.IGNORECASE)
                )
                yield f"{path.relative_to(ROOT)}:{number} {match[0]}: say {better}"


def test_pages_use_common_words() -> None:
    found = list(_uses(PAGES, PRIVATE | PHRASES))
    assert not found, "\n".join(found)


def test_code_and_its_comments_use_common_words() -> None:
    found = list(_uses(SOURCES, PHRASES))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It runs. It ends.", ["It runs.", "It ends."]),
        ("Type `a. b` here: it works.", ["Type `a. b` here:", "it works."]),
        ("See [the page. All](x.md) of it.", ["See the page.", "All of it."]),
    ],
)
def test_text_is_split_into_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_inline_code_counts_as_one_word() -> None:
    assert words("Call `run(a, b, c)` – and wait.") == 4


def test_prose_check_reads_sentences_from_pages_and_messages() -> None:
    assert sum(1 for page in PAGES for _ in of_page(page)) > 5000
    assert sum(1 for path in SOURCES for _ in of_messages(path)) > 1500
