"""Methods of plugins' objects, with limited time and errors that name the plugin."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar, cast

from delf.errors import (
    DelfError,
    PluginError,
    describe_exception,
    raise_because,
    without_passwords,
)

_log = logging.getLogger(__name__)
T = TypeVar("T")
START_SECONDS: Final = 120.0
"""The longest time in seconds for one call of a plugin's method while an agent starts."""
PREPARE_SECONDS: Final = 1800.0
"""The longest time in seconds to prepare a sandbox, which may build an image."""
WARM_SECONDS: Final = 10.0
"""The longest time in seconds for a warm-up, which is optional."""
SLOW_SECONDS: Final = 5.0
"""The seconds after which a method that has not returned is named in the log."""
_HINT: Final = "delf does not wait any longer; tell the author of the plugin"


async def within(
    seconds: float,
    owner: str,
    method: str,
    call: Callable[[], Awaitable[T]],
    error: type[DelfError] = PluginError,
    hint: str = _HINT,
) -> T:
    """Await a method of a plugin's object within a time limit.

    The method is cancelled at the limit. A method that ignores the cancellation is abandoned.

    Args:
        seconds: The longest wait.
        owner: The object in messages, such as ``the journal 'redis'``.
        method: The name of the method in messages.
        call: Calls the method.
        error: The class of error to raise.
        hint: The hint of the error.

    Raises:
        DelfError: If the method failed or did not end in time. A ``DelfError`` of the method is
            raised as it is; any other failure as ``error``.
    """
    work = asyncio.ensure_future(convert_exits_to_errors(call))
    try:
        # Wait in two steps, to log that the method is slow.
        await asyncio.wait({work}, timeout=min(SLOW_SECONDS, seconds))
        if not work.done() and seconds > SLOW_SECONDS:
            _log.warning("%s has not answered %s() for %g s", owner, method, SLOW_SECONDS)
            await asyncio.wait({work}, timeout=seconds - SLOW_SECONDS)
        if not work.done():
            raise error(f"{owner} did not answer {method}() within {seconds:g} s", hint=hint)
    finally:
        work.cancel()  # without effect if the work is done
    with failures_named(owner, method, error, hint):
        return work.result()


@contextmanager
def failures_named(
    owner: str, method: str, error: type[DelfError] = PluginError, hint: str = _HINT
) -> Generator[None]:
    """Convert exceptions of a plugin's method to ``error``, with a message that names the plugin.

    Args:
        owner: The name of the plugin's object in messages.
        method: The name of the method in messages.
        error: The class of error to raise.
        hint: The hint of the error.

    Raises:
        DelfError: If the block raises any exception. A ``DelfError``, or a group that contains
            nothing else, stays unchanged; any other exception is converted to ``error``.
    """
    try:
        yield
    except DelfError:
        raise
    except Exception as cause:
        if _is_group_of_delf_errors(cause):
            raise
        raise_because(error(f"{owner} failed in {method}(): {described(cause)}", hint=hint), cause)


def _is_group_of_delf_errors(error: Exception) -> bool:
    """Return whether an exception is a group that contains only ``DelfError``."""
    if not isinstance(error, ExceptionGroup):
        return False
    _, other_errors = cast("ExceptionGroup[Exception]", error).split(DelfError)
    return other_errors is None


class EndedItselfError(Exception):
    """A plugin cancelled its own asyncio task, or raised ``SystemExit``."""


async def convert_exits_to_errors(call: Callable[[], Awaitable[T]]) -> T:
    """Await a plugin's method; raise an error if it tries to end the process or its asyncio task.

    Raises:
        EndedItselfError: For ``SystemExit``, for a cancellation that nobody requested, and for a
            ``KeyboardInterrupt`` outside of the main thread.
    """
    try:
        return await call()
    except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        is_caller_cancelled = task is not None and task.cancelling() > 0
        if isinstance(error, asyncio.CancelledError) and is_caller_cancelled:
            raise
        on_main_thread = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and on_main_thread:
            raise  # somebody pressed Ctrl-C, for which Python interrupts the main thread only
        own_error = EndedItselfError(
            f"{type(error).__name__}: {str(error) or 'nobody asked for it'}"
        )
        raise own_error.with_traceback(error.__traceback__) from error


def described(error: Exception) -> str:
    """Describe an exception of a plugin, without passwords in URLs."""
    if isinstance(error, EndedItselfError):  # its text begins with the name of the exception
        return without_passwords(str(error))
    return describe_exception(error)
