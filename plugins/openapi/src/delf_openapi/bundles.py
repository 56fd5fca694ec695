"""Self-contained schemas, bundled with their references for validation libraries.

The form for requests is JSON Schema 2020-12, whatever the specification's version, and contains
only rules that services reliably enforce.
"""

from __future__ import annotations

from typing import Any, Final, cast

from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.patterns import usable_pattern

_MAX_NODES: Final = 200_000
# Keywords that do not constrain values: identifiers, annotations and examples.
_IGNORED_KEYWORDS: Final = frozenset(
    {"$id", "$schema", "$anchor", "$dynamicRef", "$dynamicAnchor", "discriminator", "example"}
    | {"examples", "xml", "externalDocs", "default", "x-model"}
    | {"title", "description"}
)
_DATA_KEYWORDS: Final = frozenset({"enum", "const"})
_KEYWORDS_OF_NAMED_SCHEMAS: Final = frozenset(
    {"properties", "$defs", "definitions", "dependentSchemas", "dependentRequired"}
)
_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
# The patterns of formats that all services interpret in the same way.
_FORMATS: Final = {
    "uuid": r"^(urn:uuid:)?\{?[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?$",
}


def bundled(document: Document, schema: Any, *, is_request: bool = False) -> dict[str, Any]:
    """Return a schema together with all schemas that it refers to.

    Args:
        document: The specification.
        schema: The schema.
        is_request: Whether the schema describes values in a request, not in a response. Such a
            schema is converted to JSON Schema 2020-12.

    Returns:
        A mapping with the ``schema``, and ``components`` with the referenced schemas.

    Raises:
        SpecError: If a reference is broken or leads to too many schemas.
    """
    names: dict[str, str] = {}
    pending_refs: list[str] = []
    remaining_nodes = _MAX_NODES

    def copied(node: Any) -> Any:
        """Copy a part of the schema, with new names in references."""
        nonlocal remaining_nodes
        remaining_nodes -= 1
        if remaining_nodes < 0:
            raise SpecError("the schema is too large for validation")
        if isinstance(node, list):
            return [copied(item) for item in cast("list[Any]", node)]
        if isinstance(node, str):
            return str(node)  # jsonschema-rs refuses subclasses, such as strings of a settings file
        if not isinstance(node, dict):
            return node
        result: dict[str, Any] = {}
        for key, value in cast("dict[Any, Any]", node).items():
            keyword = str(key)
            if keyword == "$ref" and isinstance(value, str):
                ref = document.absolute(value)
                if ref not in names:
                    names[ref] = f"s{len(names)}"
                    pending_refs.append(ref)
                result["$ref"] = f"#/components/schemas/{names[ref]}"
            elif keyword in _DATA_KEYWORDS:
                result[keyword] = value
            elif keyword in _KEYWORDS_OF_NAMED_SCHEMAS and isinstance(value, dict):
                # The keys of ``properties``, for example, are names and no keywords. In YAML, a
                # name without a schema has the value None.
                result[keyword] = {
                    str(name): {} if part is None else copied(part)
                    for name, part in cast("dict[Any, Any]", value).items()
                }
            elif keyword not in _IGNORED_KEYWORDS:
                result[keyword] = copied(value)
        # Properties by pattern are not validated. Without patternProperties, the other two keywords
        # would reject the properties that match a pattern.
        if "patternProperties" in result:
            for keyword in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
                result.pop(keyword, None)
        if not is_request:
            return result  # responses are validated in the dialect of the specification
        return _convert_to_2020(document, result, original=cast("dict[str, Any]", node))

    copied_schema = copied(schema)
    schemas: dict[str, Any] = {}
    while pending_refs:
        ref = pending_refs.pop()
        schemas[names[ref]] = copied(document.at(ref))
    return {"schema": copied_schema, "components": {"schemas": schemas}}


def _convert_to_2020(
    document: Document, copy: dict[str, Any], original: dict[str, Any]
) -> dict[str, Any]:
    """Convert a copied schema to JSON Schema 2020-12; drop rules that services rarely enforce."""
    # Alternatives often overlap, and services accept a value that matches several of them. So
    # ``oneOf`` becomes ``anyOf``, or a part of ``allOf`` if the schema has an ``anyOf``, too.
    if "oneOf" in copy:
        one_of = copy.pop("oneOf")
        if copy.get("anyOf") is None:
            copy["anyOf"] = one_of
        else:
            all_of = copy.get("allOf")
            other_parts = cast("list[Any]", all_of) if isinstance(all_of, list) else []
            copy["allOf"] = [*other_parts, {"anyOf": one_of}]
    kind = _known_type(copy.pop("type", None))
    if kind is not None:
        copy["type"] = kind
    for inclusive, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        # In OpenAPI 3.0, exclusiveMinimum is a boolean that makes minimum an exclusive limit; in
        # 2020-12, exclusiveMinimum is the limit itself.
        if isinstance(copy.get(exclusive), bool):
            is_exclusive = copy.pop(exclusive)
            if is_exclusive and inclusive in copy:
                copy[exclusive] = copy.pop(inclusive)
    if not isinstance(copy.get("multipleOf"), int):
        copy.pop("multipleOf", None)  # a check of fractions is inexact
    format_name = copy.get("format")
    kinds = [kind] if isinstance(kind, str) else kind or []
    if "string" in kinds and isinstance(format_name, str) and format_name in _FORMATS:
        copy.setdefault("pattern", _FORMATS[format_name])
    if "pattern" in copy:
        pattern = usable_pattern(copy.pop("pattern"))
        if pattern is not None:
            copy["pattern"] = pattern
    if isinstance(copy.get("required"), list):
        declared: Any = original.get("properties")
        properties = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
        # A request does not contain read-only properties, so none of them is required.
        needed = dict.fromkeys(name for name in copy["required"] if isinstance(name, str))
        copy["required"] = [
            name for name in needed if not document.is_read_only(properties.get(name))
        ]
    _drop_invalid_keywords(copy)
    if original.get("nullable") is not True:
        return copy
    # A type ``null`` allows null, unless another keyword of the schema may reject null.
    may_reject_null = bool({"enum", "const", "allOf", "anyOf"} & copy.keys())
    if isinstance(kind, str) and not may_reject_null:
        return {**copy, "type": [kind, "null"]}
    return {"anyOf": [copy, {"type": "null"}]}


def _drop_invalid_keywords(schema: dict[str, Any]) -> None:
    """Remove keywords with invalid values, such as ``required: true``.

    A single one of them would make the whole schema of the request unusable.
    """
    import jsonschema_rs

    for keyword, value in list(schema.items()):
        if not jsonschema_rs.meta.is_valid({keyword: value}):
            del schema[keyword]


def _known_type(declared: Any) -> str | list[str] | None:
    """Return the types that a schema declares; None if one of them is unknown to JSON Schema."""
    if isinstance(declared, list):
        if not all(name in _TYPES for name in cast("list[Any]", declared)):
            return None
        return [name for name in _TYPES if name in declared] or None  # each type once
    return declared if declared in _TYPES else None
