"""Constraints of a schema that a type does not express, such as patterns, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from delf.tools.json_schema import clean
from delf_schemas.shapes import Document, list_at, resolve_or_empty

_MAX_VISITS: Final = 300
_MAX_PATTERN: Final = 80
_LIMITS: Final = (
    ("minimum", "≥ {}"),
    ("exclusiveMinimum", "> {}"),
    ("maximum", "≤ {}"),
    ("exclusiveMaximum", "< {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} long"),
    ("maxLength", "at most {} long"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
)
_FORMATS: Final = frozenset(
    {"date", "date-time", "time", "duration", "uuid", "email", "uri", "url", "hostname", "ipv4"}
    | {"ipv6", "decimal"}
)
# Limits from this number on only state a type, such as a 64-bit integer, and are not shown.
_MAX_SHOWN_LIMIT: Final = 2**31 - 1


def hints_of(document: Document, schema: Any, max_chars: int, depth: int) -> str:
    """Return the constraints of a value and its parts, as ``address.zip: matches ^[0-9]+$; ≤ 200``.

    Args:
        document: The document, for resolving references.
        schema: The schema of a parameter.
        max_chars: The maximum number of characters; a hint that does not fit is omitted, not cut.
        depth: The number of nested record levels to include.
    """
    hints: list[str] = []
    size = 0
    for path, text in dict.fromkeys(_HintFinder(document).hints(schema, depth)):
        hint = f"{path}: {text}" if path else text
        if size + len(hint) <= max_chars:
            hints.append(hint)
            size += len(hint) + len("; ")
    return "; ".join(hints)


class _HintFinder:
    """Finds the constrained values in a schema.

    Args:
        document: The document, for resolving references.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._remaining_visits = _MAX_VISITS

    def hints(
        self, schema: Any, depth: int, path: str = "", parent_refs: tuple[str, ...] = ()
    ) -> Iterator[tuple[str, str]]:
        """Yield the path and the constraints of each constrained value in a schema.

        Args:
            schema: The schema.
            depth: The number of levels of nested objects to visit.
            path: The path to the value, such as ``address.zip``; empty for the parameter itself.
            parent_refs: The references that lead to the schema.
        """
        self._remaining_visits -= 1
        if not isinstance(schema, Mapping) or self._remaining_visits < 0:
            return
        ref: Any = cast("Mapping[str, Any]", schema).get("$ref")
        if isinstance(ref, str):
            if ref in parent_refs:  # a record inside itself
                return
            parent_refs = (*parent_refs, ref)
        resolved = resolve_or_empty(self._document, schema)
        is_field = path != ""
        if is_field and resolved.get("readOnly") is True:  # only results have the field
            return
        if text := _constraints(resolved):
            yield path, text
        for keyword in ("allOf", "anyOf", "oneOf"):
            for part in list_at(resolved, keyword):
                yield from self.hints(part, depth, path, parent_refs)
        properties = resolved.get("properties")
        if isinstance(properties, dict) and depth > 0:
            for name, part in cast("dict[str, Any]", properties).items():
                key = clean(name, 60)
                whole_path = f"{path}.{key}" if path else key
                yield from self.hints(part, depth - 1, whole_path, parent_refs)
        yield from self.hints(resolved.get("items"), depth, f"{path}[]", parent_refs)


def _constraints(schema: Mapping[str, Any]) -> str:
    """Return the format, the pattern and the limits of a schema as text."""
    if "enum" in schema or "const" in schema:
        return ""  # the type already lists the allowed values
    hints: list[str] = []
    format_name = schema.get("format")
    pattern = schema.get("pattern")
    if isinstance(format_name, str) and format_name in _FORMATS:
        hints.append(format_name)
    if isinstance(pattern, str) and 0 < len(pattern) <= _MAX_PATTERN:
        hints.append(f"matches {clean(pattern, _MAX_PATTERN)}")
    hints += (_limit_text(name, template, schema.get(name)) for name, template in _LIMITS)
    return ", ".join(filter(None, hints))


def _limit_text(name: str, template: str, value: Any) -> str:
    """Return a limit such as ``at least 2 items``; empty for a huge or trivial limit.

    Args:
        name: The keyword of the schema, such as ``minItems``.
        template: The words of the limit, with ``{}`` for the value.
        value: The value of the keyword; None if the schema has none.
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return ""
    is_trivial = name == "minLength" and value < 2
    if is_trivial or abs(value) >= _MAX_SHOWN_LIMIT:
        return ""
    text = template.format(value)
    is_one_item = value == 1 and "Items" in name
    return text.removesuffix("s") if is_one_item else text
