"""The values of plain data as texts, each with its path and trust."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from pydantic_core import to_jsonable_python

from delf.types import Trust
from delf_engine.origins.texts import number_text

_LISTS: Final = (list, tuple, set, frozenset)
MOST_LEAVES: Final = 500
"""The most values of one call that are examined."""
_MOST_OF_BYTES: Final = 4_000_000
"""The most bytes of one value that are decoded as text."""
_NAMES: Final = re.compile(r"[^.\[\]]+(?![^\[]*\])")
_Step = tuple[str, Any, Trust, Mapping[str, Trust]]
"""A path, its value, the value's trust, and the trusts of fields."""


def authored(
    value: Any,
    trust: Trust | Mapping[str, Trust] = "outside",
    path: str = "",
    *,
    is_whole: bool = False,
) -> Iterator[tuple[Trust, str, str]]:
    """Yield trust, path and text of each value of plain data, in order.

    A text of JSON is parsed. If it is the whole result, its fields have their own trusts; within a
    field, everything has the trust of that field, whose author could choose the names. Every key,
    ``True``, ``False``, ``None`` and empty values are yielded only with ``is_whole``.
    """
    named: Mapping[str, Trust] = {"*": trust} if isinstance(trust, str) else trust
    whose = named.get("*", "outside")
    todo: list[_Step] = [(path, _data_in(value), whose, named)]
    while todo:
        path, item, whose, named = todo.pop()
        match item:
            case str():
                inner = _data_in(item)
                if inner is item:
                    yield whose, path, item
                else:
                    todo.append((path, inner, whose, {}))
            case bool() | None:
                if is_whole:
                    yield whose, path, str(item)
            case int() | float():
                yield whose, path, number_text(item)
            case bytes():
                yield whose, path, item[:_MOST_OF_BYTES].decode(errors="replace")
            case dict() | list() if not item:
                if is_whole:
                    yield whose, path, "[]"
            case dict():
                entries: list[_Step] = []
                for index, (key, each) in enumerate(cast("dict[Any, Any]", item).items()):
                    if isinstance(key, str) and (is_whole or not key.isidentifier()):
                        yield whose, f"{path}[key {index}]", key
                    entries.append((f"{path}.{key}", each, named.get(key, whose), named))
                todo += reversed(entries)
            case list():
                items: list[_Step] = [
                    (f"{path}[{at}]", each, whose, named)
                    for at, each in enumerate(cast("list[Any]", item))
                ]
                todo += reversed(items)
            case _:
                todo.append((path, _plain(item), whose, named))


def values_of(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield all values of a call's arguments as texts, each with its path, such as ``to[0]``."""
    return (leaf for name, item in arguments.items() for leaf in leaves_of(item, name))


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all leaves of plain data with their paths, including keys, ``None`` and empty lists."""
    return ((inner, text) for _, inner, text in authored(value, path=path, is_whole=True))


def own_texts(value: Any, trust: Trust | Mapping[str, Trust]) -> Iterator[str]:
    """Yield the texts of a result that are the user's own; in rows, the texts of own fields."""
    if isinstance(trust, str) or trust.get("*") == "own" or not isinstance(value, list):
        yield from (text for whose, _, text in authored(value, trust) if whose == "own")
    else:
        own = [name for name, whose in trust.items() if whose == "own"]
        for each in items_of(cast("Any", value)):
            record = cast("dict[Any, Any]", each) if isinstance(each, dict) else {}
            for name in own:
                field = record.get(name)
                if isinstance(field, str):
                    yield field
                elif name in record:
                    yield from (text for item in items_of(field) for _, text in leaves_of(item))


def _plain(value: Any) -> Any:
    """Convert a set, a tuple, a record of a class and other values to data of JSON."""
    if isinstance(value, (tuple, set, frozenset)):
        return list(cast("Iterable[Any]", value))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    return to_jsonable_python(value, fallback=str, inf_nan_mode="strings")


def _data_in(value: Any) -> Any:
    """Parse a text that is a JSON object or array; return other values unchanged."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def fields_at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values of a result's field, in each record of its lists.

    Texts in it are not parsed, because their author could choose the field names.
    """
    found = [*items_of(_data_in(value))]
    for name in path:
        found = [
            each
            for record in found
            if isinstance(record, Mapping) and name in record
            for each in items_of(cast("Mapping[Any, Any]", record)[name])
        ]
    return iter(found)


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return a record's fields by name; None for other values."""
    data: object = _data_in(value if isinstance(value, (str, list, dict)) else _plain(value))
    return cast("dict[Any, Any]", data) if isinstance(data, dict) else None


def items_of(value: Any) -> Iterator[Any]:
    """Yield the items of a list, recursively; another value is yielded itself."""
    if not isinstance(value, _LISTS):
        yield value
        return
    for item in cast("Iterable[Any]", value):
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
