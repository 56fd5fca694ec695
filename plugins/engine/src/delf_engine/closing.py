"""Closing of plugins' objects within a time limit, with errors that name the object."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, cast

from delf.protocols.connection import SupportsClose
from delf_engine.bounded import within

STOP_SECONDS: Final = 10.0
"""The longest wait in seconds for one object to close, or for cancelled work to end."""


async def close_all(parts: Mapping[str, object]) -> None:
    """Close objects concurrently, each within :data:`STOP_SECONDS`.

    Args:
        parts: The objects, by the names to use in messages. Objects without ``aclose`` are skipped.

    Raises:
        PluginError: If one object failed to close or did not end in time.
        ExceptionGroup: If several objects failed to close or did not end in time.
    """
    closable = {name: part for name, part in parts.items() if isinstance(part, SupportsClose)}
    await all_ended(_close(name, part) for name, part in closable.items())


async def all_ended(closing: Iterable[Awaitable[None]]) -> None:
    """Await all awaitables, even if some fail; then raise the failures.

    Raises:
        Exception: If exactly one failed.
        ExceptionGroup: If several failed.
    """
    # Close all objects concurrently, so that one that hangs or fails does not leave others open.
    results = await asyncio.gather(*closing, return_exceptions=True)
    failures: list[Exception] = []
    for result in results:
        if isinstance(result, Exception):
            failures += failures_in(result)
    if len(failures) > 1:
        raise ExceptionGroup("while closing", failures)
    if failures:
        raise failures[0]


def failures_in(error: Exception) -> list[Exception]:
    """Return the exceptions of an ``ExceptionGroup``, or a list of the error alone."""
    if not isinstance(error, ExceptionGroup):
        return [error]
    members = cast("ExceptionGroup[Exception]", error).exceptions
    failures: list[Exception] = []
    for member in members:
        failures += failures_in(member)
    return failures


async def _close(name: str, item: SupportsClose) -> None:
    kind = f"{type(item).__module__}.{type(item).__qualname__}"
    await within(STOP_SECONDS, f"{name} ({kind})", "aclose", item.aclose)
