"""The values of plain data as texts, each with its path and trust."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from itertools import chain, islice
from typing import Any, Final, cast

from pydantic import BaseModel

from delf.types import Trust
from delf_engine.origins.texts import number_text

MOST_LEAVES: Final = 500
"""The most values of one call that are searched."""
_MOST_OF_BYTES: Final = 4_000_000
"""The most bytes of one value that are decoded as text."""
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?")
"""A number with equivalent notations; codes such as ``007`` are excluded."""
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

    Empty values are skipped unless ``is_whole``.

    A text of JSON is parsed. If it is the whole result, its fields have their own trusts; within a
    field, everything has the trust of that field, whose author could choose the names.

    Args:
        value: The data.
        trust: The trust of all values, or by field name with ``*`` for the rest. Other fields have
            the trust of the enclosing field.
        path: The path of the data.
        is_whole: Whether to yield every key, ``True``, ``False``, ``None`` and empty values, too.
            Otherwise only keys that are data, such as addresses or titles, are yielded.
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
            case int() | float() | Decimal():
                yield whose, path, number_text(item)
            case bytes():
                yield whose, path, item[:_MOST_OF_BYTES].decode(errors="replace")
            case Mapping() | list() | tuple() | set() | frozenset() if not item:
                if is_whole:
                    yield whose, path, "[]"
            case Mapping():
                entries: list[_Step] = []
                for index, (key, each) in enumerate(cast("Mapping[Any, Any]", item).items()):
                    if isinstance(key, str) and (is_whole or not key.isidentifier()):
                        yield whose, f"{path}[key {index}]", key
                    entries.append((f"{path}.{key}", each, named.get(key, whose), named))
                todo += reversed(entries)
            case list() | tuple() | set() | frozenset():
                items: list[_Step] = [
                    (f"{path}[{at}]", each, whose, named)
                    for at, each in enumerate(cast("Iterable[Any]", item))
                ]
                todo += reversed(items)
            case BaseModel():
                todo.append((path, dict(item), whose, named))
            case _ if is_dataclass(item) and not isinstance(item, type):
                held = {each.name: getattr(item, each.name) for each in fields(item)}
                todo.append((path, held, whose, named))
            case Enum():
                todo.append((path, item.value, whose, named))
            case _:
                yield whose, path, str(item)


def leaves_of(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers of arguments as texts, each with its path, such as ``to[0]``."""
    for name, item in arguments.items():
        for _, path, text in authored(item, path=name):
            yield path, text


def whole(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield all values of plain data, including keys, ``None`` and empty lists."""
    return ((inner, text) for _, inner, text in authored(value, path=path, is_whole=True))


def texts_in(value: Any) -> Iterator[str]:
    """Yield the first values of plain data as texts."""
    return (text for _, _, text in islice(authored(value), MOST_LEAVES))


def text_of(value: Any) -> str:
    """Return plain data as one text, with a line for each of the first values."""
    leaves = islice(authored(value), MOST_LEAVES)
    return "\n".join(f"{path.lstrip('.')}: {text}" if path else text for _, path, text in leaves)


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

    Texts are not parsed, because their author could choose the field names.

    Args:
        value: The result; if it is a text of JSON, its data.
        path: The names of the field, from the outside in.
    """
    found: list[Any] = [_data_in(value)]
    for name in path:
        items = chain.from_iterable(map(items_of, found))
        records = (cast("Mapping[Any, Any]", item) for item in items if isinstance(item, Mapping))
        found = [record[name] for record in records if name in record]
    return chain.from_iterable(map(items_of, found))


def items_of(value: Any) -> Iterator[Any]:
    """Yield the items of a list, recursively; another value is yielded itself."""
    if isinstance(value, (list, tuple, set, frozenset)):
        for item in cast("Iterable[Any]", value):
            yield from items_of(item)
    else:
        yield value


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return a record's fields by name; None for other values."""
    value = _data_in(value)
    if isinstance(value, BaseModel):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else None


def same_text(text: str) -> str:
    """Convert a text to the form in which texts are compared.

    Ignores number formats, spaces in account numbers, and case in mail addresses.
    """
    plain = text.strip()
    if " " in plain and any(map(str.isdigit, plain)):
        plain = "".join(plain.split())
    if "@" in plain:
        return plain.casefold()
    is_number = plain[:1] in "-0123456789" and _NUMBER.fullmatch(plain)
    return number_text(float(plain)) if is_number else plain


def plain_text(text: str) -> str:
    """Convert a text for comparison: without case, line breaks and a final full stop."""
    return " ".join(text.split()).casefold().rstrip(".!?")


def letters_of_name(name: str) -> str:
    """Convert a parameter's name to snake case: ``customerId`` becomes ``customer_id``."""
    return name.replace("_", "").lower()


def names_in(path: str) -> Sequence[str]:
    """Return the names in a path.

    ``payment.to[0].iban`` has ``payment``, ``to`` and ``iban``.
    """
    return _NAMES.findall(path)


def parameter_of(path: str) -> str:
    """Return the parameter in a value's path, such as ``to`` in ``to[0]``."""
    return re.split(r"[.[]", path, maxsplit=1)[0]


def own_texts(value: Any, trust: Trust | Mapping[str, Trust]) -> Iterator[str]:
    """Yield the texts of a result that are the user's own.

    In rows with few own fields, only those are examined.
    """
    if isinstance(trust, str) or trust.get("*") == "own" or not isinstance(value, list):
        yield from (text for whose, _, text in authored(value, trust) if whose == "own")
        return
    own = [name for name, whose in trust.items() if whose == "own"]
    for row in cast("list[Any]", value):
        for name in own if isinstance(row, dict) else ():
            field = cast("dict[Any, Any]", row).get(name)
            if isinstance(field, str) and field[:1] not in ("{", "["):
                yield field
                continue
            inner = authored(field, {**trust, "*": "own"})
            yield from (text for whose, _, text in inner if whose == "own")
