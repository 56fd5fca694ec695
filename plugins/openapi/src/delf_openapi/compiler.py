"""Compilation of operations to entries with the data for prompts and permissions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from delf.tools.json_schema import clean
from delf.types import Effect
from delf_openapi.bodies import Body, BodyKind, Field, kind_of
from delf_openapi.document import Document
from delf_openapi.failures import SpecError, pointer_of
from delf_openapi.operations import Endpoint, Operation, Param, read_operation
from delf_schemas.hints import hints_of
from delf_schemas.names import sentence, sentences, snake
from delf_schemas.notes import join_value_lines, notes_of, says_more, value_texts
from delf_schemas.samples import Samples
from delf_schemas.shapes import FULL_CHARS, Shapes, default_text, safe_text

GUESSED: Final = " (what it gives is a guess)"
"""The suffix of an action's summary if a model has guessed the result type."""

_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS", "TRACE")
_IRREVERSIBLE_WORDS: Final = frozenset(
    {"delete", "destroy", "purge", "erase", "wipe", "revoke", "remove"}
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Verbs of operations that change something although their method is GET, as in many older APIs.
_CHANGING_WORDS: Final = _words(
    "create add insert update edit modify set replace write save send post put patch upload "
    "publish submit import move rename cancel close approve reject confirm accept decline pay "
    "charge refund transfer withdraw subscribe unsubscribe enable disable activate deactivate "
    "start stop restart reboot shutdown reset execute trigger invoke ban block kick lock unlock "
    "archive restore logout register deregister assign unassign grant clear drop truncate kill "
    "terminate rotate"
)
# Words beside which the words above are nouns, as in ``get_refund``.
_READING_WORDS: Final = _words(
    "get list read retrieve find search query count fetch show view lookup describe browse "
    "download export check preview is has"
)
# Parameters whose value is the method that the service really performs.
_METHOD_PARAMETERS: Final = frozenset(
    {"x-http-method-override", "x-http-method", "x-method-override", "_method"}
)


class TextLimits(NamedTuple):
    """The limits on the texts of an action's entry in the catalog.

    Args:
        argument: The maximum number of characters of an argument's type.
        returns: The maximum number of characters of the result's type.
        doc: The maximum number of characters of an argument's description.
        depth: The number of nested record levels whose constraints are shown.
        has_notes: Whether the entry has notes: the rest of each description, and descriptions of
            keys.
    """

    argument: int
    returns: int
    doc: int
    depth: int = 0
    has_notes: bool = False


SHORT_LIMITS: Final = TextLimits(260, 420, 90)
_FULL_LIMITS: Final = TextLimits(FULL_CHARS, FULL_CHARS, 240, 4, has_notes=True)
_BYTES: Final = re.compile(r"\bbytes\b")
# The type of a file in a multipart form.
_FILE_TYPE: Final = 'bytes | {"content": bytes, ?"filename": str, ?"content_type": str}'

_MAX_NOTES: Final = 2_000
_MAX_RESULT_DOC: Final = 240
_MAX_MEDIA_TYPE: Final = 60
_GENERIC_RESULT_WORDS: Final = (
    "success successful successfully ok okay response result request operation"
)
_MAX_DEPTH: Final = 3
# The default that a stub shows for an optional argument that is not sent if it is omitted.
_OPTIONAL: Final = "..."
_WORD_CHARACTER: Final = re.compile(r"[\w'’/-]")


class Argument(NamedTuple):
    """A keyword argument of an action, as prompts show the argument.

    Args:
        arg: The keyword argument's name.
        name: The name in the request.
        place: The location in the request: ``path``, ``query``, ``header``, ``cookie`` or
            ``body``.
        type: The type in stub notation.
        default: The default value as Python; None for a required argument.
        doc: A one-line description.
        notes: The rest of the description, and the descriptions of the keys in the value.
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
        endpoint: The name, method and path of the operation.
        effect: The effect of a call.
        summary: A one-line description.
        returns: The type of the result: the declared type, and types seen in earlier results.
        arguments: The arguments; required arguments come first.
        has_undeclared_result: Whether the specification declares no result.
        declared_type: The declared type of the result.
        notes: The rest of the operation's description.
        result_notes: The descriptions of the result and of the keys in it.
    """

    endpoint: Endpoint
    effect: Effect
    summary: str
    returns: str
    arguments: tuple[Argument, ...]
    has_undeclared_result: bool = False
    declared_type: str = ""
    notes: str = ""
    result_notes: str = ""


def compile_endpoints(
    document: Document, endpoints: Iterable[Endpoint], warnings: list[str]
) -> dict[str, Entry]:
    """Compile operations into entries by action name; skip unreadable operations.

    Args:
        document: The specification.
        endpoints: The operations.
        warnings: Receives a line for each skipped operation.
    """
    shapes = Shapes(document, has_date_objects=document.converts_dates)
    entries: dict[str, Entry] = {}
    for endpoint in endpoints:
        try:
            entries[endpoint.name] = compile_operation(
                document, read_operation(document, endpoint), shapes
            )
        except SpecError as error:
            warnings.append(_warning(endpoint, error.message))
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            place = pointer_of(endpoint.tokens)
            reason = f"it cannot be read: {type(error).__name__} (at {place})"
            warnings.append(_warning(endpoint, reason))
    return entries


def _warning(endpoint: Endpoint, reason: str) -> str:
    operation = f"{clean(endpoint.method, 12)} {clean(endpoint.path, 120)}"
    return f"{operation} is left out: {clean(reason, 300)}"


def compile_full(document: Document, entry: Entry, shapes: Shapes) -> Entry:
    """Return the catalog entry of an operation with untruncated types.

    Args:
        document: The specification.
        entry: The entry with truncated types. If its result type differs from the declared type,
            for example because responses had another type, the result type is kept.
        shapes: The formatter that writes the specification's types without truncating them.
    """
    operation = read_operation(document, entry.endpoint)
    full = compile_operation(document, operation, shapes, _FULL_LIMITS)
    if entry.returns != entry.declared_type:
        full.returns = entry.returns
    return full


def apply_samples(entries: Iterable[Entry], samples: Samples) -> None:
    """Add the observed result types to the declared result types of entries.

    If the specification declares no result, the observed type replaces a type that a model guessed.

    Args:
        entries: The entries of one API.
        samples: The shapes of observed results.
    """
    samples.has_new_types = False  # from here on, the entries have all observed types
    for entry in entries:
        sample_type = samples.type_of(entry.endpoint.name)
        if sample_type is None:
            continue
        if entry.has_undeclared_result:
            entry.returns = sample_type
            entry.summary = entry.summary.removesuffix(GUESSED)  # the type is no longer a guess
        elif entry.declared_type in ("Any", sample_type):  # ``Any`` covers each observed type
            entry.returns = entry.declared_type
        else:
            entry.returns = f"{entry.declared_type} | {sample_type}"


def compile_operation(
    document: Document, operation: Operation, shapes: Shapes, limits: TextLimits = SHORT_LIMITS
) -> Entry:
    """Compile an operation of a specification into an entry of the list of actions.

    Args:
        document: The specification.
        operation: The operation.
        shapes: Converts JSON schemas to the types that stubs show.
        limits: The limits on the entry's texts.
    """
    endpoint = operation.endpoint
    raw = operation.raw
    arguments = [_parameter_argument(p, shapes, document, limits) for p in operation.params]
    if operation.body is not None:
        arguments += _body_arguments(operation.body, shapes, document, limits)
    # Raise now, so that the operation is skipped, and does not fail in each call.
    _check_encodable([endpoint.path, *(argument.name for argument in arguments)])
    arguments.sort(key=lambda a: a.default is not None)  # required arguments first
    result = _result_type(document, raw, shapes, limits.returns)
    summary, notes = _operation_texts(document, raw)
    summary = summary or f"{endpoint.method} {clean(endpoint.path, 100)}"
    if raw.get("deprecated") is True:
        summary = f"Deprecated. {summary}"
    return Entry(
        endpoint,
        effect_of(operation),
        summary,
        result.text,
        tuple(arguments),
        has_undeclared_result=not result.is_declared,
        declared_type=result.text,  # apply_samples() later adds observed types to ``returns``
        notes=notes,
        result_notes=_result_notes(document, raw) if limits.has_notes else "",
    )


def _check_encodable(texts: Iterable[str]) -> None:
    """Raise a UnicodeEncodeError for a lone surrogate, which a request cannot contain."""
    for text in texts:
        text.encode()


def _operation_texts(document: Document, raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return an operation's summary, which is one sentence, and the rest of its descriptions."""
    # The declared summary is among these texts, because it may have further sentences.
    texts: list[Any] = [raw.get("summary"), raw.get("description")]
    summary = sentence(raw.get("summary")) or sentence(raw.get("description"))
    with contextlib.suppress(SpecError):
        texts.append(document.resolve_reference(raw.get("requestBody") or {}).get("description"))
    rest: list[str] = []
    for text in texts:
        line = _without_summary(clean(text, _MAX_NOTES), summary)
        # Many specifications repeat one text in the summary, the description and the body.
        if not line or not says_more(" ".join([summary, *rest]), line):
            continue
        if not line.endswith((".", "!", "…")):
            line += "."
        rest.append(line)
    return summary, clean(" ".join(rest), _MAX_NOTES)


def _without_summary(line: str, summary: str) -> str:
    """Remove the summary from the beginning of a line."""
    rest = line.removeprefix(summary.removesuffix("."))
    if rest == line:
        return line
    # Remove only whole words: "List user" must not be removed from "List users of a team".
    if _WORD_CHARACTER.match(rest):
        return line
    return rest.lstrip(".,:;!?…。— ")


def _result_notes(document: Document, raw: Mapping[str, Any]) -> str:
    """Return the descriptions of an operation's result and of the keys in it."""
    result = None
    with contextlib.suppress(SpecError):  # declared, but invalid
        result = _success_response(document, raw)
    if result is None:
        return ""
    response_text = sentences(result.description, _MAX_RESULT_DOC)
    if not says_more(_GENERIC_RESULT_WORDS, response_text):
        response_text = ""  # it only has generic words, such as "OK" or "Success"
    schema_text = sentences(description_of(document, result.schema), _MAX_RESULT_DOC)
    return notes_of(document, result.schema, "result", response_text, schema_text)


def effect_of(operation: Operation) -> Effect:
    """Return the effect of an operation, derived from its method, its names and its parameters."""
    endpoint = operation.endpoint
    # With such a parameter, as ``_method=DELETE``, a call of any method may delete.
    may_become_delete = any(param.name.lower() in _METHOD_PARAMETERS for param in operation.params)
    if endpoint.method == "DELETE" or may_become_delete:
        return "irreversible"
    # An operationId has its verb at the start or the end: deletePet, pet_delete.
    id_words = snake(endpoint.operation_id or "").split("_")
    # The last segment of a path may start with a verb, as /purge-all, or have it after a dot or a
    # colon, as /chat.delete and /orders/{id}:cancel. A parameter, as {delete}, is no verb.
    segment = re.split(r"[/.:]", re.sub(r"\{[^}]*\}", "", endpoint.path))[-1]
    segment_words = snake(segment).split("_")
    verbs = {id_words[0], id_words[-1], segment_words[0]}
    if _IRREVERSIBLE_WORDS & verbs:
        return "irreversible"
    if endpoint.method not in _SAFE_METHODS:
        return "write"
    # In an operationId such as get_refund, "refund" is a noun.
    has_changing_word = not _CHANGING_WORDS.isdisjoint(verbs)
    has_reading_verb = not _READING_WORDS.isdisjoint(id_words)
    return "write" if has_changing_word and not has_reading_verb else "read"


def _parameter_argument(
    param: Param, shapes: Shapes, document: Document, limits: TextLimits
) -> Argument:
    """Describe a parameter of an operation for the model.

    The parameter's ``doc`` has its constraints and description in one line. Its ``notes`` have the
    rest of the description.
    """
    schema = param.schema
    description = param.doc or description_of(document, schema)
    doc, notes = _doc_and_notes(description, schema, document, limits)
    type_as_text = safe_text(shapes, schema, "parameter", limits.argument)
    return Argument(
        arg=param.arg,
        name=param.name,
        place=param.place,
        type=type_as_text,
        default=None if param.required else default_text(document.resolve_or_empty(schema)),
        doc=doc,
        notes=notes,
    )


def _body_arguments(
    body: Body, shapes: Shapes, document: Document, limits: TextLimits
) -> list[Argument]:
    """Return an argument for each field of a body, or one argument for the whole body."""
    if body.fields is None:
        return [_whole_body_argument(body, shapes, document, limits)]
    result = [_field_argument(f, body, shapes, document, limits) for f in body.fields]
    if body.extra_argument:
        further_properties = Argument(
            arg=body.extra_argument,
            name="",
            place="body",
            type="dict",
            default=_OPTIONAL,
            doc="further properties",
        )
        result.append(further_properties)
    return result


def _whole_body_argument(
    body: Body, shapes: Shapes, document: Document, limits: TextLimits
) -> Argument:
    types_by_kind = {"binary": "bytes", "text": "str"}
    # The type of a whole body may be longer than the type of one field.
    type_text = types_by_kind.get(body.kind) or safe_text(
        shapes, body.schema, "parameter", 3 * limits.argument
    )
    description = description_of(document, body.schema)
    doc, notes = _doc_and_notes(description, body.schema, document, limits)
    if body.kind != "json":
        media_type = clean(body.media, _MAX_MEDIA_TYPE)
        doc = "; ".join(filter(None, [media_type, doc]))
    return Argument(
        arg=body.whole_argument or "body",
        name="",
        place="body",
        type=type_text,
        default=None if body.required else _OPTIONAL,
        doc=doc,
        notes=notes,
    )


def _field_argument(
    item: Field, body: Body, shapes: Shapes, document: Document, limits: TextLimits
) -> Argument:
    """Return the argument for a field of a body."""
    resolved = document.resolve_or_empty(item.schema)
    type_text = safe_text(shapes, item.schema, "parameter", limits.argument)
    if body.kind == "multipart":
        type_text = _BYTES.sub(_FILE_TYPE, type_text)
    if not item.required:
        default = default_text(resolved)
    elif body.required:
        default = None  # every call must have the argument
    else:
        default = _OPTIONAL  # a call may omit the whole body, but not only this field
    description = description_of(document, item.schema)
    doc, notes = _doc_and_notes(description, item.schema, document, limits)
    return Argument(
        arg=item.arg,
        name=item.name,
        place="body",
        type=type_text,
        default=default,
        doc=doc,
        notes=notes,
    )


def description_of(document: Document, schema: Any, depth: int = 0) -> str:
    """Return the description of a schema, and the meanings of its enumeration's values.

    A schema without a description gets the description of its first alternative that has a
    description.

    Args:
        document: The specification.
        schema: The schema.
        depth: The number of enclosing schemas.
    """
    resolved = document.resolve_or_empty(schema)
    declared: Any = resolved.get("description")
    description = declared if isinstance(declared, str) and declared.strip() else ""
    description = join_value_lines(description)
    parts: list[Any] = []
    for keyword in ("allOf", "oneOf", "anyOf"):
        if isinstance(resolved.get(keyword), list):
            parts += resolved[keyword]
    if not description and depth < _MAX_DEPTH:
        texts = (description_of(document, part, depth + 1) for part in parts)
        description = next(filter(None, texts), "")
    values = value_texts(resolved, [document.resolve_or_empty(part) for part in parts])
    if not values and isinstance(resolved.get("items"), dict) and depth < _MAX_DEPTH:
        # A list has no values of its own: use the values of its items.
        items = document.resolve_or_empty(resolved["items"])
        values = value_texts(items, [])
    return "; ".join(filter(None, [description.strip(), values]))


def _doc_and_notes(
    text: Any, schema: Any, document: Document, limits: TextLimits
) -> tuple[str, str]:
    """Return a parameter's constraints and description in one line, and further notes.

    The notes are the rest of the description, and descriptions of the keys in the value.
    """
    resolved = document.resolve_or_empty(schema)
    beginning = sentence(text, limits.doc)
    # The description of an enumeration may explain each value, so it may be longer.
    if isinstance(text, str) and _is_enumeration(resolved) and len(beginning) < len(text):
        beginning = clean(text, 2 * limits.doc)
    constraints = hints_of(document, schema, limits.doc, limits.depth)
    doc = "; ".join(filter(None, [constraints, beginning]))
    if not limits.has_notes:
        return doc, ""
    whole_description = clean(text, _MAX_NOTES)
    rest = whole_description.removeprefix(beginning.removesuffix("…")).strip()
    return doc, notes_of(document, schema, "parameter", rest)


def responses_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared responses by status, as in ``{"200": …, "4XX": …, "DEFAULT": …}``."""
    responses = raw.get("responses")
    if not isinstance(responses, dict):
        return {}
    return {str(k).upper(): v for k, v in cast("dict[Any, Any]", responses).items()}


def _is_enumeration(schema: Mapping[str, Any]) -> bool:
    """Return True if a schema, or one of its ``allOf`` or ``oneOf``, lists the allowed values."""
    parts: list[Any] = [schema]
    combined: Any = schema.get("allOf") or schema.get("oneOf")
    if isinstance(combined, list):
        parts += cast("list[Any]", combined)
    return any(isinstance(part, dict) and ("enum" in part or "const" in part) for part in parts)


_STATUSES_WITHOUT_CONTENT: Final = frozenset({"204", "205"})


class _ResultType(NamedTuple):
    """The type of an operation's result.

    Args:
        text: The type as text.
        is_declared: Whether the specification declares the type.
    """

    text: str
    is_declared: bool


def _result_type(
    document: Document, raw: Mapping[str, Any], shapes: Shapes, limit: int
) -> _ResultType:
    """Return the type of an operation's result, as declared by the first success response."""
    try:
        result = _success_response(document, raw)
    except SpecError:  # declared, but invalid
        return _ResultType("Any", is_declared=True)
    if result is None:
        return _type_without_content(raw)
    schema = result.schema
    if result.kind == "json":
        if schema is None or schema == {}:
            return _ResultType("Any", is_declared=False)
        if schema == {"type": "object"}:
            return _ResultType("dict", is_declared=False)
        return _ResultType(safe_text(shapes, schema, "result", limit), is_declared=True)
    is_text = result.kind in ("text", "form")  # as Answer.body() decides
    return _ResultType("str" if is_text else "bytes", is_declared=True)


def _type_without_content(raw: Mapping[str, Any]) -> _ResultType:
    """Return the type of an operation's result if no success response declares content."""
    statuses = _success_statuses(raw)
    if not statuses:
        return _ResultType("Any", is_declared=False)
    # Only a status such as 204 means a response without content. For a status such as 200, many
    # specifications omit the content by mistake.
    means_no_content = not _STATUSES_WITHOUT_CONTENT.isdisjoint(statuses)
    return _ResultType("None", is_declared=means_no_content)


def _success_statuses(raw: Mapping[str, Any]) -> list[str]:
    """Return the declared 2xx statuses; if there are none, ``DEFAULT`` if it is declared."""
    responses = responses_of(raw)
    statuses_2xx = sorted(status for status in responses if status.startswith("2"))
    if statuses_2xx:
        return statuses_2xx
    return ["DEFAULT"] if "DEFAULT" in responses else []


class _SuccessResponse(NamedTuple):
    """A declared success response that has content.

    Args:
        description: The declared description.
        kind: The kind of content: JSON if declared, else the first declared kind.
        schema: The schema of this content.
    """

    description: Any
    kind: BodyKind
    schema: Any


def _success_response(document: Document, raw: Mapping[str, Any]) -> _SuccessResponse | None:
    """Return the first declared success response that has content; None without one."""
    responses = responses_of(raw)
    for status in _success_statuses(raw):
        response = document.resolve_reference(responses[status])
        declared: Any = response.get("content")
        content = cast("dict[Any, Any]", declared) if isinstance(declared, dict) else {}
        if content:
            json_types = [media for media in content if kind_of(str(media)) == "json"]
            media = next(iter(json_types or content))
            spec = document.resolve_reference(content[media])
            return _SuccessResponse(
                response.get("description"), kind_of(str(media)), spec.get("schema")
            )
    return None
