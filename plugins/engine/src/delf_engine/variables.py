"""Variables of scripts: the data that scripts can be given, and its description for models."""

from __future__ import annotations

import datetime as dt
import keyword
import math
import uuid
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Any, Final, cast

from delf.errors import ConfigurationError
from delf.protocols.sandbox import MAX_SCRIPT
from delf.values.conversion import MIN_LONG_INT, plain_or_as_is
from delf.values.encoding import UnsupportedValueError, dumps, loads

MAX_TOTAL_LENGTH: Final = MAX_SCRIPT // 2
"""The maximum number of characters of all variables together, as ``repr``."""
_MAX_DEPTH: Final = 20
_KEYS: Final = 12
# The maximum number of characters of a variable's value in a prompt.
_MAX_SHOWN_LENGTH: Final = 2_000
_PLAIN: Final = (
    bool,
    int,
    str,
    bytes,
    type(None),
    Decimal,
    dt.date,
    dt.time,
    dt.timedelta,
    uuid.UUID,
)


def given_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Check the variables that come with a task, and convert their values to plain data.

    Args:
        variables: Values by name.

    Raises:
        ConfigurationError: If a name is not valid in Python, a value cannot become plain data, or
            the values are too long.
    """
    if not isinstance(variables, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a program may pass any value
        raise ConfigurationError(
            f"variables is a {type(variables).__name__}", hint='variables={"order": …}'
        )
    given: dict[str, Any] = {}
    size = 0
    for name, value in variables.items():
        if not is_variable(name):
            raise ConfigurationError(
                f"{name!r} cannot be the name of a variable",
                hint='a name as in variables={"order": …}',
            )
        given[name] = _converted(name, value)
        size += len(repr(given[name]))
    if size > MAX_TOTAL_LENGTH:
        raise ConfigurationError(
            f"the variables have {size:,} characters, and at most {MAX_TOTAL_LENGTH:,} are taken",
            hint="hand in a file: files=[…]",
        )
    return given


def _converted(name: str, value: Any) -> Any:
    """Convert a variable's value to plain data.

    Raises:
        ConfigurationError: If the value has a part of another kind, such as a function or NaN.
    """
    with suppress(UnsupportedValueError, ValueError):
        # Encode and decode the value like a tool's result. This turns a named tuple into a dict.
        plain_value = loads(dumps(plain_or_as_is(value), named=True))
        if is_plain(plain_value):  # NaN, for example, can be encoded, but is not plain
            return plain_value
    raise ConfigurationError(
        f"the variable {name!r} holds a {type(value).__name__} that is not plain data",
        hint="lists, dicts, texts, finite numbers, dates, data frames; hand in a file for anything "
        "else",
    )


def is_variable(name: object) -> bool:
    """Return whether a name can be the name of a variable."""
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether a value's ``repr`` evaluates to the value."""
    if depth > _MAX_DEPTH:
        return False
    # The exact types are compared, because a subclass such as Counter has another repr.
    if type(value) is dict:
        items = cast("dict[Any, Any]", value).items()
        return all(is_plain(key, depth + 1) and is_plain(item, depth + 1) for key, item in items)
    if type(value) in (list, tuple, set, frozenset):
        return all(is_plain(item, depth + 1) for item in cast("list[Any]", value))
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return abs(value) < MIN_LONG_INT  # repr() raises an error for a longer int
    if type(value) in (dt.datetime, dt.time):
        # Scripts that restore variables do not import ``zoneinfo``.
        return value.tzinfo is None or isinstance(value.tzinfo, dt.timezone)
    return type(value) in _PLAIN


def value_for_model(value: Any) -> str:
    """Describe a variable for a model: its type, and its value, truncated if long."""
    text = repr(value)
    if len(text) > _MAX_SHOWN_LENGTH:
        text = f"{text[:_MAX_SHOWN_LENGTH]} … ({len(text):,} characters in all)"
    return f"{type_for_model(value)} = {text}"


def type_for_model(value: Any) -> str:
    """Describe the type of a variable for a model, such as ``list of 3`` or ``str``."""
    kind = type(value).__name__
    if isinstance(value, dict):
        if value:
            return f"dict with the keys {_keys(cast('dict[Any, Any]', value))}"
        return kind
    if isinstance(value, (list, tuple, set, frozenset)):
        items = list(cast("list[Any]", value))
        kind_and_size = f"{kind} of {len(items):,}"
        if items and isinstance(items[0], dict):
            return f"{kind_and_size}, each {type_for_model(items[0])}"
        return kind_and_size
    return kind


def _keys(record: Mapping[Any, Any]) -> str:
    shown_keys = [repr(key)[:60] for key in islice(record, _KEYS)]
    if len(record) > _KEYS:
        shown_keys.append("…")
    return ", ".join(shown_keys)
