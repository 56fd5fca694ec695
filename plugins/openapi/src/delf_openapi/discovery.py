"""Finding one's way in a large API: search by words, and all about one action."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final

from delf.tools.json_schema import clean
from delf.tools.ranking import Ranking
from delf_openapi.compiler import Entry, compile_operation, responses_of
from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.operations import read_operation
from delf_schemas.shapes import Shapes, safe_text

_DEEP_CHARS: Final = 4000
_DOC_CHARS: Final = 1200
_MAX_RESPONSES: Final = 60


class Search:
    """Ranks entries by words.

    Args:
        entries: What can be found.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._ranking = Ranking(map(_texts, entries))

    def find(self, words: str, limit: int = 20) -> list[Entry]:
        """The entries that fit best, best first.

        Args:
            words: What is looked for.
            limit: The most entries.
        """
        return [self._entries[number] for number in self._ranking.find(words, limit)]


def _texts(entry: Entry) -> list[tuple[str, float]]:
    spot = entry.spot
    return [
        (spot.name, 2.0),
        (" ".join(spot.tags), 1.0),
        (entry.summary, 2.5),
        (spot.path, 0.5),
        (" ".join([argument.arg for argument in entry.arguments]), 0.1),
    ]


def describe(document: Document, entry: Entry) -> str:
    """All that the specification says about an action, as text for a model.

    Args:
        document: The specification.
        entry: The action.
    """
    shapes = Shapes(document, dates=document.dates)
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
    for status, response in islice(responses_of(raw).items(), _MAX_RESPONSES):
        if status[:1] in ("4", "5"):
            try:
                said = clean(document.reference(response).get("description"), 120)
            except SpecError:
                continue
            lines.append(f"  {clean(status, 20)}: {said}")
    return "\n".join(lines)


def _returns(document: Document, raw: dict[str, Any], shapes: Shapes) -> str | None:
    for status, response in sorted(responses_of(raw).items()):
        if status[:1] != "2":
            continue
        try:
            content: Any = document.reference(response).get("content") or {}
            for media, spec in content.items():
                if "json" in str(media):
                    schema = document.reference(spec).get("schema")
                    return safe_text(shapes, schema, "out", _DEEP_CHARS)
        except (SpecError, AttributeError, TypeError):
            return None
    return None
