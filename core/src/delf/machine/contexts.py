"""ContextVars of tasks: work for a task sees the ContextVars of its caller only.

An event loop runs a callback in the context in which the callback was registered. So a callback
that one task registers and that serves another, such as the reader of a sandbox started ahead,
would show the ContextVars of the first task to the tools of the second. Two rules keep tasks apart:
work that several tasks share is started by :func:`shared_task` or :func:`without_context`; work for
one task enters the context of that task by :func:`in_context` or :func:`awaited_in`.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def without_context(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in an empty context.

    An asyncio task that the function starts has no context variables of the caller.
    """
    return Context().run(function, *args, **kwargs)


def shared_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start an asyncio task in an empty context, for work that several of delf's tasks share."""
    return asyncio.get_running_loop().create_task(work, context=Context())


def in_context(
    context: Context, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function in a copy of a context, so that concurrent calls may share the original."""
    return context.copy().run(function, *args, **kwargs)


@types.coroutine
def awaited_in(context: Context, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await a coroutine in a copy of a context, within the running asyncio task.

    An asyncio task with a context of its own would be slower, and would not start at once.

    Args:
        context: The context to copy.
        work: The coroutine, not yet awaited.
    """
    run_in_copy = context.copy().run
    # Do the steps of ``await work`` by hand. ``send`` runs the coroutine until it waits for a
    # future; ``yield`` passes the future to the event loop, and returns when the future is done.
    try:
        future = run_in_copy(work.send, None)
        while True:
            try:
                result = yield future
            except GeneratorExit:  # the generator is closed, so close the coroutine, too
                run_in_copy(work.close)
                raise
            except BaseException as error:  # such as CancelledError
                future = run_in_copy(work.throw, error)
            else:
                future = run_in_copy(work.send, result)
    except StopIteration as end:
        return end.value
