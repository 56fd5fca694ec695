"""Checks of values against types in stub notation, such as ``{"rowcount": int, ?"note": str}``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

_MAX_LEVELS: Final = 36
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")
_KEY: Final = re.compile(r'(\??)("(?:[^"\\]|\\.)*"):\s*(.*)', re.DOTALL)
_TOKEN: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|.", re.DOTALL)
_ANY: Final = ("Any", "object", "...")
_LISTS: Final = ("list", "tuple", "set", "frozenset")
_SCALARS: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "None": (type(None),),
}
_JSON_TYPES: Final = (str, int, float, bool, type(None), Mapping, list, tuple)


def misfit(value: object, type_text: str, place: str = "it", level: int = 0) -> str | None:
    """Return why a value is not of a type, such as ``it is null, not int``; None if it may be.

    Only what JSON can represent is compared. A type that this function does not know, such as
    ``datetime``, fits every value but null.

    Args:
        value: The value.
        type_text: The type in stub notation.
        place: The name of the value in the text.
        level: The number of types around this type.
    """
    is_of_json = issubclass(type(value), _JSON_TYPES)
    if level > _MAX_LEVELS or not is_of_json:
        return None
    members = _split(type_text, "|")
    problems = [_misfit_of_member(value, member, place, level) for member in members]
    if not problems or None in problems:
        return None
    # What is wrong inside of a record or list says more than that the other members do not fit.
    general = f"{place} is {_kind(value)}, not {type_text}"
    inner = [problem for problem in problems if problem and not problem.startswith(f"{place} is ")]
    return inner[0] if inner else general


def _misfit_of_member(value: object, member: str, place: str, level: int) -> str | None:
    """Return why a value does not fit a type that is no union."""
    general = f"{place} is {_kind(value)}, not {member}"
    if member.startswith("{"):
        if not isinstance(value, Mapping):
            return general
        return _misfit_of_record(cast("Mapping[Any, Any]", value), member, place, level)
    name_match = _NAME.match(member)
    name = name_match[0] if name_match else member
    if name in _ANY:
        return None
    arguments = _inside(member[len(name) :], "[")
    if name == "Literal":
        return None if _literal_has(arguments, value) else general
    if name in _SCALARS:
        # In Python, a bool is an int.
        is_wrong_bool = isinstance(value, bool) and name in ("int", "float")
        return None if isinstance(value, _SCALARS[name]) and not is_wrong_bool else general
    if name == "dict":
        if not isinstance(value, Mapping):
            return general
        value_type = [*_split(arguments, ","), "Any"][1] if arguments else "Any"
        items = cast("Mapping[Any, Any]", value).items()
        parts = ((f"{place}[{key!r}]", item) for key, item in items)
        return _first_misfit(parts, value_type, level)
    if name in _LISTS:
        if not isinstance(value, (list, tuple)):
            return general
        if name == "tuple" or not arguments:  # the items of a tuple may differ in their types
            return None
        values = enumerate(cast("Sequence[Any]", value))
        return _first_misfit(((f"{place}[{i}]", item) for i, item in values), arguments, level)
    return general if value is None else None


def _misfit_of_record(value: Mapping[Any, Any], record: str, place: str, level: int) -> str | None:
    for field in _split(_inside(record, "{"), ","):
        match = _KEY.fullmatch(field)
        if match is None:  # such as ``...``, which stands for further keys
            continue
        key = json.loads(match[2])
        if key in value:
            problem = misfit(value[key], match[3], f"{place}[{key!r}]", level + 1)
            if problem is not None:
                return problem
        elif not match[1]:
            return f"{place} has no key {key!r}"
    return None


def _first_misfit(parts: Iterator[tuple[str, Any]], type_text: str, level: int) -> str | None:
    problems = (misfit(item, type_text, place, level + 1) for place, item in parts)
    return next((problem for problem in problems if problem is not None), None)


def _literal_has(arguments: str, value: object) -> bool:
    for text in _split(arguments, ","):
        if text == "...":  # further values were left out
            return True
        is_text = text[:1] in "\"'"
        expected = text[1:-1] if is_text else text
        given = value if isinstance(value, str) else repr(value)
        if is_text == isinstance(value, str) and expected == given:
            return True
    return False


def _inside(text: str, opening: str) -> str:
    """Return the text between a bracket at the start and the last bracket; empty without one."""
    if not text.startswith(opening):
        return ""
    return text[1 : max(text.rfind("]" if opening == "[" else "}"), 1)]


def _split(text: str, separator: str) -> list[str]:
    """Split a type at a separator outside of all brackets and quotes."""
    parts = [""]
    depth = 0
    for token in _TOKEN.findall(text):
        if token in ("[", "{", "("):
            depth += 1
        elif token in ("]", "}", ")"):
            depth -= 1
        if token == separator and not depth:
            parts.append("")
        else:
            parts[-1] += token
    return [part.strip() for part in parts if part.strip()]


def _kind(value: object) -> str:
    """Return the name of a value's type in JSON, or of Python."""
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "dict"
    return type(value).__name__
