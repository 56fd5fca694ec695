"""Ids of tasks and requests, as shown to and typed by people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.errors import DelfError

_SHORT_ID_CHARACTERS: Final = 7
_MIN_CHARACTERS_TO_ACT: Final = 6


def check_names(text: str, name: str) -> bool:
    """Check that a typed id prefix is long enough for a command that changes something.

    Args:
        text: The typed prefix, with or without ``req_``.
        name: The full id.

    Returns:
        True if the text is the full id.

    Raises:
        DelfError: If the text is too short.
    """
    start, name_part = text.removeprefix(f"{name.partition('_')[0]}_"), name.partition("_")[2]
    if len(start) < min(_MIN_CHARACTERS_TO_ACT, len(name_part)):
        raise DelfError(
            f"{text!r} is too short to act on {name}",
            hint=f"at least {_MIN_CHARACTERS_TO_ACT} characters: {short_id(name)}",
        )
    return start == name_part


def short_id(name: str) -> str:
    """Return an id as it is shown in lists."""
    return name.partition("_")[2][:_SHORT_ID_CHARACTERS]


def whole_ids(ids: Sequence[str]) -> list[str]:
    """Strip ``task_`` or ``req_`` from ids."""
    return [name.partition("_")[2] or name for name in ids]


def short_ids(ids: Sequence[str]) -> list[str]:
    """Strip ``task_`` or ``req_`` from ids, and cut all to the shortest unique length."""
    whole_names = whole_ids(ids)
    longest = max(map(len, whole_names), default=0)
    for length in range(_SHORT_ID_CHARACTERS, longest):
        if len({name[:length] for name in whole_names}) == len(set(whole_names)):
            return [name[:length] for name in whole_names]
    return whole_names
