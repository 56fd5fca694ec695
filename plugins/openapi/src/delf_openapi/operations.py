"""Operations: their parameters, bodies, servers and results."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, cast

from delf.tools.json_schema import clean
from delf_openapi.bodies import Body, read_body
from delf_openapi.document import Document
from delf_openapi.failures import SpecError, pointer_of
from delf_schemas.names import argument_name, method_name, snake, unique

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_MAX_PARAMETERS: Final = 300
_PLACES: Final = ("path", "query", "header", "cookie")
_IGNORED_HEADERS: Final = frozenset({"accept", "content-type", "authorization", "host"})
_IGNORED_HEADERS_MORE: Final = frozenset({"content-length", "transfer-encoding", "connection"})
_DEFAULT_STYLES: Final = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}

_NO_WORD: Final = re.compile(r"\W")
_OF_FRAMEWORKS: Final = re.compile(r"<(?:\w+:)?([^<>/]+)>|(?<=/):([\w-]+)")
"""A parameter in a path as ``<int:id>`` or ``:id``."""

Place = Literal["path", "query", "header", "cookie"]


class Spot(NamedTuple):
    """The position of an operation in the specification.

    Args:
        name: The unique Python name.
        method: The upper-case HTTP method.
        path: The path template.
        tokens: The JSON pointer to the operation, split into its tokens.
        operation_id: The declared operationId.
        tags: The declared tags.
    """

    name: str
    method: str
    path: str
    tokens: tuple[str, ...]
    operation_id: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an operation.

    Args:
        arg: The keyword in scripts.
        name: The name on the wire.
        place: The part of the request.
        required: Whether a call must give a value.
        schema: The schema of the value.
        style: The serialisation style of the value.
        explode: Whether each item of a list or object is serialised separately.
        reserved: Whether reserved characters stay as they are.
        media: The media type of a value that is serialised as a document, such as JSON.
        doc: The description in the specification.
    """

    arg: str
    name: str
    place: Place
    required: bool
    schema: Any
    style: str
    explode: bool
    reserved: bool
    media: str | None
    doc: Any


@dataclass(frozen=True, slots=True)
class Operation:
    """A parsed operation.

    Args:
        spot: The position of the operation in the specification.
        raw: The operation as it is written.
        item: The path item that contains the operation.
        params: All parameters, including those of the path item.
        body: The request body, if any.
    """

    spot: Spot
    raw: dict[str, Any]
    item: dict[str, Any]
    params: tuple[Param, ...]
    body: Body | None


def find_operations(document: Document, warnings: list[str]) -> list[Spot]:
    """Return all operations with their names.

    Args:
        document: The specification.
        warnings: Gets a line for each path that cannot be read.
    """
    spots: list[Spot] = []
    taken_names: set[str] = set()
    counts: dict[str, int] = {}
    found = list(_walk(document, warnings))
    short_counts = Counter(
        _without_path(_identity(op), method, path) for method, path, _, op in found
    )
    for method, path, tokens, operation in found:
        identity = _identity(operation)
        short_identity = _without_path(identity, method, path)
        words = short_identity if short_counts[short_identity] == 1 else identity
        base = method_name(_operation_name(words, method, path))
        name = base
        if name in taken_names:
            # Continue from the last number; restarting would be slow for many clashes.
            name = unique(base, taken_names, method) if base not in counts else base
            while name in taken_names:
                counts[base] = counts.get(base, 1) + 1
                name = f"{base}_{counts[base]}"
        taken_names.add(name)
        declared_tags: Any = operation.get("tags")
        words = cast("list[Any]", declared_tags) if isinstance(declared_tags, list) else []
        tags = tuple(t for t in words if isinstance(t, str))
        spots.append(Spot(name, method.upper(), path, tokens, identity, tags))
    return spots


def _identity(operation: Mapping[str, Any]) -> str | None:
    declared = operation.get("operationId")
    return declared if isinstance(declared, str) and declared else None


def _without_path(identity: str | None, method: str, path: str) -> str | None:
    """Return an operationId without the path and the method that FastAPI puts at its end."""
    if identity is None:
        return None
    end = f"{_NO_WORD.sub('_', path)}_{method}"
    plain = identity.removesuffix(end)
    return plain if plain != identity and any(c.isalpha() for c in plain) else identity


def _walk(
    document: Document, warnings: list[str]
) -> Iterator[tuple[str, str, tuple[str, ...], dict[str, Any]]]:
    paths = cast("dict[Any, Any]", document.at("#").get("paths") or {})
    for path, raw in paths.items():
        place = clean(pointer_of(["paths", str(path)]), 300)
        if not isinstance(path, str) or not path.startswith("/"):
            if str(path)[:2] != "x-":
                warnings.append(f"{place}: a path must begin with a slash")
            continue
        try:
            item = document.path_item(raw)
        except SpecError as error:
            warnings.append(f"{place}: {clean(error.reason, 300)}")
            continue
        for method in METHODS:
            operation = item.get(method)
            if operation is None:
                continue
            if isinstance(operation, dict) and "$ref" in operation:  # in some hand-written sources
                try:
                    operation = document.reference(operation)
                except SpecError as error:
                    warnings.append(f"{place}/{method}: {clean(error.reason, 300)}")
                    continue
            if not isinstance(operation, dict):
                warnings.append(f"{place}/{method}: a {type(operation).__name__}, not an operation")
                continue
            fields = cast("dict[str, Any]", operation)
            yield method, _template(document, path, item, fields), ("paths", path, method), fields


def _template(
    document: Document, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> str:
    """Return a path with its declared parameters in braces, also for ``<id>`` and ``/:id``."""
    if "<" not in path and "/:" not in path:
        return path
    declared: set[Any] = set()
    for listed in (item.get("parameters"), operation.get("parameters")):
        for entry in cast("list[Any]", listed) if isinstance(listed, list) else ():
            with contextlib.suppress(SpecError):
                param = document.reference(entry)
                declared |= {param.get("name")} if param.get("in") == "path" else set()

    def put(param: re.Match[str]) -> str:
        name = param[1] or param[2]
        return f"{{{name}}}" if name in declared else param[0]

    return _OF_FRAMEWORKS.sub(put, path)


def _operation_name(operation_id: str | None, method: str, path: str) -> str:
    """Name an operation: by its own id, or by its method and its path."""
    if operation_id and any(c.isalpha() for c in snake(operation_id)):
        return operation_id
    parts = [f"by_{p[1:-1]}" if p[:1] == "{" else p for p in path.split("/") if p]
    return f"{method} {' '.join(parts)}"


def read_operation(document: Document, spot: Spot) -> Operation:
    """Return an operation with its parameters and body.

    Raises:
        SpecError: If the operation cannot be called; the error names the location and the reason.
    """
    item = document.path_item(document.at(pointer_of(spot.tokens[:2])))
    raw: dict[str, Any] = item
    for token in spot.tokens[2:]:
        raw = raw[token]
    raw = document.reference(raw)
    try:
        params, names = _read_params(document, spot, item, raw)
        body = None
        if raw.get("requestBody") is not None:
            body = read_body(document, raw["requestBody"], names)
    except SpecError as error:
        if error.pointer:
            raise
        raise SpecError(error.reason, pointer=pointer_of(spot.tokens)) from None
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        reason = f"it cannot be read: {type(error).__name__}"
        raise SpecError(reason, pointer=pointer_of(spot.tokens)) from error
    return Operation(spot, raw, item, params, body)


def _read_params(
    document: Document, spot: Spot, item: dict[str, Any], raw: dict[str, Any]
) -> tuple[tuple[Param, ...], dict[str, str]]:
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for listed in (item.get("parameters"), raw.get("parameters")):
        if listed is None:
            continue
        if not isinstance(listed, list):
            raise SpecError(f"parameters is a {type(listed).__name__}, not a list")
        for entry in cast("list[Any]", listed):
            param = document.reference(entry)
            name, place = param.get("name"), param.get("in")
            if not isinstance(name, str) or place not in _PLACES:
                raise SpecError(f"a parameter {str(name)[:40]!r} in {str(place)[:40]!r}")
            if place == "header" and name.lower() in _IGNORED_HEADERS | _IGNORED_HEADERS_MORE:
                continue
            merged[place, name] = param
    for name in _placeholders(spot.path):
        # Many specifications forget to declare path parameters, which every URL needs.
        merged.setdefault(("path", name), {"required": True, "schema": {"type": "string"}})
    if len(merged) > _MAX_PARAMETERS:
        raise SpecError(f"it has {len(merged)} parameters, and at most {_MAX_PARAMETERS} are read")
    params: list[Param] = []
    names: dict[str, str] = {}
    order = sorted(merged.items(), key=lambda pair: _PLACES.index(pair[0][0]))
    used = set(_placeholders(spot.path))
    for (place, name), param in order:
        if place == "path" and name not in used:
            continue
        arg = unique(argument_name(name), names, place)
        names[arg] = place
        params.append(_param(document, arg, name, cast("Place", place), param))
    return tuple(params), names


def _placeholders(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:] if "}" in part]


def _param(document: Document, arg: str, name: str, place: Place, found: dict[str, Any]) -> Param:
    """Read a parameter, adding the defaults of OpenAPI."""
    media: str | None = None
    schema: Any = found.get("schema")
    content: Any = found.get("content")
    if schema is None and isinstance(content, dict) and content:
        media = str(next(iter(cast("dict[str, Any]", content))))
        schema = document.reference(content[media]).get("schema")
    if schema is None:
        schema = {} if media else {"type": "string"}
    if not isinstance(schema, (dict, bool)):
        raise SpecError(f"the schema of {name[:60]!r} is a {type(schema).__name__}")
    style = str(found.get("style") or _DEFAULT_STYLES.get(place, "form"))
    explode: Any = found.get("explode")
    return Param(
        arg=arg,
        name=name,
        place=place,
        required=place == "path" or found.get("required") is True,
        schema=cast("Any", schema),
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        reserved=found.get("allowReserved") is True,
        media=media,
        doc=found.get("description"),
    )
