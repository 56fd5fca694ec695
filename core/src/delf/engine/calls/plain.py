"""Results that are not plain data, as what comes closest to them."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, cast

from delf.values import UnsupportedValueError, dumps, kind_name

_MAX_TEXT: Final = 10_000
_REFUSALS: Final = (TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError)


def plain_or_text(value: Any, told: dict[str, None]) -> Any:
    """A value of which every part can be passed to a script.

    Scalars, arrays and tables of numpy, pandas and their kin become numbers, lists and rows;
    other numbers ``int`` or ``float``; anything else its text.

    Args:
        value: What a tool returned.
        told: Gets the names of the types that became texts.
    """
    try:
        return _plain(value, told)
    except RecursionError:
        told[kind_name(value)] = None
        return f"<{kind_name(value)}, nested too deeply>"


def _plain(value: Any, told: dict[str, None]) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {_key(key, told): _plain(item, told) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_plain(item, told) for item in cast("Iterable[Any]", value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: _plain(getattr(value, name), told) for name in names}
    if _can_be_passed(value):
        return value
    if isinstance(value, (set, frozenset)):
        return [_plain(item, told) for item in cast("Collection[Any]", value)]
    for as_data in _WAYS:
        try:
            data = as_data(value)
        except _REFUSALS:
            continue
        if type(data) is not type(value):
            return _plain(data, told)
    told[kind_name(value)] = None
    return _text(value)


def _key(key: Any, told: dict[str, None]) -> Any:
    plain = _plain(key, told)
    return plain if _can_be_passed({plain: None}) else _text(key)


def _can_be_passed(value: Any) -> bool:
    try:
        dumps(value)
    except (UnsupportedValueError, TypeError):
        return False
    return True


def _text(value: Any) -> str:
    try:
        return str(value)[:_MAX_TEXT]
    except Exception as error:
        return f"<{kind_name(value)}, which cannot be shown: {type(error).__name__}>"


_WAYS: Final[tuple[Callable[[Any], Any], ...]] = (
    lambda value: (value.dtype, value.item())[1],  # a scalar of numpy, or of what is like it
    lambda value: value.to_dict("records"),  # a table of pandas
    lambda value: value.to_dicts(),  # one of polars
    lambda value: value.tolist(),  # an array, a column
    lambda value: value.to_list(),
    lambda value: value.model_dump(),
    operator.index,
    float,
)
"""How libraries give their values as plain data, the closest first."""
