"""Words that this project does not use, with the words of the field for the same ideas."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from typing import Final

NAMES: Final[Mapping[str, str]] = {
    "told": "message, text, reported",
    "said": "text, output, answer",
    "heard": "received",
    "lacks": "missing, unsupported",
    "lacking": "missing",
    "tried": "attempts, probed",
    "untried": "without attempts",
    "spent": "cost, exhausted",
    "lives": "restarts, is_alive",
    "attended": "interactive",
    "patient": "wait, timeout",
    "patience": "timeout",
    "doubtful": "outcome_unknown",
    "gave_up": "abandon",
    "give_up": "abandon",
    "given_up": "abandoned",
    "take_up": "claim, resume",
    "took_up": "claimed",
    "taken_up": "claimed",
    "in_hand": "claimed",
    "never_made": "not_started",
    "must_look": "requires_review",
    "worth_hiding": "long_enough",
    "hopeless": "non-retryable",
    "settlement": "AlreadyDone",
    "unsettled": "outcome_unknown",
    "judgement": "Verdict",
    "surroundings": "Resources",
    "runtime_parts": "Resources",
    "allowance": "ResourceBudget",
    "relive": "resume",
    "relived": "resumed",
}
"""Parts of names in code and tests; ``told_result`` and ``ToldError`` hold the first one."""
PROSE: Final[Mapping[str, str]] = {
    "told": "reported, shown, informed",
    "untold": "without a note",
    "said": "wrote, answered",
    "heard": "received",
    "attended": "interactive",
    "hopeless": "non-retryable",
    "unsettled": "outcome_unknown",
    "relived?": "resume",
    "judgement": "verdict",
    "surroundings": "Resources",
    "RuntimeParts": "Resources",
}
"""Words in docstrings, comments and messages of the code, on the page, and in the documentation."""
_PROSE: Final = re.compile(rf"\b({'|'.join(PROSE)})\b", re.IGNORECASE)
_NAME: Final = re.compile(rf"(?:^|_)({'|'.join(NAMES)})(?=_|$)")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PRONOUNS: Final = "it|its|that|these|those|they|there|whoever|nobody|somebody"
_PRONOUN: Final = re.compile(rf"(?:{_PRONOUNS})\b(?!`)", re.IGNORECASE)
_NO_VERB: Final = re.compile(
    rf"(?:the|an?|all|one|every|each|another|others|as|this|nothing|something|{_PRONOUNS}|"
    r"(?:tell|say) (?:whether|if))\b(?!`)",
    re.IGNORECASE,
)
_SHOWN_TO_MODELS: Final = ("action", "tool")
_NOUNS: Final = ("property", "cached_property", "fixture", "setter")


def banned_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines and the names of a Python source that hold a word of ``NAMES``."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and _NAME.search(_CAMEL.sub("_", token.string).lower()):
            yield token.start[0], token.string


def banned_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines and the words of a text that are in ``PROSE``."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((number, match[0]) for match in _PROSE.finditer(line))


def weak_openings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield docstrings that open with a pronoun, or those of functions without a verb."""
    for node in ast.walk(tree):
        if not isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
        ) or not (text := ast.get_docstring(node)):
            continue
        marks = _decorators(node)
        if any(mark in _SHOWN_TO_MODELS for mark in marks):
            continue
        is_noun = isinstance(node, (ast.ClassDef, ast.Module)) or any(m in _NOUNS for m in marks)
        if (_PRONOUN if is_noun or _is_dunder(node) else _NO_VERB).match(text):
            yield getattr(node, "lineno", 1), text.splitlines()[0]


def _decorators(node: ast.AST) -> list[str]:
    found = (getattr(each, "func", each) for each in getattr(node, "decorator_list", ()))
    return [ast.unparse(each).rpartition(".")[2] for each in found]


def _is_dunder(node: ast.AST) -> bool:
    return str(getattr(node, "name", "")).startswith("__")
