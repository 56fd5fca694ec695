"""Threads for blocking work that may take long and must not delay the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def in_own_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Call something in a thread that no other work needs.

    Args:
        function: The function to call, in a copy of this context.
        name: The thread's.

    Returns:
        Its result, or its failure, which is no news where nobody waits for it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def finish(how: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            how(value)

    def work() -> None:
        how: Callable[[Any], None]
        try:
            how, value = future.set_result, function()
        except BaseException as error:  # those that are not Exceptions would end the loop
            passes = isinstance(error, Exception) and not isinstance(error, StopIteration)
            how, value = future.set_exception, error if passes else RuntimeError(repr(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(finish, how, value)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
    return future
