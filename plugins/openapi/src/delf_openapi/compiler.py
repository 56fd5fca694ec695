"""Compilation of operations to entries with the data for prompts and permissions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from delf.tools.json_schema import clean
from delf.types import Effect
from delf_openapi.bodies import Body, Field, kind_of
from delf_openapi.document import Document
from delf_openapi.failures import SpecError, pointer_of
from delf_openapi.operations import Operation, Param, Spot, read_operation
from delf_schemas.hints import hints_of
from delf_schemas.names import sentence, snake
from delf_schemas.samples import Samples
from delf_schemas.shapes import FULL_CHARS, Shapes, default_text, is_binary, safe_text

GUESSED: Final = " (what it gives is a guess)"
"""The suffix of a summary whose result type a model has inferred."""

_SAFE: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
_FINAL_WORDS: Final = frozenset({"delete", "destroy", "purge", "erase", "wipe", "revoke", "remove"})


class Room(NamedTuple):
    """The maximal lengths of an entry's texts.

    Args:
        argument: The most characters of an argument's type.
        returns: The most characters of the result's type.
        doc: The most characters of an argument's description.
        depth: The nesting depth to which limits are shown.
    """

    argument: int
    returns: int
    doc: int
    depth: int = 0


SHORT_ROOM: Final = Room(260, 420, 90)
_FULL_ROOM: Final = Room(FULL_CHARS, FULL_CHARS, 240, 4)
_BYTES: Final = re.compile(r"\bbytes\b")
_FILE: Final = 'bytes | {"content": bytes, ?"filename": str, ?"content_type": str}'
"""The type of a form part that is a file."""

_DEEP: Final = 3
_VALUE_LINE: Final = re.compile(r"^\s*[*-] `([^`\n]+)` - (.+)$", re.MULTILINE)
_VALUE_TEXTS: Final = ("x-enum-descriptions", "x-enumDescriptions", "x-enum-varnames")


class Argument(NamedTuple):
    """One keyword of an action, as shown.

    Args:
        arg: The keyword.
        name: Its name on the wire.
        place: A parameter's place, or ``body``.
        type: Its type.
        default: Its default, or None when it is required.
        doc: A short line about it.
    """

    arg: str
    name: str
    place: str
    type: str
    default: str | None
    doc: str


@dataclass(slots=True)
class Entry:
    """One action, compiled.

    Args:
        spot: The place of the operation.
        effect: The effect of a call.
        summary: A one-line description.
        returns: The type of the result.
        arguments: The arguments, the required ones first.
        undeclared: Whether the specification declares no result.
        declared: The declared type, without learned shapes.
    """

    spot: Spot
    effect: Effect
    summary: str
    returns: str
    arguments: tuple[Argument, ...]
    undeclared: bool = False
    declared: str = ""


def compile_spots(
    document: Document, spots: Iterable[Spot], warnings: list[str]
) -> dict[str, Entry]:
    """Compile operations into entries, skipping unreadable ones with a warning.

    Args:
        document: The specification.
        spots: The operations.
        warnings: Collects a line for each skipped operation.
    """
    shapes = Shapes(document, dates=document.dates)
    entries: dict[str, Entry] = {}
    for spot in spots:
        try:
            entries[spot.name] = compile_operation(document, read_operation(document, spot), shapes)
        except SpecError as error:
            what = f"{clean(spot.method, 12)} {clean(spot.path, 120)}"
            warnings.append(f"{what} is left out: {clean(error.message, 300)}")
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            what = f"{clean(spot.method, 12)} {clean(spot.path, 120)}"
            place = clean(pointer_of(spot.tokens), 300)
            reason = f"it cannot be read: {type(error).__name__} (at {place})"
            warnings.append(f"{what} is left out: {reason}")
    return entries


def compile_full(document: Document, entry: Entry, shapes: Shapes) -> Entry:
    """Return an operation's entry with untruncated types.

    Args:
        document: The specification.
        entry: The entry; its learned result type is kept.
        shapes: Renders untruncated types of the same document.
    """
    operation = read_operation(document, entry.spot)
    full = compile_operation(document, operation, shapes, _FULL_ROOM)
    if entry.returns != entry.declared:
        full.returns = entry.returns
    return full


def apply_samples(entries: Iterable[Entry], samples: Samples) -> None:
    """Merge observed result shapes into entries, in addition to their declared types.

    Args:
        entries: The entries of one API.
        samples: The observed shapes.
    """
    samples.has_news = False
    for entry in entries:
        seen = samples.type_of(entry.spot.name)
        if seen is None:
            continue
        if entry.undeclared:
            entry.returns = seen
            entry.summary = entry.summary.removesuffix(GUESSED)
        else:
            known = entry.declared in ("Any", seen)
            entry.returns = entry.declared if known else f"{entry.declared} | {seen}"


def compile_operation(
    document: Document, operation: Operation, shapes: Shapes, room: Room = SHORT_ROOM
) -> Entry:
    """Return the entry of one operation.

    Args:
        document: The specification.
        operation: The operation.
        shapes: Writes types.
        room: The most characters of types and of texts.
    """
    spot, raw = operation.spot, operation.raw
    arguments = [_of_param(p, shapes, document, room) for p in operation.params]
    if operation.body is not None:
        arguments += _of_body(operation.body, shapes, document, room)
    "".join([spot.path, *(a.name for a in arguments)]).encode()  # half a character is not sent
    arguments.sort(key=lambda a: a.default is not None)
    declared, returns = return_type(document, raw, shapes, room.returns)
    summary = sentence(raw.get("summary")) or sentence(raw.get("description"))
    summary = summary or f"{spot.method} {clean(spot.path, 100)}"
    if raw.get("deprecated") is True:
        summary = f"Deprecated. {summary}"
    return Entry(spot, effect_of(spot), summary, returns, tuple(arguments), not declared, returns)


def effect_of(spot: Spot) -> Effect:
    """Return the effect of an operation, derived from its method and name."""
    if spot.method == "DELETE":
        return "irreversible"
    words = snake(spot.operation_id or "").split("_")
    last = snake(spot.path.rpartition("/")[2].rpartition(".")[2]).split("_")
    if _FINAL_WORDS & {words[0], words[-1], last[0]}:
        return "irreversible"
    return "read" if spot.method in _SAFE else "write"


def _of_param(param: Param, shapes: Shapes, document: Document, room: Room) -> Argument:
    found = _resolved(document, param.schema)
    return Argument(
        param.arg,
        param.name,
        param.place,
        safe_text(shapes, param.schema, "in", room.argument),
        None if param.required else default_text(found),
        _doc(param.doc or text_of(document, param.schema), found, document, room),
    )


def _of_body(body: Body, shapes: Shapes, document: Document, room: Room) -> list[Argument]:
    if body.fields is None:
        kinds = {"binary": "bytes", "text": "str"}
        shown = kinds.get(body.kind) or safe_text(shapes, body.schema, "in", 3 * room.argument)
        doc = hints_of(document, body.schema, room.doc, room.depth)
        doc = doc if body.kind == "json" else clean(body.media, 60)
        default = None if body.required else "..."
        return [Argument(body.whole or "body", "", "body", shown, default, doc)]
    result = [_of_field(f, body, shapes, document, room) for f in body.fields]
    if body.extra:
        result.append(Argument(body.extra, "", "body", "dict", "...", "further properties"))
    return result


def _of_field(item: Field, body: Body, shapes: Shapes, document: Document, room: Room) -> Argument:
    found = _resolved(document, item.schema)
    required = item.required and body.required
    shown = safe_text(shapes, item.schema, "in", room.argument)
    if body.kind == "multipart":
        shown = _BYTES.sub(_FILE, shown)
    # Of a body that may be left out: where another field is given, this one must be, too.
    default = None if required else "..." if item.required else default_text(found)
    return Argument(
        item.arg,
        item.name,
        "body",
        shown,
        default,
        _doc(text_of(document, item.schema), found, document, room),
    )


def _resolved(document: Document, schema: Any) -> Mapping[str, Any]:
    try:
        return document.resolve(schema)
    except SpecError:
        return {}


def text_of(document: Document, schema: Any, depth: int = 0) -> str:
    """Return the description of a schema, or of a part of it.

    Values of an enumeration are explained if the specification explains them.

    Args:
        document: The specification.
        schema: The schema.
        depth: The number of schemas around it.
    """
    found = _resolved(document, schema)
    text: Any = found.get("description")
    parts = [
        part
        for word in ("allOf", "oneOf", "anyOf")
        for part in cast("list[Any]", found.get(word) or [])
        if isinstance(found.get(word), list)
    ]
    plain = text if isinstance(text, str) and text.strip() else ""
    if plain and _VALUE_LINE.search(plain):
        # As drf-spectacular writes them; a value that is its own meaning is omitted.
        lines = [(m[1], clean(m[2], 60)) for m in _VALUE_LINE.finditer(plain)]
        meant = ", ".join(f"{v}: {t}" for v, t in lines if t.lower() != v.strip("'\"").lower())
        plain = "; ".join(filter(None, [_VALUE_LINE.sub("", plain).strip(), meant]))
    if not plain and depth < _DEEP:
        texts = (text_of(document, part, depth + 1) for part in parts)
        plain = next(filter(None, texts), "")
    values = _value_texts(found, [_resolved(document, part) for part in parts])
    if not values and isinstance(found.get("items"), dict) and depth < _DEEP:
        items = _resolved(document, found["items"])
        values = _value_texts(items, [])
    return "; ".join(filter(None, [plain.strip(), values]))


def _value_texts(found: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> str:
    """Return the meanings of an enumeration's values, from an extension or constants."""
    texts: Any = next((found[name] for name in _VALUE_TEXTS if found.get(name)), None)
    values: Any = found.get("enum")
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


def _doc(text: Any, schema: Mapping[str, Any], document: Document, room: Room) -> str:
    """Return a parameter's description together with the limits in its schema."""
    shown = sentence(text, room.doc)
    if isinstance(text, str) and _explains_values(schema) and len(shown) < len(text):
        shown = clean(text, 2 * room.doc)
    return "; ".join(filter(None, [hints_of(document, schema, room.doc, room.depth), shown]))


def responses_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared responses by status; statuses are upper-case text."""
    found = raw.get("responses")
    if not isinstance(found, dict):
        return {}
    return {str(k).upper(): v for k, v in cast("dict[Any, Any]", found).items()}


def _explains_values(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema's description may explain its values line by line."""
    more = schema.get("allOf") or schema.get("oneOf")
    parts: Any = [schema, *(cast("list[Any]", more) if isinstance(more, list) else [])]
    return any(isinstance(p, dict) and ("enum" in p or "const" in p) for p in parts)


_NOTHING: Final = frozenset({"204", "205"})


def return_type(
    document: Document, raw: Mapping[str, Any], shapes: Shapes, most: int
) -> tuple[bool, str]:
    """Return the type of an operation's result, and whether it is declared."""
    responses = responses_of(raw)
    good = sorted(k for k in responses if k[:1] == "2") or [k for k in responses if k == "DEFAULT"]
    for status in good:
        try:
            response = document.reference(responses[status])
            content: Any = response.get("content") or {}
            if not content:
                continue
            media = min(content, key=lambda m: kind_of(str(m)) != "json")
            spec = document.reference(content[media])
        except (SpecError, TypeError, AttributeError, LookupError):
            return True, "Any"
        schema = spec.get("schema")
        kind = kind_of(str(media))
        if kind == "json":
            if schema is None or schema in ({}, {"type": "object"}):
                return False, "Any" if not schema else "dict"
            return True, safe_text(shapes, schema, "out", most)
        if kind == "text":
            return True, "str"
        binary = schema is None or is_binary(_resolved(document, schema)) or kind == "binary"
        return True, "bytes" if binary else "str"
    # Many specifications leave out what they give: only these statuses say that it is nothing.
    return bool(_NOTHING.intersection(good)), "None" if good else "Any"
