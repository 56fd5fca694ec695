"""Threads for long blocking work that must not delay the exit of the process."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def in_own_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run a function in a daemon thread of its own.

    Args:
        function: The function, called in a copy of the current context.
        name: The name of the thread.

    Returns:
        A future with the result or the exception. An exception that nobody awaits is not logged.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    # asyncio would log an exception that nobody fetches; here the caller may be gone by design.
    future.add_done_callback(lambda finished: finished.cancelled() or finished.exception())

    def report(set_outcome: Callable[[Any], None], value: Any) -> None:
        def set_on_loop() -> None:
            # The waiting task may have been cancelled; a finished future takes no second result.
            if not future.done():
                set_outcome(value)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody awaits the result
            loop.call_soon_threadsafe(set_on_loop)

    def work() -> None:
        try:
            result = function()
        except BaseException as error:
            # A RuntimeError replaces exceptions that the future cannot pass on: a SystemExit would
            # end the event loop, and a future refuses a StopIteration.
            is_accepted = isinstance(error, Exception) and not isinstance(error, StopIteration)
            report(future.set_exception, error if is_accepted else RuntimeError(repr(error)))
        else:
            report(future.set_result, result)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
    return future
