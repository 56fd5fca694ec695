"""Types of actions' results, learned from the results themselves.

They are used for actions without a schema, and for values that contradict their schema. Values are
not kept.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from delf.machine.contexts import shared_task
from delf_schemas.shapes import Shapes, safe_text

Place = tuple[str, ...]
"""The keys that lead to a value, with ``*`` for each index of a list."""
Found = tuple[Place, str]
"""A path in results with the type of a value found there, contrary to the declaration."""

ANY_INDEX: Final = "*"
_MAX_DEPTH: Final = 4
_MAX_KEYS: Final = 40
_MAX_ITEMS: Final = 10
_MAX_SAMPLES: Final = 20
_MAX_FOUND: Final = 100
_ALIKE: Final = 3
_CHARS: Final = 420
_JSON: Final = "contentSchema"
_MAX_LINES: Final = 1_000
_MAX_LITERAL: Final = 20_000
WRITTEN: Final = "x-written"
"""The keyword for the notation of data in a text that is not a single JSON value."""
LINES: Final = "lines"
LITERAL: Final = "literal"
MIXED: Final = "mixed"
_KEYS: Final = {"properties", "additionalProperties"}
_SEEN: Final = "x-seen"
"""Marks the schema of a record whose other keys are missing in some results."""
_AT_TIMES: Final = "x-at-times"
"""Marks the schema of a text that is JSON in some results only."""


class Store(Protocol):
    """Persistent storage for learned shapes."""

    def read(self) -> Any:
        """Return the stored data, or None."""
        ...

    def write(self, value: Any) -> None:
        """Keep plain data; log a warning if it cannot be written."""
        ...


class Samples:
    """The shapes of results that were seen, by action.

    Args:
        store: Keeps them; None for this process alone.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self.has_news = False
        """True if something was learned since the flag was last reset."""
        stored = _mapping(None if store is None else store.read())
        self._shapes = _mapping(stored.get("shapes"))
        stored_places = _mapping(stored.get("found")).items()
        self._found = {
            name: dict.fromkeys(_parse_records(records)) for name, records in stored_places
        }
        self._counts: dict[str, int] = {}
        self._writing: asyncio.Task[None] | None = None
        self._dirty = False

    def type_of(self, name: str) -> str | None:
        """Return the type of an action's results, from those seen so far; None if none was seen."""
        schema = self._shapes.get(name)
        if not isinstance(schema, dict):
            return None
        return safe_text(Shapes(_NoReferences()), schema, "out", _CHARS)

    def found(self, name: str) -> frozenset[Found]:
        """Return the undeclared types in an action's results, with their paths."""
        return frozenset(self._found.get(name, ()))

    def wants(self, name: str) -> bool:
        """Count a result of an action; return True for the first ones, to be sampled."""
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return count < _MAX_SAMPLES

    def note(self, name: str, value: Any) -> None:
        """Learn the shape of a result; stored in the background."""
        merged_shape = merge_shapes(self._shapes.get(name), shape_of(value))
        if merged_shape != self._shapes.get(name):
            self._shapes[name] = merged_shape
            self._mark_changed()

    def note_found(self, name: str, places: Iterable[Found]) -> frozenset[Found]:
        """Record undeclared types in a result of an action; return the new ones."""
        known_places = self._found.setdefault(name, {})
        new = frozenset(places).difference(known_places)
        if not new or len(known_places) >= _MAX_FOUND:
            return new
        known_places.update(dict.fromkeys(sorted(new)))
        self._mark_changed()
        return new

    def _mark_changed(self) -> None:
        self.has_news = True
        if self._store is None:
            return
        self._dirty = True
        if self._writing is None or self._writing.done():
            self._writing = shared_task(self._write(self._store))

    async def _write(self, store: Store) -> None:
        while self._dirty:
            self._dirty = False
            places_by_name = {
                name: [[list(place), kind] for place, kind in each]
                for name, each in self._found.items()
            }
            content = {"shapes": dict(self._shapes), "found": places_by_name}
            await asyncio.to_thread(store.write, content)

    async def aclose(self) -> None:
        """Wait for pending writes."""
        if self._writing is not None and not self._writing.done():
            await self._writing


def place_of(path: Iterable[str | int]) -> Place:
    """Return a path in which each index is replaced by ``*``, the same for all items of a list."""
    return tuple(ANY_INDEX if isinstance(part, int) else part for part in path)


def kind_at(value: Any, path: Iterable[str | int]) -> str | None:
    """Return the type of the value that a path leads to; None if there is no such value."""
    for part in path:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return None
    return kind_of_value(value)


def kind_of_value(value: Any) -> str:
    """Return the type of a plain value in stub notation, without its parts."""
    return "None" if value is None else type(value).__name__


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _parse_records(data: Any) -> Iterable[Found]:
    for pair in cast("list[Any]", data) if isinstance(data, list) else []:
        place, kind = cast("list[Any]", pair) if _is_pair(pair) else (None, None)
        if isinstance(place, list) and isinstance(kind, str):
            yield tuple(map(str, cast("list[Any]", place))), kind


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(cast("list[Any]", value)) == 2


class _NoReferences:
    """The document of a learned schema, which refers to nothing."""

    def absolute(self, ref: str) -> str:
        return ref

    def resolve(self, node: Any) -> dict[str, Any]:
        return _mapping(node)


def shape_of(value: Any, depth: int = 0) -> dict[str, Any]:
    """Return the schema of a value; a text that is JSON has the schema of its content."""
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, str) and not depth:
        return {"type": "string", **_content(value)}
    kinds: dict[type, str] = {
        int: "integer", float: "number", str: "string", type(None): "null", bytes: "bytes"
    }  # fmt: skip
    kind = kinds.get(cast("type[Any]", type(value)))
    if kind is not None:
        return {"type": kind}
    if depth >= _MAX_DEPTH:
        return {"type": "array"} if isinstance(value, list) else {"type": "object"}
    if isinstance(value, list):
        items: dict[str, Any] | None = None
        for item in cast("list[Any]", value)[:_MAX_ITEMS]:
            items = merge_shapes(items, shape_of(item, depth + 1))
        return {"type": "array", "items": items} if items else {"type": "array"}
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        # Keys that are ids or other data are values, and values are not stored.
        if len(mapping) > _MAX_KEYS or not all(_is_name(k) for k in mapping):
            return {"type": "object"}
        shapes = {k: shape_of(v, depth + 1) for k, v in mapping.items()}
        if _is_keyed_by_id(list(shapes.values())):
            return {"type": "object"}
        return {"type": "object", "properties": shapes, "required": list(shapes)}
    return {}


def _content(text: str) -> Mapping[str, Any]:
    """Return the shape of data written as text, and its notation."""
    if not text.lstrip().startswith(("{", "[", "(")):
        return {}
    for media_type, parser in _READERS:
        try:
            value = parser(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return {_JSON: shape_of(value, 1), **({WRITTEN: media_type} if media_type else {})}
    return {}


def _lines(text: str) -> list[Any]:
    """Parse JSON lines."""
    lines = text.strip().splitlines()
    if not 1 < len(lines) <= _MAX_LINES:
        raise ValueError("one line, or many")
    return [json.loads(line) for line in lines]


def _literal(text: str) -> Any:
    """Parse a value printed by Python, for servers that answer with ``str(result)``."""
    if len(text) > _MAX_LITERAL:
        raise ValueError("too long")
    value = ast.literal_eval(text.strip())
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


_READERS: Final[Sequence[tuple[str, Callable[[str], Any]]]] = (
    ("", json.loads),
    (LINES, _lines),
    (LITERAL, _literal),
)


def _is_keyed_by_id(shapes: list[dict[str, Any]]) -> bool:
    """Return True if all of several objects have one shape, as in a dict of people by name."""
    first = shapes[0] if len(shapes) >= _ALIKE else {}
    return bool(first.get("properties")) and all(shape == first for shape in shapes)


def _is_name(key: str) -> bool:
    # Signs in front of a name belong to a format (@type, $ref); signs within it show an address.
    plain_name = key.lstrip("@$").replace("-", "_")
    if key[:1] == "@":
        plain_name = plain_name.replace(".", "_")
    return len(key) <= 40 and plain_name.isidentifier() and sum(c.isdigit() for c in key) <= 3


def merge_shapes(first: Any, second: dict[str, Any]) -> dict[str, Any]:
    """Return the shape that fits both samples and has the properties of each."""
    if not isinstance(first, dict) or not first:
        return second
    old = cast("dict[str, Any]", first)
    kinds = list(dict.fromkeys([*_kinds(old), *_kinds(second)]))
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    result: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    result |= _merged_keys(old, second)
    if "items" in old or "items" in second:
        result["items"] = merge_shapes(old.get("items"), second.get("items", {}))
    texts = [shape for shape in (old, second) if "string" in _kinds(shape)]
    contents = [shape[_JSON] for shape in texts if _JSON in shape]
    if contents:
        result[_JSON] = merge_shapes(contents[0], contents[-1])
        ways = {shape.get(WRITTEN) for shape in texts if _JSON in shape}
        if ways != {None}:
            result[WRITTEN] = (ways.pop() or "") if len(ways) == 1 else MIXED
        if len(contents) < len(texts) or any(_AT_TIMES in shape for shape in texts):
            result[_AT_TIMES] = True
    return result


def _merged_keys(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge the keys of two shapes; return only the type of the values if no key is shared.

    Without a shared key, the keys depend on the arguments, such as the columns of a query.
    """
    objects = [shape for shape in (first, second) if _KEYS & shape.keys()]
    if len(objects) < 2:
        kept_keys = (*_KEYS, "required", _SEEN)
        return {key: shape[key] for shape in objects for key in kept_keys if key in shape}
    first_properties, second_properties = (shape.get("properties", {}) for shape in objects)
    names = list(dict.fromkeys([*first_properties, *second_properties]))
    required = [name for name in names if all(name in s.get("required", ()) for s in objects)]
    is_open = any("additionalProperties" in shape for shape in objects)
    is_alike = bool(required) or not (
        first_properties and second_properties
    )  # an empty record does not count as different
    if is_alike and not is_open and len(names) <= _MAX_KEYS:
        properties = {
            name: merge_shapes(first_properties.get(name), second_properties.get(name, {}))
            for name in names
        }
        marks = {_SEEN: True} if len(required) < len(names) else {}
        return {"properties": properties, "required": required, **marks}
    values: Any = None
    for shape in objects:
        for value in (*shape.get("properties", {}).values(), shape.get("additionalProperties")):
            values = merge_shapes(values, value) if value else values
    return {"additionalProperties": values or {}}


def _kinds(shape: dict[str, Any]) -> list[str]:
    kind = shape.get("type")
    if isinstance(kind, list):
        return [str(k) for k in cast("list[Any]", kind)]
    return [str(kind)] if kind else []
