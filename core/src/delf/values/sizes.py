"""The size limit of values: large values are processed in a thread, larger ones refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from delf.values.encoding import MAX_VALUES, weight

LARGE: Final = 100_000
"""Bytes of memory that are encoded, decoded or searched in a few milliseconds."""
_WEIGHTS: Final = {b",": 1, b":": 1, b"[": 2, b"{": 6}
"""The cost of each in values: an empty list takes as much as two numbers, a dict as six."""
_FEW_BYTES: Final = 4 * 1024 * 1024
_PIECE: Final = 1024 * 1024

P = ParamSpec("P")
T = TypeVar("T")


def is_large(value: Any) -> bool:
    """Return whether a value is large enough for a thread."""
    return weight(value, LARGE) > LARGE


async def apart(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work in a thread, and wait for its end even where the caller is cancelled.

    The cancellation is raised where the caller waits next, so that the result is not lost.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    cancelled: list[asyncio.CancelledError] = []
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError as error:
            cancelled.append(error)
    task = asyncio.current_task()
    for error in cancelled:
        if task is not None:
            task.uncancel()  # so that each counts once
            task.cancel(*error.args)
    return working.result()


def has_too_many_values(payload: bytes) -> bool:
    """Return whether a guest's frame or file holds more than the host takes into its memory."""
    if len(payload) <= _FEW_BYTES or cost(payload) <= MAX_VALUES:
        return False
    return cost_of_values(payload) > MAX_VALUES


def cost(payload: bytes) -> int:
    """Estimate the number of values in a payload, weighted by memory."""
    return sum(payload.count(sign) * weight for sign, weight in _WEIGHTS.items())


def cost_of_values(payload: bytes) -> int:
    """Estimate the number of values, ignoring separators inside texts; slower."""
    # A quote or a backslash that is escaped ends no text.
    plain = payload.replace(b"\\\\", b"").replace(b'\\"', b"")
    total, in_text = 0, 0
    for start in range(0, len(plain), _PIECE):
        parts = plain[start : start + _PIECE].split(b'"')
        total += cost(b"".join(parts[in_text::2]))
        in_text ^= (len(parts) - 1) % 2
    return total
