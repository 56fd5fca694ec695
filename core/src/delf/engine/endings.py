"""What was begun and must come to its end, whoever cancels the wait for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(
    work: Awaitable[T], failed: Callable[[BaseException], None] | None = None
) -> T:
    """Wait until something has ended; a cancellation meanwhile is raised afterwards.

    Args:
        work: What goes on, however often the wait is cancelled.
        failed: Told of its failure where the cancellation is raised in place of that; nobody is
            told without it.

    Returns:
        Its result.

    Raises:
        asyncio.CancelledError: When the wait was cancelled, also where the work failed.
    """
    end = asyncio.ensure_future(work)
    try:
        await asyncio.wait({end})
    except asyncio.CancelledError:
        while not end.done():
            with contextlib.suppress(asyncio.CancelledError):  # once more: it ends soon anyway
                await asyncio.wait({end})
        error = None if end.cancelled() else end.exception()
        if error is not None and failed is not None:
            failed(error)
        raise
    return end.result()
