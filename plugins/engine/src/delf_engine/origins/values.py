"""The values of plain data as texts, each with its path and with whose words it is."""

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
"""Values of one call that are looked for."""
_MOST_OF_BYTES: Final = 4_000_000
"""Bytes of one value that are read as text."""
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?")
"""A number that is the same in another form; an account such as ``007`` is none."""
_NAMES: Final = re.compile(r"[^.\[\]]+(?![^\[]*\])")
_Step = tuple[str, Any, Trust, Mapping[str, Trust]]
"""A path, what is there, whose words it is, and whose the fields are that have an author."""


def authored(
    value: Any,
    trust: Trust | Mapping[str, Trust] = "outside",
    path: str = "",
    *,
    is_whole: bool = False,
) -> Iterator[tuple[Trust, str, str]]:
    """Yield the values of plain data that could come from somewhere, in order.

    Whose, path and text.

    A text of JSON is the data in it. As a whole result its fields have authors; in a field it is
    the words of that field's author alone, who could name any field there.

    Args:
        value: The data.
        trust: Whose words it holds: of all, or by the names of fields, with ``*`` for the rest.
            A field without a name of its own there is of the field around it.
        path: Its own path.
        is_whole: Every key is a value, else only those that are no field's name, but an address or
            a title; and so are ``True``, ``False``, ``None`` and what is empty.
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
    """Yield the texts and numbers of arguments as texts, each with its path, as ``to[0]``."""
    for name, item in arguments.items():
        for _, path, text in authored(item, path=name):
            yield path, text


def whole(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield all values of plain data, keys, ``None`` and empty lists included."""
    return ((inner, text) for _, inner, text in authored(value, path=path, is_whole=True))


def texts_in(value: Any) -> Iterator[str]:
    """Return the first values of plain data as texts."""
    return (text for _, _, text in islice(authored(value), MOST_LEAVES))


def text_of(value: Any) -> str:
    """Return plain data as one text, a line for each of its first values."""
    leaves = islice(authored(value), MOST_LEAVES)
    return "\n".join(f"{path.lstrip('.')}: {text}" if path else text for _, path, text in leaves)


def _data_in(value: Any) -> Any:
    """Return the data of a text that is a JSON object or array; anything else as it is."""
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def fields_at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values of a field of a result, in each record of its lists.

    A text is not looked into: who wrote it could name any field there.

    Args:
        value: The result; a text of JSON is the data in it.
        path: The names of the field, from the outside in.
    """
    found: list[Any] = [_data_in(value)]
    for name in path:
        items = chain.from_iterable(map(items_of, found))
        records = (cast("Mapping[Any, Any]", item) for item in items if isinstance(item, Mapping))
        found = [record[name] for record in records if name in record]
    return chain.from_iterable(map(items_of, found))


def items_of(value: Any) -> Iterator[Any]:
    """Yield the items of a list, of lists in it, too; anything else is its own only item."""
    if isinstance(value, (list, tuple, set, frozenset)):
        for item in cast("Iterable[Any]", value):
            yield from items_of(item)
    else:
        yield value


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return a record's fields by name; None if it is none."""
    value = _data_in(value)
    if isinstance(value, BaseModel):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else None


def same_text(text: str) -> str:
    """Write a text as it is compared.

    A number's form does not count, nor do spaces in an account, and case in a mail address.
    """
    plain = text.strip()
    if " " in plain and any(map(str.isdigit, plain)):
        plain = "".join(plain.split())
    if "@" in plain:
        return plain.casefold()
    is_number = plain[:1] in "-0123456789" and _NUMBER.fullmatch(plain)
    return number_text(float(plain)) if is_number else plain


def plain_text(text: str) -> str:
    """Write a text as people compare it: without case, line breaks and the last full stop."""
    return " ".join(text.split()).casefold().rstrip(".!?")


def letters_of_name(name: str) -> str:
    """Return the letters of a parameter's name: ``customerId`` is ``customer_id``."""
    return name.replace("_", "").lower()


def names_in(path: str) -> Sequence[str]:
    """Return the names in a path.

    Of ``payment.to[0].iban`` they are ``payment``, ``to``, ``iban``.
    """
    return _NAMES.findall(path)


def parameter_of(path: str) -> str:
    """Return the parameter of a value's path, as of ``to[0]``."""
    return re.split(r"[.[]", path, maxsplit=1)[0]


def own_texts(value: Any, trust: Trust | Mapping[str, Trust]) -> Iterator[str]:
    """Yield the texts of a result that are the user's own.

    Of rows with few fields of the user's own, only these are looked at.
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
