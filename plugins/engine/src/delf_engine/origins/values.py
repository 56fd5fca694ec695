"""The values of plain data as texts, each with its path and trust; which values are content."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from pydantic_core import to_jsonable_python

from delf.types import Trust
from delf_engine.bound_action import BoundAction
from delf_engine.origins.texts import normalized_text, number_text

_LISTS: Final = (list, tuple, set, frozenset)
MAX_LEAVES: Final = 500
"""The maximum number of values in one call's arguments that are examined."""
# The maximum number of bytes of one value that are decoded as text.
_MAX_TEXT_BYTES: Final = 4_000_000
# Matches each name in a path such as ``payment.to[0].iban``, but no index in brackets.
_NAMES: Final = re.compile(r"[^.\[\]]+(?![^\[]*\])")
CONTENT_WORDS: Final = frozenset(
    {"text", "body", "subject", "title", "description", "content", "message", "note"}
    | {"comment", "summary", "caption", "reason", "html", "markdown"}
)
"""Words in the names of parameters that hold content for people, such as the body of a mail."""
# Matches characters that occur in data for machines, but not in words; ``Done:`` is a word.
_MACHINE_DATA: Final = re.compile(r"[\d/@<&]|\S[=:]\S")
# Matches each word in a name: ``message`` and ``Text`` in ``messageText``.
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# The types of the values that are left out by default: None, booleans, and empty lists and dicts. A
# list or dict with items is read item by item.
_LEFT_OUT_TYPES: Final = (type(None), bool, list, dict)
# A path in plain data, the value at this path, and the value's trust. No NamedTuple, which is slow
# to make: a result may have very many values.
_Node = tuple[str, Any, Trust]


def texts_with_trust(
    value: Any,
    trust: Trust | Mapping[str, Trust] = "outside",
    path: str = "",
    *,
    is_exact: bool = False,
) -> Iterator[tuple[Trust, str, str]]:
    """Yield the trust, the path and the text of each value in plain data, in order.

    By default, data that is a JSON text is parsed first. Booleans, None, empty collections, and
    keys that are identifiers are left out.

    Args:
        value: The data.
        trust: The trust of all values, or a mapping such as ``{"body": "outside", "*": "own"}``:
            the fields ``body`` at any depth are untrusted, with all values inside, and all other
            values are trusted.
        path: The path of the data, which all yielded paths begin with.
        is_exact: Whether to leave out nothing, and to yield a JSON text unparsed.
    """
    trust_by_field: dict[str, Trust] = {"*": trust} if isinstance(trust, str) else {**trust}
    # ``*`` names no field of the data, so it must not stay among the names.
    trust_of_data = trust_by_field.pop("*", "outside")
    # A stack, and no recursion, because the data may be of any depth.
    data = value if is_exact else _parse_json(value)
    pending: list[_Node] = [(path, data, trust_of_data)]
    while pending:
        node = pending.pop()
        item_path, item, item_trust = node
        text = _text_of(item)
        if text is None:  # read the parts of the item
            if isinstance(item, dict):
                yield from _keys_in(node, with_identifiers=is_exact)
            pending += reversed(_parts_of(node, trust_by_field))
            continue
        is_left_out = not is_exact and isinstance(item, _LEFT_OUT_TYPES)
        if not is_left_out:
            yield item_trust, item_path, text


def _text_of(value: Any) -> str | None:
    """Return a value as a text.

    None for a dict or list with items, and for a value that is no plain data.
    """
    match value:
        case str():
            return value
        case bool() | None:
            return str(value)
        case int() | float():
            return number_text(value)
        case bytes():
            return value[:_MAX_TEXT_BYTES].decode(errors="replace")
        case dict() | list() if not value:
            return "[]"  # also for a dict, so that a planned ``{}`` allows ``[]``
        case _:
            return None


def _keys_in(record: _Node, *, with_identifiers: bool) -> Iterator[tuple[Trust, str, str]]:
    """Yield the trust, the path and the text of each key of a record, such as ``due date``.

    Args:
        record: The record.
        with_identifiers: Whether to yield also keys that are identifiers, such as ``name``.
    """
    path, fields, trust = record
    for index, key in enumerate(fields):
        if not isinstance(key, str):
            continue
        is_left_out = key.isidentifier() and not with_identifiers
        if not is_left_out:
            yield trust, f"{path}[key {index}]", key


def _parts_of(node: _Node, trust_by_field: Mapping[str, Trust]) -> Sequence[_Node]:
    """Return the fields of a record or the items of a list, each with its path and trust.

    A field that ``trust_by_field`` does not list has the trust of its record.

    Any other value, such as a date or a model, is converted to JSON types, and the converted value
    is returned as the only part.
    """
    path, value, trust = node
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value).items()
        return [(f"{path}.{name}", each, trust_by_field.get(name, trust)) for name, each in fields]
    if isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
        return [(f"{path}[{index}]", each, trust) for index, each in items]
    return [(path, _to_json_types(value), trust)]


def values_of(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield all values of a call's arguments as texts, each with its path, such as ``to[0]``."""
    return (leaf for name, item in arguments.items() for leaf in leaves_of(item, name))


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each leaf of plain data.

    For ``{"to": ["ada"]}``, yield ``("[key 0]", "to")`` and ``(".to[0]", "ada")``.
    """
    leaves = texts_with_trust(value, path=path, is_exact=True)
    return ((leaf_path, text) for _, leaf_path, text in leaves)


def _to_json_types(value: Any) -> Any:
    """Convert a value to a type that JSON supports; members of lists and mappings stay as they are.

    Objects of other types, such as dates or models, are converted completely.
    """
    if isinstance(value, _LISTS):
        return list(cast("Iterable[Any]", value))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    return to_jsonable_python(value, fallback=str, inf_nan_mode="strings")


def _parse_json(value: Any) -> Any:
    """Parse a text that is a JSON object or array; return any other value unchanged."""
    try:
        if isinstance(value, str) and value[:1] in ("{", "["):
            return json.loads(value)
        return value
    except (ValueError, RecursionError):
        return value


def fields_at(
    value: Any, path: Sequence[str], conditions: Mapping[str, Any] | None = None
) -> Iterator[Any]:
    """Yield the values of a field in a result's records.

    Args:
        value: The result of a call.
        path: The names of the field, from the outermost to the innermost.
        conditions: The values that a record must have, by field name; other records are skipped.
    """
    # Only the result itself is parsed as JSON. Another person may have written the texts in it, and
    # could choose the names of fields in such a text.
    items = [*items_of(_parse_json(value))]
    for name, wanted_value in (conditions or {}).items():
        items = [each for each in _records_in(items) if _has_value(each, name, wanted_value)]
    for name in path:
        values = [record[name] for record in _records_in(items) if name in record]
        items = [*items_of(values)]
    return iter(items)


def _has_value(record: Mapping[Any, Any], name: str, wanted_value: Any) -> bool:
    """Return whether the field ``name`` of a record contains ``wanted_value``.

    If the record has no field of this name, look for the value in all fields.
    """
    texts = (text for _, text in leaves_of(record.get(name, record)))
    return normalized_text(str(wanted_value)) in map(normalized_text, texts)


def _records_in(items: Iterable[Any]) -> list[Mapping[Any, Any]]:
    return [cast("Mapping[Any, Any]", item) for item in items if isinstance(item, Mapping)]


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the fields of a record by name; None for a value that is not a record."""
    # A text may be a JSON object.
    data: object = _parse_json(value) if isinstance(value, str) else _to_json_types(value)
    return cast("dict[Any, Any]", data) if isinstance(data, dict) else None


def items_of(value: Any) -> Iterator[Any]:
    """Yield the items of a list and of the lists in it; yield any other value itself."""
    items = cast("Iterable[Any]", value) if isinstance(value, _LISTS) else (value,)
    for item in items:
        if isinstance(item, _LISTS):
            yield from items_of(item)
        else:
            yield item


def names_in(path: str) -> Sequence[str]:
    """Return the names in a path: ``payment``, ``to`` and ``iban`` in ``payment.to[0].iban``."""
    return _NAMES.findall(path)


def parameter_of(path: str) -> str:
    """Return the parameter in a value's path, such as ``to`` in ``to[0]``."""
    return re.split(r"[.[]", path, maxsplit=1)[0]


def is_content(bound: BoundAction, path: str, text: str) -> bool:
    """Return whether a value is content for people to read, such as the body of a mail.

    Other values, such as a recipient or an amount, decide what a call does. An action's
    ``contents`` name the parameters that hold content; its ``sinks`` name all others. If the action
    declares neither, the names of parameters and fields decide. But then neither data for machines
    nor an argument of a read counts as content.

    Args:
        bound: The called action.
        path: The path of the value in the arguments.
        text: The value.
    """
    action = bound.action
    if action.sinks is not None:
        return parameter_of(path) not in action.sinks
    if action.contents is not None:
        return parameter_of(path) in action.contents
    if action.effect == "read":
        # No person reads the arguments of a read: in ``find(title="Invoice")``, the title decides
        # which records the read returns.
        return False
    if not _has_content_name(path):
        return False
    _, bracket, index = path.rpartition("[")
    is_key_of_record = bool(bracket) and index.startswith("key ")  # such as ``body[key 2]``
    is_json = _parse_json(text) is not text  # _parse_json() returns any other text unchanged
    if is_key_of_record or is_json:
        return False
    return not _is_machine_data(text)


def _has_content_name(path: str) -> bool:
    """Return whether a path ends with a name such as ``comments`` or ``messageText``.

    The name ``message_id`` is no such name, because ``id`` is no word for content.
    """
    names = names_in(path)
    words = _WORDS.findall(names[-1]) if names else []
    singular_words = {word.lower().removesuffix("s") for word in words}
    return bool(words) and singular_words <= CONTENT_WORDS


def _is_machine_data(text: str) -> bool:
    """Return whether each non-empty line is one piece of data for machines, such as ``id=7``.

    A line of machine data has no blanks, and has a digit or a mark such as ``/`` or ``@``. Return
    False if all lines are empty.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return False
    return all(" " not in line and _MACHINE_DATA.search(line) for line in lines)
