"""A journal of a plugin, with limited time and errors that name the journal."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar, cast

from delf.errors import DelfError, JournalFailedError, raise_because, without_passwords
from delf.protocols.journal import Journal
from delf_engine.bounded import convert_exits_to_errors, described

J = TypeVar("J", bound=Journal)
_GUARDED_MARK: Final = "_delf_guards"
ANSWER_SECONDS: Final = 60.0
"""The maximum time of one call of a journal's method, in seconds."""
# Methods without a time limit, because they may take long or their callers limit the time.
_UNLIMITED: Final = frozenset({"aclose", "back_up", "restore", "prune", "remove", "index"})


def guarded(journal: J, name: str) -> J:
    """Limit the time of a journal's async methods and convert its exceptions; return the journal.

    A method raises :class:`JournalFailedError` for an exception that is not a ``DelfError``, and if
    it takes longer than :data:`ANSWER_SECONDS`. The journal's conversations are guarded, too.

    The object stays the same. Its class becomes a subclass of its former class, so that
    ``isinstance`` and all other methods work.

    Args:
        journal: The journal of a plugin.
        name: The journal's name, for messages.
    """
    kind = type(journal)
    if getattr(kind, _GUARDED_MARK, False):  # another agent has guarded this journal already
        return journal
    # Without ``__slots__``, the subclass would have a ``__dict__``, and could not take the place of
    # a class that has none.
    members: dict[str, Any] = {"__slots__": (), "__module__": kind.__module__, _GUARDED_MARK: True}
    public_names = [each for each in dir(kind) if not each.startswith("_")]
    for method in public_names:
        function: Any = inspect.getattr_static(kind, method)
        if inspect.iscoroutinefunction(function):
            members[method] = _with_timeout(function, name)
        elif inspect.isasyncgenfunction(function):
            members[method] = _with_errors(function, name)

    # The next two functions are methods of the subclass. ``kind`` is the journal's former class.
    def safe_repr(self: Journal) -> str:
        return without_passwords(kind.__repr__(self))  # pyright: ignore[reportArgumentType]

    def guarded_conversations(self: Any, namespace: str) -> Any:
        # Only some classes of journals have this method, so the type checker needs a cast.
        return guarded(cast("Any", kind).conversations(self, namespace), name)

    members["__repr__"] = safe_repr
    if hasattr(kind, "conversations"):
        members["conversations"] = guarded_conversations
    with contextlib.suppress(TypeError):  # the class of an extension type cannot be replaced
        # Bypass the journal's own ``__setattr__``: the method of a frozen dataclass raises.
        object.__setattr__(journal, "__class__", type(kind.__name__, (kind,), members))
    return journal


def _with_timeout(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap an async method so that failures and timeouts raise ``JournalFailedError``."""
    is_limited = function.__name__ not in _UNLIMITED

    @functools.wraps(function)
    async def method(*arguments: Any, **keywords: Any) -> Any:
        limit = asyncio.timeout(ANSWER_SECONDS if is_limited else None)
        try:
            async with limit:
                # A SystemExit or a cancellation by the plugin itself becomes an ordinary exception.
                return await convert_exits_to_errors(lambda: function(*arguments, **keywords))
        except DelfError:
            raise
        except Exception as error:
            if limit.expired():
                message = f"the journal {name!r} did not answer {function.__name__}()"
                raise JournalFailedError(f"{message} within {ANSWER_SECONDS:g} s") from error
            raise_because(_failure(name, function, error), error)

    return method


def _with_errors(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap an async generator method so that its failures raise ``JournalFailedError``."""

    @functools.wraps(function)
    async def method(*arguments: Any, **keywords: Any) -> AsyncIterator[Any]:
        try:
            async for item in function(*arguments, **keywords):
                yield item
        except DelfError:
            raise
        except Exception as error:
            raise_because(_failure(name, function, error), error)

    return method


def _failure(name: str, function: Callable[..., Any], error: Exception) -> JournalFailedError:
    message = f"the journal {name!r} failed in {function.__name__}(): {described(error)}"
    failure = JournalFailedError(message)
    # Database clients raise exception classes of their own for outages. Python's built-in
    # exceptions, such as TypeError, are bugs, except OSError and EOFError.
    is_of_python = type(error).__module__ == "builtins"
    failure.is_outage = isinstance(error, (OSError, EOFError)) or not is_of_python
    return failure
