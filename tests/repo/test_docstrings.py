"""Docstrings begin with a verb or a noun, and old words do not come back."""

from __future__ import annotations

import ast
import re
from typing import Final

from support.prose import PAGES, SOURCES, docstrings
from support.workspace import ROOT

OPENING: Final = re.compile(
    r"(what|whatever|whether|which|whichever|who|whose|whom|whoever|when|why|where|wherever|how|"
    r"however)\b",
    re.IGNORECASE,
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


PROVING: Final = {"raises", "warns", "fail"}
CHECKERS: Final = ("check", "assert", "expect", "see", "must", "test_", "holds", "strict")
ONLY_NO_FAILURE: Final = {
    "test_random_documents_never_do_more_than_raise_value_error",
    "test_no_bytes_do_more_than_break_the_protocol",
    "test_no_fields_do_more_than_break_the_protocol",
    "test_a_configuration_that_is_wrong",
    "test_a_turn_that_came_while_giving_up_is_passed_on",
    "test_a_loop_that_is_gone_holds_nobody",
    "test_schemathesis_finds_nothing",
    "test_threads_that_begin_together_read_a_statement",
    "test_python_examples_compile",
    "test_configuration_can_be_used",
    "test_a_real_model_is_asked_over_http",
}
"""Their assertion is that nothing fails, or it is in what they call."""


def proves(function: ast.AST, helpers: set[str]) -> bool:
    for node in ast.walk(function):
        match node:
            case ast.Assert():
                return True
            case ast.Attribute(attr=name) if name in PROVING:
                return True
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                if name in helpers or name.startswith(CHECKERS):
                    return True
            case _:
                pass
    return False


def test_every_test_asserts_something():
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found: list[str] = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        nodes = [
            n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, functions)
        ]
        helpers = {node.name for node in nodes if proves(node, set())}
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            for node in nodes
            if node.name.startswith("test_")
            and node.name not in ONLY_NO_FAILURE
            and not proves(node, helpers)
        ]
    assert not found, "\n".join(["these tests assert nothing:", *found])
