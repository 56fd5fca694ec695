"""Immutable plain data that can be shared safely.

The values of an event are frozen as the event is recorded. A tool, script, listener or observer
that changes its own objects later does not change the event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn, cast

from delf.values.encoding import PLAIN, TAG, from_jsonable, to_jsonable_or_repr


def _refuse(value: Any, *_args: Any, **_named: Any) -> NoReturn:
    base_name = type(value).__mro__[1].__name__  # such as "dict" for a FrozenDict
    raise TypeError(
        f"this {base_name} is part of an event and cannot be changed: copy.deepcopy it first"
    )


_REFUSED: Final[Any] = _refuse  # as Any, because the replaced methods have other signatures


def _thaw_copy(value: Any, _memo: Any = None) -> Any:
    return thaw(value)


class FrozenDict(dict[Any, Any]):
    """An immutable dict; its copies are mutable."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _REFUSED
    clear = pop = popitem = setdefault = update = _REFUSED
    __deepcopy__ = _thaw_copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain dict."""
        return dict, (thaw(self),)


class FrozenList(list[Any]):
    """An immutable list; its copies are mutable."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _REFUSED
    append = clear = extend = insert = pop = remove = reverse = sort = _REFUSED
    __deepcopy__ = _thaw_copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain list."""
        return list, (thaw(self),)


class FrozenSet(set[Any]):
    """An immutable set; a ``frozenset`` would have another encoding."""

    __slots__ = ()
    __iand__ = __ior__ = __isub__ = __ixor__ = _REFUSED
    add = clear = discard = pop = remove = update = _REFUSED
    difference_update = intersection_update = symmetric_difference_update = _REFUSED
    __deepcopy__ = _thaw_copy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain set."""
        return set, (set(self),)


_FROZEN: Final = frozenset({FrozenDict, FrozenList, FrozenSet})


def freeze(value: Any) -> Any:
    """Return an immutable copy of a value.

    The copy equals the value that the journal would return: objects become plain data. A frozen
    value is returned unchanged; a value that cannot be encoded becomes its ``repr``.
    """
    try:
        return _freeze(value)
    except RecursionError:
        # Encode the whole value as the journal does: parts nested too deeply become texts.
        return _freeze_decoded(from_jsonable(to_jsonable_or_repr(value)))


def thaw(value: Any) -> Any:
    """Return a mutable copy of a frozen value."""
    kind = cast("type[Any]", type(value))
    if kind is FrozenDict:
        return {name: item if type(item) in PLAIN else thaw(item) for name, item in value.items()}
    if kind is FrozenList:
        return [item if type(item) in PLAIN else thaw(item) for item in value]
    if kind is FrozenSet:
        return set(value)
    if kind is tuple:
        return tuple(map(thaw, value))
    return value


def _freeze(value: Any) -> Any:
    """Return an immutable form of a value; objects are converted as if read from the journal."""
    kind = cast("type[Any]", type(value))
    if kind in PLAIN or kind in _FROZEN:
        return value
    if kind is list:
        return FrozenList(_freeze_items(value))
    has_only_text_keys = kind is dict and _TEXT_TYPES.issuperset(map(type, value))
    if has_only_text_keys and TAG not in value:  # such a dict is the same in the journal
        return FrozenDict(zip(value, _freeze_items(value.values()), strict=True))
    # Encode and decode the value as the journal does.
    return _freeze_decoded(from_jsonable(to_jsonable_or_repr(value)))


_TEXT_TYPES: Final = frozenset({str})


def _freeze_items(items: Iterable[Any]) -> list[Any]:
    return [item if type(item) in PLAIN else _freeze(item) for item in items]


def _freeze_decoded(value: Any) -> Any:
    """Freeze data that was just decoded.

    Containers are replaced by frozen containers. Other parts are kept, not copied, so no other code
    may have a reference to these parts.
    """
    kind = cast("type[Any]", type(value))
    if kind is dict:
        return FrozenDict({name: _freeze_decoded(item) for name, item in value.items()})
    if kind is list:
        return FrozenList([_freeze_decoded(item) for item in value])
    if kind is set:
        return FrozenSet(value)
    if kind is tuple:
        return tuple(map(_freeze_decoded, value))
    return value
