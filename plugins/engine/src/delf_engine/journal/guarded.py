"""A journal of a plugin, with limited time and errors that name the journal."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from delf.errors import DelfError, JournalFailedError, raise_because, without_passwords
from delf.protocols.journal import Journal
from delf_engine.bounded import contained, described

J = TypeVar("J", bound=Journal)
_MARK: Final = "_delf_guards"
ANSWER_SECONDS: Final = 60.0
"""The longest time in seconds for one method of a journal."""
_UNLIMITED: Final = frozenset({"aclose", "back_up", "restore", "prune", "remove", "index"})
"""Methods that may take long, or whose callers limit the time."""


def guarded(journal: J, name: str) -> J:
    """Make all async methods of a journal raise :class:`JournalFailedError`; return the journal.

    The error replaces exceptions of the journal's own, and is raised if a method takes longer than
    :data:`ANSWER_SECONDS`.

    The object stays the same, and keeps its own class as the base of its new one, so that
    ``isinstance`` and further methods of the journal work.

    Args:
        journal: A journal of a plugin.
        name: The journal's name.
    """
    kind = type(journal)
    if getattr(kind, _MARK, False):  # guarded already, for another agent
        return journal
    methods: dict[str, Any] = {"__slots__": (), "__module__": kind.__module__, _MARK: True}
    for method in (one for one in dir(kind) if not one.startswith("_")):
        function: Any = inspect.getattr_static(kind, method)
        if inspect.iscoroutinefunction(function):
            methods[method] = _awaited(function, name)
        elif inspect.isasyncgenfunction(function):
            methods[method] = _iterated(function, name)

    def shown(own: Journal) -> str:
        return without_passwords(kind.__repr__(own))  # pyright: ignore[reportArgumentType]

    methods["__repr__"] = shown
    try:
        object.__setattr__(journal, "__class__", type(kind.__name__, (kind,), methods))
    except TypeError:  # an extension type, whose class cannot be replaced
        return journal
    return journal


def _awaited(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap an async method so that its failures and overrun time raise ``JournalFailedError``."""
    limited = function.__name__ not in _UNLIMITED

    @functools.wraps(function)
    async def method(*arguments: Any, **keywords: Any) -> Any:
        limit = asyncio.timeout(ANSWER_SECONDS if limited else None)
        try:
            async with limit:
                return await contained(lambda: function(*arguments, **keywords))
        except DelfError:
            raise
        except Exception as error:
            if limit.expired():
                message = f"the journal {name!r} did not answer {function.__name__}()"
                raise JournalFailedError(f"{message} within {ANSWER_SECONDS:g} s") from error
            raise_because(_failed(name, function, error), error)

    return method


def _iterated(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap an async generator method so that its failures raise ``JournalFailedError``."""

    @functools.wraps(function)
    async def method(*arguments: Any, **keywords: Any) -> AsyncIterator[Any]:
        try:
            async for item in function(*arguments, **keywords):
                yield item
        except DelfError:
            raise
        except Exception as error:
            raise_because(_failed(name, function, error), error)

    return method


def _failed(name: str, function: Callable[..., Any], error: Exception) -> JournalFailedError:
    message = f"the journal {name!r} failed in {function.__name__}(): {described(error)}"
    return JournalFailedError(message)
