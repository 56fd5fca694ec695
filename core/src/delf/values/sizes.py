"""Size limits of values: large ones are processed in a thread, huge ones are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from delf.values.encoding import MAX_VALUES, estimate_size

LARGE: Final = 100_000
"""The size in bytes up to which encoding a value takes only a few milliseconds."""
# The memory of each JSON sign in units of one number: a list takes as much as 2 numbers, a dict 6.
_WEIGHTS: Final = {b",": 1, b":": 1, b"[": 2, b"{": 6}
_FEW_BYTES: Final = 4 * 1024 * 1024
_PIECE: Final = 1024 * 1024

P = ParamSpec("P")
T = TypeVar("T")


def is_large(value: Any) -> bool:
    """Return True if a value is large enough to be processed in a thread."""
    return estimate_size(value, LARGE) > LARGE


async def run_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread to its end, even if the caller is cancelled; return the result.

    Each caught cancellation is requested again, and takes effect at the caller's next await.
    """
    work_task = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    cancellations: list[asyncio.CancelledError] = []
    while not work_task.done():
        try:
            await asyncio.wait({work_task})
        except asyncio.CancelledError as error:
            cancellations.append(error)
    task = asyncio.current_task()
    for error in cancellations:
        if task is not None:
            # Cancel the task once more. asyncio counts cancellations, so uncount the caught one.
            task.uncancel()
            task.cancel(*error.args)
    return work_task.result()


def has_too_many_values(payload: bytes) -> bool:
    """Return True if a message or file from a sandbox would take too much memory when decoded."""
    # cost() is fast, but counts separators in strings, too, so its result may be too high.
    if len(payload) <= _FEW_BYTES or cost(payload) <= MAX_VALUES:
        return False
    return cost_of_values(payload) > MAX_VALUES


def cost(payload: bytes) -> int:
    """Estimate the number of values in encoded JSON, weighted by memory use."""
    return sum(payload.count(sign) * weight for sign, weight in _WEIGHTS.items())


def cost_of_values(payload: bytes) -> int:
    """Estimate the number of values as :func:`cost` does, but ignore separators in strings.

    This is slower than :func:`cost`.
    """
    # Without escaped quotes, every quote starts or ends a string.
    payload = payload.replace(b"\\\\", b"").replace(b'\\"', b"")
    total = 0
    is_in_string = False  # whether the next piece begins inside a string
    for start in range(0, len(payload), _PIECE):
        # ``1,"a,b",2`` has the parts ``1,`` outside, ``a,b`` inside, and ``,2`` outside of strings.
        parts = payload[start : start + _PIECE].split(b'"')
        first_outside = 1 if is_in_string else 0
        parts_outside = parts[first_outside::2]
        total += cost(b"".join(parts_outside))
        quote_count = len(parts) - 1
        if quote_count % 2 == 1:
            is_in_string = not is_in_string
    return total
