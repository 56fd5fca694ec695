"""The request body of an operation, and its keywords in scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

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
        doc: The description in the specification.
    """

    media: str
    kind: BodyKind
    required: bool
    schema: Any
    encoding: Mapping[str, Any]
    fields: tuple[Field, ...] | None
    whole_argument: str | None
    extra_argument: str | None
    doc: Any

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
        None if the declaration lists no media type.

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
    media = min(declarations, key=_rank_of)
    if declarations[media] is not None:
        media_fields = document.resolve_reference(declarations[media])
    else:
        media_fields = {}
    schema: Any = media_fields.get("schema")
    required = body.get("required") is True
    kind = kind_of(media)
    if schema is not None and not isinstance(schema, (dict, bool)):
        raise SpecError(f"the body's schema is a {type(schema).__name__}")
    # A range of media types lets the caller choose: raw bytes for a binary schema, otherwise JSON.
    if media == "*/*" and schema is not None and is_binary(document.resolve(schema)):
        kind = "binary"
        media = "application/octet-stream"
    elif media in ("*/*", "application/*"):
        media = "application/json"
    encoding = media_fields.get("encoding")
    # Each property becomes an argument, and ``extra`` one for additional properties. If that is not
    # possible, ``fields`` is None, and one argument takes the whole body.
    fields: tuple[Field, ...] | None = None
    extra: str | None = None
    if kind in ("json", "form", "multipart") and schema is not None:
        fields, extra = _flatten(document, schema, used_keywords)
    body_argument = unique("body", used_keywords, "content") if fields is None else None
    return Body(
        media=media,
        kind=kind,
        required=required,
        schema=cast("Any", schema if schema is not None else {}),
        encoding=cast("dict[str, Any]", encoding) if isinstance(encoding, dict) else {},
        fields=fields,
        whole_argument=body_argument,
        extra_argument=extra,
        doc=body.get("description"),
    )


def _forbids_additional(document: Document, schema: Any) -> bool:
    resolved = document.resolve(schema)
    parts: Any = resolved.get("allOf")
    listed = cast("list[Any]", parts) if isinstance(parts, list) else []
    return any(
        document.resolve(each).get("additionalProperties") is False for each in (schema, *listed)
    )


def _flatten(
    document: Document, schema: Any, used_keywords: Mapping[str, str]
) -> tuple[tuple[Field, ...] | None, str | None]:
    """Return the properties of a body as fields, and the keyword for additional properties.

    A body has fields if it is an object with at most ``_MAX_FIELDS`` properties, whose names are
    distinct as keywords. Any other body has to be a single argument, such as a body that may be
    null, or whose properties the specification does not name.

    Args:
        document: The specification.
        schema: The schema of the body.
        used_keywords: The names of other keyword arguments.

    Returns:
        The fields, and the keyword, which is None if the schema allows no additional properties.
        ``(None, None)`` if the body has to be a single argument.
    """
    merged = merge_object(document, schema)
    if merged is None or merged.nullable:
        return None, None
    writable = {
        name: part for name, part in merged.properties.items() if not document.is_read_only(part)
    }
    is_plain_mapping = merged.additional and not writable
    # Without declared properties, the body is empty if others are forbidden. If they are not, the
    # specification leaves the properties open.
    has_open_properties = not merged.properties and not _forbids_additional(document, schema)
    if is_plain_mapping or has_open_properties or len(writable) > _MAX_FIELDS:
        return None, None
    names: dict[str, str] = {}  # from keyword to property
    for name in writable:
        arg = argument_name(name)
        if arg in used_keywords or arg in names:
            return None, None
        names[arg] = name
    fields = tuple(
        Field(arg, name, writable[name], name in merged.required) for arg, name in names.items()
    )
    extra = None
    if merged.additional:
        extra = unique("extra_fields", {*used_keywords, *names})
    return fields, extra
