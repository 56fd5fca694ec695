"""The request body of an operation, and its keywords in scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_schemas.names import argument_name, unique
from delf_schemas.shapes import is_binary, merge_object

BodyKind = Literal["json", "form", "multipart", "text", "binary"]

_MAX_FIELDS: Final = 120


@dataclass(frozen=True, slots=True)
class Field:
    """A property of the body that is a keyword argument of the action.

    Args:
        arg: The keyword argument's name.
        name: The property's name.
        schema: The schema of the value.
        required: Whether the body must have the property.
    """

    arg: str
    name: str
    schema: Any
    required: bool


@dataclass(frozen=True, slots=True)
class Body:
    """The request body of an operation.

    Args:
        media: The media type.
        kind: The serialisation format.
        required: Whether a call must have a body.
        schema: The schema of the whole body.
        encoding: A mapping from a form's property to its declared encoding.
        fields: The properties that are keyword arguments; None if the body is one argument.
        whole_argument: The name of the keyword argument for the whole body; None if ``fields`` is
            set.
        extra_argument: The name of the keyword argument for additional properties; None if the
            schema allows none.
    """

    media: str
    kind: BodyKind
    required: bool
    schema: Any
    encoding: Mapping[str, Any]
    fields: tuple[Field, ...] | None
    whole_argument: str | None
    extra_argument: str | None

    @property
    def is_patch(self) -> bool:
        """True for a JSON merge patch, in which null removes a property."""
        return self.media.partition(";")[0].strip().lower() == "application/merge-patch+json"


_TEXTS: Final = (
    "/xml",
    "+xml",
    "/yaml",
    "+yaml",
    "-yaml",
    "ndjson",
    "jsonl",
    "jsonlines",
    "json-seq",
)


def kind_of(media: str) -> BodyKind:
    """Return the serialisation format for a media type."""
    media_type = media.partition(";")[0].strip().lower()
    if media_type in ("*/*", "application/*") or media_type.endswith(("/json", "+json")):
        return "json"
    if media_type == "application/x-www-form-urlencoded":
        return "form"
    if media_type.startswith("multipart/"):
        return "multipart"
    if media_type.startswith("text/") or media_type.endswith(_TEXTS):
        return "text"
    return "binary"


def _rank_of(media: str) -> int:
    """Return how well a media type suits a body; 0 is best."""
    media_type = media.partition(";")[0].strip().lower()
    if media_type == "application/json":
        return 0
    if media_type == "application/merge-patch+json":
        return 1
    if media_type in ("*/*", "application/*"):
        return 3
    rank_by_kind = {"json": 2, "multipart": 4, "form": 5, "text": 6, "binary": 7}
    return rank_by_kind[kind_of(media)]


def read_body(document: Document, raw: Any, used_keywords: Mapping[str, str]) -> Body | None:
    """Parse the declaration of an operation's body.

    Args:
        document: The specification.
        raw: The declared body, or a reference to one.
        used_keywords: The names of other keyword arguments, which the body may not use.

    Returns:
        The body; None if the declaration lists no media type.

    Raises:
        SpecError: If the body's declaration is invalid.
    """
    body = document.resolve_reference(raw)
    content = body.get("content")
    if not isinstance(content, dict):
        raise SpecError("its requestBody has no content")
    declarations = {str(k): v for k, v in cast("dict[str, Any]", content).items()}
    if not declarations:
        return None
    declared_media = min(declarations, key=_rank_of)
    declaration = declarations[declared_media]
    media_fields = {} if declaration is None else document.resolve_reference(declaration)
    schema: Any = media_fields.get("schema")
    if schema is not None and not isinstance(schema, (dict, bool)):
        raise SpecError(f"the body's schema is a {type(schema).__name__}")
    media = _media_to_send(document, declared_media, schema)
    kind = kind_of(media)
    encoding = media_fields.get("encoding")
    keywords: _Keywords | None = None
    if kind in ("json", "form", "multipart") and schema is not None:
        keywords = _keywords_of_properties(document, schema, used_keywords)
    if keywords is None:  # one keyword argument takes the whole body: ``body`` or ``body_content``
        whole_argument = unique("body", used_keywords, "content")
        keywords = _Keywords(None, whole_argument, extra_argument=None)
    return Body(
        media=media,
        kind=kind,
        required=body.get("required") is True,
        schema=cast("Any", schema if schema is not None else {}),
        encoding=cast("dict[str, Any]", encoding) if isinstance(encoding, dict) else {},
        fields=keywords.fields,
        whole_argument=keywords.whole_argument,
        extra_argument=keywords.extra_argument,
    )


def _media_to_send(document: Document, declared_media: str, schema: Any) -> str:
    """Return the media type to send: the declared type, or for ``*/*`` one for the schema."""
    if declared_media == "*/*" and schema is not None and is_binary(document.resolve(schema)):
        return "application/octet-stream"
    if declared_media in ("*/*", "application/*"):
        return "application/json"
    return declared_media


def _forbids_additional(document: Document, schema: Any) -> bool:
    """Return True if a schema or a part of its ``allOf`` has ``additionalProperties: false``."""
    resolved = document.resolve(schema)
    declared: Any = resolved.get("allOf")
    parts = cast("list[Any]", declared) if isinstance(declared, list) else []
    schemas = [resolved, *map(document.resolve, parts)]
    return any(each.get("additionalProperties") is False for each in schemas)


class _Keywords(NamedTuple):
    """The keyword arguments for a body; :class:`Body` describes the fields."""

    fields: tuple[Field, ...] | None
    whole_argument: str | None
    extra_argument: str | None


def _keywords_of_properties(
    document: Document, schema: Any, used_keywords: Mapping[str, str]
) -> _Keywords | None:
    """Return the keyword arguments for the properties of a body.

    Args:
        document: The specification.
        schema: The schema of the body.
        used_keywords: The names of other keyword arguments.

    Returns:
        The keyword arguments; None if the whole body has to be one argument, such as a list.
    """
    merged = merge_object(document, schema)
    if merged is None or merged.nullable:  # not an object, or null is a value, too
        return None
    writable = {
        name: part for name, part in merged.properties.items() if not document.is_read_only(part)
    }
    has_only_additional = merged.additional and not writable
    # ``{"type": "object"}`` alone allows any properties, but with ``additionalProperties: false``
    # only an empty object.
    is_undescribed = not merged.properties and not _forbids_additional(document, schema)
    if has_only_additional or is_undescribed or len(writable) > _MAX_FIELDS:
        return None
    required = merged.required
    fields = tuple(
        Field(argument_name(name), name, part, name in required) for name, part in writable.items()
    )
    keywords = {field.arg for field in fields}
    # Two properties such as ``a-b`` and ``a_b`` have the same keyword.
    if len(keywords) < len(fields) or not keywords.isdisjoint(used_keywords):
        return None
    extra_argument = None
    if merged.additional:
        extra_argument = unique("extra_fields", {*used_keywords, *keywords})
    return _Keywords(fields, whole_argument=None, extra_argument=extra_argument)
