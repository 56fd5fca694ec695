"""Operations: their parameters, bodies, servers and results."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, cast

from delf.tools.json_schema import clean
from delf_openapi.bodies import Body, read_body
from delf_openapi.document import Document
from delf_openapi.failures import SpecError, pointer_of
from delf_schemas.names import action_name, argument_name, snake, unique

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_MAX_PARAMETERS: Final = 300
_PLACES: Final = ("path", "query", "header", "cookie")
_IGNORED_HEADERS: Final = frozenset(
    {
        "accept",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
    }
)
_DEFAULT_STYLES: Final = {"path": "simple", "header": "simple", "query": "form", "cookie": "form"}

_NON_WORD: Final = re.compile(r"\W")
# Matches a path parameter in the notation of web frameworks, as ``<int:id>`` or ``:id``.
_FRAMEWORK_PARAMETER: Final = re.compile(r"<(?:\w+:)?([^<>/]+)>|(?<=/):([\w-]+)")

Place = Literal["path", "query", "header", "cookie"]


class Endpoint(NamedTuple):
    """An operation's method, path and names, and its position in the specification.

    Args:
        name: The unique name of the action.
        method: The upper-case HTTP method.
        path: The path template.
        tokens: The tokens of the JSON pointer to the operation.
        operation_id: The declared operationId; None without one.
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
        arg: The name of the keyword argument.
        name: The name in the request.
        place: The location in the request.
        required: Whether a call must give a value.
        schema: The schema of the value.
        style: The serialisation style of the value, such as ``form``.
        explode: Whether each item of a list or object is serialised separately.
        reserved: Whether reserved characters are not percent-encoded.
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
        endpoint: The position of the operation in the specification.
        raw: The operation as it is written.
        item: The path item that contains the operation.
        params: All parameters, including those of the path item.
        body: The request body, if any.
    """

    endpoint: Endpoint
    raw: dict[str, Any]
    item: dict[str, Any]
    params: tuple[Param, ...]
    body: Body | None


def find_operations(document: Document, warnings: list[str]) -> list[Endpoint]:
    """Return the positions and names of all operations.

    Args:
        document: The specification.
        warnings: Receives a line for each path or operation that cannot be read.
    """
    endpoints: list[Endpoint] = []
    names = _UniqueNames()
    operations = list(_declared_operations(document, warnings))
    # The name is made from the short id, without the path that FastAPI appends, if that is unique.
    short_id_counts = Counter(operation.short_id for operation in operations)
    for operation in operations:
        is_short_id_unique = short_id_counts[operation.short_id] == 1
        shown_id = operation.short_id if is_short_id_unique else operation.operation_id
        wanted_name = action_name(_operation_name(shown_id, operation.method, operation.path))
        endpoints.append(operation.endpoint(names.take(wanted_name, operation.method)))
    return endpoints


class _UniqueNames:
    """The unique names of operations.

    If ``pet`` is taken, a POST operation gets the name ``pet_post``. If ``pet_post`` is taken,
    too, the operation gets ``pet_2``.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        # The last number that was appended to each wanted name. Numbers continue from there: with
        # thousands of equal names, trying all numbers from 2 on would take minutes.
        self._numbers: Counter[str] = Counter()

    def take(self, wanted: str, method: str) -> str:
        """Return a free name for an operation, and mark the name as taken."""
        name = wanted
        if name in self._taken:
            name = f"{wanted}_{method}"
        while name in self._taken:
            self._numbers[wanted] = max(self._numbers[wanted] + 1, 2)  # begins with name_2
            name = f"{wanted}_{self._numbers[wanted]}"
        self._taken.add(name)
        return name


class _DeclaredOperation(NamedTuple):
    """An operation of the specification.

    Args:
        method: The lower-case HTTP method.
        path: The path template.
        tokens: The tokens of the JSON pointer to the operation.
        fields: The operation as it is written.
    """

    method: str
    path: str
    tokens: tuple[str, ...]
    fields: Mapping[str, Any]

    @property
    def operation_id(self) -> str | None:
        """The declared operationId; None without one."""
        declared = self.fields.get("operationId")
        return declared if isinstance(declared, str) and declared else None

    @property
    def short_id(self) -> str | None:
        """The operationId without the path and method that FastAPI appends."""
        return _without_path(self.operation_id, self.method, self.path)

    def endpoint(self, name: str) -> Endpoint:
        """Return the operation as an endpoint with the name of its action."""
        declared: Any = self.fields.get("tags")
        listed = cast("list[Any]", declared) if isinstance(declared, list) else []
        tags = tuple(tag for tag in listed if isinstance(tag, str))
        return Endpoint(name, self.method.upper(), self.path, self.tokens, self.operation_id, tags)


def _without_path(operation_id: str | None, method: str, path: str) -> str | None:
    """Remove the path and method that FastAPI appends to an operationId."""
    if operation_id is None:
        return None
    suffix = f"{_NON_WORD.sub('_', path)}_{method}"
    plain = operation_id.removesuffix(suffix)
    if plain != operation_id and any(c.isalpha() for c in plain):
        return plain
    return operation_id


def _declared_operations(document: Document, warnings: list[str]) -> Iterator[_DeclaredOperation]:
    """Yield each operation that can be read; add a warning for each other operation or path."""
    for path, item in _path_items(document, warnings):
        for method in METHODS:
            if item.get(method) is None:
                continue
            try:
                # In some hand-written sources, an operation is a reference.
                fields = document.resolve_reference(item[method])
            except SpecError as error:
                warnings.append(f"{_place_of(path)}/{method}: {clean(error.reason, 300)}")
                continue
            template = _template(document, path, item, fields)
            yield _DeclaredOperation(method, template, ("paths", path, method), fields)


def _path_items(document: Document, warnings: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each path with its path item; add a warning for each path that cannot be read."""
    paths = cast("dict[Any, Any]", document.at("#").get("paths") or {})
    for path, raw in paths.items():
        if isinstance(path, str) and path.startswith("/"):
            try:
                yield path, document.path_item(raw)
            except SpecError as error:
                warnings.append(f"{_place_of(path)}: {clean(error.reason, 300)}")
        elif not str(path).startswith("x-"):
            warnings.append(f"{_place_of(path)}: a path must begin with a slash")


def _place_of(path: Any) -> str:
    return clean(pointer_of(["paths", str(path)]), 300)


def _template(
    document: Document, path: str, item: Mapping[str, Any], operation: Mapping[str, Any]
) -> str:
    """Replace ``<id>`` and ``/:id`` in a path by ``{id}`` if the parameter is declared."""
    if "<" not in path and "/:" not in path:
        return path
    declared_names: set[Any] = set()
    for listed in (item.get("parameters"), operation.get("parameters")):
        if not isinstance(listed, list):
            continue
        for entry in cast("list[Any]", listed):
            with contextlib.suppress(SpecError):
                param = document.resolve_reference(entry)
                if param.get("in") == "path":
                    declared_names.add(param.get("name"))

    def in_braces(match: re.Match[str]) -> str:
        name = match[1] or match[2]  # of ``<name>``, or of ``/:name``
        return f"{{{name}}}" if name in declared_names else match[0]

    return _FRAMEWORK_PARAMETER.sub(in_braces, path)


def _operation_name(operation_id: str | None, method: str, path: str) -> str:
    """Return an operation's id; without a usable id, a name made from its method and path."""
    if operation_id and any(map(str.isalpha, snake(operation_id))):
        return operation_id
    words = [method]
    for segment in filter(None, path.split("/")):
        is_parameter = segment.startswith("{")
        words.append(f"by_{segment[1:-1]}" if is_parameter else segment)
    return " ".join(words)


def locate_operation(document: Document, endpoint: Endpoint) -> Operation:
    """Return an operation without parsing its parameters and body, which stay empty."""
    # The tokens lead to the path item, as in ("paths", "/pets"), and then to the operation ("get").
    path_item_tokens = endpoint.tokens[:2]
    operation_tokens = endpoint.tokens[2:]
    path_item = document.path_item(document.at(pointer_of(path_item_tokens)))
    raw: dict[str, Any] = path_item
    for token in operation_tokens:
        raw = raw[token]
    return Operation(endpoint, document.resolve_reference(raw), path_item, params=(), body=None)


def read_operation(document: Document, endpoint: Endpoint) -> Operation:
    """Parse an operation with its parameters and body.

    Raises:
        SpecError: If the operation cannot be called; the error names the location and the reason.
    """
    located = locate_operation(document, endpoint)
    raw = located.raw
    try:
        params, names = _read_params(document, endpoint, located.item, raw)
        body = None
        if raw.get("requestBody") is not None:
            body = read_body(document, raw["requestBody"], names)
    except SpecError as error:
        if error.pointer:
            raise
        raise SpecError(error.reason, pointer=pointer_of(endpoint.tokens)) from None
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        reason = f"it cannot be read: {type(error).__name__}"
        raise SpecError(reason, pointer=pointer_of(endpoint.tokens)) from error
    return replace(located, params=params, body=body)


def _read_params(
    document: Document, endpoint: Endpoint, path_item: dict[str, Any], operation: dict[str, Any]
) -> tuple[tuple[Param, ...], dict[str, str]]:
    """Return an operation's parameters, and the place in the request of each keyword argument.

    The places are those of OpenAPI, such as ``query`` and ``header``.
    """
    declared = _declared_params(document, path_item, operation)
    placeholders = _placeholders(endpoint.path)
    for name in placeholders:
        # Many specifications forget to declare path parameters, which every URL needs.
        declared.setdefault(("path", name), {"required": True, "schema": {"type": "string"}})
    if len(declared) > _MAX_PARAMETERS:
        raise SpecError(
            f"it has {len(declared)} parameters, and at most {_MAX_PARAMETERS} are read"
        )
    params: list[Param] = []
    places_by_keyword: dict[str, str] = {}
    # If several places have a parameter of the same name, the first place gets the plain keyword.
    for place, name in sorted(declared, key=lambda key: _PLACES.index(key[0])):
        if place == "path" and name not in placeholders:
            continue  # the path has no place for the value
        arg = unique(argument_name(name), places_by_keyword, place)
        places_by_keyword[arg] = place
        fields = declared[place, name]
        params.append(_parse_param(document, arg, name, cast("Place", place), fields))
    return tuple(params), places_by_keyword


def _declared_params(
    document: Document, path_item: dict[str, Any], operation: dict[str, Any]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the declared parameters by place and name, without the ignored headers.

    The parameters of the operation replace those of the path item.

    Raises:
        SpecError: If a declaration is invalid.
    """
    declared: dict[tuple[str, str], dict[str, Any]] = {}
    for listed in (path_item.get("parameters"), operation.get("parameters")):
        if listed is None:
            continue
        if not isinstance(listed, list):
            raise SpecError(f"parameters is a {type(listed).__name__}, not a list")
        for entry in cast("list[Any]", listed):
            param = document.resolve_reference(entry)
            name = param.get("name")
            place = param.get("in")
            if not isinstance(name, str) or place not in _PLACES:
                raise SpecError(
                    f"a parameter has an invalid name or location: {str(name)[:40]!r} in "
                    f"{str(place)[:40]!r}"
                )
            if place == "header" and name.lower() in _IGNORED_HEADERS:
                continue
            declared[place, name] = param
    return declared


def _placeholders(path: str) -> list[str]:
    """Return the names of a path template's placeholders, such as ``id`` of ``/pets/{id}``."""
    return [part.partition("}")[0] for part in path.split("{")[1:] if "}" in part]


def _parse_param(
    document: Document, arg: str, name: str, place: Place, declared: dict[str, Any]
) -> Param:
    """Parse a declared parameter, and add OpenAPI's defaults."""
    # A parameter has a schema, or a value in the format of a media type: ``content`` then has the
    # media type as its only key.
    media: str | None = None
    schema: Any = declared.get("schema")
    content: Any = declared.get("content")
    if schema is None and isinstance(content, dict) and content:
        media = str(next(iter(cast("dict[str, Any]", content))))
        schema = document.resolve_reference(content[media]).get("schema")
    if schema is None:
        schema = {} if media else {"type": "string"}
    if not isinstance(schema, (dict, bool)):
        raise SpecError(f"the schema of {name[:60]!r} is a {type(schema).__name__}")
    style = str(declared.get("style") or _DEFAULT_STYLES.get(place, "form"))
    explode: Any = declared.get("explode")
    return Param(
        arg=arg,
        name=name,
        place=place,
        required=place == "path" or declared.get("required") is True,
        schema=cast("Any", schema),
        style=style,
        explode=explode if isinstance(explode, bool) else style == "form",
        reserved=declared.get("allowReserved") is True,
        media=media,
        doc=declared.get("description"),
    )
