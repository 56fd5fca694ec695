"""Decorators that run a plugin-facing method in the context of its own task.

A sandbox may deliver a script's calls from a reader task started for another task, and so may a
strategy's open connection. With these decorators the method, and the tools and approvals it calls,
see the ContextVars of their own task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import Context
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from delf.machine.contexts import awaited_in, in_context


class HasContext(Protocol):
    """An object that belongs to a task and has the ContextVars of the task's caller."""

    @property
    def context(self) -> Context:
        """The ContextVars of the task's caller."""
        ...


S = TypeVar("S", bound=HasContext)
P = ParamSpec("P")
T = TypeVar("T")


def in_own_context(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorate a method to run in a copy of the task's context (ContextVars)."""

    @functools.wraps(method)
    def entered(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return in_context(self.context, method, self, *args, **kwargs)

    return entered


def awaited_in_own_context(
    method: Callable[Concatenate[S, P], CoroutineType[Any, Any, T]],
) -> Callable[Concatenate[S, P], CoroutineType[Any, Any, T]]:
    """Decorate an async method to run in a copy of the task's context (ContextVars)."""

    @functools.wraps(method)
    async def entered(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await awaited_in(self.context, method(self, *args, **kwargs))

    return entered
