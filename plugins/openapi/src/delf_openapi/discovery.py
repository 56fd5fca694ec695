"""Finding one's way in a large API: search by words, and all about one action."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from delf_openapi.compiler import Entry, compile_operation, responses_of
from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.names import clean, snake
from delf_openapi.operations import read_operation
from delf_openapi.shapes import Shapes, safe_text

_STOP: Final = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "get", "has", "have", "in"}
    | {"into", "is", "it", "of", "on", "or", "that", "the", "their", "this", "to", "was", "with"}
    | {"all", "my", "me", "show", "which", "what"}
)
_DEEP_CHARS: Final = 4000
_DOC_CHARS: Final = 1200


def words_of(text: str) -> list[str]:
    """The words of a text in a form in which singular and plural are one."""
    found = re.findall(
        r"[^\W_]+", snake(text).replace("_", " ") if text.isascii() else text.lower()
    )
    return [_stem(w) for w in found if w not in _STOP]


def _stem(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("ses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and word[-2] != "s" else word


class Search:
    """Ranks entries by words.

    Args:
        entries: What can be found.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._weights = [_weighted(entry) for entry in entries]
        counts = Counter(word for weights in self._weights for word in weights)
        total = max(1, len(entries))
        self._rare = {word: math.log(1 + total / n) for word, n in counts.items()}

    def find(self, words: str, limit: int = 20) -> list[Entry]:
        """The entries that fit best, best first.

        Args:
            words: What is looked for.
            limit: The most entries.
        """
        asked = set(words_of(words))
        scored: list[tuple[float, int]] = []
        for index, weights in enumerate(self._weights):
            score = sum(weights[w] * self._rare[w] for w in asked if w in weights)
            if score:
                # Of two that say it, the one with fewer other words is nearer.
                scored.append((-score / math.sqrt(4 + len(weights)), index))
        return [self._entries[index] for _, index in sorted(scored)[:limit]]


def _weighted(entry: Entry) -> dict[str, float]:
    weights: dict[str, float] = {}
    spot = entry.spot
    arguments = " ".join(a.arg for a in entry.arguments)
    for text, weight in (
        (arguments, 0.5),
        (entry.summary, 1.5),
        (spot.path, 1.5),
        (" ".join(spot.tags), 2.0),
        (spot.name, 3.0),
    ):
        for word in words_of(text):
            weights[word] = max(weight, weights.get(word, 0.0))
    return weights


def describe(document: Document, entry: Entry) -> str:
    """All that the specification says about an action, as text for a model.

    Args:
        document: The specification.
        entry: The action.
    """
    shapes = Shapes(document)
    try:
        operation = read_operation(document, entry.spot)
        deep = compile_operation(document, operation, shapes)
    except SpecError:
        return f"{entry.spot.name}: {entry.summary}"
    raw = operation.raw
    lines = [f"{entry.spot.name}: {entry.spot.method} {clean(entry.spot.path, 300)}"]
    about = clean(raw.get("description"), _DOC_CHARS)
    lines.append(about or deep.summary)
    for argument in deep.arguments:
        default = f" = {argument.default}" if argument.default is not None else ""
        note = f"  # {argument.doc}" if argument.doc else ""
        lines.append(f"  {argument.arg}: {argument.type}{default}{note}")
    lines.append(f"returns {_returns(document, raw, shapes) or entry.returns}")
    for status, response in responses_of(raw).items():
        if status[:1] in "45":
            try:
                said = clean(document.resolve(response).get("description"), 120)
            except SpecError:
                continue
            lines.append(f"  {status}: {said}")
    return "\n".join(lines)


def _returns(document: Document, raw: dict[str, Any], shapes: Shapes) -> str | None:
    for status, response in sorted(responses_of(raw).items()):
        if status[:1] != "2":
            continue
        try:
            content: Any = document.resolve(response).get("content") or {}
            for media, spec in content.items():
                if "json" in str(media):
                    schema = document.resolve(spec).get("schema")
                    return safe_text(shapes, schema, "out", _DEEP_CHARS)
        except (SpecError, AttributeError, TypeError):
            return None
    return None
