"""Validation against untrusted JSON Schemas, with bounded time and no network access."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote

from delf.errors import OptionalDependencyError, ToolDefinitionError, did_you_mean

if TYPE_CHECKING:
    from jsonschema_rs import Validator

MAX_BYTES: Final = 1_000_000
"""The maximum number of bytes of a schema as JSON."""
MAX_PARTS: Final = 20_000
"""The maximum number of subschemas of a schema."""
# Counting the steps for a million values, such as the rows of an answer, takes seconds.
_CHEAP: Final = 50
"""The maximum number of subschemas of a non-recursive schema that is checked without counting steps
first.
"""
# The library has no time limit, so the steps are counted before each check.
_STEPS: Final = 20_000
_STEPS_EACH: Final = 50
"""The step limit of a check grows by this number for each part of the value."""
_PATTERN_STEPS: Final = 100
_VALUES_A_STEP: Final = 20
_BACKTRACKS: Final = 10_000
"""The maximum number of backtracking steps of a pattern on one text."""
_HEAVY: Final = 2000
"""The maximum number of schemas that one part of a value is checked against.

The ``unevaluated`` keywords check a part against all schemas again.
"""
_LARGE: Final = 10_000
"""The value size from which only the first fault is reported, because formatting faults is slow."""
_MESSAGE: Final = 400
_LISTED: Final = 1_200
"""The maximum number of characters of a message that lists allowed values or keys."""

_HERE: Final = ("not", "if", "then", "else")
_HERE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_HERE_MAPS: Final = ("dependentSchemas", "dependencies")
_BELOW: Final = (
    "additionalProperties", "propertyNames", "contains", "additionalItems",
    "unevaluatedProperties", "unevaluatedItems", "items",
)  # fmt: skip
_BELOW_LISTS: Final = ("prefixItems", "items")
_BELOW_MAPS: Final = ("properties", "patternProperties")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_EXPENSIVE: Final = ("pattern", "patternProperties", *_UNEVALUATED)
# Refused, because the targets depend on the path of the check: steps cannot be counted.
_ELSEWHERE: Final = ("$dynamicRef", "$recursiveRef")
_TAGS: Final = re.compile(
    r"</?(?:a|abbr|b|blockquote|br|code|dd|del|details|div|dl|dt|em|font|h[1-6]|hr|i|img|ins|kbd|li"
    r"|ol|p|pre|s|samp|script|small|span|strong|style|sub|summary|sup|table|tbody|td|tfoot|th|thead"
    r"|tr|tt|u|ul|var)(?=[\s/>])[^<>]{0,200}>",
    re.IGNORECASE,
)
"""Matches HTML's tags; other words in angle brackets are placeholders, such as ``<id>``."""
_LINKS: Final = re.compile(r"!?\[([^\[\]]{0,200})\]\([^()\s]{0,500}\)")


_REPEATED: Final = re.compile(r"(?:\)|\\[bBAzZ]|[\^$])\{(\d{1,9})(?:,(\d{0,9}))?\}")
"""Matches a repeat of a group or assertion; nested repeats multiply."""
_MAX_REPEATED: Final = 100_000

Target = Callable[[str], Any]


class Fault(NamedTuple):
    """A fault of a value.

    Args:
        path: The keys and indexes that lead to the faulty part.
        message: The fault, in one line.
        unchecked: Whether the value was not checked, because checking is too expensive.
    """

    path: tuple[str | int, ...]
    message: str
    unchecked: bool = False

    def __str__(self) -> str:
        place = ".".join(map(str, self.path))
        return f"{place}: {self.message}" if place else self.message


def _with_plain_texts(part: Any) -> Any:
    """Return a schema whose texts have no subclass, such as those of settings files.

    ``jsonschema-rs`` refuses subclasses of ``str``.
    """
    if isinstance(part, str):
        return str(part)
    if isinstance(part, dict):
        items = cast("dict[Any, Any]", part).items()
        return {_with_plain_texts(name): _with_plain_texts(below) for name, below in items}
    if isinstance(part, list):
        return [_with_plain_texts(below) for below in cast("list[Any]", part)]
    return part


class Checker:
    """Validate values against one schema.

    References point into the schema itself: ``#`` or ``#/a/path``. The steps of a check
    are limited in advance, because nested ``anyOf`` or ``oneOf`` can double the steps with each
    level. A pattern is given up after a fixed number of backtracking steps.

    Args:
        schema: The schema.
        owner: The owner of the schema, for messages.

    Raises:
        ToolDefinitionError: If the schema is too large, invalid, or refers outside of itself.
        OptionalDependencyError: If ``jsonschema-rs`` is not installed.
    """

    def __init__(self, schema: Mapping[str, Any], owner: str) -> None:
        self._owner = owner
        self._targets: dict[str, Any] = {}
        try:
            self._root: dict[str, Any] = _with_plain_texts(dict(schema))
            self._is_cheap = self._inspect()
            self._validator = _compile_schema(self._root)
        except (ValueError, TypeError, RecursionError) as error:
            text = clean(str(error).partition("\n")[0], _MESSAGE) or "it is nested too deeply"
            raise ToolDefinitionError(f"{owner}: its schema cannot be used: {text}") from None

    def fault(self, value: Any) -> Fault | None:
        """Return the first fault of a value; None for a valid value.

        Args:
            value: Plain data, as JSON has it.
        """
        return next(iter(self.faults(value, 1)), None)

    def faults(self, value: Any, max_faults: int) -> list[Fault]:
        """List the faults of a value; for a large value only the first.

        Args:
            value: Plain data, as JSON has it.
            max_faults: The maximum number of faults.
        """
        import jsonschema_rs

        try:
            size = _size(value)
            if not self._is_cheap and not self._takes_few_steps(value, size):
                return [Fault((), "it would take too long to check", unchecked=True)]
            if self._validator.is_valid(value):
                return []
            if max_faults > 1 and size <= _LARGE:
                errors = islice(self._validator.iter_errors(value), max_faults)
                return [_fault(error, self._root) for error in errors]
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [_fault(error, self._root)]
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            problem = f"it cannot be checked: {clean(str(error), _MESSAGE)}"
            return [Fault((), problem, unchecked=True)]
        return []

    # -- the schema ---------------------------------------------------------------------

    def _inspect(self) -> bool:
        """Inspect all subschemas; return True if checking any value takes few steps.

        Raises:
            ValueError: If a part of the schema is not supported.
        """
        size = len(json.dumps(self._root, ensure_ascii=False, default=str))
        if size > MAX_BYTES:
            raise ValueError(f"it has {size:,} characters, and at most {MAX_BYTES:,} are read")
        visited_ids: set[int] = set()
        pending: list[Any] = [self._root]
        applied_schemas = _AppliedSchemas(self._target)
        is_cheap = True
        while pending:
            node = pending.pop()
            if not isinstance(node, dict):
                continue
            subschema = cast("dict[str, Any]", node)
            if id(subschema) in visited_ids:
                is_cheap = False  # a shared or recursive schema
                continue
            visited_ids.add(id(subschema))
            if len(visited_ids) > MAX_PARTS:
                raise ValueError(f"it has more than {MAX_PARTS:,} parts")
            is_cheap = is_cheap and not any(name in subschema for name in _EXPENSIVE)
            is_cheap = is_cheap and len(_as_list(subschema.get("enum"))) <= _VALUES_A_STEP
            self._check_addresses(subschema)
            for pattern in (
                subschema.get("pattern"),
                *_as_dict(subschema.get("patternProperties")),
            ):
                _check_pattern(pattern)
            if applied_schemas.weight(subschema) > _HEAVY and any(
                name in subschema for name in _UNEVALUATED
            ):
                raise ValueError("it takes too long to check")
            pending += self._inner(subschema)
        return is_cheap and len(visited_ids) <= _CHEAP

    def _check_addresses(self, schema: dict[str, Any]) -> None:
        for name in _ELSEWHERE:
            if name in schema:
                raise ValueError(f"{name} is not followed")
        name = schema.get("id" if "draft-04" in str(self._root.get("$schema")) else "$id")
        if schema is not self._root and isinstance(name, str) and not name.startswith("#"):
            raise ValueError("a schema within it has an address of its own")

    def _inner(self, schema: dict[str, Any]) -> Iterator[Any]:
        yield from _parts_here(schema, self._target)
        yield from (schema.get(name) for name in _BELOW)
        for name in _BELOW_LISTS:
            yield from _as_list(schema.get(name))
        for name in _BELOW_MAPS:
            yield from _as_dict(schema.get(name)).values()

    def _target(self, ref: str) -> Any:
        """Return the target of a reference.

        Raises:
            ValueError: If the reference does not resolve within the schema.
        """
        if ref not in self._targets:
            self._targets[ref] = resolve_reference(self._root, ref)
        return self._targets[ref]

    # -- the steps ----------------------------------------------------------------------

    def _takes_few_steps(self, value: Any, size: int) -> bool:
        max_steps = _STEPS + _STEPS_EACH * size
        return _Steps(self._target, max_steps).estimate(self._root, value) <= max_steps


def _fault(error: Any, root: Mapping[str, Any]) -> Fault:
    """Convert a library error to a :class:`Fault`; among alternatives, the closest one counts."""
    branches: list[list[Any]] = getattr(error.kind, "context", None) or []
    inner = [fault for branch in branches for fault in branch]
    if not inner:
        problem = _allowed_values(error, root)
        message = clean(error.message, _MESSAGE) if problem is None else clean(problem, _LISTED)
        return Fault(tuple(error.instance_path), message)
    # The alternative ``null`` is not what the author of a value intended.
    inner = [e for e in inner if not e.message.endswith('is not of type "null"')] or inner
    best = max(inner, key=_likeness)
    place = best.instance_path
    equally_close = [
        e for e in inner if e.instance_path == place and _likeness(e) == _likeness(best)
    ]
    if len(equally_close) == 1:
        return _fault(best, root)
    messages = dict.fromkeys(e.message for e in equally_close)
    return Fault(tuple(place), clean("; or ".join(messages), _MESSAGE))


def _allowed_values(error: Any, root: Mapping[str, Any]) -> str | None:
    """Describe a wrong value or key together with the allowed ones; None for other faults."""
    kind = error.kind.name
    if kind == "enum":
        wrong_value = error.instance
        values = [value for value in _as_list(error.kind.options) if value is not None]
        suggestion = (
            did_you_mean(wrong_value, map(str, values)) if isinstance(wrong_value, str) else ""
        )
        allowed_text = ", ".join(map(repr, values))
        return f"{clean(repr(wrong_value), 80)} is not one of {allowed_text}{suggestion}"
    if kind in ("additionalProperties", "unevaluatedProperties"):
        keys = [str(key) for key in error.kind.unexpected]
        known_keys = _keys_at(root, error.schema_path)
        if not known_keys:
            return None
        suggestion = did_you_mean(keys[0], known_keys)
        return f"there is no key {keys[0]!r}{suggestion}; its keys: {', '.join(known_keys)}"
    return None


def _keys_at(root: Mapping[str, Any], path: Iterable[str | int]) -> list[str]:
    """Return the properties of the subschema that a JSON pointer leads to."""
    node: Any = root
    for part in list(path)[:-1]:
        if isinstance(node, list) and isinstance(part, int):
            node = cast("list[Any]", node)[part]
        else:
            node = _as_dict(node).get(str(part))
    return list(_as_dict(_as_dict(node).get("properties")))


def _likeness(error: Any) -> tuple[int, bool]:
    """Return a sort key: errors deep in the value, and not about an enum, rank highest."""
    return len(error.instance_path), error.kind.name not in ("enum", "const")


class _AppliedSchemas:
    """Counts the schemas that apply to the same part of a value.

    Args:
        target: Resolves a reference.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._weights: dict[int, int | None] = {}

    def weight(self, schema: dict[str, Any]) -> int:
        """Count the applied schemas, once for each way in which they are reached.

        Raises:
            ValueError: If the schema applies itself, which never ends.
        """
        if id(schema) in self._weights:
            known_weight = self._weights[id(schema)]
            if known_weight is None:
                raise ValueError("a schema within it leads back to itself")
            return known_weight
        self._weights[id(schema)] = None
        parts = _parts_here(schema, self._target)
        count = 1 + sum(self.weight(_as_dict(p)) for p in parts if isinstance(p, dict))
        if any(name in schema for name in _UNEVALUATED):
            count *= 2  # the library applies them again
        self._weights[id(schema)] = count
        return count


class _Steps:
    """Estimates the number of validation steps of a value.

    Args:
        target: Resolves a reference.
        max_steps: The number at which counting stops.
    """

    def __init__(self, target: Target, max_steps: int) -> None:
        self._target = target
        self._max_steps = max_steps
        self._steps: dict[tuple[int, int], int] = {}

    def estimate(self, schema: Any, value: Any) -> int:
        """Estimate the steps to validate a value against a schema."""
        if not isinstance(schema, dict):
            return 1
        subschema = cast("dict[str, Any]", schema)
        key = (id(subschema), id(value))
        if key in self._steps:
            return self._steps[key]
        if len(self._steps) > self._max_steps:
            return self._max_steps + 1
        count = 1 + len(_as_list(subschema.get("enum"))) // _VALUES_A_STEP
        if "pattern" in subschema and isinstance(value, str):
            count += _PATTERN_STEPS
        count += sum(self.estimate(part, value) for part in _parts_here(subschema, self._target))
        if any(name in subschema for name in _UNEVALUATED):
            count *= 2
        if isinstance(value, dict):
            for name, item in cast("dict[str, Any]", value).items():
                count += self._property_steps(subschema, name, item)
        elif isinstance(value, list):
            for index, item in enumerate(cast("list[Any]", value)):
                count += self._item_steps(subschema, index, item)
        self._steps[key] = count
        return count

    def _property_steps(self, schema: dict[str, Any], name: str, item: Any) -> int:
        """Estimate the steps to validate one property of an object."""
        count = 0
        properties = _as_dict(schema.get("properties"))
        if name in properties:
            count += self.estimate(properties[name], item)
        for part in _as_dict(schema.get("patternProperties")).values():
            count += _PATTERN_STEPS + self.estimate(part, item)
        for word in ("additionalProperties", "unevaluatedProperties"):
            if word in schema and name not in properties:
                count += self.estimate(schema[word], item)
        if "propertyNames" in schema:
            count += self.estimate(schema["propertyNames"], name)
        return count

    def _item_steps(self, schema: dict[str, Any], index: int, item: Any) -> int:
        count = 0
        for word in _BELOW_LISTS:
            parts = _as_list(schema.get(word))
            if index < len(parts):
                count += self.estimate(parts[index], item)
        for word in ("items", "additionalItems", "contains", "unevaluatedItems"):
            if isinstance(schema.get(word), dict):
                count += self.estimate(schema[word], item)
        return count


def _parts_here(schema: dict[str, Any], target: Target) -> Iterator[Any]:
    """Yield the subschemas that apply to the same part of a value."""
    if isinstance(schema.get("$ref"), str):
        yield target(schema["$ref"])
    yield from (schema[name] for name in _HERE if name in schema)
    for name in _HERE_LISTS:
        yield from _as_list(schema.get(name))
    for name in _HERE_MAPS:
        yield from _as_dict(schema.get(name)).values()


def resolve_reference(root: Any, ref: str) -> Any:
    """Resolve a reference within a document.

    Args:
        root: The document.
        ref: ``#``, or ``#/a/path`` as a JSON pointer.

    Raises:
        ValueError: If the reference does not resolve within the document.
    """
    if ref != "#" and not ref.startswith("#/"):
        raise ValueError(f"$ref {clean(ref)!r} leads out of the schema, and is not followed")
    node: Any = root
    for step in unquote(ref[1:]).split("/")[1:]:
        token = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and token.isdigit() and int(token) < len(cast("Any", node)):
            node = cast("list[Any]", node)[int(token)]
        elif isinstance(node, Mapping) and token in node:
            node = cast("Mapping[str, Any]", node)[token]
        else:
            raise ValueError(f"$ref {clean(ref)!r} leads nowhere")
    return node


def _check_pattern(pattern: object) -> None:
    """Refuse a pattern whose empty repeats take minutes to match.

    The engine limits the size of a compiled pattern, but repeats of nothing have no size.

    Raises:
        ValueError: If the pattern has such repeats.
    """
    if isinstance(pattern, str):
        repeats = _REPEATED.finditer(pattern)
        times = math.prod(max(int(match[1]), int(match[2] or 0), 1) for match in repeats)
        if times > _MAX_REPEATED:
            raise ValueError("a pattern of it repeats too often")


def _compile_schema(schema: dict[str, Any]) -> Validator:
    try:
        import jsonschema_rs
    except ModuleNotFoundError:
        raise OptionalDependencyError(
            "what checks JSON Schemas is not installed", package="jsonschema-rs"
        ) from None

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
    return jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns)


def _size(value: Any) -> int:
    """Count the parts of a value."""
    count, values_to_visit = 0, [value]
    while values_to_visit:
        node = values_to_visit.pop()
        count += 1
        if isinstance(node, dict):
            values_to_visit += cast("dict[str, Any]", node).values()
        elif isinstance(node, list):
            values_to_visit += cast("list[Any]", node)
    return count


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _as_dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def clean(text: object, limit: int = 120) -> str:
    """Reduce a service's text to one short line without control characters."""
    if not isinstance(text, str):
        return ""
    text = text[: limit * 8]
    if not text.isascii():
        text = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text)
    elif not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    may_have_tags = "<" in text
    if may_have_tags:
        text = _TAGS.sub(" ", text)
    if "](" in text:
        text = _LINKS.sub(r"\1", text)
    text = " ".join(text.split())
    if may_have_tags:
        text = re.sub(r" ([.,;:!?])", r"\1", text)
    if "```" in text or '"""' in text:
        text = text.replace("```", "'''").replace('"""', "'''")
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
