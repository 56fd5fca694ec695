"""Writes bodies: JSON, forms, multipart, bytes and text."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple, cast
from urllib.parse import quote

from delf_openapi.bodies import Body, kind_of
from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.sources import dumps
from delf_openapi.styles import Pairs, safe_header, styled_pairs, text_of
from delf_schemas.plain import Misfit, without_bytes
from delf_schemas.shapes import is_binary, merge_object

_UNRESERVED = "-._~"


def write_body(document: Document, body: Body, value: Any) -> tuple[bytes, str]:
    """Serialise a body; return its bytes and its Content-Type.

    Args:
        document: The specification.
        body: The declared body.
        value: The value to serialise.

    Raises:
        Misfit: If the value does not fit the serialisation.
    """
    if body.kind == "json":
        return dumps(without_bytes(value)), body.media
    if body.kind == "form":
        if not isinstance(value, dict):
            raise Misfit(body.whole_argument or "body", "must be a dict")
        pairs = form_pairs(body, cast("dict[str, Any]", value))
        return "&".join(f"{k}={v}" for k, v in pairs).encode("ascii"), body.media
    if body.kind == "multipart":
        if not isinstance(value, dict):
            raise Misfit(body.whole_argument or "body", "must be a dict")
        boundary_text = secrets.token_hex(16)
        content = _multipart(document, body, cast("dict[str, Any]", value), boundary_text)
        return content, f"{body.media.partition(';')[0].strip()}; boundary={boundary_text}"
    if body.kind == "binary":
        return file_of(body, value)
    if isinstance(value, bytes):
        return value, _concrete_media_type(body.media)
    return text_of(value).encode(), _concrete_media_type(body.media)


def file_of(body: Body, value: Any) -> tuple[bytes, str]:
    """Return the bytes and the media type of a file.

    The media type is the declared one, unless the value is a dict with another ``content_type``.

    Raises:
        Misfit: If the value is not a file.
    """
    # The argument that has the whole body.
    argument_name = body.whole_argument or "body"
    media = _concrete_media_type(body.media)
    if isinstance(value, dict):
        file = cast("dict[str, Any]", value)
        value = file.get("content")
        if file.get("content_type"):
            media = safe_header(argument_name, str(file["content_type"]))
    if isinstance(value, str):
        return value.encode(), media
    if isinstance(value, bytes):
        return value, media
    raise Misfit(argument_name, "must be bytes or text, or a dict with bytes or text as 'content'")


def _concrete_media_type(media: str) -> str:
    """Replace a media type range, such as ``text/*``, by a concrete media type."""
    if "*" not in media:
        return media
    if media.startswith("text/"):
        return "text/plain"
    return "application/octet-stream"


def _properties(document: Document, body: Body) -> dict[str, Any]:
    try:
        merged = merge_object(document, body.schema)
    except SpecError:
        merged = None
    return merged.properties if merged is not None else {}


def _encoding(body: Body, name: str) -> Mapping[str, Any]:
    encoding = body.encoding.get(name)
    if isinstance(encoding, dict):
        return cast("dict[str, Any]", encoding)
    return {}


def form_pairs(body: Body, value: dict[str, Any]) -> Pairs:
    """Serialise a form to quoted pairs of names and values.

    A nested value without a declared style is written with brackets if the form declares brackets
    for any property, otherwise as JSON, which is the default of OpenAPI.
    """
    uses_brackets = any(
        _encoding(body, name).get("style") == "deepObject" for name in body.encoding
    )
    pairs: Pairs = []
    for name, part in value.items():
        encoding = _encoding(body, name)
        quoted_name = quote(name, safe=_UNRESERVED)
        pairs += _pairs_of_property(quoted_name, part, encoding, uses_brackets=uses_brackets)
    return pairs


def _pairs_of_property(
    name: str, value: Any, encoding: Mapping[str, Any], *, uses_brackets: bool
) -> Pairs:
    """Serialise a property of a form in its declared media type or style.

    A list or object without a declared style is serialised with brackets or as JSON.

    Args:
        name: The quoted name.
        value: The value.
        encoding: The declared encoding of the property.
        uses_brackets: Whether a list or object without a declared style gets brackets.
    """
    media = encoding.get("contentType")
    if isinstance(media, str) and kind_of(media) == "json":
        return [(name, _quoted_json(value))]
    style = encoding.get("style")
    if style is None and uses_brackets and isinstance(value, (dict, list)):
        style = "deepObject"
    if style is None and "explode" not in encoding and _is_nested(value):
        # The form declares nothing about its nested values, so they are written as JSON; each item
        # of a list gets a pair of its own.
        items: list[Any] = _list(value) if isinstance(value, list) else [value]
        return [(name, _quoted_json(item)) for item in items]
    style = str(style or "form")
    explode = encoding.get("explode")
    if not isinstance(explode, bool):
        explode = style == "form"
    return styled_pairs(name, value, style, explode=explode, safe=_UNRESERVED)


def _quoted_json(value: Any) -> str:
    return quote(_json(value), safe=_UNRESERVED)


def _is_nested(value: Any) -> bool:
    """Return True for a dict, and for a list with a dict or a list in it."""
    if isinstance(value, list):
        return any(isinstance(item, (dict, list)) for item in _list(value))
    return isinstance(value, dict)


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value)


def _json(value: Any) -> str:
    return dumps(without_bytes(value)).decode()


def _multipart(document: Document, body: Body, value: dict[str, Any], boundary_text: str) -> bytes:
    """Serialise a multipart body with a part for each property."""
    properties = _properties(document, body)
    parts: list[bytes] = []
    for name, content in value.items():
        encoding = _encoding(body, name)
        declared = encoding.get("contentType")
        schema = document.resolve_or_empty(properties.get(name, {}))
        is_json = isinstance(declared, str) and kind_of(declared) == "json"
        items: list[Any] = [content]
        item_schema = schema
        # Each item of a list is a part of its own, except in JSON, which has lists.
        if isinstance(content, list) and not is_json:
            items = _list(content)
            item_schema = document.resolve_or_empty(schema.get("items", {}))
        for item in items:
            part = _part(name, item, item_schema, declared)
            header = _part_header(boundary_text, name, part.filename, part.media)
            parts.append(header + part.data + b"\r\n")
    return b"".join(parts) + f"--{boundary_text}--\r\n".encode()


class _Part(NamedTuple):
    """A part of a multipart body.

    Args:
        media: The media type; None without one.
        filename: The file name; None if the part is not a file.
        data: The content.
    """

    media: str | None
    filename: str | None
    data: bytes


def _part(name: str, value: Any, schema: Mapping[str, Any], declared_media_types: Any) -> _Part:
    """Serialise a part of a multipart body.

    Args:
        name: The name of the part.
        value: The value. A file may be a dict with ``content``, ``filename`` and ``content_type``.
        schema: The schema of the value.
        declared_media_types: The specification's media types, separated by commas, if any.
    """
    media = None
    if isinstance(declared_media_types, str):
        media = declared_media_types.split(",")[0].strip()
    if _describes_file(value, schema):
        filename = str(value.get("filename") or name)
        if value.get("content_type"):
            media = str(value["content_type"])
        return _content_part(name, value["content"], media, filename)
    is_file = isinstance(value, bytes) or (isinstance(value, str) and is_binary(schema))
    return _content_part(name, value, media, filename=name if is_file else None)


def _describes_file(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return True if a dict is a file with its ``content``, not data with a key ``content``."""
    if not isinstance(value, dict) or "content" not in value:
        return False
    return is_binary(schema) or isinstance(cast("dict[str, Any]", value)["content"], bytes)


def _content_part(name: str, content: Any, media: str | None, filename: str | None) -> _Part:
    if isinstance(content, (dict, list)):
        if media and kind_of(media) == "text":
            raise Misfit(name, f"must be text, because its media type is {media}")
        return _Part(media or "application/json", filename, _json(content).encode())
    if not media and filename is not None:
        media = "application/octet-stream"
    data = content if isinstance(content, bytes) else text_of(content).encode()
    return _Part(media, filename, data)


def _part_header(boundary_text: str, name: str, filename: str | None, media: str | None) -> bytes:
    """Return the boundary and the headers of a multipart part, in bytes."""
    lines = f'--{boundary_text}\r\nContent-Disposition: form-data; name="{_escaped(name)}"'
    if filename is not None:
        lines += f'; filename="{_escaped(filename)}"'
    if media and "*" not in media:
        lines += f"\r\nContent-Type: {_escaped(media)}"
    return f"{lines}\r\n\r\n".encode()


def _escaped(text: str) -> str:
    """Escape a name for a Content-Disposition header, as browsers do."""
    for char, code in (("\r", "%0D"), ("\n", "%0A"), ('"', "%22")):
        text = text.replace(char, code)
    return text
