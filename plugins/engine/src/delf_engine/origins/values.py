"""The values of plain data as texts, each with its path and trust; which of them decide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from pydantic_core import to_jsonable_python

from delf.types import Trust
from delf_engine.bound_action import BoundAction
from delf_engine.origins.texts import number_text, same_text

_LISTS: Final = (list, tuple, set, frozenset)
MAX_LEAVES: Final = 500
"""The most values of one call that are examined."""
_MAX_TEXT_BYTES: Final = 4_000_000
"""The most bytes of one value that are decoded as text."""
_NAMES: Final = re.compile(r"[^.\[\]]+(?![^\[]*\])")
CONTENTS: Final = frozenset(
    {"text", "body", "subject", "title", "description", "content", "message", "note"}
    | {"comment", "summary", "caption", "reason", "html", "markdown"}
)
"""Words in the names of parameters that hold contents, for actions that declare nothing."""
_DATA: Final = re.compile(r"[\d/@<&]|\S[=:]\S")
"""Characters that do not occur in words of a language; ``Done:`` is a word."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_Step = tuple[str, Any, Trust]
"""A path, its value, and the value's trust."""


def authored(
    value: Any,
    trust: Trust | Mapping[str, Trust] = "outside",
    path: str = "",
    *,
    is_whole: bool = False,
) -> Iterator[tuple[Trust, str, str]]:
    """Yield trust, path and text of each value of plain data, in order.

    A result that is a text of JSON is parsed. Every key, ``True``, ``False``, ``None`` and empty
    values are yielded only with ``is_whole``.
    """
    trust_by_key: Mapping[str, Trust] = {"*": trust} if isinstance(trust, str) else trust
    start = value if is_whole else _data_in(value)
    todo: list[_Step] = [(path, start, trust_by_key.get("*", "outside"))]
    while todo:
        path, item, whose = todo.pop()
        match item:
            case str():
                yield whose, path, item
            case bool() | None:
                if is_whole:
                    yield whose, path, str(item)
            case int() | float():
                yield whose, path, number_text(item)
            case bytes():
                yield whose, path, item[:_MAX_TEXT_BYTES].decode(errors="replace")
            case dict() | list() if not item:
                if is_whole:
                    yield whose, path, "[]"
            case dict():
                entries: list[_Step] = []
                for index, (key, each) in enumerate(cast("dict[Any, Any]", item).items()):
                    if isinstance(key, str) and (is_whole or not key.isidentifier()):
                        yield whose, f"{path}[key {index}]", key
                    entries.append((f"{path}.{key}", each, trust_by_key.get(key, whose)))
                todo += reversed(entries)
            case list():
                items = enumerate(cast("list[Any]", item))
                steps: list[_Step] = [(f"{path}[{at}]", each, whose) for at, each in items]
                todo += reversed(steps)
            case _:
                todo.append((path, _plain(item), whose))


def values_of(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield all values of a call's arguments as texts, each with its path, such as ``to[0]``."""
    return (leaf for name, item in arguments.items() for leaf in leaves_of(item, name))


def leaves_of(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all leaves of plain data with their paths, including keys, ``None`` and empty lists."""
    return ((inner, text) for _, inner, text in authored(value, path=path, is_whole=True))


def _plain(value: Any) -> Any:
    """Convert a set, a tuple, a record of a class and other values to data of JSON."""
    if isinstance(value, _LISTS):
        return list(cast("Iterable[Any]", value))
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    return to_jsonable_python(value, fallback=str, inf_nan_mode="strings")


def _data_in(value: Any) -> Any:
    """Parse a text that is a JSON object or array; return other values unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    except (ValueError, RecursionError):
        return value


def fields_at(
    value: Any, path: Sequence[str], wanted: Mapping[str, Any] | None = None
) -> Iterator[Any]:
    """Yield the values of a result's field, in each record with the wanted values.

    A wanted value has to be in the field of this name, or in any field if the record has none.
    Texts in it are not parsed, because their author could choose the field names.
    """
    found = [*items_of(_data_in(value))]
    for name, each in (wanted or {}).items():
        records = (cast("Mapping[Any, Any]", e) for e in found if isinstance(e, Mapping))
        text = same_text(str(each))
        found = [
            record
            for record in records
            if text in (same_text(held) for _, held in leaves_of(record.get(name, record)))
        ]
    for name in path:
        records = (cast("Mapping[Any, Any]", e) for e in found if isinstance(e, Mapping))
        found = [each for record in records if name in record for each in items_of(record[name])]
    return iter(found)


def fields_of(value: Any) -> Mapping[Any, Any] | None:
    """Return a record's fields by name; None for other values."""
    data: object = _data_in(value if isinstance(value, (str, list, dict)) else _plain(value))
    return cast("dict[Any, Any]", data) if isinstance(data, dict) else None


def items_of(value: Any) -> Iterator[Any]:
    """Yield the items of a list, recursively; another value is yielded itself."""
    for item in cast("Iterable[Any]", value if isinstance(value, _LISTS) else (value,)):
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
    """Return whether a value is content for people to read, and so does not decide the effect.

    The ``sinks`` or ``contents`` that the author declared decide first. Without a declaration, a
    text counts as content if its parameter or field has a name of contents, and the text is not
    data for machines.
    """
    action = bound.action
    if action.sinks is not None:
        return parameter_of(path) not in action.sinks
    if action.contents is not None:
        return parameter_of(path) in action.contents
    # All words of the name must be names of contents: ``message_id`` is not.
    words = _WORDS.findall("".join(names_in(path)[-1:]))
    is_named = bool(words) and CONTENTS.issuperset(w.lower().removesuffix("s") for w in words)
    is_key = "[key " in path[path.rfind("[") :]
    lines = [line for line in map(str.strip, text.splitlines()) if line]
    is_data = bool(lines) and all(" " not in line and _DATA.search(line) for line in lines)
    is_data = is_data or _data_in(text) is not text
    return action.effect != "read" and is_named and not is_key and not is_data
