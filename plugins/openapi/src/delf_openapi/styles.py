"""Serialisation of parameters by ``style`` and ``explode``."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote

from delf_openapi.operations import Param
from delf_schemas.plain import Misfit, without_bytes

Pairs = list[tuple[str, str]]

_UNRESERVED: Final = "-._~"
# Characters that need no quoting in a query, as they neither end it nor begin another pair.
_RESERVED: Final = _UNRESERVED + ":/?@!$'()*,;"
_DELIMITERS: Final = {
    "form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"
}  # fmt: skip
# Only Swagger 2.0 has these in paths and headers.
_SWAGGER_DELIMITERS: Final = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}


def text_of(value: Any) -> str:
    """Format a single value for a URL, a header or a form."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    # A calculated 2.0 becomes 2, because a service may expect an integer.
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, (dict, list)):
        return json.dumps(without_bytes(value), ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, bytes):
        return cast("str", without_bytes(value))
    return str(value)


def path_text(param: Param, value: Any) -> str:
    """Serialise and quote a path parameter's value.

    Raises:
        Misfit: If the value would change the called path.
    """
    text = _styled_path_text(param, value)
    if not text:
        raise Misfit(param.arg, "must not be empty: it is part of the address")
    if _has_dot_segment(text):
        raise Misfit(param.arg, "must not hold '.' or '..' as a step: it would lead elsewhere")
    return text


def _styled_path_text(param: Param, value: Any) -> str:
    if param.media is not None:
        return quote(_json(value), safe=_UNRESERVED)
    # Only Swagger 2.0 allows other delimiters than a comma in a path.
    if param.style in _SWAGGER_DELIMITERS and isinstance(value, list):
        separator = _DELIMITERS[param.style]  # percent-encoded, like the rest of the path
        return separator.join(map(_quoted, cast("list[Any]", value)))
    if param.style == "label":  # /.5
        return "." + _expand(value, param.explode, ".")
    if param.style == "matrix":  # /;id=5
        return ";" + _expand(value, param.explode, ";", quote(param.name, safe=_UNRESERVED))
    return _expand(value, param.explode, ",")


def _has_dot_segment(quoted_text: str) -> bool:
    """Return True if a server may read a segment ``.`` or ``..`` in a part of a path.

    Many servers decode a quoted slash before they split a path into segments.
    """
    for segment in re.split(r"%2F|%5C", quoted_text, flags=re.IGNORECASE):
        # Some servers ignore a semicolon, and the text after it, in each segment. A plain semicolon
        # comes from the style ``matrix``, a quoted one from the value.
        if re.split("%3B|;", segment)[0] in (".", ".."):
            return True
    return False


def _expand(value: Any, explode: bool, separator: str, name: str | None = None) -> str:
    """Serialise a value for a path segment, as RFC 6570 defines.

    Args:
        value: The value.
        explode: Whether each item of a list or object is separate.
        separator: The text between separate items.
        name: The quoted name to put before the value; None for no name.
    """
    if isinstance(value, list):
        parts = [_quoted(item) for item in cast("list[Any]", value)]
        if name is not None and explode:  # id=3;id=4
            return separator.join(f"{name}={part}" for part in parts)
        text = (separator if explode else ",").join(parts)
    elif isinstance(value, dict):
        items = [(_quoted(k), _quoted(v)) for k, v in cast("dict[str, Any]", value).items()]
        if explode:  # x=1;y=2, also with a name: the keys take its place
            return separator.join(f"{k}={v}" for k, v in items)
        text = ",".join(f"{k},{v}" for k, v in items)  # x,1,y,2
    else:
        text = _quoted(value)
    if name is None:
        return text
    return f"{name}={text}" if text else name


def _quoted(value: Any, safe: str = _UNRESERVED) -> str:
    return quote(text_of(value), safe=safe)


def _is_nested(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    if not isinstance(value, list):
        return False
    return any(isinstance(part, (dict, list)) for part in cast("list[Any]", value))


def _json(value: Any) -> str:
    return json.dumps(without_bytes(value), ensure_ascii=False, separators=(",", ":"))


def query_pairs(param: Param, value: Any) -> Pairs:
    """Serialise a query parameter to pairs of quoted name and quoted value."""
    safe = _RESERVED if param.reserved else _UNRESERVED
    name = quote(param.name, safe=_UNRESERVED)
    has_media_type = param.media is not None  # in practice JSON
    # Only the style deepObject defines how nested values are written.
    has_no_style = param.style != "deepObject" and _is_nested(value)
    if has_media_type or has_no_style:
        return [(name, quote(_json(value), safe=_UNRESERVED))]
    return styled_pairs(name, value, param.style, explode=param.explode, safe=safe)


def styled_pairs(name: str, value: Any, style: str, *, explode: bool, safe: str) -> Pairs:
    """Serialise a value to pairs of quoted name and quoted value, for a query or form.

    Args:
        name: The quoted name.
        value: The value.
        style: ``form``, ``deepObject`` or one of the delimited styles.
        explode: Whether each item of a list or object becomes a separate pair.
        safe: Characters that are not quoted.
    """
    if style == "deepObject" and isinstance(value, (dict, list)):
        return _deep_object_pairs(name, value, safe)
    delimiter = _DELIMITERS.get(style, ",")
    if isinstance(value, list):
        parts = [_quoted(item, safe) for item in cast("list[Any]", value)]
        if explode:
            return [(name, part) for part in parts]
        return [(name, delimiter.join(parts))] if parts else []
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        items = [(_quoted(k), _quoted(v, safe)) for k, v in mapping.items()]
        if explode and style == "form":  # OpenAPI does not explode objects in the other styles
            return items
        keys_and_values = itertools.chain.from_iterable(items)
        return [(name, delimiter.join(keys_and_values))] if items else []
    return [(name, _quoted(value, safe))]


def _deep_object_pairs(name: str, value: Any, safe: str) -> Pairs:
    """Serialise nested values to pairs such as ``a[b][c]=1`` and ``a[0]=1``."""
    if isinstance(value, Mapping):
        items = [(_quoted(k), v) for k, v in cast("Mapping[str, Any]", value).items()]
    elif isinstance(value, list):
        items = [(str(i), v) for i, v in enumerate(cast("list[Any]", value))]
    else:
        return [(name, _quoted(value, safe))]
    pairs: Pairs = []
    for key, part in items:
        pairs += _deep_object_pairs(f"{name}%5B{key}%5D", part, safe)  # a quoted ``name[key]``
    return pairs


def header_text(param: Param, value: Any) -> str:
    """Serialise a header parameter's value.

    Raises:
        Misfit: If the value contains a line break.
    """
    if param.media is not None:
        text = _json(value)
    elif isinstance(value, list):
        separator = _SWAGGER_DELIMITERS.get(param.style, ",")
        text = separator.join(text_of(item) for item in cast("list[Any]", value))
    elif isinstance(value, dict):
        separator = "=" if param.explode else ","
        items = cast("dict[str, Any]", value).items()
        text = ",".join(f"{k}{separator}{text_of(v)}" for k, v in items)
    else:
        text = text_of(value)
    return safe_header(param.arg, text)


def safe_header(arg: str, text: str) -> str:
    """Check that a text is valid in a header; return the text without spaces around it.

    Raises:
        Misfit: If the text contains a control character.
    """
    if any(ord(c) < 32 or ord(c) == 127 for c in text if c != "\t"):
        raise Misfit(arg, "must not hold line breaks or control characters")
    return text.strip()


def cookie_pairs(param: Param, value: Any) -> Pairs:
    """Serialise a cookie parameter to pairs of name and value."""
    name = quote(param.name, safe=_UNRESERVED)
    if param.media is not None:
        return [(name, quote(_json(value), safe=_UNRESERVED))]
    return styled_pairs(name, value, "form", explode=param.explode, safe=_UNRESERVED)
