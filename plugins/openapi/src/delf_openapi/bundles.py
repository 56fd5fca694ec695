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
    bundle = _Bundle(document, is_request=is_request)
    copied_schema = bundle.copy(schema)
    return {"schema": copied_schema, "components": {"schemas": bundle.copy_referenced_schemas()}}


class _Bundle:
    """Copies a schema, and then the schemas that it refers to.

    Args:
        document: The specification.
        is_request: Whether the schemas describe values in a request.
    """

    def __init__(self, document: Document, *, is_request: bool) -> None:
        self._document = document
        self._is_request = is_request
        # The new name of each referenced schema, by its absolute reference.
        self._names: dict[str, str] = {}
        # The references whose schemas are not copied yet.
        self._pending_refs: list[str] = []
        self._remaining_nodes = _MAX_NODES

    def copy(self, node: Any) -> Any:
        """Copy a schema or a part of one, with new names in references.

        Raises:
            SpecError: If all schemas together are too large.
        """
        self._remaining_nodes -= 1
        if self._remaining_nodes < 0:
            raise SpecError("the schema is too large for validation")
        if isinstance(node, list):
            return [self.copy(item) for item in cast("list[Any]", node)]
        if isinstance(node, dict):
            return self._copy_mapping(cast("dict[str, Any]", node))
        if isinstance(node, str):
            return str(node)  # jsonschema-rs refuses subclasses, such as strings of a settings file
        return node

    def copy_referenced_schemas(self) -> dict[str, Any]:
        """Copy all schemas that copied schemas refer to; return the copies by their new names."""
        schemas: dict[str, Any] = {}
        while self._pending_refs:
            ref = self._pending_refs.pop()
            schemas[self._names[ref]] = self.copy(self._document.at(ref))
        return schemas

    def _copy_mapping(self, node: dict[str, Any]) -> dict[str, Any]:
        """Copy the keywords of a schema.

        The copy of a schema for requests is then converted to JSON Schema 2020-12.
        """
        result: dict[str, Any] = {}
        for key, value in node.items():
            keyword = str(key)
            if keyword == "$ref" and isinstance(value, str):
                result["$ref"] = self._new_reference(value)
            elif keyword in _DATA_KEYWORDS:
                result[keyword] = value
            elif keyword in _KEYWORDS_OF_NAMED_SCHEMAS and isinstance(value, dict):
                result[keyword] = self._copy_named_schemas(cast("dict[str, Any]", value))
            elif keyword not in _IGNORED_KEYWORDS:
                result[keyword] = self.copy(value)
        if "patternProperties" in result:
            # Properties by pattern are not validated. Without ``patternProperties``, however,
            # ``additionalProperties: false`` would reject them.
            for keyword in ("patternProperties", "additionalProperties", "unevaluatedProperties"):
                result.pop(keyword, None)
        if not self._is_request:
            return result  # responses are validated in the dialect of the specification
        return _convert_to_2020(self._document, result, original=node)

    def _copy_named_schemas(self, schemas: dict[str, Any]) -> dict[str, Any]:
        """Copy a mapping from name to schema, such as the value of ``properties``."""
        copies: dict[str, Any] = {}
        for name, schema in schemas.items():
            # In YAML, a name without a schema has the value None.
            copies[str(name)] = {} if schema is None else self.copy(schema)
        return copies

    def _new_reference(self, ref: str) -> str:
        """Return the reference to a schema by its new name."""
        absolute_ref = self._document.absolute(ref)
        if absolute_ref not in self._names:
            self._names[absolute_ref] = f"s{len(self._names)}"
            self._pending_refs.append(absolute_ref)
        return f"#/components/schemas/{self._names[absolute_ref]}"


def _convert_to_2020(
    document: Document, copy: dict[str, Any], original: dict[str, Any]
) -> dict[str, Any]:
    """Convert a copied schema to JSON Schema 2020-12; drop rules that services rarely enforce."""
    kind = _known_type(copy.pop("type", None))
    if kind is not None:
        copy["type"] = kind
    if "oneOf" in copy:
        _convert_one_of(copy)
    _convert_limits(copy)
    _convert_pattern(copy)
    if isinstance(copy.get("required"), list):
        # Read the original's properties: the document cannot resolve the copy's new references.
        declared: Any = original.get("properties")
        properties = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
        unique_names = dict.fromkeys(name for name in copy["required"] if isinstance(name, str))
        # A request does not contain read-only properties, so none of them is required.
        copy["required"] = [
            name for name in unique_names if not document.is_read_only(properties.get(name))
        ]
    _drop_invalid_keywords(copy)
    return _nullable(copy) if original.get("nullable") is True else copy


def _convert_one_of(copy: dict[str, Any]) -> None:
    """Convert ``oneOf`` to ``anyOf``, or to a part of ``allOf`` if the schema has an ``anyOf``.

    Alternatives often overlap, and services accept a value that matches several of them.
    """
    one_of = copy.pop("oneOf")
    if copy.get("anyOf") is None:
        copy["anyOf"] = one_of
        return
    all_of = copy.get("allOf")
    other_parts = cast("list[Any]", all_of) if isinstance(all_of, list) else []
    copy["allOf"] = [*other_parts, {"anyOf": one_of}]


def _convert_limits(copy: dict[str, Any]) -> None:
    """Convert exclusive limits of OpenAPI 3.0; drop a ``multipleOf`` that is no integer.

    A check with a fraction, such as ``multipleOf: 0.1``, would be inexact. In OpenAPI 3.0,
    ``exclusiveMinimum`` is a boolean that makes ``minimum`` an exclusive limit; in 2020-12,
    ``exclusiveMinimum`` is the limit itself.
    """
    for inclusive, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(copy.get(exclusive), bool):
            is_exclusive = copy.pop(exclusive)
            if is_exclusive and inclusive in copy:
                copy[exclusive] = copy.pop(inclusive)
    if not isinstance(copy.get("multipleOf"), int):
        copy.pop("multipleOf", None)


def _convert_pattern(copy: dict[str, Any]) -> None:
    """Drop a pattern that delf cannot check; replace a missing pattern by that of the format."""
    format_name = copy.get("format")
    # ``type`` is "string" or a list with "string"; ``in`` is True for both.
    if "string" in copy.get("type", ()) and isinstance(format_name, str):
        pattern = copy.pop("pattern", _FORMATS.get(format_name))
    else:
        pattern = copy.pop("pattern", None)
    checkable_pattern = usable_pattern(pattern)
    if checkable_pattern is not None:
        copy["pattern"] = checkable_pattern


def _nullable(copy: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also allows null."""
    # Adding the type ``null`` is enough, unless another keyword may reject null.
    may_reject_null = bool({"enum", "const", "allOf", "anyOf"} & copy.keys())
    if isinstance(copy.get("type"), str) and not may_reject_null:
        return {**copy, "type": [copy["type"], "null"]}
    return {"anyOf": [copy, {"type": "null"}]}


def _drop_invalid_keywords(schema: dict[str, Any]) -> None:
    """Remove keywords with invalid values, such as ``required: true``.

    A single invalid keyword would make the whole schema of the request unusable.
    """
    import jsonschema_rs

    for keyword, value in list(schema.items()):
        if not jsonschema_rs.meta.is_valid({keyword: value}):
            del schema[keyword]


def _known_type(declared: Any) -> str | list[str] | None:
    """Return the types that a schema declares; None if JSON Schema does not know one of them."""
    if isinstance(declared, list):
        if not all(name in _TYPES for name in cast("list[Any]", declared)):
            return None
        return [name for name in _TYPES if name in declared] or None  # each type once
    return declared if declared in _TYPES else None
