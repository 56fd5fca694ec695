"""Learns the shapes of responses that a specification does not declare. Values are not kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, cast

from delf.machine.contexts import shared_task
from delf_openapi.cache import Cache
from delf_openapi.compiler import GUESSED, Entry
from delf_openapi.document import Document, Trees
from delf_openapi.failures import SpecError
from delf_openapi.sources import Source
from delf_schemas.shapes import Shapes, safe_text

_MAX_DEPTH: Final = 4
_MAX_KEYS: Final = 40
_MAX_ITEMS: Final = 10
_MAX_SAMPLES: Final = 20
_ALIKE: Final = 3
_CHARS: Final = 420


class Samples:
    """The shapes that were seen, by action.

    Args:
        folder: Of the cache.
        key: The specification's version; None keeps what is learnt in this process alone.
    """

    def __init__(self, folder: str | None, key: str | None) -> None:
        self._cache = None if key is None else Cache(folder)
        self._file = f"{key}.samples"
        self.has_news = False
        """True if something was learned since it was last applied."""
        found = None if self._cache is None else self._cache.read(self._file)
        self._shapes: dict[str, Any] = (
            cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        )
        self._declared: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._writing: asyncio.Task[None] | None = None
        self._dirty = False

    def apply(self, entries: Iterable[Entry]) -> None:
        """Put what was learned into entries; beside what they declare, where they declare it."""
        self.has_news = False
        shapes = Shapes(Document(Trees("", {}, (), _nothing), (3, 1)))
        for entry in entries:
            schema = self._shapes.get(entry.spot.name)
            if not isinstance(schema, dict):
                continue
            seen = safe_text(shapes, schema, "out", _CHARS)
            if entry.undeclared:
                entry.returns = seen
                entry.summary = entry.summary.removesuffix(GUESSED)
            else:
                declared = self._declared.setdefault(entry.spot.name, entry.returns)
                entry.returns = declared if declared in ("Any", seen) else f"{declared} | {seen}"

    def note(self, name: str, value: Any) -> None:
        """Learn from an answer; it is written in the background."""
        count = self._counts.get(name, 0)
        if count >= _MAX_SAMPLES or not isinstance(value, (dict, list)):
            return
        self._counts[name] = count + 1
        merged = merge_shapes(self._shapes.get(name), shape_of(value))
        if merged == self._shapes.get(name):
            return
        self._shapes[name] = merged
        self.has_news = True
        if self._cache is None:
            return
        self._dirty = True
        if self._writing is None or self._writing.done():
            self._writing = shared_task(self._write(self._cache))

    async def _write(self, cache: Cache) -> None:
        while self._dirty:
            self._dirty = False
            await asyncio.to_thread(cache.write, self._file, dict(self._shapes))

    async def aclose(self) -> None:
        """Wait for what is being written."""
        if self._writing is not None and not self._writing.done():
            await self._writing


def _nothing(uri: str) -> Source:
    raise SpecError(f"{uri} is not read: what was learned refers to nothing")


def shape_of(value: Any, depth: int = 0) -> dict[str, Any]:
    """The schema of a value."""
    if isinstance(value, bool):
        return {"type": "boolean"}
    kinds: dict[type, str] = {int: "integer", float: "number", str: "string", type(None): "null"}
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
        # Keys of a mapping from ids are values, not names, and values are not kept.
        if len(mapping) > _MAX_KEYS or not all(_is_name(k) for k in mapping):
            return {"type": "object"}
        shapes = {k: shape_of(v, depth + 1) for k, v in mapping.items()}
        if _is_by_id(list(shapes.values())):
            return {"type": "object"}
        return {"type": "object", "properties": shapes}
    return {}


def _is_by_id(shapes: list[dict[str, Any]]) -> bool:
    """Tell whether several objects of one shape are side by side, as under people's names."""
    first = shapes[0] if len(shapes) >= _ALIKE else {}
    return bool(first.get("properties")) and all(shape == first for shape in shapes)


def _is_name(key: str) -> bool:
    # A sign before a name is of the format (@type, $ref, _id); within it, it is an address.
    plain = key.lstrip("@$").replace("-", "_")
    if key[:1] == "@":
        plain = plain.replace(".", "_")
    return len(key) <= 40 and plain.isidentifier() and sum(c.isdigit() for c in key) <= 3


def merge_shapes(first: Any, second: dict[str, Any]) -> dict[str, Any]:
    """Merge two shapes: their shared part, and each one's own."""
    if not isinstance(first, dict) or not first:
        return second
    old = cast("dict[str, Any]", first)
    kinds = list(dict.fromkeys([*_kinds(old), *_kinds(second)]))
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    result: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    names = [*old.get("properties", {}), *second.get("properties", {})]
    if names and len(set(names)) <= _MAX_KEYS:
        result["properties"] = {
            n: merge_shapes(
                old.get("properties", {}).get(n), second.get("properties", {}).get(n, {})
            )
            for n in dict.fromkeys(names)
        }
    if "items" in old or "items" in second:
        result["items"] = merge_shapes(old.get("items"), second.get("items", {}))
    return result


def _kinds(shape: dict[str, Any]) -> list[str]:
    kind = shape.get("type")
    if isinstance(kind, list):
        return [str(k) for k in cast("list[Any]", kind)]
    return [str(kind)] if kind else []
