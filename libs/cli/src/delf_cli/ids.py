"""Ids of tasks and of requests, as people read and type them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.errors import DelfError

_SHORTEST: Final = 7
_TO_ACT: Final = 6
"""Characters by which something can be decided or stopped; fewer are a slip of the finger."""


def check_names(text: str, name: str) -> bool:
    """Check that a text may stand for an id of a destructive command.

    Args:
        text: The typed text: the beginning of the id, or of the part after ``req_``.
        name: The id.

    Returns:
        Whether it is the whole id.

    Raises:
        DelfError: When it is too short.
    """
    start, bare = text.removeprefix(f"{name.partition('_')[0]}_"), name.partition("_")[2]
    if len(start) < min(_TO_ACT, len(bare)):
        raise DelfError(
            f"{text!r} is too short to act on {name}",
            hint=f"at least {_TO_ACT} characters: {short_id(name)}",
        )
    return start == bare


def short_id(name: str) -> str:
    """Return the listed form of an id."""
    return name.partition("_")[2][:_SHORTEST]


def whole_ids(ids: Sequence[str]) -> list[str]:
    """Return ids without ``task_`` or ``req_``."""
    return [name.partition("_")[2] or name for name in ids]


def short_ids(ids: Sequence[str]) -> list[str]:
    """Return ids without ``task_`` or ``req_``, as short as keeps them apart."""
    bare = whole_ids(ids)
    longest = max(map(len, bare), default=0)
    for length in range(_SHORTEST, longest):
        if len({name[:length] for name in bare}) == len(set(bare)):
            return [name[:length] for name in bare]
    return bare
