"""Options whose value may be a list or a single item."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast


def one_or_more(value: Any) -> tuple[Any, ...]:
    """Return the values of an option as a tuple; a single value gives ``(value,)``.

    A text, bytes or a mapping is a single value, although Python could iterate over its parts.

    Args:
        value: A list or another iterable; or one value, such as a text, a path or a table.
    """
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return (cast("Any", value),)
    return tuple(cast("Iterable[Any]", value))
