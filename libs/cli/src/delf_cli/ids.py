"""Ids of tasks and of requests, as people read and type them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_SHORTEST: Final = 7


def short_id(name: str) -> str:
    """An id as it is listed."""
    return name.partition("_")[2][:_SHORTEST]


def short_ids(ids: Sequence[str]) -> list[str]:
    """Ids without ``task_`` or ``req_``, as short as keeps them apart."""
    bare = [name.partition("_")[2] or name for name in ids]
    longest = max(map(len, bare), default=0)
    for length in range(_SHORTEST, longest):
        if len({name[:length] for name in bare}) == len(set(bare)):
            return [name[:length] for name in bare]
    return bare
