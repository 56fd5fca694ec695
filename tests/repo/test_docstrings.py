"""Docstrings and names are in the words of the field."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from support.workspace import ROOT, modules, tree_of

from .prose import PAGES, SOURCES, docstrings
from .vocabulary import (
    NAMES,
    PROSE,
    banned_names,
    banned_prose,
    riddles,
    unknown_arguments,
    weak_openings,
)

OPENING: Final = re.compile(
    r"(what|whatever|whether|which|whichever|who|whose|whom|whoever|when|why|where|wherever|how|"
    r"however)\b",
    re.IGNORECASE,
)
BESIDE: Final = [
    path for base in ("benchmarks", "scripts", "examples") for path in (ROOT / base).rglob("*.py")
]
PAGE: Final = sorted((ROOT / "plugins/serve/src/delf_serve/page").glob("*.*"))
TESTS: Final = [
    path
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if path.name not in {"vocabulary.py", "recall_schemas.py"}
]
"""The schemas of the recall test are public data sets, with the names of their authors."""


def _listed(found: list[str], headline: str) -> str:
    return "\n".join([headline, *found])


def test_docstring_opening_is_not_a_question_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {text.strip().splitlines()[0]}"
        for path in (*SOURCES, *sorted(BESIDE), *TESTS)
        for line, text in docstrings(path)
        if OPENING.match(text.strip())
    ]
    assert not found, _listed(found, "begin with a verb or a noun:")


def test_docstring_opening_is_a_verb_or_a_noun() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path in SOURCES
        for line, text in weak_openings(tree_of(path))
    ]
    assert not found, _listed(found, "open functions with a verb, all else with a noun:")


def test_docstring_names_its_nouns_and_conditions() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {text}"
        for path in SOURCES
        for line, text in riddles(tree_of(path))
    ]
    assert not found, _listed(found, "begin a sentence with its noun, an error with If:")


def test_docstring_arguments_are_parameters() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in SOURCES
        for line, name in unknown_arguments(tree_of(path))
    ]
    assert not found, _listed(found, "describe parameters under their own names:")


def test_names_hold_no_banned_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in (*SOURCES, *BESIDE, *TESTS)
        for line, name in banned_names(path.read_text(encoding="utf-8"))
    ]
    assert not found, _listed(found, "see NAMES in tests/repo/vocabulary.py:")


def test_docstrings_of_tests_hold_no_banned_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {word}"
        for path in TESTS
        for line, text in docstrings(path)
        for _, word in banned_prose(text)
    ]
    assert not found, _listed(found, "see PROSE in tests/repo/vocabulary.py:")


def test_prose_holds_no_banned_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {word}"
        for path in (*SOURCES, *PAGES, *PAGE)
        for line, word in banned_prose(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found, _listed(found, "see PROSE in tests/repo/vocabulary.py:")


@pytest.mark.parametrize("word", [*NAMES, "TOLD", "_told", "is_told", "ToldError", "wasToldOf"])
def test_banned_names_finds_every_form(word: str) -> None:
    assert [*banned_names(f"{word} = 1")] == [(1, word)]


@pytest.mark.parametrize(
    "name", ["settled", "slots", "outlives", "untoldable", "retried", "goldtold"]
)
def test_banned_names_ignores_other_words(name: str) -> None:
    assert not [*banned_names(f"{name} = 'told'  # told")]


@pytest.mark.parametrize("word", [word.removesuffix("d?") for word in PROSE])
def test_banned_prose_finds_every_word(word: str) -> None:
    assert [*banned_prose(f"A line.\nIt is {word.capitalize()}.")] == [(2, word.capitalize())]


@pytest.mark.parametrize(
    ("source", "is_weak"),
    [
        ('def f():\n    """The rows."""', True),
        ('def f():\n    """Tell whether it runs."""', True),
        ('def f():\n    """Return the rows."""', False),
        ('def f():\n    """Those that ran."""', True),
        ('@property\ndef f(self):\n    """The rows."""', False),
        ('@property\ndef f(self):\n    """Those that ran."""', True),
        ('class A:\n    """It runs."""', True),
        ('class A:\n    """A runner."""', False),
        ('@action\ndef f(self):\n    """The rows."""', False),
        ('def __len__(self):\n    """The number."""', False),
    ],
)
def test_weak_docstring_openings_are_found_for_each_kind_of_object(
    source: str, is_weak: bool
) -> None:
    assert bool([*weak_openings(ast.parse(source))]) == is_weak


@pytest.mark.parametrize(
    ("docstring", "is_riddle"),
    [
        ("Return rows.", False),
        ("One of two rows.", True),
        ("Return rows. Such rows are empty.", True),
        ("Return rows; None where there are none.", True),
        ("Return rows in place of texts.", True),
        ("Return rows.\n\n    Args:\n        rows: Its rows.\n    ", True),
        ("Return rows.\n\n    Args:\n        rows: The rows that count.\n    ", False),
        ("Return rows.\n\n    Raises:\n        ValueError: Naming the row.\n    ", True),
        ("Return rows.\n\n    Raises:\n        ValueError: If a row is empty.\n    ", False),
    ],
)
def test_vague_docstring_sentences_are_found(docstring: str, is_riddle: bool) -> None:
    source = f'def f():\n    """{docstring}"""'
    assert bool([*riddles(ast.parse(source))]) == is_riddle
    shown = f"@action\n{source}"
    assert not [*riddles(ast.parse(shown))]


@pytest.mark.parametrize(
    ("head", "body", "unknown"),
    [
        ("def f(a, *b)", "...", []),
        ("def f(a, *, c)", "...", ["b"]),
        ("class A", "def __init__(self, a): ...", ["b"]),
        ("class A", "a: int", ["b"]),
        ("class A(B)", "a: int", []),
        ("class A(B)", "def __init__(self, **c): ...", []),
    ],
)
def test_unknown_arguments_are_found(head: str, body: str, unknown: list[str]) -> None:
    docstring = "Do.\n\n    Args:\n        a: One: two.\n            x: more\n        b: Other."
    tree = ast.parse(f'{head}:\n    """{docstring}\n    """\n    {body}')
    assert [name for _, name in unknown_arguments(tree)] == unknown


def test_docstring_check_reads_every_source() -> None:
    assert set(modules()) <= {*SOURCES}
    assert {Path(path).suffix for path in PAGE} >= {".js", ".html", ".css"}
