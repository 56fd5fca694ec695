"""Waiting in rewritten scripts, blocking where ``await`` is not allowed."""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from typing import Any, Final, Self

from delf_sandbox.guest import nodes
from delf_sandbox.guest.arguments import FunctionWithUsage
from delf_sandbox.guest.calls import ToolCall, ToolFunction, ToolNamespace, running_script_line
from delf_sandbox.guest.loop import GuestLoop

# ``type``, with the result Any, so that the type checker allows every attribute.
_type_of: Callable[[Any], Any] = type
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, ToolFunction)


class ReadyValue:
    """An awaitable that returns its value without waiting."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._value
        # Never reached; it makes this method a generator, as ``__await__`` has to return an
        # iterator.
        yield


def as_awaitable(value: Any) -> Awaitable[Any]:
    """Return a value if it is awaitable, else an awaitable that returns the value.

    Raises:
        TypeError: If the value is a tool or a function that the script forgot to call.
    """
    if inspect.isawaitable(value):
        return value
    if isinstance(value, (ToolFunction, ToolNamespace)):
        error = value.__delf_misuse__()
        raise error
    if isinstance(value, _FUNCTIONS):
        name = getattr(value, "__name__", "it")
        raise TypeError(f"{name} is a function: call it, as `await {name}(…)`")
    return ReadyValue(value)


async def as_coroutine(value: Any) -> Any:
    """Await a value if it is awaitable, and return the result."""
    return await as_awaitable(value)


def awaitable_variant(function: Any) -> Any:
    """Return a variant of a tool that returns an awaitable instead of waiting.

    Any other function is returned unchanged.
    """
    if _type_of(function) is functools.partial and hasattr(function.func, nodes.ASYNC_VARIANT):
        return functools.partial(
            awaitable_variant(function.func), *function.args, **function.keywords
        )
    return getattr(function, nodes.ASYNC_VARIANT, function)


class ScriptHelpers:
    """The helper functions that a rewritten script calls, for example to await a result.

    The mapping :attr:`names` has each function under the name that the script uses.

    Args:
        loop: The event loop.
        tools: A mapping from the name of each connection or plain tool to its object.
    """

    def __init__(self, loop: GuestLoop, tools: dict[str, Any]) -> None:
        self._loop = loop
        self._tools = tools
        # Generators and async generators, each with its line; a warning names those that the
        # script never iterates.
        self._generators: list[tuple[Generator[Any, Any, Any], int]] = []
        self._streams: list[tuple[_Stream, int]] = []
        # The constants are the names under which rewritten scripts call these functions.
        self.names: dict[str, Any] = {
            nodes.TOOLS: tools,
            nodes.WAIT: self.wait,
            nodes.RESULT_OF_COROUTINE: self.await_if_coroutine,
            nodes.AS_AWAITABLE: as_awaitable,
            nodes.ASYNC_VARIANT_OF: awaitable_variant,
            nodes.BLOCKING_VARIANT_OF: self._blocking_variant,
            nodes.CALLABLE_OR_TOOL: self._callable_or_tool,
            nodes.WATCHED_ITERATOR: self._watched_generator,
            nodes.AS_LIST: list,
            nodes.REPEATABLE_VARIANT: self._repeatable_variant,
            nodes.ASYNC_ITER: self._async_iterable,
            nodes.ITER: self._iterable,
            nodes.ASYNC_WITH: _AsyncContext.of,
            nodes.WITH: self._context,
        }

    def begin_script(self) -> None:
        """Reset the state for a new script."""
        self._generators.clear()
        self._streams.clear()

    def uniterated_lines(self) -> list[int]:
        """Return the lines of the generators that never ran, and so never made their calls."""
        lines = [line for generator, line in self._generators if _is_new(generator)]
        lines += [line for stream, line in self._streams if not stream.is_begun]
        return lines

    def wait(self, value: Any) -> Any:
        """Block until an awaitable is done, running other tasks meanwhile; return its result.

        Any other value is returned unchanged.
        """
        if inspect.isawaitable(value):
            return self._loop.block(as_coroutine(value))
        return value

    def await_if_coroutine(self, value: Any) -> Any:
        """Return the result of a coroutine or tool call; return any other value unchanged.

        An async generator becomes an object that a plain ``for`` can iterate.
        """
        kind = _type_of(value)
        # Wait only for these types: a script may keep tasks and futures to await them later.
        if kind is ToolCall or kind is types.CoroutineType or kind is _RepeatableCoroutine:
            return self._loop.block(as_coroutine(value))
        if kind is not types.AsyncGeneratorType:
            return value
        stream = _Stream(value, self.wait)
        # Remember the line, to warn about a generator that the script never iterates: the tool
        # calls in the generator are not made.
        self._streams.append((stream, running_script_line()))
        return stream

    def _blocking_variant(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a plain function that calls an async function and blocks until its result."""

        @functools.wraps(function)
        def call_and_wait(*args: Any, **kwargs: Any) -> Any:
            return self.await_if_coroutine(function(*args, **kwargs))

        return call_and_wait

    def _repeatable_variant(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a variant of an async function whose result can be awaited more than once."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> _RepeatableCoroutine:
            return _RepeatableCoroutine(function(*args, **kwargs), self._loop)

        return call

    def _callable_or_tool(self, value: Any, name: str) -> Any:
        """Return a variable's value; if the value is not callable, the tool of the same name.

        After ``weather = weather("Oslo")``, the call ``weather("Rome")`` can only mean the tool.
        """
        return value if callable(value) else self._tools[name]

    def _watched_generator(self, iterable: Iterable[Any]) -> Generator[Any, Any, Any]:
        """Return a generator of the items; record the line for a warning if nothing iterates it."""
        generator = _as_generator(iterable)
        self._generators.append((generator, running_script_line()))
        return generator

    def _async_iterable(self, value: Any) -> AsyncIterator[Any]:
        if hasattr(_type_of(value), "__aiter__"):
            return value
        return _async_items(self.await_if_coroutine(value))

    def _iterable(self, value: Any) -> Iterable[Any]:
        """Return an iterable for a plain ``for``, which replaces an ``async for`` over a value."""
        value = self.await_if_coroutine(value)
        kind = _type_of(value)
        is_only_async_iterable = not hasattr(kind, "__iter__") and hasattr(kind, "__aiter__")
        if is_only_async_iterable:
            return _Stream(aiter(value), self.wait)
        return value

    def _context(self, value: Any) -> Any:
        """Return a context manager for a plain ``with``, which replaces an ``async with``."""
        # Look up the attribute on the type, as ``with`` does; the instance's attributes do not
        # count.
        if hasattr(_type_of(value), "__aenter__"):
            return _SyncContext(value, self.wait)
        return value


def _is_new(generator: Generator[Any, Any, Any]) -> bool:
    return inspect.getgeneratorstate(generator) == inspect.GEN_CREATED


def _as_generator(iterable: Iterable[Any]) -> Generator[Any, Any, Any]:
    """Yield the items of an iterable. :func:`_is_new` needs a generator to see if it has begun."""
    yield from iterable


async def _async_items(iterable: Iterable[Any]) -> AsyncIterator[Any]:
    for item in iterable:
        yield item


class _RepeatableCoroutine:
    """A coroutine that can be awaited more than once, with the same result."""

    def __init__(self, coroutine: Any, loop: GuestLoop) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._task is None:
            self._task = self._loop.create_task(self._coroutine)
        return self._task.__await__()


class _Stream:
    """An async generator that both ``for`` and ``async for`` can iterate."""

    def __init__(self, stream: Any, wait: Callable[[Any], Any]) -> None:
        self._stream = stream
        self._wait = wait
        # False if the script has not used the generator, so that no tool call in it was made.
        self.is_begun = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.is_begun = True
        try:
            return self._wait(anext(self._stream))
        except StopAsyncIteration:
            raise StopIteration from None

    def __aiter__(self) -> AsyncIterator[Any]:
        self.is_begun = True
        return self._stream

    def __getattr__(self, name: str) -> Any:
        # The script may iterate by a method of the generator, such as ``asend``.
        self.is_begun = True
        return getattr(self._stream, name)


class _SyncContext:
    """A wrapper that makes an async context manager usable in a plain ``with``.

    Args:
        manager: The async context manager.
        wait: Blocks until an awaitable is done, and returns its result.
    """

    def __init__(self, manager: Any, wait: Callable[[Any], Any]) -> None:
        self._manager = manager
        self._wait = wait

    def __enter__(self) -> Any:
        return self._wait(_type_of(self._manager).__aenter__(self._manager))

    def __exit__(self, *error: object) -> Any:
        return self._wait(_type_of(self._manager).__aexit__(self._manager, *error))


class _AsyncContext:
    """A wrapper that makes a plain context manager usable in ``async with``."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    @staticmethod
    def of(manager: Any) -> Any:
        """Wrap a context manager without ``__aenter__``; return any other manager unchanged."""
        kind = _type_of(manager)
        is_plain = hasattr(kind, "__enter__") and not hasattr(kind, "__aenter__")
        return _AsyncContext(manager) if is_plain else manager

    async def __aenter__(self) -> Any:
        # ``with`` looks up the method on the type, too.
        return _type_of(self._manager).__enter__(self._manager)

    async def __aexit__(self, *error: object) -> Any:
        return _type_of(self._manager).__exit__(self._manager, *error)


# The asyncio functions that are replaced, with their arguments for error messages.
_USAGES: Final = (
    "gather(*awaitables)",
    "wait(awaitables, timeout=…, return_when=…)",
    "wait_for(fut, timeout)",
    "shield(arg)",
    "as_completed(awaitables, timeout=…)",
    "run(main)",
    "to_thread(func, *args, **kwargs)",
    "ensure_future(coro_or_future)",
)


class TolerantAsyncio:
    """Variants of asyncio functions that accept other arguments besides awaitables.

    The other arguments are lists of awaitables, plain values, and functions to call.

    Args:
        loop: The event loop.
    """

    def __init__(self, loop: GuestLoop) -> None:
        self._loop = loop
        self.abandoned: list[asyncio.Future[Any]] = []
        """The futures for which the script stopped waiting, for example after a timeout."""

    def install(self) -> None:
        """Replace the functions of the asyncio module."""
        module: Any = asyncio
        self._loop.set_coroutine_factory(self.coroutine)
        for usage in _USAGES:
            name = usage.partition("(")[0]
            setattr(module, name, FunctionWithUsage(usage, getattr(self, name)))
        module.Runner = self._runner
        module.new_event_loop = self._new_loop
        module.set_event_loop = _no_op

    def _new_loop(self) -> GuestLoop:
        """Return the guest's only loop, which all scripts use instead of a new one."""
        return self._loop

    def _runner(self, **_options: Any) -> _Runner:
        """Replace ``asyncio.Runner``, whose options would be for a new loop."""
        return _Runner(self.run, self._loop)

    def coroutine(self, value: Any) -> Any:
        """Return an awaitable for a value that the script passes as an awaitable.

        Coroutines and tool calls are returned unchanged. A function is called, and its result
        replaces the function. For anything else, return a coroutine that returns the value.
        """
        if inspect.iscoroutine(value) or isinstance(value, ToolCall):
            return value
        if isinstance(value, _FUNCTIONS) or type(value) is functools.partial:
            # The script passed ``fetch`` instead of ``fetch()``. A tool would block if it were
            # called itself, so its async variant is called.
            value = awaitable_variant(value)()
        return value if inspect.iscoroutine(value) else as_coroutine(value)

    def ensure_future(self, coro_or_future: Any, **_options: Any) -> asyncio.Future[Any]:
        """Return a future unchanged; start a task for any other awaitable, value or function."""
        if asyncio.isfuture(coro_or_future):
            return coro_or_future
        return self._loop.create_task(self.coroutine(coro_or_future))

    def _futures(self, arguments: tuple[Any, ...]) -> list[asyncio.Future[Any]]:
        """Return a future for each argument, or for each item of a collection passed alone."""
        if len(arguments) == 1:
            (only_argument,) = arguments
            if _is_collection(only_argument) and not inspect.isawaitable(only_argument):
                arguments = tuple(only_argument)
        futures: list[asyncio.Future[Any]] = []
        # An awaitable that is passed twice shares a future: a coroutine can be awaited only once.
        future_of_awaitable: dict[int, asyncio.Future[Any]] = {}
        for argument in arguments:
            future = future_of_awaitable.get(id(argument))
            if future is None:
                future = self.ensure_future(argument)
            if inspect.isawaitable(argument):
                future_of_awaitable[id(argument)] = future
            futures.append(future)
        return futures

    def gather(self, *awaitables: Any, **options: Any) -> Any:
        return _gather(*self._futures(awaitables), **options)

    async def wait(self, *awaitables: Any, **options: Any) -> Any:
        """Wait as ``asyncio.wait()`` does, and record the futures that are still pending."""
        # The parameter of asyncio is ``fs``, and its documentation calls it ``aws``.
        by_keyword = [options.pop(name) for name in ("fs", "aws") if name in options]
        done_futures, pending = await _wait(self._futures((*awaitables, *by_keyword)), **options)
        self.abandoned += pending
        return done_futures, pending

    async def wait_for(self, fut: Any, timeout: float | None = None) -> Any:
        return await _wait_for(self.ensure_future(fut), timeout)

    def shield(self, arg: Any) -> Any:
        return _shield(self.ensure_future(arg))

    def as_completed(self, *awaitables: Any, timeout: float | None = None) -> Any:
        return _as_completed(self._futures(awaitables), timeout=timeout)

    def run(self, main: Any, **_options: Any) -> Any:
        return self._loop.block(self.coroutine(main))

    async def to_thread(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function in this thread, because the guest has no other; await its result."""
        # A tool would block if it were called itself; its async variant returns an awaitable. The
        # result of any other function may be a plain value.
        return await as_awaitable(awaitable_variant(func)(*args, **kwargs))


class _Runner:
    """A replacement for ``asyncio.Runner``: runs coroutines on the only loop of the sandbox.

    Args:
        run: Blocks until a coroutine is done, and returns its result.
        loop: The loop on which ``run`` runs the coroutine.
    """

    def __init__(self, run: Callable[..., Any], loop: GuestLoop) -> None:
        self.run = run
        self._loop = loop

    def get_loop(self) -> GuestLoop:
        return self._loop

    def close(self) -> None:
        """Do nothing, because the guest needs the loop for further scripts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing, because the guest needs the loop for further scripts."""


def _no_op(_loop: object) -> None:
    """Do nothing: the guest has only one event loop."""


def _is_collection(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, dict))


# The original functions, which the replacements set by install() call.
_gather = asyncio.gather
_wait = asyncio.wait
_wait_for = asyncio.wait_for
_shield = asyncio.shield
_as_completed = asyncio.as_completed
