"""Types of actions' results, learned from the results themselves.

The types are used for actions without a schema, and for values that contradict their schema. The
results themselves are not kept.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from delf.machine.contexts import shared_task
from delf.tools.type_texts import with_types
from delf_schemas.shapes import (
    CONTENT,
    HAS_OPTIONAL_KEYS,
    NOTATION,
    SOMETIMES_ENCODED,
    RootSchema,
    Shapes,
    safe_text,
)

Place = tuple[str, ...]
"""The keys that lead to a value in nested data; ``*`` stands for any index of a list."""
Found = tuple[Place, str]
"""A place in an action's results, and the type found there that the schema does not declare."""

ANY_INDEX: Final = "*"
_MAX_DEPTH: Final = 4
_MAX_KEYS: Final = 40
# Longer keys, and keys with more digits, are taken for ids or other data.
_MAX_NAME: Final = 40
_MAX_NAME_DIGITS: Final = 3
_MAX_ITEMS: Final = 10
_MAX_SAMPLES: Final = 20
_MAX_UNDECLARED: Final = 100
_MIN_ALIKE: Final = 3
_MAX_TYPE_CHARS: Final = 420
_MAX_LINES: Final = 1_000
_MAX_LITERAL: Final = 20_000
_LINES: Final = "lines"
_LITERAL: Final = "literal"
_MIXED: Final = "mixed"
_JSON: Final = "json"  # never stored, because a schema without ``NOTATION`` stands for JSON
_OBJECT_KEYWORDS: Final = {"properties", "additionalProperties"}
_PLAIN_TYPES: Final[dict[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    type(None): "null",
    bytes: "bytes",
}


class Store(Protocol):
    """Persistent storage for result types, which are inferred from the results of earlier calls."""

    def read(self) -> Any:
        """Return the stored data, or None."""
        ...

    def write(self, value: Any) -> None:
        """Save plain data; log a warning if the data cannot be written."""
        ...


class Samples:
    """Infers the type of each action's results, as a schema, from a sample of these results.

    Args:
        store: Saves the inferred schemas; with None, the schemas are kept only in this process.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self.has_new_types = False
        """True if a result had a type that no earlier result had.

        A caller that has read the new types sets the flag to False.
        """
        stored = _mapping(None if store is None else store.read())
        # The shape of an action's results is a JSON schema that all results in the sample fit.
        self._shapes_by_action = _mapping(stored.get("shapes"))
        # For each action, the types that occurred in its results and that its schema does not
        # declare, with their paths. A dict whose values are None serves as an ordered set.
        self._undeclared_types_by_action = {
            name: dict.fromkeys(_parse_types(stored_types))
            for name, stored_types in _mapping(stored.get("found")).items()
        }
        self._counts: dict[str, int] = {}
        self._write_task: asyncio.Task[None] | None = None
        self._has_unsaved_changes = False

    def type_of(self, name: str) -> str | None:
        """Return the type of an action's results so far; None before the first result."""
        schema = self._shapes_by_action.get(name)
        if not isinstance(schema, dict):
            return None
        return safe_text(
            Shapes(RootSchema(cast("dict[str, Any]", schema))), schema, "result", _MAX_TYPE_CHARS
        )

    def undeclared_types(self, name: str) -> frozenset[Found]:
        """Return the types seen in an action's results that its schema does not declare.

        Each type has the path of its value inside the result.
        """
        return frozenset(self._undeclared_types_by_action.get(name, ()))

    def count_result(self, name: str) -> bool:
        """Count a result of an action; return True if the result belongs to the sample.

        The sample has the first ``_MAX_SAMPLES`` results of each action.
        """
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name] <= _MAX_SAMPLES

    def note(self, name: str, value: Any) -> None:
        """Learn the shape of a result, and save the shape in the background."""
        merged_shape = merge_shapes(self._shapes_by_action.get(name), shape_of(value))
        if merged_shape != self._shapes_by_action.get(name):
            self._shapes_by_action[name] = merged_shape
            self._mark_changed()

    def note_undeclared(self, name: str, types: Iterable[Found]) -> None:
        """Record undeclared types in an action's result, and save them in the background.

        Once an action has ``_MAX_UNDECLARED`` types, new types are ignored.
        """
        known_types = self._undeclared_types_by_action.setdefault(name, {})
        new = set(types).difference(known_types)
        if new and len(known_types) < _MAX_UNDECLARED:
            known_types.update(dict.fromkeys(sorted(new)))
            self._mark_changed()

    def _mark_changed(self) -> None:
        self.has_new_types = True
        if self._store is None:
            return
        self._has_unsaved_changes = True
        # A write in progress goes on until there are no unsaved changes.
        if self._write_task is None or self._write_task.done():
            self._write_task = shared_task(self._write(self._store))

    async def _write(self, store: Store) -> None:
        while self._has_unsaved_changes:
            self._has_unsaved_changes = False
            stored_types = {
                name: [[list(path), kind] for path, kind in types]
                for name, types in self._undeclared_types_by_action.items()
            }
            content = {"shapes": dict(self._shapes_by_action), "found": stored_types}
            await asyncio.to_thread(store.write, content)

    async def aclose(self) -> None:
        """Wait for pending writes."""
        if self._write_task is not None and not self._write_task.done():
            await self._write_task


def visible_types(shown_type: str, undeclared_types: Iterable[Found]) -> set[Found]:
    """Return the undeclared types that would change the result type shown to the model.

    Adding the type of a deeply nested value changes nothing if the shown type is less deep.

    Args:
        shown_type: The result type as shown to the model.
        undeclared_types: The types found in results that the schema does not declare.
    """
    return {found for found in undeclared_types if with_types(shown_type, [found]) != shown_type}


def place_of(path: Iterable[str | int]) -> Place:
    """Replace each list index in a path by ``*``: ``("to", 0)`` becomes ``("to", "*")``.

    All items of a list then share one path.
    """
    return tuple(ANY_INDEX if isinstance(part, int) else part for part in path)


def kind_at(value: Any, path: Iterable[str | int]) -> str | None:
    """Return the name of the type of the value at a path; None if the path leads to no value."""
    for part in path:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return None
    return kind_of_value(value)


def kind_of_value(value: Any) -> str:
    """Return the name of a value's type, as ``dict`` or ``None``."""
    return "None" if value is None else type(value).__name__


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _parse_types(data: Any) -> Iterable[Found]:
    if not isinstance(data, list):
        return
    for pair in cast("list[Any]", data):
        match pair:
            case [place, str() as kind] if isinstance(place, list):
                yield tuple(map(str, cast("list[Any]", place))), kind
            case _:  # of a damaged file
                pass


def shape_of(value: Any, depth: int = 0) -> dict[str, Any]:
    """Return the schema of a value.

    The schema of a text with encoded data, such as JSON, also has the schema of the decoded data.
    Texts inside lists and dicts are not decoded.
    """
    if isinstance(value, str) and depth == 0:
        return {"type": "string", **_content(value)}
    kind = _PLAIN_TYPES.get(cast("type[Any]", type(value)))
    if kind is not None:
        return {"type": kind}
    if depth >= _MAX_DEPTH:
        return {"type": "array" if isinstance(value, list) else "object"}
    if isinstance(value, list):
        return _shape_of_list(cast("list[Any]", value), depth)
    if isinstance(value, dict):
        return _shape_of_dict(cast("dict[Any, Any]", value), depth)
    return {}


def _shape_of_list(value: list[Any], depth: int) -> dict[str, Any]:
    item_shape: dict[str, Any] | None = None
    for item in value[:_MAX_ITEMS]:
        item_shape = merge_shapes(item_shape, shape_of(item, depth + 1))
    return {"type": "array", "items": item_shape} if item_shape else {"type": "array"}


def _shape_of_dict(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    if len(value) > _MAX_KEYS:  # a result may have many thousands of keys, which take long to check
        return {"type": "object"}
    # Keys that are not names, such as ids and dates, are data, and a schema must not contain data.
    # Keys of Python literals may have any type.
    has_only_names = all(isinstance(key, str) and _is_name(key) for key in value)
    if not has_only_names:
        return {"type": "object"}
    shapes = {name: shape_of(item, depth + 1) for name, item in value.items()}
    if _is_keyed_by_id(list(shapes.values())):
        return {"type": "object"}
    return {"type": "object", "properties": shapes, "required": list(shapes)}


def _content(text: str) -> Mapping[str, Any]:
    """Return ``contentSchema`` and related keywords for a text that encodes JSON or Python data.

    The mapping is empty for a plain text.
    """
    if not text.lstrip().startswith(("{", "[", "(")):
        return {}
    for notation, parser in _PARSERS:
        try:
            value = parser(text)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue  # a literal with a list as a key raises a TypeError
        content: dict[str, Any] = {CONTENT: shape_of(value, depth=1)}
        if notation:
            content[NOTATION] = notation
        return content
    return {}


def _parse_json_lines(text: str) -> list[Any]:
    lines = text.strip().splitlines()
    if not 1 < len(lines) <= _MAX_LINES:
        raise ValueError(f"JSON lines are 2 to {_MAX_LINES} lines")
    return [json.loads(line) for line in lines]


def _parse_python_literal(text: str) -> Any:
    """Parse a Python literal, because some servers answer with ``str(result)``."""
    if len(text) > _MAX_LITERAL:
        raise ValueError("the text is too long to be parsed as a literal")
    value = ast.literal_eval(text.strip())
    if isinstance(value, tuple):
        return list(cast("tuple[Any, ...]", value))
    return value


_PARSERS: Final[Sequence[tuple[str, Callable[[str], Any]]]] = (
    ("", json.loads),
    (_LINES, _parse_json_lines),
    (_LITERAL, _parse_python_literal),
)


def _is_keyed_by_id(shapes: list[dict[str, Any]]) -> bool:
    """Return True if all values of an object are records with one schema, as in a dict by id.

    Two equal schemas may be a coincidence, so three or more are needed.
    """
    if len(shapes) < _MIN_ALIKE:
        return False
    first = shapes[0]
    return bool(first.get("properties")) and all(shape == first for shape in shapes)


def _is_name(key: str) -> bool:
    """Return True if a key looks like a field's name, not like an id or other data."""
    # Names may start with @ or $, as `@type` and `$ref`. Any other key with one of these signs,
    # such as an email address, is data.
    plain_name = key.lstrip("@$").replace("-", "_")
    if key[:1] == "@":  # in JSON of OData, names such as `@odata.type` have dots
        plain_name = plain_name.replace(".", "_")
    digit_count = sum(map(str.isdigit, key))
    is_short = len(key) <= _MAX_NAME and digit_count <= _MAX_NAME_DIGITS
    return is_short and plain_name.isidentifier()


def merge_shapes(first: Any, second: dict[str, Any]) -> dict[str, Any]:
    """Merge two schemas of samples into one that describes the samples of both.

    ``{"type": "integer"}`` and ``{"type": "string"}`` become ``{"type": ["integer", "string"]}``.
    """
    if not isinstance(first, dict) or not first:
        return second
    old = cast("dict[str, Any]", first)
    kinds = list(dict.fromkeys([*_kinds(old), *_kinds(second)]))
    if "number" in kinds and "integer" in kinds:  # an integer is a number, too
        kinds.remove("integer")
    result: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    result |= _merged_keys(old, second)
    if "items" in old or "items" in second:
        result["items"] = merge_shapes(old.get("items"), second.get("items", {}))
    string_shapes = [shape for shape in (old, second) if "string" in _kinds(shape)]
    return result | _merged_encoding(string_shapes)


def _merged_encoding(string_shapes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge one or two schemas of strings; return only the keys about encoded data.

    - ``CONTENT``: the schema of the data that strings such as ``'{"id": 1}'`` encode.
    - ``NOTATION``: the encoding, or ``_MIXED`` for several; missing if all strings are JSON.
    - ``SOMETIMES_ENCODED``: present if some strings are plain text.
    """
    encoded = [shape for shape in string_shapes if CONTENT in shape]
    if not encoded:
        return {}
    contents: list[dict[str, Any]] = [shape[CONTENT] for shape in encoded]
    result: dict[str, Any] = {CONTENT: functools.reduce(merge_shapes, contents)}
    notations = {shape.get(NOTATION, _JSON) for shape in encoded}
    if len(notations) > 1:
        result[NOTATION] = _MIXED
    elif notations != {_JSON}:
        result[NOTATION] = notations.pop()
    has_plain_text = len(encoded) < len(string_shapes)
    had_plain_text = any(SOMETIMES_ENCODED in shape for shape in encoded)
    if has_plain_text or had_plain_text:
        result[SOMETIMES_ENCODED] = True
    return result


def _merged_keys(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge the properties of two object schemas; return keywords such as ``properties``."""
    objects = [shape for shape in (first, second) if _OBJECT_KEYWORDS & shape.keys()]
    if not objects:
        return {}
    if len(objects) == 1:  # the other schema describes no objects
        (shape,) = objects
        copied_keywords = (*_OBJECT_KEYWORDS, "required", HAS_OPTIONAL_KEYS)
        return {keyword: shape[keyword] for keyword in copied_keywords if keyword in shape}
    if _have_varying_names(first, second):  # such as the columns of different queries
        return {"additionalProperties": _merged_values(objects)}
    return _merged_properties(first, second)


def _have_varying_names(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Return True if the names of the properties probably depend on the call's arguments."""
    if "additionalProperties" in first or "additionalProperties" in second:
        return True  # the names have varied in earlier samples
    first_names: set[str] = set(first["properties"])
    second_names: set[str] = set(second["properties"])
    if len(first_names | second_names) > _MAX_KEYS:
        return True
    if not first_names or not second_names:
        return False  # an empty object says nothing about the names
    is_name_in_all_samples = bool(_required_in_both(first, second))
    return not is_name_in_all_samples


def _merged_properties(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge the properties of two object schemas by name."""
    properties: dict[str, Any] = dict(first["properties"])
    for name, schema in second["properties"].items():
        properties[name] = merge_shapes(properties.get(name), schema)
    required = _required_in_both(first, second)
    merged: dict[str, Any] = {"properties": properties, "required": required}
    if len(required) < len(properties):
        merged[HAS_OPTIONAL_KEYS] = True
    return merged


def _required_in_both(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Return the names of the properties that all samples of both schemas have."""
    return [name for name in first.get("required", ()) if name in second.get("required", ())]


def _merged_values(objects: Iterable[dict[str, Any]]) -> Any:
    """Return one schema for the values of all properties of object schemas."""
    merged_value: Any = None
    for shape in objects:
        values = [*shape.get("properties", {}).values(), shape.get("additionalProperties")]
        for value in filter(None, values):
            merged_value = merge_shapes(merged_value, value)
    return merged_value or {}


def _kinds(shape: dict[str, Any]) -> list[str]:
    kind = shape.get("type")
    if isinstance(kind, list):
        return [str(k) for k in cast("list[Any]", kind)]
    return [str(kind)] if kind else []
