"""Values of Monty as values of Python, and the other way."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Iterable
from pathlib import PurePath
from typing import Any, Final, cast

from delf.values.encoding import PLAIN, VALUE_BYTES, TooLargeError, UnsupportedValueError, kind_name

# Matches the text that Monty passes for a value that cannot leave the interpreter.
_REPR_ONLY: Final = re.compile(
    r"dict_(values|keys|items)\(|range\(-?\d+, |<(function|bound method|\w+_iterator|re\.Match) "
)
TOO_DEEP: Final = "the value is nested too deeply, or contains itself"
_LARGE: Final = 10_000
# A table for str.translate(): removes the control characters that JSON writes as \u0001 and so on.
_REMOVE_CONTROL: Final = dict.fromkeys(code for code in range(32) if chr(code) not in "\b\t\n\f\r")


def plain(value: Any, max_bytes: int) -> Any:
    """Convert a value of Monty to plain data; objects of script-defined classes become dicts.

    A part that occurs several times in the value is converted once.

    Args:
        value: The value that Monty passed.
        max_bytes: The maximum size of the result in bytes, approximately.

    Raises:
        TooLargeError: If the result would exceed the limit.
        UnsupportedValueError: If Monty passed only the ``repr`` of the value, or if the value is
            nested too deeply.
    """
    try:
        return _Copy(max_bytes, rejects_reprs=True).of(value)
    except RecursionError:
        raise UnsupportedValueError(TOO_DEEP) from None


class _Copy:
    """Copies a value of Monty to plain data.

    Args:
        max_bytes: The maximum size of the result in bytes, approximately.
        rejects_reprs: Whether to raise for a text such as ``range(0, 3)``, which Monty passes for a
            value that is no data.
    """

    def __init__(self, max_bytes: int, *, rejects_reprs: bool) -> None:
        self._max_bytes = max_bytes
        self._rejects_reprs = rejects_reprs
        self._size = 0
        self._copies: dict[int, Any] = {}  # by the id() of the original

    def of(self, value: Any) -> Any:
        """Return a copy of a value, or the existing copy of a shared part."""
        kind = cast("Any", type(value))
        if kind in PLAIN or kind is bytes:
            size = VALUE_BYTES
            if kind in (str, bytes):
                size += _encoded_size(value)
            self._add_size(size)
            # Monty passes the ``repr`` of a value that is no data, such as an iterator.
            if self._rejects_reprs and kind is str and _REPR_ONLY.match(value):
                raise UnsupportedValueError(
                    f"{value[:40]} cannot be passed: make it a list, or other plain data"
                )
            return value
        if id(value) not in self._copies:
            self._copies[id(value)] = self._copy(value)
        return self._copies[id(value)]

    def _copy(self, value: Any) -> Any:
        """Copy a container or object to plain data, and count the size of the container itself.

        The method :meth:`of` copies the members, and counts the size of each.
        """
        from pydantic_monty import MontyClassProxy, MontyFileHandle

        self._add_size(VALUE_BYTES)
        match value:
            case MontyClassProxy():
                return {str(name): self.of(item) for name, item in value.attributes.items()}
            case list() | tuple() | set() | frozenset() | dict():
                return _convert_members(cast("Any", value), self.of)
            case MontyFileHandle() if self._rejects_reprs:
                raise UnsupportedValueError(
                    "an open file cannot be passed; pass what its read() gives"
                )
            # A built-in function or a type, of which Monty passes only the name.
            case _ if type(value).__module__.startswith("pydantic_monty"):
                name = str(getattr(value, "name", value))
                if self._rejects_reprs:
                    raise UnsupportedValueError(f"{name} cannot be passed: it is no data")
                return name
            case _:
                return value

    def _add_size(self, size: int) -> None:
        self._size += size
        if self._size > self._max_bytes:
            raise TooLargeError(f"the value takes more than {self._max_bytes:,} bytes")


def _encoded_size(text: str | bytes) -> int:
    """Estimate the size of a text or of ``bytes`` in JSON, in bytes.

    Each character counts as one byte. In a large text, each control character counts as six.
    """
    if not isinstance(text, str) or len(text) < _LARGE or text.isprintable():
        return len(text)
    text_without_control = text.translate(_REMOVE_CONTROL)
    control_count = len(text) - len(text_without_control)
    return len(text) + 5 * control_count  # JSON writes \u0001 for one character


def plain_or_text(value: Any, max_bytes: int) -> Any:
    """Convert a value like :func:`plain`; a value that is too deep or large becomes text."""
    try:
        return _Copy(max_bytes, rejects_reprs=False).of(value)
    except RecursionError:
        return f"<{kind_name(value)}, nested too deeply>"
    except TooLargeError:
        return f"<{kind_name(value)}, too large>"


def for_monty(value: Any) -> Any:
    """Convert a tool's result for Monty; UUIDs and paths become text."""
    match value:
        case uuid.UUID() | PurePath():
            return str(value)
        case list() | tuple() | set() | frozenset() | dict():
            return _convert_members(cast("Any", value), for_monty)
        case _:
            return value


def _convert_members(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a collection with converted members and the same type."""
    if isinstance(value, dict):
        items = cast("Iterable[tuple[Any, Any]]", value.items())
        return {change(key): change(item) for key, item in items}
    make = cast("Callable[[Iterable[Any]], Any]", type(value))
    return make(change(item) for item in cast("Collection[Any]", value))
