"""Validation against untrusted JSON Schemas, with bounded time and no network access."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import unquote

from delf.errors import OptionalDependencyError, ToolDefinitionError, did_you_mean
from delf.tools.date_formats import FormatKeyword
from delf.values.numbers import parse_count

if TYPE_CHECKING:
    from jsonschema_rs import Validator

MAX_BYTES: Final = 1_000_000
"""The maximum number of bytes of a schema as JSON."""
MAX_PARTS: Final = 20_000
"""The maximum number of subschemas of a schema."""
# Only schemas with at most this number of subschemas check values without counting steps first.
#
# Counting the steps for a value with a million parts, such as the rows of an answer, takes seconds.
_MAX_QUICK_PARTS: Final = 50
# The maximum number of steps of a check, apart from the steps that the value's parts add.
#
# The library has no time limit, so the steps are estimated before the check.
_STEPS: Final = 20_000
# The number of steps by which each part of the value raises the maximum.
_STEPS_PER_PART: Final = 50
_PATTERN_STEPS: Final = 100
_ENUM_VALUES_PER_STEP: Final = 20
_MAX_BACKTRACKS: Final = 10_000
# The maximum number of subschemas for one part of a value, if ``unevaluated`` keywords are used.
#
# The library checks the part against all the subschemas again for such a keyword.
_MAX_APPLIED_SCHEMAS: Final = 2000
# The maximum number of parts of a value whose faults are all listed. Listing all faults is slow.
_MAX_PARTS_FOR_ALL_FAULTS: Final = 10_000
_MAX_MESSAGE_CHARACTERS: Final = 400
# The maximum length of a message that lists allowed values or keys.
_MAX_LIST_CHARACTERS: Final = 1_200

# The subschemas of the keywords in _IN_PLACE… apply to the same part of a value, and those in
# _CHILD… apply to the children of the part.
_IN_PLACE: Final = ("not", "if", "then", "else")
_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_CHILD: Final = (
    "additionalProperties", "propertyNames", "contains", "additionalItems",
    "unevaluatedProperties", "unevaluatedItems", "items",
)  # fmt: skip
_CHILD_LISTS: Final = ("prefixItems", "items")
_CHILD_MAPS: Final = ("properties", "patternProperties")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_EXPENSIVE: Final = ("pattern", "patternProperties", *_UNEVALUATED)
# Schemas with these keywords are refused: the target of the reference depends on the path of the
# check, so the steps cannot be counted beforehand.
_DYNAMIC_REFERENCES: Final = ("$dynamicRef", "$recursiveRef")
# Matches HTML tags, but not placeholders such as ``<id>``.
_TAGS: Final = re.compile(
    r"</?(?:a|abbr|b|blockquote|br|code|dd|del|details|div|dl|dt|em|font|h[1-6]|hr|i|img|ins|kbd|li"
    r"|ol|p|pre|s|samp|script|small|span|strong|style|sub|summary|sup|table|tbody|td|tfoot|th|thead"
    r"|tr|tt|u|ul|var)(?=[\s/>])[^<>]{0,200}>",
    re.IGNORECASE,
)
_LINKS: Final = re.compile(r"!?\[([^\[\]]{0,200})\]\((?:[^()\s]|\([^()\s]*\)){0,500}\)")


# Matches a counted repeat of a group or assertion, such as ``){1000}``.
_REPEATED: Final = re.compile(r"(?:\)|\\[bBAzZ]|[\^$])\{(\d{1,9})(?:,(\d{0,9}))?\}")
_MAX_REPEATED: Final = 100_000

Target = Callable[[str], Any]


class Fault(NamedTuple):
    """A fault of a value.

    Args:
        path: The keys and indexes that lead to the faulty part.
        message: The fault, in one line.
        unchecked: Whether the value was not checked, for example because that would take too long.
    """

    path: tuple[str | int, ...]
    message: str
    unchecked: bool = False

    def __str__(self) -> str:
        place = ".".join(map(str, self.path))
        return f"{place}: {self.message}" if place else self.message


def _with_plain_texts(part: Any) -> Any:
    """Return a copy of a schema in which subclasses of ``str`` are replaced by ``str``.

    ``jsonschema-rs`` refuses subclasses, such as the strings from settings files.
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
    """Validates values against one schema.

    The schema may only have references into itself: ``#`` or ``#/a/path``. A check that would take
    too many steps is not made, and gives a fault that is marked ``unchecked``: nested ``anyOf`` or
    ``oneOf`` can double the steps with each level. Matching a pattern ends after a fixed number of
    backtracking steps. Of formats, only those of dates are checked: see :class:`FormatKeyword`.

    Args:
        schema: The schema.
        owner: The owner of the schema, for messages.

    Raises:
        ToolDefinitionError: If the schema is too large, invalid, or refers outside of itself.
        OptionalDependencyError: If ``jsonschema-rs`` is not installed.
    """

    def __init__(self, schema: Mapping[str, Any], owner: str) -> None:
        self._owner = owner
        # A cache of _target(): the subschema to which each reference, such as ``#/$defs/item``,
        # refers.
        self._targets: dict[str, Any] = {}
        try:
            self._root: dict[str, Any] = _with_plain_texts(dict(schema))
            # If a schema is not quick, the number of validation steps for a value is estimated
            # before the value is validated, because some values would take very long.
            self._is_quick_for_any_value = _is_quick(self._check_subschemas())
            self._validator = _compile_schema(self._root)
        except (ValueError, TypeError, RecursionError) as error:
            text = (
                clean(str(error).partition("\n")[0], _MAX_MESSAGE_CHARACTERS)
                or "it is nested too deeply"
            )
            raise ToolDefinitionError(f"{owner}: its schema cannot be used: {text}") from None

    def fault(self, value: Any) -> Fault | None:
        """Return the first fault of a value; None for a valid value.

        Args:
            value: Plain data, as JSON has it.
        """
        return next(iter(self.faults(value, 1)), None)

    def faults(self, value: Any, max_faults: int) -> list[Fault]:
        """Return the faults of a value; for a large value only the first fault.

        Args:
            value: Plain data, as JSON has it.
            max_faults: The maximum number of faults.
        """
        import jsonschema_rs

        try:
            size = _count_parts(value)
            is_quick = self._is_quick_for_any_value or self._takes_few_steps(value, size)
            if not is_quick:
                return [Fault((), "it would take too long to check", unchecked=True)]
            if self._validator.is_valid(value):
                return []
            if max_faults > 1 and size <= _MAX_PARTS_FOR_ALL_FAULTS:
                errors = islice(self._validator.iter_errors(value), max_faults)
                return [_fault(error, self._root) for error in errors]
            self._validator.validate(value)  # raises the first fault, as the value is not valid
        except jsonschema_rs.ValidationError as error:
            return [_fault(error, self._root)]
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            problem = f"it cannot be checked: {clean(str(error), _MAX_MESSAGE_CHARACTERS)}"
            return [Fault((), problem, unchecked=True)]
        return []  # not reached: validate() raises for a value that is not valid

    # -- the schema ---------------------------------------------------------------------

    def _check_subschemas(self) -> list[dict[str, Any]]:
        """Check and return all subschemas; a subschema is returned for each place of its use.

        Raises:
            ValueError: If a part of the schema is not supported.
        """
        size = len(json.dumps(self._root, ensure_ascii=False, default=str))
        if size > MAX_BYTES:
            raise ValueError(f"it has {size:,} characters, and at most {MAX_BYTES:,} are read")
        visited_ids: set[int] = set()
        subschemas: list[dict[str, Any]] = []
        pending: list[Any] = [self._root]
        applied_schemas = _AppliedSchemas(self._target)
        while pending:
            node = pending.pop()
            if not isinstance(node, dict):
                continue
            subschema = cast("dict[str, Any]", node)
            subschemas.append(subschema)
            if id(subschema) in visited_ids:
                continue
            visited_ids.add(id(subschema))
            if len(visited_ids) > MAX_PARTS:
                raise ValueError(f"it has more than {MAX_PARTS:,} parts")
            self._check_reference_keywords(subschema)
            _check_pattern(subschema.get("pattern"))
            for pattern in _as_dict(subschema.get("patternProperties")):
                _check_pattern(pattern)
            # Call count() for every subschema, because count() raises if a subschema applies
            # itself.
            applied_count = applied_schemas.count(subschema)
            # Each "unevaluated" keyword checks a value again against all subschemas that apply.
            has_unevaluated = any(name in subschema for name in _UNEVALUATED)
            if has_unevaluated and applied_count > _MAX_APPLIED_SCHEMAS:
                raise ValueError("it takes too long to check")
            pending += self._subschemas(subschema)
        return subschemas

    def _check_reference_keywords(self, schema: dict[str, Any]) -> None:
        """Raise ``ValueError`` for dynamic references, and for the ``$id`` of a subschema."""
        for name in _DYNAMIC_REFERENCES:
            if name in schema:
                raise ValueError(f"{name} is not followed")
        if schema is self._root:
            return
        is_draft_4 = "draft-04" in str(self._root.get("$schema"))
        name = schema.get("id" if is_draft_4 else "$id")
        # An $id such as ``#item`` only names the subschema; references lead to the same targets.
        if isinstance(name, str) and not name.startswith("#"):
            raise ValueError("a subschema has its own $id, which is not supported")

    def _subschemas(self, schema: dict[str, Any]) -> Iterator[Any]:
        """Yield the direct subschemas for the schema's own value, then those for its children."""
        yield from _in_place_subschemas(schema, self._target)
        yield from (schema.get(name) for name in _CHILD)
        for name in _CHILD_LISTS:
            yield from _as_list(schema.get(name))
        for name in _CHILD_MAPS:
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
        """Return True if validation applies few schemas, in relation to the size of a value."""
        max_steps = _STEPS + _STEPS_PER_PART * size
        steps = _Steps(self._target, max_steps).estimate(self._root, value)
        return steps <= max_steps  # an estimate above the maximum was not counted to its end


def _fault(error: Any, root: Mapping[str, Any]) -> Fault:
    """Convert an error of ``jsonschema_rs`` to a :class:`Fault`.

    If no alternative of ``anyOf`` or ``oneOf`` matches, return the error of the alternative that
    fails deepest in the value: the value's author probably meant this alternative.
    """
    alternatives: list[list[Any]] = getattr(error.kind, "context", None) or []
    all_errors = list(chain.from_iterable(alternatives))
    if not all_errors:
        return _fault_of_single_error(error, root)
    # Hardly anybody means the alternative ``null``.
    likely_errors = [e for e in all_errors if not e.message.endswith('is not of type "null"')]
    candidates = likely_errors or all_errors
    deepest = max(candidates, key=_depth_rank)
    # Several alternatives may fail at the same path: "1 is not a string; or 1 is not an array".
    equally_deep: list[Any] = []
    for each in candidates:
        is_at_same_path = each.instance_path == deepest.instance_path
        if is_at_same_path and _depth_rank(each) == _depth_rank(deepest):
            equally_deep.append(each)
    if len(equally_deep) == 1:
        return _fault(deepest, root)  # this error may have alternatives of its own
    messages = dict.fromkeys(each.message for each in equally_deep)
    text = clean("; or ".join(messages), _MAX_MESSAGE_CHARACTERS)
    return Fault(tuple(deepest.instance_path), text)


def _fault_of_single_error(error: Any, root: Mapping[str, Any]) -> Fault:
    message_with_list = _message_with_allowed_values(error, root)
    if message_with_list is None:
        message = clean(error.message, _MAX_MESSAGE_CHARACTERS)
    else:
        message = clean(message_with_list, _MAX_LIST_CHARACTERS)
    return Fault(tuple(error.instance_path), message)


def _message_with_allowed_values(error: Any, root: Mapping[str, Any]) -> str | None:
    """Return a message that lists the allowed values of an enum, or the known keys of an object.

    None for an error of another kind, and for an object whose keys the schema does not list.
    """
    kind = error.kind.name
    if kind == "enum":
        wrong_value = error.instance
        # Without null, which hardly anybody means.
        values = [value for value in _as_list(error.kind.options) if value is not None]
        if isinstance(wrong_value, str):
            suggestion = did_you_mean(wrong_value, map(str, values))
        else:
            suggestion = ""
        allowed_text = ", ".join(map(repr, values))
        return f"{clean(repr(wrong_value), 80)} is not one of {allowed_text}{suggestion}"
    if kind in ("additionalProperties", "unevaluatedProperties"):
        keys = [str(key) for key in error.kind.unexpected]
        known_keys = _keys_at(root, error.schema_path)
        if not known_keys:
            return None
        suggestion = did_you_mean(keys[0], known_keys)
        return f"there is no key {keys[0]!r}; known keys: {', '.join(known_keys)}{suggestion}"
    return None


def _keys_at(root: Mapping[str, Any], path: Iterable[str | int]) -> list[str]:
    """Return the names of the properties that a subschema declares.

    Args:
        root: The whole schema.
        path: The path from the whole schema to a keyword of the subschema.
    """
    node: Any = root
    path_of_subschema = list(path)[:-1]
    for part in path_of_subschema:
        if isinstance(node, list) and isinstance(part, int):
            node = cast("list[Any]", node)[part]
        else:
            node = _as_dict(node).get(str(part))
    return list(_as_dict(_as_dict(node).get("properties")))


def _depth_rank(error: Any) -> tuple[int, bool]:
    """Return a sort key: the deeper an error is in the value, the higher its rank."""
    # For {"kind": "square", "side": "x"}, the alternative of circles fails with '"square" is not
    # "circle"', and the one of squares with '"x" is not a number'. The second message is of more
    # use, so an error of ``enum`` or ``const`` ranks lower than others at the same depth.
    is_fixed_value = error.kind.name in ("enum", "const")
    return len(error.instance_path), not is_fixed_value


class _AppliedSchemas:
    """Counts the schemas that apply to one value: a schema, and those in ``allOf``, ``$ref`` etc.

    Args:
        target: A function that resolves a reference.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        # The results of count() by id() of the schema, so that each schema is counted only once.
        # None while count() visits the subschemas of the schema.
        self._counts: dict[int, int | None] = {}

    def count(self, schema: dict[str, Any]) -> int:
        """Count a schema and the subschemas that apply together with it.

        A subschema that is reached in several ways counts several times.

        Raises:
            ValueError: If the schema applies itself, so that a check would never end.
        """
        if id(schema) in self._counts:
            known_count = self._counts[id(schema)]
            if known_count is None:  # the count of this schema is still in progress
                raise ValueError("a schema within it leads back to itself")
            return known_count
        self._counts[id(schema)] = None
        parts = _in_place_subschemas(schema, self._target)
        count = 1 + sum(self.count(_as_dict(p)) for p in parts if isinstance(p, dict))
        if any(name in schema for name in _UNEVALUATED):
            count *= 2  # jsonschema applies all subschemas a second time for such a keyword
        self._counts[id(schema)] = count
        return count


class _Steps:
    """Estimates the number of validation steps of a value.

    Args:
        target: A function that resolves a reference.
        max_steps: The number at which counting stops.
    """

    def __init__(self, target: Target, max_steps: int) -> None:
        self._target = target
        self._max_steps = max_steps
        # The estimates by id() of the schema and id() of the part of the value.
        self._estimates: dict[tuple[int, int], int] = {}

    def estimate(self, schema: Any, value: Any) -> int:
        """Estimate the steps to validate a value against a schema.

        Once the estimate is certain to exceed the maximum, parts of the value are no longer
        visited, and the returned number is only a lower bound.
        """
        if not isinstance(schema, dict):
            return 1
        subschema = cast("dict[str, Any]", schema)
        key = (id(subschema), id(value))
        if key in self._estimates:
            return self._estimates[key]
        if len(self._estimates) > self._max_steps:  # each entry stands for at least one step
            return self._max_steps + 1
        count = 1 + len(_as_list(subschema.get("enum"))) // _ENUM_VALUES_PER_STEP
        if "pattern" in subschema and isinstance(value, str):
            count += _PATTERN_STEPS
        for part in _in_place_subschemas(subschema, self._target):
            count += self.estimate(part, value)
        if any(name in subschema for name in _UNEVALUATED):
            count *= 2  # all subschemas are applied a second time, as in _AppliedSchemas
        if isinstance(value, dict):
            for name, item in cast("dict[str, Any]", value).items():
                count += self._property_steps(subschema, name, item)
        elif isinstance(value, list):
            for index, item in enumerate(cast("list[Any]", value)):
                count += self._item_steps(subschema, index, item)
        self._estimates[key] = count
        return count

    def _property_steps(self, schema: dict[str, Any], name: str, item: Any) -> int:
        """Estimate the steps to validate one property of an object."""
        count = 0
        properties = _as_dict(schema.get("properties"))
        if name in properties:
            count += self.estimate(properties[name], item)
        for part in _as_dict(schema.get("patternProperties")).values():
            count += _PATTERN_STEPS + self.estimate(part, item)
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if keyword in schema and name not in properties:
                count += self.estimate(schema[keyword], item)
        if "propertyNames" in schema:
            count += self.estimate(schema["propertyNames"], name)
        return count

    def _item_steps(self, schema: dict[str, Any], index: int, item: Any) -> int:
        """Estimate the steps to validate one item of an array."""
        count = 0
        for keyword in _CHILD_LISTS:
            schemas_by_index = _as_list(schema.get(keyword))
            if index < len(schemas_by_index):
                count += self.estimate(schemas_by_index[index], item)
        for keyword in ("items", "additionalItems", "contains", "unevaluatedItems"):
            if isinstance(schema.get(keyword), dict):
                count += self.estimate(schema[keyword], item)
        return count


def _in_place_subschemas(schema: dict[str, Any], target: Target) -> Iterator[Any]:
    """Yield the direct subschemas that apply to the same part of a value as the schema."""
    if isinstance(schema.get("$ref"), str):
        yield target(schema["$ref"])
    yield from (schema[name] for name in _IN_PLACE if name in schema)
    for name in _IN_PLACE_LISTS:
        yield from _as_list(schema.get(name))
    for name in _IN_PLACE_MAPS:
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
    pointer = unquote(ref.removeprefix("#"))
    _, *steps = pointer.split("/")  # the pointer is empty or starts with a slash
    for step in steps:
        token = step.replace("~1", "/").replace("~0", "~")
        index = parse_count(token)
        if isinstance(node, list) and index is not None and index < len(cast("Any", node)):
            node = cast("list[Any]", node)[index]
        elif isinstance(node, Mapping) and token in node:
            node = cast("Mapping[str, Any]", node)[token]
        else:
            raise ValueError(f"$ref {clean(ref)!r} leads nowhere")
    return node


def _is_quick(subschemas: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if checking any value against a schema with these subschemas is quick."""
    is_shared_or_recursive = len(set(map(id, subschemas))) < len(subschemas)
    if is_shared_or_recursive or len(subschemas) > _MAX_QUICK_PARTS:
        return False
    return not any(map(_is_expensive, subschemas))


def _is_expensive(subschema: Mapping[str, Any]) -> bool:
    """Return True if checking a value against a subschema may take long."""
    if any(name in subschema for name in _EXPENSIVE):
        return True
    return len(_as_list(subschema.get("enum"))) > _ENUM_VALUES_PER_STEP


def _check_pattern(pattern: object) -> None:
    """Raise for a pattern that repeats an empty match, such as ``^{9999}``, too often.

    Matching such a pattern takes minutes. The library limits the size of compiled patterns, but
    repeats of an empty match do not add to the size.

    Raises:
        ValueError: If the pattern has such repeats.
    """
    if isinstance(pattern, str):
        # Multiply the largest numbers of all repeats: 5 for ``{5}`` and ``{5,}``, and 9 for
        # ``{5,9}``. A 0 counts as 1, because a product of 0 would hide the other repeats.
        repeats = _REPEATED.finditer(pattern)
        times = math.prod(max(int(match[1]), int(match[2] or 0), 1) for match in repeats)
        if times > _MAX_REPEATED:
            raise ValueError("one of its patterns repeats too often")


def _compile_schema(schema: dict[str, Any]) -> Validator:
    try:
        import jsonschema_rs
    except ModuleNotFoundError:
        raise OptionalDependencyError(
            "the validator for JSON Schemas is not installed", package="jsonschema-rs"
        ) from None

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS)
    keywords: dict[str, type[Any]] = {"format": FormatKeyword}
    return jsonschema_rs.validator_for(
        schema, offline=True, pattern_options=patterns, keywords=keywords
    )


def _count_parts(value: Any) -> int:
    """Return the number of values in a JSON value, including the value itself."""
    count = 0
    values_to_visit = [value]
    while values_to_visit:
        node = values_to_visit.pop()
        count += 1
        if isinstance(node, dict):
            values_to_visit += cast("dict[str, Any]", node).values()
        elif isinstance(node, list):
            values_to_visit += cast("list[Any]", node)
    return count


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return []


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return {}


def clean(text: object, limit: int = 120) -> str:
    """Return a service's text as one short line of plain text; empty for any other value.

    Control characters and HTML tags are removed, and links are replaced by their texts.
    """
    if not isinstance(text, str):
        return ""
    text = _without_invisible(text[: limit * 8])  # a long text is not searched to its end
    may_have_tags = "<" in text
    if may_have_tags:
        text = _TAGS.sub(" ", text)
    if "](" in text:
        text = _LINKS.sub(r"\1", text)
    text = " ".join(text.split())
    if may_have_tags:  # a removed tag leaves a space before the punctuation that follows the tag
        text = re.sub(r" ([.,;:!?])", r"\1", text)
    # The text must not end the code block or docstring that it is put into.
    if "```" in text or '"""' in text:
        text = text.replace("```", "'''").replace('"""', "'''")
    if len(text) <= limit:
        return text
    return f"{text[: limit - 1].rstrip()}…"


def _without_invisible(text: str) -> str:
    """Replace control characters and other invisible characters by blanks."""
    if not text.isascii():
        # Characters of the categories that begin with C, such as control characters, are invisible.
        return "".join(" " if unicodedata.category(c)[0] == "C" else c for c in text)
    if not text.isprintable():
        return "".join(c if c.isprintable() else " " for c in text)
    return text
