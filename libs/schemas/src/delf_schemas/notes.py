"""Descriptions of a record's keys, such as units and formats, in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from delf.errors import DelfError
from delf.tools.json_schema import clean
from delf_schemas.names import sentences, snake
from delf_schemas.shapes import Document, Mode

_MAX_VISITS: Final = 600
_DEPTH: Final = 5
_DOC: Final = 160
_EXAMPLE: Final = 40
_VALUE_TEXTS: Final = ("x-enum-descriptions", "x-enumDescriptions", "x-enum-varnames")
_TOTAL: Final = 6_000
_EMPTY: Final = frozenset(
    {"a", "an", "the", "of", "for", "this", "that", "its", "is", "was", "to", "in", "on", "and"}
    | {"be", "by", "which", "with", "are", "name", "value", "object", "field", "list", "unique"}
    | {"identifier", "id", "ids", "date", "time", "at", "when", "s"}
)
"""Words that say nothing beside the name of a key."""
_KNOWN: Final = frozenset(
    {"date", "date-time", "uuid", "email", "uri", "int32", "int64", "float", "double", "byte"}
    | {"binary", "password", "decimal", "url", "regex"}
)
"""Formats that a type or name shows, and whose examples tell nothing."""
_BEYOND: Final = 2**31 - 1
"""Larger limits follow from the type and are not shown."""
_UNITS: Final = re.compile(
    r"\b(?:cents?|pence|currency units?|basis points?|percent(?:age)?|per cent|epoch|measured in"
    r"|(?:in|of|as) (?:the |whole )?(?:smallest|minor|\w*seconds?|minutes?|hours?|days|weeks|months"
    r"|\w*bytes|\w*met(?:er|re)s|miles|\w*grams|tonnes|degrees|celsius|fahrenheit|kelvin|\w*watts?"
    r"|\w*watt.hours|litres|liters|dollars|euros?|utc|thousands?|millions?))\b",
    re.IGNORECASE,
)
"""Matches words about the unit of a value."""
_MAX_UNIT_NOTES: Final = 2
"""The number of times that a description with a unit may be as long as others."""
_LONG: Final = 6
_SENTENCE: Final = re.compile(r"\S.*?(?<=[^.\s][^.\s])[.!?](?=\s|$)|\S.*$")
_PARENTHESES: Final = re.compile(r"\s*\([^()]*\)")
_WORD: Final = re.compile(r"[^\W_]+")


class _Key(NamedTuple):
    """A described key.

    Args:
        path: The keys that lead to the value, without lists.
        text: The description.
        rank: The rank among descriptions: units first, then numbers, whose units no type tells.
    """

    path: tuple[str, ...]
    text: str
    rank: int = 0


def notes_of(document: Document, schema: Any, mode: Mode, *texts: str) -> str:
    """Return the descriptions of a record's keys: ``fee: in cents; route: <site>-<hub> codes``.

    Descriptions that only repeat the key's name are omitted. If several keys of the record have the
    same name and different descriptions, each is named by its path. Numbers come first, because no
    type shows their unit.

    Args:
        document: The document, for resolving references.
        schema: The schema of a value, whose own description is omitted.
        mode: ``in`` for parameters, ``out`` for results.
        texts: Descriptions of the value itself, which come first.
    """
    found = dict.fromkeys(_keys(document, schema, mode, (), (), [_MAX_VISITS]))
    keys = sorted(found, key=lambda key: key.rank)
    by_name: dict[str, set[str]] = {}
    for key in keys:
        by_name.setdefault(key.path[-1], set()).add(key.text)
    shown_notes: dict[str, None] = {}
    size = 0
    for key in keys:
        name = key.path[-1] if len(by_name[key.path[-1]]) == 1 else ".".join(key.path)
        line = f"{name}: {key.text}"
        size += 0 if line in shown_notes else len(line) + 2
        if size > _TOTAL:
            break
        shown_notes[line] = None
    example = example_of(_resolve_schema(document, schema))
    return "; ".join(filter(None, [*(text.rstrip(".") for text in texts), example, *shown_notes]))


def _keys(
    document: Document,
    schema: Any,
    mode: Mode,
    path: tuple[str, ...],
    around: tuple[str, ...],
    remaining_visits: list[int],
) -> Iterator[_Key]:
    """Yield the described keys of a record and of the records in it, outer keys first."""
    remaining_visits[0] -= 1
    if not isinstance(schema, Mapping) or remaining_visits[0] < 0 or len(path) > _DEPTH:
        return
    ref: Any = cast("Mapping[str, Any]", schema).get("$ref")
    if isinstance(ref, str):
        if ref in around:
            return
        around = (*around, ref)
    resolved = _resolve_schema(document, schema)
    properties = resolved.get("properties")
    inner: list[tuple[Any, tuple[str, ...]]] = []
    for name, part in _mapping(properties).items():
        about = _resolve_schema(document, part)
        if about.get("readOnly" if mode == "in" else "writeOnly") is True:
            continue
        deeper = (*path, clean(name, 60))
        if text := _text(document, name, about):
            yield _Key(deeper, text, -1 if _UNITS.search(text) else _rank(about))
        inner.append((part, deeper))
    for word in ("allOf", "anyOf", "oneOf"):
        parts = resolved.get(word)
        inner += [(part, path) for part in cast("list[Any]", parts or [])] if parts else []
    inner += [(resolved.get(word), path) for word in ("items", "additionalProperties")]
    for part, deeper in inner:
        yield from _keys(document, part, mode, deeper, around, remaining_visits)


def _rank(schema: Mapping[str, Any]) -> int:
    kinds = schema.get("type")
    kinds = cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds]
    if "integer" in kinds or "number" in kinds:
        return 0
    return 1 if "string" in kinds and "enum" not in schema else 2


def _text(document: Document, name: str, schema: Mapping[str, Any]) -> str:
    """Return a key's description or title, the meanings of its values, its unit and example."""
    words = ("allOf", "anyOf", "oneOf")
    parts = [_resolve_schema(document, part) for word in words for part in _list_at(schema, word)]
    values = value_texts(schema, parts)
    without_constants = [part for part in parts if "const" not in part]
    texts = [
        each.get(key) for key in ("description", "title") for each in (schema, *without_constants)
    ]
    informative_texts = (text for text in texts if isinstance(text, str) and says_more(name, text))
    text = _first_sentences(next(informative_texts, "")).rstrip(".")
    return "; ".join(filter(None, [text, values, _range_and_format(schema), example_of(schema)]))


def _first_sentences(text: str) -> str:
    """Return the first sentences that fit, preferring sentences with a unit."""
    first = sentences(text, _DOC)
    line = clean(text, _DOC * _LONG)
    complete = [part for part in _SENTENCE.findall(line) if not part.endswith("…")]
    with_unit = [part for part in complete if _UNITS.search(part) and part not in first]
    if not with_unit or _UNITS.search(first):
        return first
    unit = with_unit[0] if len(with_unit[0]) <= _DOC else _PARENTHESES.sub("", with_unit[0])
    if len(unit) > _MAX_UNIT_NOTES * _DOC:
        return first
    lead = complete[0] if len(complete[0]) + len(unit) < _MAX_UNIT_NOTES * _DOC else ""
    return f"{lead} {unit}".strip()


def _range_and_format(schema: Mapping[str, Any]) -> str:
    """Return the range of a number, and a non-standard format such as ``unix-time``."""
    minimum, maximum, format_name = (schema.get(word) for word in ("minimum", "maximum", "format"))
    bounds = [each for each in (minimum, maximum) if isinstance(each, (int, float))]
    notes = (
        [f"{minimum} to {maximum}"] if len(bounds) == 2 and max(map(abs, bounds)) < _BEYOND else []
    )
    if isinstance(format_name, str) and format_name not in _KNOWN:
        notes.append(clean(format_name, _EXAMPLE))
    return ", ".join(notes)


def example_of(schema: Mapping[str, Any]) -> str:
    """Return the example of a text's schema in words; empty for other values."""
    example = schema.get("example", next(iter(_list_at(schema, "examples")), None))
    is_shown = isinstance(example, str) and 0 < len(example) <= _EXAMPLE
    is_known = "enum" in schema or schema.get("format") in _KNOWN
    return f"as {json.dumps(clean(example, _EXAMPLE))}" if is_shown and not is_known else ""


def says_more(name: str, description: str) -> bool:
    """Return True if a description has words that are not in a name or shorter description."""
    words = {word.lower().rstrip("s") for word in _WORD.findall(description)}
    known_words = {word.lower().rstrip("s") for word in [*snake(name).split("_"), *_EMPTY]}
    return not words <= known_words


def _resolve_schema(document: Document, schema: Any) -> Mapping[str, Any]:
    if not isinstance(schema, Mapping):
        return {}
    try:
        return document.resolve(schema)
    except DelfError:
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _list_at(schema: Mapping[str, Any], word: str) -> list[Any]:
    items = schema.get(word)
    return cast("list[Any]", items) if isinstance(items, list) else []


def value_texts(schema: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> str:
    """Return the meanings of an enumeration's values, from an extension or constants."""
    texts: Any = next((schema[name] for name in _VALUE_TEXTS if schema.get(name)), None)
    values: Any = schema.get("enum")
    pairs: list[tuple[Any, Any]] = []
    if isinstance(texts, dict):
        pairs = list(cast("dict[Any, Any]", texts).items())
    elif isinstance(texts, list) and isinstance(values, list):
        pairs = list(zip(cast("list[Any]", values), cast("list[Any]", texts), strict=False))
    else:
        pairs = [
            (p["const"], p.get("description") or p.get("title")) for p in parts if "const" in p
        ]
    lines = (f"{value}: {clean(text, 60)}" for value, text in pairs if isinstance(text, str))
    return ", ".join(lines)
