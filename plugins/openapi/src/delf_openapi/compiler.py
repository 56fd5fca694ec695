"""Compilation of operations to entries with the data for prompts and permissions."""

from __future__ import annotations

import contextlib
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
from delf_schemas.names import sentence, sentences, snake
from delf_schemas.notes import notes_of, says_more, value_texts
from delf_schemas.samples import Samples
from delf_schemas.shapes import FULL_CHARS, Shapes, default_text, is_binary, safe_text

GUESSED: Final = " (what it gives is a guess)"
"""The suffix of a summary whose result type a model has inferred."""

_SAFE: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
_FINAL_WORDS: Final = frozenset({"delete", "destroy", "purge", "erase", "wipe", "revoke", "remove"})


class Room(NamedTuple):
    """The maximal lengths of an entry's texts.

    Args:
        argument: The maximum number of characters of an argument's type.
        returns: The maximum number of characters of the result's type.
        doc: The maximum number of characters of an argument's description.
        depth: The nesting depth to which limits are shown.
        has_notes: Whether the keys of records are described.
    """

    argument: int
    returns: int
    doc: int
    depth: int = 0
    has_notes: bool = False


SHORT_ROOM: Final = Room(260, 420, 90)
_FULL_ROOM: Final = Room(FULL_CHARS, FULL_CHARS, 240, 4, has_notes=True)
_BYTES: Final = re.compile(r"\bbytes\b")
_FILE: Final = 'bytes | {"content": bytes, ?"filename": str, ?"content_type": str}'
"""The type of a form part that is a file."""

_NOTES: Final = 2_000
_RESULT_DOC: Final = 240
_OF_ANY_RESULT: Final = "success successful successfully ok okay response result request operation"
_DEEP: Final = 3
_VALUE_LINE: Final = re.compile(r"^\s*[*-] `([^`\n]+)` - (.+)$", re.MULTILINE)


class Argument(NamedTuple):
    """A keyword argument of an action, as shown.

    Args:
        arg: The keyword.
        name: The name on the wire.
        place: ``path``, ``query``, ``header``, ``cookie`` or ``body``.
        type: The type.
        default: The default; None for a required argument.
        doc: A one-line description.
        notes: Further text after ``doc``: further sentences, and the descriptions of the keys in
            the value.
    """

    arg: str
    name: str
    place: str
    type: str
    default: str | None
    doc: str
    notes: str = ""


@dataclass(slots=True)
class Entry:
    """A compiled action.

    Args:
        spot: The position of the operation in the specification.
        effect: The effect of a call.
        summary: A one-line description.
        returns: The type of the result.
        arguments: The arguments, the required ones first.
        undeclared: Whether the specification declares no result.
        declared: The declared type, without learned shapes.
        notes: The operation's description without the summary.
        result_notes: The descriptions of the result and of the keys in it.
    """

    spot: Spot
    effect: Effect
    summary: str
    returns: str
    arguments: tuple[Argument, ...]
    undeclared: bool = False
    declared: str = ""
    notes: str = ""
    result_notes: str = ""


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
        sample_type = samples.type_of(entry.spot.name)
        if sample_type is None:
            continue
        if entry.undeclared:
            entry.returns = sample_type
            entry.summary = entry.summary.removesuffix(GUESSED)
        else:
            is_unchanged = entry.declared in ("Any", sample_type)
            entry.returns = entry.declared if is_unchanged else f"{entry.declared} | {sample_type}"


def compile_operation(
    document: Document, operation: Operation, shapes: Shapes, room: Room = SHORT_ROOM
) -> Entry:
    """Return the entry of one operation.

    Args:
        document: The specification.
        operation: The operation.
        shapes: Writes types.
        room: The maximum number of characters of types and of texts.
    """
    spot, raw = operation.spot, operation.raw
    arguments = [_parameter_argument(p, shapes, document, room) for p in operation.params]
    if operation.body is not None:
        arguments += _body_arguments(operation.body, shapes, document, room)
    "".join([spot.path, *(a.name for a in arguments)]).encode()  # raises for lone surrogates
    arguments.sort(key=lambda a: a.default is not None)
    declared, returns = return_type(document, raw, shapes, room.returns)
    summary, notes = _operation_texts(document, raw)
    summary = summary or f"{spot.method} {clean(spot.path, 100)}"
    if raw.get("deprecated") is True:
        summary = f"Deprecated. {summary}"
    return Entry(
        spot,
        effect_of(spot),
        summary,
        returns,
        tuple(arguments),
        undeclared=not declared,
        declared=returns,
        notes=notes,
        result_notes=_result_notes(document, raw) if room.has_notes else "",
    )


def _operation_texts(document: Document, raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return an operation's summary, and its further descriptions."""
    texts: list[Any] = [raw.get("summary"), raw.get("description")]
    summary = next((first_sentence for text in texts if (first_sentence := sentence(text))), "")
    with contextlib.suppress(SpecError):
        texts.append(document.reference(raw.get("requestBody") or {}).get("description"))
    rest: list[str] = []
    for text in texts:
        line = clean(text, _NOTES)
        line = line.removeprefix(summary.removesuffix(".")).lstrip(". ")
        if line and says_more(" ".join([summary, *rest]), line):
            rest.append(line if line.endswith((".", "!", "…")) else f"{line}.")
    return summary, clean(" ".join(rest), _NOTES)


def _result_notes(document: Document, raw: Mapping[str, Any]) -> str:
    """Return the descriptions of an operation's result and of the keys in it."""
    result = _result(document, raw)
    if result is None:
        return ""
    response, _, schema = result
    about = sentences(response.get("description"), _RESULT_DOC)
    about = about if says_more(_OF_ANY_RESULT, about) else ""
    return notes_of(
        document, schema, "out", about, sentences(text_of(document, schema), _RESULT_DOC)
    )


def effect_of(spot: Spot) -> Effect:
    """Return the effect of an operation, derived from its method and name."""
    if spot.method == "DELETE":
        return "irreversible"
    words = snake(spot.operation_id or "").split("_")
    last = snake(spot.path.rpartition("/")[2].rpartition(".")[2]).split("_")
    if _FINAL_WORDS & {words[0], words[-1], last[0]}:
        return "irreversible"
    return "read" if spot.method in _SAFE else "write"


def _parameter_argument(param: Param, shapes: Shapes, document: Document, room: Room) -> Argument:
    schema = param.schema
    default = None if param.required else default_text(_resolved(document, schema))
    type_text = safe_text(shapes, schema, "in", room.argument)
    texts = _parameter_texts(param.doc or text_of(document, schema), schema, document, room)
    return Argument(param.arg, param.name, param.place, type_text, default, *texts)


def _body_arguments(body: Body, shapes: Shapes, document: Document, room: Room) -> list[Argument]:
    """Return an argument for each field of a body, or a single one for the whole body."""
    if body.fields is None:
        kinds = {"binary": "bytes", "text": "str"}
        type_text = kinds.get(body.kind) or safe_text(shapes, body.schema, "in", 3 * room.argument)
        doc = hints_of(document, body.schema, room.doc, room.depth)
        doc = doc if body.kind == "json" else clean(body.media, 60)
        default = None if body.required else "..."
        notes = _parameter_texts(text_of(document, body.schema), body.schema, document, room)[1]
        return [Argument(body.whole or "body", "", "body", type_text, default, doc, notes)]
    result = [_field_argument(f, body, shapes, document, room) for f in body.fields]
    if body.extra:
        result.append(Argument(body.extra, "", "body", "dict", "...", "further properties"))
    return result


def _field_argument(
    item: Field, body: Body, shapes: Shapes, document: Document, room: Room
) -> Argument:
    resolved = _resolved(document, item.schema)
    required = item.required and body.required
    type_text = safe_text(shapes, item.schema, "in", room.argument)
    if body.kind == "multipart":
        type_text = _BYTES.sub(_FILE, type_text)
    # "...": the body is optional, but the field is required in a body.
    default = None if required else "..." if item.required else default_text(resolved)
    texts = _parameter_texts(text_of(document, item.schema), item.schema, document, room)
    return Argument(item.arg, item.name, "body", type_text, default, *texts)


def _resolved(document: Document, schema: Any) -> Mapping[str, Any]:
    try:
        return document.resolve(schema)
    except SpecError:
        return {}


def text_of(document: Document, schema: Any, depth: int = 0) -> str:
    """Return the description of a schema, or of a part of the schema.

    Values of an enumeration are explained if the specification explains them.

    Args:
        document: The specification.
        schema: The schema.
        depth: The number of enclosing schemas.
    """
    resolved = _resolved(document, schema)
    text: Any = resolved.get("description")
    parts = [
        part
        for word in ("allOf", "oneOf", "anyOf")
        if isinstance(resolved.get(word), list)
        for part in cast("list[Any]", resolved[word])
    ]
    plain = text if isinstance(text, str) and text.strip() else ""
    if plain and _VALUE_LINE.search(plain):
        # In drf-spectacular's format; values equal to their explanations are omitted.
        lines = [(m[1], clean(m[2], 60)) for m in _VALUE_LINE.finditer(plain)]
        explained = ", ".join(f"{v}: {t}" for v, t in lines if t.lower() != v.strip("'\"").lower())
        plain = "; ".join(filter(None, [_VALUE_LINE.sub("", plain).strip(), explained]))
    if not plain and depth < _DEEP:
        texts = (text_of(document, part, depth + 1) for part in parts)
        plain = next(filter(None, texts), "")
    values = value_texts(resolved, [_resolved(document, part) for part in parts])
    if not values and isinstance(resolved.get("items"), dict) and depth < _DEEP:
        items = _resolved(document, resolved["items"])
        values = value_texts(items, [])
    return "; ".join(filter(None, [plain.strip(), values]))


def _parameter_texts(text: Any, schema: Any, document: Document, room: Room) -> tuple[str, str]:
    """Return a parameter's limits and description, and its notes."""
    resolved = _resolved(document, schema)
    shown = sentence(text, room.doc)
    if isinstance(text, str) and _explains_values(resolved) and len(shown) < len(text):
        shown = clean(text, 2 * room.doc)
    doc = "; ".join(filter(None, [hints_of(document, schema, room.doc, room.depth), shown]))
    if not room.has_notes:
        return doc, ""
    line = clean(text, _NOTES)
    rest = line.removeprefix(shown.removesuffix("…")).strip()
    return doc, notes_of(document, schema, "in", rest)


def responses_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared responses by status; statuses are upper-case text."""
    responses = raw.get("responses")
    if not isinstance(responses, dict):
        return {}
    return {str(k).upper(): v for k, v in cast("dict[Any, Any]", responses).items()}


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
    try:
        result = _result(document, raw)
    except (SpecError, TypeError, AttributeError, LookupError):
        return True, "Any"
    if result is None:
        # Many specifications do not declare results; only these statuses mean an empty one.
        good = _success_statuses(raw)
        return bool(_NOTHING.intersection(good)), "None" if good else "Any"
    _, kind, schema = result
    if kind == "json":
        if schema is None or schema in ({}, {"type": "object"}):
            return False, "Any" if not schema else "dict"
        return True, safe_text(shapes, schema, "out", most)
    if kind == "text":
        return True, "str"
    binary = schema is None or is_binary(_resolved(document, schema)) or kind == "binary"
    return True, "bytes" if binary else "str"


def _success_statuses(raw: Mapping[str, Any]) -> list[str]:
    """Return the declared statuses of success."""
    responses = responses_of(raw)
    return sorted(k for k in responses if k[:1] == "2") or [k for k in responses if k == "DEFAULT"]


def _result(
    document: Document, raw: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str, Any] | None:
    """Return the response with an operation's result, the kind of its content, and its schema."""
    responses = responses_of(raw)
    for status in _success_statuses(raw):
        response = document.reference(responses[status])
        content: Any = response.get("content") or {}
        if content:
            media = min(content, key=lambda m: kind_of(str(m)) != "json")
            spec = document.reference(content[media])
            return response, kind_of(str(media)), spec.get("schema")
    return None
