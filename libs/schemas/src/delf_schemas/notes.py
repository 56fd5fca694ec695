"""Descriptions of a record's keys, such as units and formats, in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from delf.tools.json_schema import clean
from delf_schemas.names import sentences, snake
from delf_schemas.shapes import Document, Role, list_at, resolve_or_empty

_MAX_VISITS: Final = 600
_MAX_DEPTH: Final = 5
_MAX_DOC: Final = 160
_MAX_EXAMPLE: Final = 40
_VALUE_TEXTS: Final = ("x-enum-descriptions", "x-enumDescriptions", "x-enum-varnames")
_MAX_TOTAL: Final = 6_000
# Words that add no information to a key's name.
_FILLER_WORDS: Final = frozenset(
    {"a", "an", "the", "of", "for", "this", "that", "its", "is", "was", "to", "in", "on", "and"}
    | {"be", "by", "which", "with", "are", "name", "value", "object", "field", "list", "unique"}
    | {"identifier", "id", "ids", "date", "time", "at", "when", "s"}
)
# Formats that need no description and no example, because types or names express them.
_PLAIN_FORMATS: Final = frozenset(
    {"date", "date-time", "uuid", "email", "uri", "int32", "int64", "float", "double", "byte"}
    | {"binary", "password", "decimal", "url", "regex"}
)
# Bounds from this number on only state a type, such as a 64-bit integer, and are not shown.
_MAX_SHOWN_BOUND: Final = 2**31 - 1
# Matches the name of a unit of measurement, or words that announce a unit.
_UNITS: Final = re.compile(
    r"\b(?:cents?|pence|currency units?|basis points?|percent(?:age)?|per cent|epoch|measured in"
    r"|(?:in|of|as) (?:the |whole )?(?:smallest|minor|\w*seconds?|minutes?|hours?|days|weeks|months"
    r"|\w*bytes|\w*met(?:er|re)s|miles|\w*grams|tonnes|degrees|celsius|fahrenheit|kelvin|\w*watts?"
    r"|\w*watt.hours|litres|liters|dollars|euros?|utc|thousands?|millions?))\b",
    re.IGNORECASE,
)
# The factor by which a description that states a unit may be longer than other descriptions.
_UNIT_FACTOR: Final = 2
_READ_FACTOR: Final = 6
_SENTENCE: Final = re.compile(r"\S.*?(?<=[^.\s][^.\s])[.!?](?=\s|$)|\S.*$")
# Matches a line that explains a value of an enumeration, in drf-spectacular's format.
_VALUE_LINE: Final = re.compile(r"^\s*[*-] `([^`\n]+)` - (.+)$", re.MULTILINE)
_PARENTHESES: Final = re.compile(r"\s*\([^()]*\)")
_WORD: Final = re.compile(r"[^\W_]+")


class _Key(NamedTuple):
    """A key of a record with its description for the prompt.

    Args:
        path: The keys that lead to the value; list indexes are omitted.
        text: The description.
        rank: The sort order, lowest first: -1 if the description names a unit, otherwise 0 for a
            number, 1 for a text, and 2 for any other value.
    """

    path: tuple[str, ...]
    text: str
    rank: int = 0


def notes_of(document: Document, schema: Any, role: Role, *texts: str) -> str:
    """Return the descriptions of a record's keys: ``fee: in cents; route: <site>-<hub> codes``.

    Descriptions that only repeat the key's name are omitted. If several keys of the record have the
    same name and different descriptions, each is named by its path. Keys of numbers, and keys whose
    descriptions have units, come before other keys, because the types do not show the units.

    The result starts with ``texts`` and an example. The descriptions of the keys follow, as many as
    fit into ``_MAX_TOTAL`` characters.

    Args:
        document: The document, for resolving references.
        schema: The schema of a value, whose own description is omitted.
        role: Whether the schema is that of a ``parameter`` or of a ``result``.
        texts: Descriptions of the value itself, which come before those of the keys.
    """
    all_keys = _KeyFinder(document, role).keys(schema)
    keys = sorted(dict.fromkeys(all_keys), key=lambda key: key.rank)
    texts_by_name: dict[str, set[str]] = {}
    for key in keys:
        texts_by_name.setdefault(key.path[-1], set()).add(key.text)
    shown_notes: list[str] = []
    size = 0
    for key in keys:
        name = key.path[-1]
        if len(texts_by_name[name]) > 1:
            name = ".".join(key.path)
        line = f"{name}: {key.text}"
        if line in shown_notes:
            continue
        size += len(line) + len("; ")
        if size > _MAX_TOTAL:
            break
        shown_notes.append(line)
    own_notes = [text.rstrip(".") for text in texts]
    example = example_of(resolve_or_empty(document, schema))
    return "; ".join(filter(None, [*own_notes, example, *shown_notes]))


class _KeyFinder:
    """Finds the keys of a record that have a description, range, format or example.

    Args:
        document: The document, for resolving references.
        role: Whether the schema is that of a ``parameter`` or of a ``result``.
    """

    def __init__(self, document: Document, role: Role) -> None:
        self._document = document
        # Marks a key that the API's descriptions list, but that a value in this role does not have.
        self._hidden_mark = "readOnly" if role == "parameter" else "writeOnly"
        self._remaining_visits = _MAX_VISITS

    def keys(
        self, schema: Any, path: tuple[str, ...] = (), parent_refs: tuple[str, ...] = ()
    ) -> Iterator[_Key]:
        """Yield the described keys of a record, then those of the records inside it.

        Args:
            schema: The schema of the record.
            path: The keys that lead to the record, such as ``("user", "address")``.
            parent_refs: The references that lead to the record.
        """
        self._remaining_visits -= 1
        if not isinstance(schema, Mapping) or self._remaining_visits < 0 or len(path) > _MAX_DEPTH:
            return
        ref: Any = cast("Mapping[str, Any]", schema).get("$ref")
        if isinstance(ref, str):
            if ref in parent_refs:  # a record inside itself
                return
            parent_refs = (*parent_refs, ref)
        resolved = resolve_or_empty(self._document, schema)
        inner_records: list[tuple[Any, tuple[str, ...]]] = []
        for name, part in _mapping(resolved.get("properties")).items():
            resolved_part = resolve_or_empty(self._document, part)
            if resolved_part.get(self._hidden_mark) is True:
                continue
            part_path = (*path, clean(name, 60))
            if text := _key_text(self._document, name, resolved_part):
                yield _Key(part_path, text, _sort_rank(resolved_part, text))
            inner_records.append((part, part_path))
        for part, part_path in inner_records:
            yield from self.keys(part, part_path, parent_refs)
        for keyword in ("allOf", "anyOf", "oneOf"):
            for part in list_at(resolved, keyword):
                yield from self.keys(part, path, parent_refs)
        for keyword in ("items", "additionalProperties"):
            yield from self.keys(resolved.get(keyword), path, parent_refs)


def _sort_rank(schema: Mapping[str, Any], description: str) -> int:
    """Return the rank of a key's description: the lowest comes first in the prompt.

    The order is: descriptions that name a unit, descriptions of numbers, descriptions of texts, all
    others. Enumerations and records are among the last, because their types tell the most.
    """
    if _UNITS.search(description):
        return -1
    declared = schema.get("type")
    kinds = cast("list[Any]", declared) if isinstance(declared, list) else [declared]
    if "integer" in kinds or "number" in kinds:
        return 0
    is_free_text = "string" in kinds and "enum" not in schema
    return 1 if is_free_text else 2


def _key_text(document: Document, name: str, schema: Mapping[str, Any]) -> str:
    """Return a key's description or title, what its values mean, its range, format and example."""
    parts: list[Mapping[str, Any]] = []
    for keyword in ("allOf", "anyOf", "oneOf"):
        parts += [resolve_or_empty(document, part) for part in list_at(schema, keyword)]
    meanings = value_texts(schema, parts)
    # The descriptions of constants are in ``meanings`` already.
    described = [schema, *(part for part in parts if "const" not in part)]
    descriptions = [each.get("description") for each in described]
    titles = [each.get("title") for each in described]
    texts = [join_value_lines(text) for text in (*descriptions, *titles) if isinstance(text, str)]
    informative_texts = (text for text in texts if says_more(name, text))
    text = _first_sentences(next(informative_texts, "")).rstrip(".")
    return "; ".join(filter(None, [text, meanings, _range_and_format(schema), example_of(schema)]))


def _first_sentences(text: str) -> str:
    """Shorten a description to its first sentences, but keep a sentence with a unit.

    "The delay. (More sentences.) It is given in seconds." becomes "The delay. It is given in
    seconds."
    """
    first = sentences(text, _MAX_DOC)
    if _UNITS.search(first):
        return first
    line = clean(text, _MAX_DOC * _READ_FACTOR)
    whole_sentences = [part for part in _SENTENCE.findall(line) if not part.endswith("…")]
    unit_sentence = next(filter(_UNITS.search, whole_sentences), None)
    if unit_sentence is None:
        return first
    first_sentence = whole_sentences[0]
    opening = "" if unit_sentence == first_sentence else first_sentence
    if len(unit_sentence) > _MAX_DOC:
        unit_sentence = _PARENTHESES.sub("", unit_sentence)
    candidates = (f"{opening} {unit_sentence}".strip(), unit_sentence, first)
    # One of the texts always fits: ``first`` has at most _MAX_DOC characters.
    return next(text for text in candidates if len(text) <= _UNIT_FACTOR * _MAX_DOC)


def _range_and_format(schema: Mapping[str, Any]) -> str:
    """Describe a number's range, and a format such as ``unix-time`` that no type expresses."""
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    format_name = schema.get("format")
    bounds = [each for each in (minimum, maximum) if isinstance(each, (int, float))]
    if len(bounds) == 2 and max(map(abs, bounds)) < _MAX_SHOWN_BOUND:
        notes = [f"{minimum} to {maximum}"]
    else:
        notes = []
    if isinstance(format_name, str) and format_name not in _PLAIN_FORMATS:
        notes.append(clean(format_name, _MAX_EXAMPLE))
    return ", ".join(notes)


def example_of(schema: Mapping[str, Any]) -> str:
    """Return a short example of a string in the form ``as "DE-12"``.

    The text is empty if the schema has no short example, or says already how the string looks.
    """
    examples = list_at(schema, "examples")
    example = schema.get("example", examples[0] if examples else None)
    is_shown = isinstance(example, str) and 0 < len(example) <= _MAX_EXAMPLE
    is_known = "enum" in schema or str(schema.get("format")) in _PLAIN_FORMATS
    if is_shown and not is_known:
        return f"as {json.dumps(clean(example, _MAX_EXAMPLE))}"
    return ""


def says_more(name: str, description: str) -> bool:
    """Return True if a description has a meaningful word that is not in the name."""
    words = {word.lower().rstrip("s") for word in _WORD.findall(description)}
    name_words = {word.lower().rstrip("s") for word in [*snake(name).split("_"), *_FILLER_WORDS]}
    return not words <= name_words


def _mapping(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}


def value_texts(schema: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> str:
    """Return what the values of an enumeration mean, as ``1: open, 2: closed``.

    Args:
        schema: The schema of the enumeration, which may have an extension such as
            ``x-enum-descriptions``.
        parts: The alternatives of the schema, which may describe one constant each.
    """
    given_texts = filter(None, map(schema.get, _VALUE_TEXTS))
    texts: Any = next(given_texts, None)
    values: Any = schema.get("enum")
    pairs: list[tuple[Any, Any]] = []
    if isinstance(texts, dict):
        pairs = list(cast("dict[Any, Any]", texts).items())
    elif isinstance(texts, list) and isinstance(values, list):
        pairs = list(zip(cast("list[Any]", values), cast("list[Any]", texts), strict=False))
    else:
        constants = [part for part in parts if "const" in part]
        pairs = [
            (each["const"], each.get("description") or each.get("title")) for each in constants
        ]
    lines = (f"{value}: {clean(text, 60)}" for value, text in pairs if isinstance(text, str))
    return ", ".join(lines)


def join_value_lines(text: str) -> str:
    """Join the lines of a description that explain an enumeration's values.

    The lines ``* `0` - low`` and ``* `1` - high`` become ``0: low, 1: high``. Values equal to their
    explanations are omitted.
    """
    lines = list(_VALUE_LINE.finditer(text))
    if not lines:
        return text
    explained_values: list[str] = []
    for line in lines:
        value = line[1]
        explanation = clean(line[2], 60)
        if explanation.lower() != value.strip("'\"").lower():
            explained_values.append(f"{value}: {explanation}")
    other_text = _VALUE_LINE.sub("", text).strip()
    return "; ".join(filter(None, [other_text, ", ".join(explained_values)]))
