"""Methods for plugins that run in the context of their task, whatever the caller.

A sandbox may serve a script from a reader that it started for another task, and a strategy from a
connection that it keeps open. Such a method, tools and approvals included, runs in the context of
its own task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import Context
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from delf.machine.contexts import awaited_in, in_context


class OfTask(Protocol):
    """An object of one task."""

    @property
    def context(self) -> Context:
        """The ContextVars of the task's caller."""
        ...


S = TypeVar("S", bound=OfTask)
P = ParamSpec("P")
T = TypeVar("T")


def in_own_context(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Run a plain method in the context of its object's task."""

    @functools.wraps(method)
    def entered(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return in_context(self.context, method, self, *args, **kwargs)

    return entered


def awaited_in_own_context(
    method: Callable[Concatenate[S, P], CoroutineType[Any, Any, T]],
) -> Callable[Concatenate[S, P], CoroutineType[Any, Any, T]]:
    """Run an async method in the context of its object's task."""

    @functools.wraps(method)
    async def entered(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await awaited_in(self.context, method(self, *args, **kwargs))

    return entered
