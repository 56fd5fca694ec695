"""Conversion of Swagger 2.0 to OpenAPI 3.0; schemas are shared, not copied."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from delf_openapi.document import Document
from delf_openapi.failures import SpecError

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
_STYLES: Final = {"ssv": "spaceDelimited", "pipes": "pipeDelimited", "tsv": "tabDelimited"}
_PARAMETER_KEYWORDS: Final = frozenset(
    {"name", "in", "required", "description", "collectionFormat", "allowEmptyValue"}
)
_MULTIPART: Final = "multipart/form-data"
_URL_ENCODED: Final = "application/x-www-form-urlencoded"
_NULL_SCHEMA: Final = {"enum": [None], "nullable": True}
# Schema keywords whose values are data, not schemas.
_DATA_KEYWORDS: Final = frozenset({"example", "examples", "default", "enum"})
_FLOWS: Final = {
    "implicit": "implicit",
    "password": "password",
    "application": "clientCredentials",
    "accessCode": "authorizationCode",
}


def convert(document: Document, tree: dict[str, Any]) -> dict[str, Any]:
    """Convert a Swagger 2.0 specification to OpenAPI 3.0."""
    paths = tree.get("paths")
    defined: Any = tree.get("securityDefinitions")
    schemes = cast("dict[str, Any]", defined) if isinstance(defined, dict) else {}
    replaced_sections = ("paths", "swagger", "securityDefinitions")
    kept_sections = {k: v for k, v in tree.items() if k not in replaced_sections}
    result: dict[str, Any] = {
        **kept_sections,
        "openapi": "3.0.3",
        "servers": _servers(document, tree, tree.get("schemes")),
        "components": {"securitySchemes": {k: _convert_scheme(v) for k, v in schemes.items()}},
    }
    if isinstance(paths, dict):
        result["paths"] = {
            path: _path_item(document, tree, item)
            for path, item in cast("dict[str, Any]", paths).items()
        }
    elif paths is not None:
        result["paths"] = paths  # invalid; the caller reports the fault
    return result


def replace_item_lists(tree: dict[str, Any]) -> dict[str, Any]:
    """Replace ``items: [A, B]``, which Slack's specification has, by an ``anyOf`` of A and B."""
    if next(_schemas_with_item_lists(tree), None) is None:
        return tree
    copied = copy.deepcopy(tree)
    # A list, because the loop changes the tree through which the generator goes.
    for schema in list(_schemas_with_item_lists(copied)):
        listed = [_NULL_SCHEMA if _is_null(item) else item for item in schema.pop("items")]
        if schema.get("type") == "array":
            schema["items"] = {"anyOf": listed}
        else:  # Slack lists the alternatives of a value in ``items`` even if it is not an array
            schema["anyOf"] = listed
    return copied


def _schemas_with_item_lists(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas whose keyword ``items`` has a list."""
    pending: list[Any] = [tree]
    visited: set[int] = set()
    while pending:
        node = pending.pop()
        if not isinstance(node, (dict, list)) or id(cast("Any", node)) in visited:
            continue
        visited.add(id(cast("Any", node)))
        if isinstance(node, list):
            pending += cast("list[Any]", node)
            continue
        record = cast("dict[str, Any]", node)
        if isinstance(record.get("items"), list) and record["items"]:
            yield record
        pending += [part for key, part in record.items() if key not in _DATA_KEYWORDS]


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and cast("dict[str, Any]", schema).get("type") == "null"


def _servers(document: Document, tree: dict[str, Any], schemes: Any) -> list[dict[str, Any]]:
    """Return a server of OpenAPI 3 for each scheme, with the API's host and path; https first."""
    base = str(tree.get("basePath") or "/")
    host = tree.get("host")
    if not isinstance(host, str) or not host:
        return [{"url": base}]
    listed = cast("list[Any]", schemes) if isinstance(schemes, list) else []
    if not listed:
        # By default the API has the scheme of its specification's address.
        listed = ["http" if document.trees.uri.startswith("http://") else "https"]
    path = "" if base == "/" else base
    names = [scheme for scheme in ("https", "http") if scheme in listed]
    return [{"url": f"{name}://{host}{path}"} for name in names]


def _path_item(document: Document, tree: dict[str, Any], item: Any) -> Any:
    """Convert the operations of a path item, and add the shared parameters to each operation.

    Args:
        document: The specification.
        tree: The content of the specification.
        item: The path item; an invalid item is returned unchanged.
    """
    if not isinstance(item, dict):
        return item
    try:
        path_item = document.path_item(cast("dict[str, Any]", item))
    except SpecError:
        return cast("Any", item)
    shared_parameters: Any = path_item.get("parameters") or []
    result = {k: v for k, v in path_item.items() if k != "parameters"}
    for method in METHODS:
        declared = path_item.get(method)
        if isinstance(declared, dict):
            operation = cast("dict[str, Any]", declared)
            try:
                result[method] = _operation(document, tree, operation, shared_parameters)
            except (SpecError, TypeError, AttributeError):
                # Keep the invalid operation with the shared parameters added. The compiler reports
                # the operation's fault and its location.
                own_parameters: Any = operation.get("parameters") or []
                result[method] = {
                    **operation,
                    "parameters": _as_list(shared_parameters) + _as_list(own_parameters),
                }
    return result


def _as_list(listed: Any) -> list[Any]:
    return cast("list[Any]", listed) if isinstance(listed, list) else [listed]


def _operation(
    document: Document,
    tree: dict[str, Any],
    operation: dict[str, Any],
    shared_parameters: list[Any],
) -> dict[str, Any]:
    """Convert an operation to OpenAPI 3: its body or form becomes the ``requestBody``."""
    own_parameters: list[Any] = operation.get("parameters") or []
    declared = _merge_parameters(document, shared_parameters, own_parameters)
    bodies = [item for item in declared if item.get("in") == "body"]
    form = [item for item in declared if item.get("in") == "formData"]
    others = [item for item in declared if item.get("in") not in ("body", "formData")]
    result = {k: v for k, v in operation.items() if k not in ("parameters", "schemes")}
    result["parameters"] = [_parameter(item) for item in others]
    consumes = _media_types(operation.get("consumes", tree.get("consumes")))
    produces = _media_types(operation.get("produces", tree.get("produces"))) or ["application/json"]
    if form:
        result["requestBody"] = _form_body(form, consumes)
    elif bodies:
        result["requestBody"] = _body(bodies[-1], consumes or ["application/json"])
    if operation.get("schemes"):
        result["servers"] = _servers(document, tree, operation["schemes"])
    responses: Any = operation.get("responses") or {}
    result["responses"] = {
        status: _response(document, response, produces) for status, response in responses.items()
    }
    return result


def _merge_parameters(
    document: Document, shared: Iterable[Any], own: Iterable[Any]
) -> list[dict[str, Any]]:
    """Return the parameters of an operation, without references.

    A parameter of the operation replaces the shared parameter with the same name and place.
    """
    merged: dict[tuple[Any, Any], dict[str, Any]] = {}
    for raw in (*shared, *own):
        item = document.resolve_reference(raw)
        merged[item.get("name"), item.get("in")] = item
    return list(merged.values())


def _schema(item: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema: ``{"name": "id", "type": "integer"}`` → that ``type`` alone."""
    schema = {k: v for k, v in item.items() if k not in _PARAMETER_KEYWORDS and k[:2] != "x-"}
    if schema.get("type") == "file":
        return {**schema, "type": "string", "format": "binary"}
    return schema


def _parameter(item: dict[str, Any]) -> dict[str, Any]:
    """Convert a parameter of the path, the query or the headers."""
    result: dict[str, Any] = {
        "name": item.get("name"),
        "in": item.get("in"),
        "required": bool(item.get("required")),
        "description": item.get("description", ""),
        "schema": _schema(item),
    }
    if item.get("type") == "array":
        collection_format = item.get("collectionFormat", "csv")
        result["explode"] = collection_format == "multi"
        if collection_format in _STYLES:
            result["style"] = _STYLES[collection_format]
    return result


def _media_types(declared: Any) -> Any:
    """Return declared media types as a list; some specifications have a single text."""
    return [declared] if isinstance(declared, str) else declared or []


def _body(parameter: dict[str, Any], media_types: list[str]) -> dict[str, Any]:
    """Return the body that a parameter with the location ``body`` declares."""
    media = {"schema": parameter.get("schema", {})}
    return {
        "description": parameter.get("description", ""),
        "required": bool(parameter.get("required")),
        "content": dict.fromkeys(media_types, media),
    }


def _form_body(items: list[dict[str, Any]], consumes: list[str]) -> dict[str, Any]:
    """Return the body with the fields of a form.

    Raises:
        SpecError: If a field has no name.
    """
    if not all(isinstance(item.get("name"), str) for item in items):
        raise SpecError("a field of the form has no name")
    properties = {item["name"]: _schema(item) | _description(item) for item in items}
    required = [item["name"] for item in items if item.get("required")]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    has_files = any(item.get("type") == "file" for item in items)
    consumes_only_multipart = _MULTIPART in consumes and _URL_ENCODED not in consumes
    media_type = _MULTIPART if has_files or consumes_only_multipart else _URL_ENCODED
    media: dict[str, Any] = {"schema": schema}
    if encoding := _list_encodings(items):
        media["encoding"] = encoding
    return {"required": bool(required), "content": {media_type: media}}


def _list_encodings(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the encodings of the fields of a form that are lists, by name."""
    encodings: dict[str, Any] = {}
    for item in items:
        if item.get("type") == "array":
            collection_format = item.get("collectionFormat", "csv")
            encodings[item["name"]] = {
                "style": _STYLES.get(collection_format, "form"),
                "explode": collection_format == "multi",
            }
    return encodings


def _description(item: dict[str, Any]) -> dict[str, Any]:
    if item.get("description"):
        return {"description": item["description"]}
    return {}


def _response(document: Document, raw: Any, produces: list[str]) -> Any:
    """Convert a response; return the response unchanged if its reference is invalid.

    Args:
        document: The document that contains the response.
        raw: The response, or a reference to a response.
        produces: The media types that the operation declares for all its responses.
    """
    try:
        response = document.resolve_reference(raw)
    except SpecError:
        return raw
    schema = response.get("schema")
    result = {k: v for k, v in response.items() if k not in ("schema", "examples")}
    if isinstance(schema, dict):
        shape = cast("dict[str, Any]", schema)
        if shape.get("type") == "file":
            shape = {"type": "string", "format": "binary"}
            # A JSON type in ``produces`` is probably for error responses, and not for the file.
            file_types = [media_type for media_type in produces if "json" not in media_type]
            produces = file_types or ["application/octet-stream"]
        result["content"] = {media_type: {"schema": shape} for media_type in produces}
    return result


def _convert_scheme(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    scheme = cast("dict[str, Any]", raw)
    if scheme.get("type") == "basic":
        return {"type": "http", "scheme": "basic"}
    if scheme.get("type") == "oauth2":
        flow = {k: scheme[k] for k in ("authorizationUrl", "tokenUrl", "scopes") if k in scheme}
        flow_name = _FLOWS.get(str(scheme.get("flow")), "implicit")
        return {"type": "oauth2", "flows": {flow_name: flow}}
    return scheme
