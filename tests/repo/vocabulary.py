"""Words that this project does not use, with the words of the field for the same ideas."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from support.workspace import statements

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
    "worth_hiding": "redactable",
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
_ANYWHERE: Final = re.compile("|".join(word.replace("_", "_?") for word in NAMES), re.IGNORECASE)
"""Reads a source some fifty times as fast as tokens do."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PRONOUNS: Final = "it|its|that|these|those|they|there|whoever|nobody|somebody"
_PRONOUN: Final = re.compile(rf"(?:{_PRONOUNS})\b(?!`)", re.IGNORECASE)
_NO_VERB: Final = re.compile(
    rf"(?:the|an?|all|one|every|each|another|others|as|this|nothing|something|{_PRONOUNS}|"
    r"(?:tell|say) (?:whether|if))\b(?!`)",
    re.IGNORECASE,
)
_SECTION: Final = re.compile(r"^ *(?:Args|Returns|Raises|Yields):\n", re.MULTILINE)
_ARGUMENTS: Final = re.compile(r"^Args:\n((?: .*\n?|\n(?= ))+)", re.MULTILINE)
_ENTRY: Final = re.compile(r"^ +(\w+): (.*)$", re.MULTILINE)
_NO_NOUN: Final = re.compile(r"(?:One|Those|Such|These|Whoever|Whatever) ")
_RIDDLE: Final = re.compile(r"\b(?:None where|in place of)\b")
_NO_NOUN_OF_ENTRY: Final = re.compile(r"(?:Its|Their|It|They|Those|These|That|What|Where)\b")
_NO_CONDITION: Final = re.compile(r"(?:When|With|Naming|The|Its|Before|Unless|As)\b")
_SHOWN_TO_MODELS: Final = ("action", "tool")
_NOUNS: Final = ("property", "cached_property", "fixture", "setter")


def banned_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines and the names of a Python source that hold a word of ``NAMES``."""
    if not _ANYWHERE.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and _NAME.search(_CAMEL.sub("_", token.string).lower()):
            yield token.start[0], token.string


def banned_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines and the words of a text that are in ``PROSE``."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from ((number, match[0]) for match in _PROSE.finditer(line))


def weak_openings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield docstrings that open with a pronoun, or those of functions without a verb."""
    for node in (tree, *statements(tree)):
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


def riddles(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield sentences of docstrings that leave their noun or their condition to the reader.

    A sentence or the text of an argument begins with its noun, an error with its condition.
    """
    for node in (tree, *statements(tree)):
        body: Any = getattr(node, "body", None)
        shown = any(mark in _SHOWN_TO_MODELS for mark in _decorators(node))
        for statement in (
            cast("list[ast.AST]", body) if isinstance(body, list) and not shown else ()
        ):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield from ((statement.lineno, riddle) for riddle in _riddles_of(text))
                case _:
                    pass


def _riddles_of(docstring: str) -> Iterator[str]:
    text, *sections = _SECTION.split(docstring)
    for sentence in re.split(r"(?<=[.!?])\s+", " ".join(text.split())):
        if _NO_NOUN.match(sentence) or _RIDDLE.search(sentence):
            yield sentence
    for section in sections:
        for name, words in _ENTRY.findall(section):
            vague = _NO_CONDITION if name[0].isupper() else _NO_NOUN_OF_ENTRY
            if vague.match(words):
                yield f"{name}: {words}"


def unknown_arguments(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the names under ``Args:`` that are not parameters of their function or class."""
    for node in (tree, *statements(tree)):
        match node:
            case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
                names = _names_of(arguments)
            case ast.ClassDef(body=body, bases=bases):
                made_by = [
                    each.args
                    for each in body
                    if isinstance(each, ast.FunctionDef) and each.name == "__init__"
                ]
                if bases and not any(arguments.kwarg is None for arguments in made_by):
                    continue  # the parameters may be inherited
                fields = [
                    ast.unparse(each.target) for each in body if isinstance(each, ast.AnnAssign)
                ]
                names = {*fields}.union(*map(_names_of, made_by))
            case _:
                continue
        for section in _ARGUMENTS.findall(ast.get_docstring(node) or ""):
            listed = re.findall(r"^ {4}(\w+): ", section, re.MULTILINE)
            yield from ((node.lineno, name) for name in listed if name not in names)


def _names_of(arguments: ast.arguments) -> set[str]:
    return {each.arg for each in ast.walk(arguments) if isinstance(each, ast.arg)}


def _decorators(node: ast.AST) -> list[str]:
    found = (getattr(each, "func", each) for each in getattr(node, "decorator_list", ()))
    return [ast.unparse(each).rpartition(".")[2] for each in found]


def _is_dunder(node: ast.AST) -> bool:
    return str(getattr(node, "name", "")).startswith("__")
