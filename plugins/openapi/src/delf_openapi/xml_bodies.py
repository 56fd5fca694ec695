"""Writes XML bodies as schemas describe them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast
from xml.etree import ElementTree as ET

from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.plain import Misfit, without_bytes
from delf_openapi.styles import text_of
from delf_schemas.shapes import merge_object

_NAME: Final = re.compile(r"[^\W\d][\w.-]*(:[^\W\d][\w.-]*)?")
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_MAX_DEPTH: Final = 60


def write_xml(document: Document, schema: Any, value: Any, where: str) -> bytes:
    """A value as an XML document.

    Names, attributes, wrapped lists and namespaces are as ``xml`` in the schemas says; the root
    is called as its schema, and what has no schema as its key.

    Args:
        document: Follows references.
        schema: Of the value.
        value: Plain data.
        where: What messages call it.

    Raises:
        Misfit: When a name or a text cannot be in XML.
    """
    found = _resolved(document, schema)
    how = _how(found)
    ref: Any = cast("dict[str, Any]", schema).get("$ref") if isinstance(schema, dict) else None
    fallback = ref.rpartition("/")[2] if isinstance(ref, str) else "root"
    name = _name(how, str(how.get("name") or fallback), where)
    root = ET.Element(name)
    _declare(root, how)
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            _add_item(document, found, item, root, name, where, 0)
    else:
        _fill(document, found, value, root, where, 0)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)


def _fill(
    document: Document,
    found: Mapping[str, Any],
    value: Any,
    node: ET.Element,
    where: str,
    depth: int,
) -> None:
    if depth > _MAX_DEPTH:
        raise Misfit(where, "it is nested too deeply")
    if not isinstance(value, dict):
        node.text = _text(value, where)
        return
    properties = _properties(document, found)
    for key, part in cast("dict[str, Any]", value).items():
        schema = properties.get(key, {})
        inner = _resolved(document, schema)
        how = _how(inner)
        name = _name(how, str(how.get("name") or key), f"{where}.{key}")
        if how.get("attribute") is True or how.get("nodeType") == "attribute":
            if isinstance(part, (dict, list)):
                raise Misfit(f"{where}.{key}", "is an attribute, and must be a single value")
            node.set(name, _text(part, f"{where}.{key}"))
        elif how.get("nodeType") in ("text", "cdata"):
            node.text = _text(part, f"{where}.{key}")
        elif isinstance(part, list):
            holder = node
            if how.get("wrapped") is True or how.get("nodeType") == "element":
                holder = ET.SubElement(node, name)
                _declare(holder, how)
            for item in cast("list[Any]", part):
                _add_item(document, inner, item, holder, name, f"{where}.{key}", depth + 1)
        else:
            child = ET.SubElement(node, name)
            _declare(child, how)
            _fill(document, inner, part, child, f"{where}.{key}", depth + 1)


def _add_item(
    document: Document,
    found: Mapping[str, Any],
    item: Any,
    holder: ET.Element,
    name: str,
    where: str,
    depth: int,
) -> None:
    """An item of a list: called as its own schema says, or else as the list."""
    schema = _resolved(document, found.get("items", {}))
    how = _how(schema)
    child = ET.SubElement(holder, _name(how, str(how["name"]), where) if "name" in how else name)
    _declare(child, how)
    _fill(document, schema, item, child, where, depth + 1)


def _properties(document: Document, found: Mapping[str, Any]) -> dict[str, Any]:
    try:
        merged = merge_object(document, found)
    except SpecError:
        merged = None
    return merged.properties if merged is not None else {}


def _resolved(document: Document, schema: Any) -> Mapping[str, Any]:
    try:
        return document.resolve(schema)
    except SpecError:
        return {}


def _how(found: Mapping[str, Any]) -> Mapping[str, Any]:
    how = found.get("xml")
    return cast("dict[str, Any]", how) if isinstance(how, dict) else {}


def _name(how: Mapping[str, Any], name: str, where: str) -> str:
    prefix = how.get("prefix")
    full = f"{prefix}:{name}" if isinstance(prefix, str) and prefix else name
    if not _NAME.fullmatch(full):
        raise Misfit(where, f"{full[:60]!r} cannot be a name in XML")
    return full


def _declare(node: ET.Element, how: Mapping[str, Any]) -> None:
    space = how.get("namespace")
    if isinstance(space, str) and space:
        prefix = how.get("prefix")
        node.set(f"xmlns:{prefix}" if isinstance(prefix, str) and prefix else "xmlns", space)


def _text(value: Any, where: str) -> str:
    text = text_of(without_bytes(value))
    if _FORBIDDEN.search(text):
        raise Misfit(where, "holds a character that XML does not allow")
    return text
