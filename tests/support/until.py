"""Waiting until something has happened elsewhere, instead of for a time."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

PAUSE = 0.01
MAX_SECONDS = 50
"""The longest wait in seconds: a little less than the time of a test, for machines under load."""
T = TypeVar("T")


async def until(condition: Callable[[], T | Awaitable[T]], seconds: float = MAX_SECONDS) -> T:
    """Wait for a condition and return its value, the first one that is true.

    Args:
        condition: Asked again and again; other tasks of this loop go on meanwhile.
        seconds: After which the test fails.
    """
    async with asyncio.timeout(seconds):
        for turn in itertools.count():
            found: Any = condition()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0 if turn < 10 else PAUSE)
    raise AssertionError("unreachable")


def until_now(condition: Callable[[], T], seconds: float = MAX_SECONDS) -> T:
    """Wait for a condition in a thread without an event loop, as :func:`until` does."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(PAUSE)
    return found
