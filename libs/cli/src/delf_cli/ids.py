"""Ids of tasks and requests, as shown to and typed by people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.errors import DelfError

_SHORTEST: Final = 7
_TO_ACT: Final = 6
"""The minimum number of characters of an id with which a command decides or stops something."""


def check_names(text: str, name: str) -> bool:
    """Check that a typed text is long enough to be an id in a destructive command.

    Args:
        text: The typed prefix, with or without ``req_``.
        name: The full id.

    Returns:
        True if the text is the full id.

    Raises:
        DelfError: If the text is too short.
    """
    start, name_part = text.removeprefix(f"{name.partition('_')[0]}_"), name.partition("_")[2]
    if len(start) < min(_TO_ACT, len(name_part)):
        raise DelfError(
            f"{text!r} is too short to act on {name}",
            hint=f"at least {_TO_ACT} characters: {short_id(name)}",
        )
    return start == name_part


def short_id(name: str) -> str:
    """Return an id as it is shown in lists."""
    return name.partition("_")[2][:_SHORTEST]


def whole_ids(ids: Sequence[str]) -> list[str]:
    """Strip ``task_`` or ``req_`` from ids."""
    return [name.partition("_")[2] or name for name in ids]


def short_ids(ids: Sequence[str]) -> list[str]:
    """Strip ``task_`` or ``req_`` from ids, and shorten them as far as they stay unique."""
    whole_names = whole_ids(ids)
    longest = max(map(len, whole_names), default=0)
    for length in range(_SHORTEST, longest):
        if len({name[:length] for name in whole_names}) == len(set(whole_names)):
            return [name[:length] for name in whole_names]
    return whole_names
