"""Opens a specification of any supported version; Swagger 2.0 as OpenAPI 3.0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from delf_openapi.document import MAIN, Document, Read, Trees
from delf_openapi.failures import SpecError, pointer_of
from delf_openapi.sources import Source
from delf_openapi.swagger2 import convert, replace_item_lists


def open_document(
    source: Source,
    allowed_roots: Iterable[str],
    read: Read,
    *,
    converts_dates: bool = False,
) -> Document:
    """Open a specification of any supported version; convert Swagger 2.0 to OpenAPI 3.0.

    Args:
        source: The specification.
        allowed_roots: The folders and origins that references may lead to, in addition to the
            specification's own folder or origin.
        read: Reads a referenced document.
        converts_dates: Whether dates in responses become date objects.

    Raises:
        SpecError: If the specification is invalid; the error has a pointer to the fault.
    """
    version = _version(source.tree)
    is_swagger = version == (2, 0)
    # Before any reference is resolved, because replace_item_lists() copies the tree, and the
    # reference would lead to the old tree.
    tree = replace_item_lists(source.tree) if is_swagger else source.tree
    trees = Trees(source.uri, tree, allowed_roots, read)
    document = Document(trees, version, converts_dates=converts_dates)
    # A section such as ``paths`` may be a reference, but later steps read the section itself.
    tree = trees.documents[MAIN] = _resolve_sections(document, tree)
    if is_swagger:  # the conversion resolves references, so it needs the document
        document.version = (3, 0)
        tree = trees.documents[MAIN] = convert(document, tree)
    _check_paths(tree, version)
    return document


def _check_paths(tree: dict[str, Any], version: tuple[int, int]) -> None:
    paths = tree.get("paths")
    if paths is None:
        may_lack_paths = version >= (3, 1) and ("webhooks" in tree or "components" in tree)
        if not may_lack_paths:
            raise SpecError("the specification has no paths", pointer=pointer_of(["paths"]))
    elif not isinstance(paths, dict):
        raise SpecError("paths is not a mapping", pointer=pointer_of(["paths"]))


def _resolve_sections(document: Document, tree: dict[str, Any]) -> dict[str, Any]:
    """Replace top-level sections that are references by the sections they refer to."""
    result = dict(tree)
    for name in ("paths", "definitions", "parameters", "responses", "components"):
        if name in result:
            result[name] = _resolve_reference(document, result[name], name)
    components: Any = result.get("components")
    if isinstance(components, dict):
        listed = cast("dict[str, Any]", components)
        result["components"] = {
            k: _resolve_reference(document, v, "components", str(k)) for k, v in listed.items()
        }
    return result


def _resolve_reference(document: Document, node: Any, *tokens: str) -> Any:
    """Return the target of a node that is a reference; return any other node unchanged.

    Args:
        document: The specification.
        node: The node.
        tokens: The path of the node, which an error message names.
    """
    if not isinstance(node, dict):
        return node
    mapping = cast("dict[str, Any]", node)
    if not isinstance(mapping.get("$ref"), str):
        return mapping
    try:
        return document.resolve_reference(mapping)
    except SpecError as error:
        raise SpecError(error.reason, pointer=pointer_of(tokens), hint=error.hint) from None


def _version(tree: Mapping[str, Any]) -> tuple[int, int]:
    """Return the major and minor version that a specification declares.

    Raises:
        SpecError: If the version is missing or not supported.
    """
    text = str(tree.get("openapi", tree.get("swagger", "")))
    parts = text.split(".")
    try:
        version = (int(parts[0]), int(parts[1]) if len(parts) > 1 else 0)
    except ValueError:
        version = (0, 0)
    if version in ((2, 0), (3, 0), (3, 1), (3, 2)):
        return version
    version_field = "openapi" if "openapi" in tree else "swagger"
    reason = f"version {text[:40]!r} is none of 3.0, 3.1, 3.2 and 2.0" if text else "no version"
    raise SpecError(
        f"this is not an OpenAPI specification: {reason}",
        pointer=pointer_of([version_field]),
        hint="a specification begins with openapi: 3.… or swagger: '2.0'",
    )
