"""The identity of calls: two calls with one identity are the same call."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import pathlib
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from delf.values.encoding import UnsupportedValueError, dumps

_SIMPLE: Final = frozenset(
    {str, int, float, bool, type(None), complex, bytes, decimal.Decimal, uuid.UUID}
    | {dt.datetime, dt.date, dt.time, dt.timedelta, type(pathlib.Path())}
)
_EQUAL_IF_SAME: Final = frozenset({str, int, bool, type(None)})
"""Of two values of such a type that are equal, the same is written down."""
_type_of: Callable[[Any], Any] = type
_COLLECTIONS: Final = frozenset({list, tuple, set, frozenset})


def call_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """SHA-256 over an action's name and its arguments, the identity of a call."""
    return hashlib.sha256(dumps(_content(name, arguments))).hexdigest()


def identity(
    name: str,
    arguments: Mapping[str, Any],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> str:
    """Make the text that tells a call from all other calls that a person would be asked about.

    An object may show less than it holds, as a secret does, a pattern, or a model with fields
    that it keeps to itself: a call with such arguments is known by what they were made from.

    Args:
        name: The action.
        arguments: Its validated arguments.
        given: The same as the script gave them.
        defaults: What arguments are that are left out; one that is spelled out is left out here.
    """
    try:
        known = _known_by(name, arguments, given, defaults)
        if known is not None:
            return call_digest(*known)
    except (RecursionError, UnsupportedValueError):
        pass
    return secrets.token_hex(32)  # like no other call


def _content(name: str, arguments: Mapping[str, Any]) -> list[Any]:
    return [name, dict(sorted(arguments.items()))]


def _known_by(
    name: str,
    arguments: Mapping[str, Any],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any] | None,
) -> tuple[str, Mapping[str, Any]] | None:
    """Under which name and by which arguments a call is known; None if it is like no other."""
    if defaults:
        spelled = {n for n, v in arguments.items() if n in defaults and _is_same(v, defaults[n])}
        if spelled:
            arguments = {n: v for n, v in arguments.items() if n not in spelled}
            given = {n: v for n, v in given.items() if n not in spelled}
    if _are_plain(arguments.values()):
        return name, arguments
    return (f"{name} as given", given) if _are_plain(given.values()) else None


def _is_plain(value: Any) -> bool:
    """Tell whether a value is written down with all that is in it."""
    kind = _type_of(value)
    if kind in _SIMPLE:
        return True
    if kind is dict:
        return _are_plain(value) and _are_plain(value.values())
    return kind in _COLLECTIONS and _are_plain(value)


def _are_plain(values: Iterable[Any]) -> bool:
    return {*map(type, values)} <= _SIMPLE or all(map(_is_plain, values))


def _is_same(value: Any, other: Any) -> bool:
    """Tell whether two values are equal, of one type, and written down with all that is in them."""
    kind = _type_of(value)
    if kind is not _type_of(other):
        return False
    if kind in _EQUAL_IF_SAME:
        return value == other
    try:
        return _is_plain(value) and _is_plain(other) and dumps(value) == dumps(other)
    except (RecursionError, UnsupportedValueError):
        return False
