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
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    # asyncio logs an exception that nobody fetches. The caller may be gone by design, so the
    # callback fetches the exception.
    future.add_done_callback(lambda finished: finished.cancelled() or finished.exception())
    context = contextvars.copy_context()
    threading.Thread(
        target=context.run, args=(_run, function, future), name=name, daemon=True
    ).start()
    return future


def _run(function: Callable[[], T], future: asyncio.Future[T]) -> None:
    """Call a function in this thread; pass its result or exception to another thread's future."""
    try:
        result = function()
    except BaseException as error:
        # A RuntimeError replaces exceptions that the future cannot pass on: a SystemExit would end
        # the event loop, and a future refuses a StopIteration.
        is_accepted = isinstance(error, Exception) and not isinstance(error, StopIteration)
        _complete(future, future.set_exception, error if is_accepted else RuntimeError(repr(error)))
    else:
        _complete(future, future.set_result, result)


def _complete(
    future: asyncio.Future[Any], set_outcome: Callable[[Any], None], outcome: object
) -> None:
    """Complete a future of another thread, by a call on the future's event loop."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody awaits the result
        future.get_loop().call_soon_threadsafe(_set_unless_done, future, set_outcome, outcome)


def _set_unless_done(
    future: asyncio.Future[Any], set_outcome: Callable[[Any], None], outcome: object
) -> None:
    # The waiting task may have been cancelled; a finished future takes no second result.
    if not future.done():
        set_outcome(outcome)
