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
    """A property of the body with its own keyword.

    Args:
        arg: The keyword.
        name: The property.
        schema: The schema of the value.
        required: Whether the body must have the property.
    """

    arg: str
    name: str
    schema: Any
    required: bool


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body.

    Args:
        media: The media type.
        kind: The serialisation.
        required: Whether a call must have one.
        schema: The schema of the whole body.
        encoding: The encodings of a form's parts.
        fields: The properties as keywords; None if the whole body is one keyword.
        whole: The keyword for the whole body.
        extra: The keyword for additional properties, if allowed.
        doc: The description in the specification.
    """

    media: str
    kind: BodyKind
    required: bool
    schema: Any
    encoding: Mapping[str, Any]
    fields: tuple[Field, ...] | None
    whole: str | None
    extra: str | None
    doc: Any

    @property
    def is_patch(self) -> bool:
        """True for a merge patch, in which None removes a property."""
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
    """Return the serialisation for a media type."""
    plain = media.partition(";")[0].strip().lower()
    if plain in ("*/*", "application/*") or plain.endswith(("/json", "+json")):
        return "json"
    if plain == "application/x-www-form-urlencoded":
        return "form"
    if plain.startswith("multipart/"):
        return "multipart"
    if plain.startswith("text/") or plain.endswith(_TEXTS):
        return "text"
    return "binary"


def _rank_of(media: str) -> int:
    """Return the preference of a media type; 0 is best."""
    plain = media.partition(";")[0].strip().lower()
    order = {"json": 2, "multipart": 4, "form": 5, "text": 6, "binary": 7}
    exact = {"application/json": 0, "application/merge-patch+json": 1}
    exact |= {"*/*": 3, "application/*": 3}
    return exact.get(plain, order[kind_of(media)])


def read_body(document: Document, raw: Any, used_keywords: Mapping[str, str]) -> Body | None:
    """Return the body of an operation; None if the operation accepts no supported body.

    Raises:
        SpecError: If the body's declaration is invalid.
    """
    body = document.reference(raw)
    content = body.get("content")
    if not isinstance(content, dict):
        raise SpecError("its requestBody has no content")
    kinds = {str(k): v for k, v in cast("dict[str, Any]", content).items()}
    if not kinds:
        return None
    media = min(kinds, key=_rank_of)
    spec = document.reference(kinds[media]) if kinds[media] is not None else {}
    schema: Any = spec.get("schema")
    required = body.get("required") is True
    kind = kind_of(media)
    if schema is not None and not isinstance(schema, (dict, bool)):
        raise SpecError(f"the body's schema is a {type(schema).__name__}")
    if media == "*/*" and schema is not None and is_binary(document.resolve(schema)):
        kind, media = "binary", "application/octet-stream"
    elif media in ("*/*", "application/*"):
        media = "application/json"
    encoding = spec.get("encoding")
    fields: tuple[Field, ...] | None = None
    extra: str | None = None
    if kind in ("json", "form", "multipart") and schema is not None:
        fields, extra = _flatten(document, schema, used_keywords, whole_allowed=kind == "json")
    body_argument = unique("body", used_keywords, "content") if fields is None else None
    return Body(
        media=media,
        kind=kind,
        required=required,
        schema=cast("Any", schema if schema is not None else {}),
        encoding=cast("dict[str, Any]", encoding) if isinstance(encoding, dict) else {},
        fields=fields,
        whole=body_argument,
        extra=extra,
        doc=body.get("description"),
    )


def _forbids_others(document: Document, schema: Any) -> bool:
    """Return whether an object forbids additional properties."""
    resolved = document.resolve(schema)
    parts: Any = resolved.get("allOf")
    listed = cast("list[Any]", parts) if isinstance(parts, list) else []
    return any(
        document.resolve(each).get("additionalProperties") is False for each in (schema, *listed)
    )


def _flatten(
    document: Document, schema: Any, used_keywords: Mapping[str, str], *, whole_allowed: bool
) -> tuple[tuple[Field, ...] | None, str | None]:
    """Return the properties as keywords, and the keyword for additional properties."""
    merged = merge_object(document, schema)
    if merged is None or merged.nullable:
        return None, None
    writable = {
        name: part for name, part in merged.properties.items() if not document.is_read_only(part)
    }
    if len(writable) > _MAX_FIELDS:
        return None, None
    if not merged.properties and not _forbids_others(document, schema):
        return None, None  # its properties are not declared
    if not writable and (merged.additional or whole_allowed is False):
        return (None, None) if merged.additional else ((), None)
    names: dict[str, str] = {}
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
