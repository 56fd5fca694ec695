"""Errors of a journal's own library become delf's, with the journal's name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from delf.errors import DelfError, JournalFailedError
from delf.protocols.journal import Journal

J = TypeVar("J", bound=Journal)
_MARK: Final = "_delf_guards"


def guarded(journal: J, name: str) -> J:
    """Return the journal; from now on its async methods raise :class:`JournalFailedError`.

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
    try:
        object.__setattr__(journal, "__class__", type(kind.__name__, (kind,), methods))
    except TypeError:  # an extension type, whose class cannot be replaced
        return journal
    return journal


def _awaited(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    async def method(*arguments: Any, **named: Any) -> Any:
        try:
            return await function(*arguments, **named)
        except DelfError:
            raise
        except Exception as error:
            raise _failed(name, function, error) from error

    return method


def _iterated(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    async def method(*arguments: Any, **named: Any) -> AsyncIterator[Any]:
        try:
            async for item in function(*arguments, **named):
                yield item
        except DelfError:
            raise
        except Exception as error:
            raise _failed(name, function, error) from error

    return method


def _failed(name: str, function: Callable[..., Any], error: Exception) -> JournalFailedError:
    what = f"{type(error).__name__}: {error}"
    return JournalFailedError(f"the journal {name!r} failed in {function.__name__}(): {what}")
