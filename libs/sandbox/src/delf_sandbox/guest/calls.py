"""Tools as scripts see them: objects whose calls are sent to the host."""

from __future__ import annotations

import abc
import asyncio
import builtins
import itertools
import operator
import sys
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn, Self, cast

from delf_sandbox.guest.loop import GuestLoop
from delf_sandbox.guest.misuse import misuse_message
from delf_sandbox.guest.names import normalized_name
from delf_sandbox.guest.nodes import ASYNC_VARIANT

_ITERATORS = (types.GeneratorType, map, filter, zip, reversed)
# The maximum number of calls that one of a script's tasks may make after the script's end.
_MAX_CALLS_AFTER_END = 100
# The maximum number of nested items of a script's final value that are inspected.
_MAX_INSPECTED = 10_000
SCRIPT_NAME = "<script "
"""The prefix of scripts' file names, as tracebacks show them."""


class ToolError(Exception):
    """A tool call failed; the message has the reason."""

    call_number: int | None = None
    """The number of the failed call; None if the error was raised without a call."""
    status: int | None = None
    """The HTTP status of the failed response, if any."""


class ToolException(ToolError):  # noqa: N818 - the name that tools' authors know
    """A tool refused a call and explained the reason in a message for the script."""


class ToolArgumentError(ToolError):
    """A tool was called with invalid arguments."""


class ToolNotAllowed(ToolError):  # noqa: N818 - reads as what it says
    """The tool does not exist in this task or may not be used."""


class ApprovalRejected(ToolError):  # noqa: N818 - reads as what it says
    """A person rejected this call."""


EXCEPTIONS: dict[str, type[ToolError]] = {
    cls.__name__: cls
    for cls in (ToolError, ToolException, ToolArgumentError, ToolNotAllowed, ApprovalRejected)
}


class ToolMessage(str):
    """The error message of a failed tool call, which the script gets as the call's result.

    Scripts can use the message as text. Indexing by a string, iteration and attribute access raise
    :class:`ToolException` with the message, because the script then expects a real result.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        """Return characters of the message; raise an error if the script expects a record."""
        if isinstance(key, str):
            raise ToolException(str(self))
        return super().__getitem__(key)

    def __iter__(self) -> NoReturn:
        """Raise :class:`ToolException` with this message, because the script expects a list."""
        raise ToolException(str(self))

    def __getattr__(self, name: str) -> NoReturn:
        """Raise :class:`ToolException` with the error message of the failed call.

        A script that reads an attribute such as ``result.id`` expects an object, but got this
        message as the call's result.
        """
        # Python and libraries look up special names, and accept only this error if one is missing.
        if name.startswith("__"):
            raise AttributeError(name)
        raise ToolException(str(self))


_NO_RESULT: Any = object()


class ToolCall(Coroutine[Any, Any, Any]):
    """A tool call that is sent when the script awaits it or uses its result.

    asyncio accepts the object as a coroutine, as in ``create_task``.

    Args:
        loop: The event loop.
        label: The call in short, such as ``mail.send(…)``.
        start: Returns the coroutine that makes the call.
    """

    def __init__(
        self, loop: GuestLoop, label: str, start: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        self._loop = loop
        self._label = label
        self._start = start
        self.__name__ = self.__qualname__ = label.removesuffix("(…)")
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        # The result, which may be None; _NO_RESULT until the call has its result.
        self._result: Any = _NO_RESULT

    def _lazy_coroutine(self) -> Coroutine[Any, Any, Any]:
        """Return the coroutine that makes the call.

        The first use creates the coroutine, and removes the call from the unawaited calls.
        """
        if self._coroutine is None:
            self._coroutine = self._start()
        return self._coroutine

    def send(self, value: Any) -> Any:
        """Continue the coroutine that makes the call; store the result when the coroutine ends."""
        try:
            return self._lazy_coroutine().send(value)
        except StopIteration as stop:
            # A coroutine returns its result in this exception. Raise the exception again, so that
            # the task that awaits this call gets the result, too.
            self._result = stop.value
            raise

    def throw(self, *args: Any) -> Any:
        return self._lazy_coroutine().throw(*args)

    def close(self) -> None:
        """End the call. A call that was not sent yet is never sent, nor reported as unawaited."""
        self._lazy_coroutine().close()

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._result is _NO_RESULT:
            self._result = yield from self._lazy_coroutine().__await__()
        return self._result

    def result(self) -> Any:
        """Block until the call has its result, and return the result."""
        if self._result is _NO_RESULT:
            self._result = self._loop.block(self)
        return self._result

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "cr_", "gi_")):  # asyncio looks up these attributes
            raise AttributeError(name)
        return getattr(self.result(), name)

    def __repr__(self) -> str:
        if self._result is _NO_RESULT:
            return f"<{self._label}, not awaited>"
        return repr(self._result)

    __hash__ = object.__hash__


def _forward_to_result(name: str) -> Callable[..., Any]:
    """Build a special method that waits for the call's result and applies to the result.

    Args:
        name: The name of the special method, such as ``__add__``.
    """
    # For ``__add__``, this is ``operator.__add__``; for ``__len__``, it is the builtin ``len``.
    function = vars(operator).get(name) or getattr(builtins, name.strip("_"))

    def method(self: ToolCall, *args: Any) -> Any:
        values = [item.result() if isinstance(item, ToolCall) else item for item in args]
        return function(self.result(), *values)

    method.__name__ = name
    return method


def _build_reflected_method(name: str) -> Callable[..., Any]:
    """Build a special method such as ``__radd__``, for ``value + call``.

    Args:
        name: The name of the method without reflection, such as ``__add__``.
    """
    function = getattr(operator, name)

    def method(self: ToolCall, left: Any) -> Any:
        # Python calls a reflected method on the right operand.
        return function(left, self.result())

    return method


# Special methods of :class:`ToolCall` that wait for the call's result and apply to the result.
_FORWARDED_METHODS = (
    *("len", "iter", "bool", "str", "format", "int", "float", "round", "abs", "reversed"),
    *("contains", "getitem", "setitem", "delitem", "eq", "ne", "lt", "le", "gt", "ge"),
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "index"),
)
for _name in _FORWARDED_METHODS:
    setattr(ToolCall, f"__{_name}__", _forward_to_result(f"__{_name}__"))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    setattr(ToolCall, f"__r{_name}__", _build_reflected_method(f"__{_name}__"))


class UnawaitedCalls:
    """The call expressions of a script that were not awaited yet, each with its line."""

    def __init__(self) -> None:
        # No key is used twice, not even after clear(): a late call of an earlier script would
        # otherwise remove a call of the running script.
        self._keys = itertools.count()
        # The text of each call, such as ``mail.send(…)``, and the number of its line in the script.
        self._calls: dict[int, tuple[str, int]] = {}

    def add(self, call: str, line: int) -> int:
        """Add a call expression, and return the key with which it can be removed."""
        key = next(self._keys)
        self._calls[key] = (call, line)
        return key

    def remove(self, key: int) -> int:
        """Remove a call expression, and return its line; 0 if the expression is not there."""
        _, line = self._calls.pop(key, ("", 0))
        return line

    def clear(self) -> None:
        """Remove all call expressions."""
        self._calls.clear()

    def texts(self) -> list[str]:
        """Return the call expressions with their lines, each of them once."""
        return [f"{call} on line {line}" for call, line in dict.fromkeys(self._calls.values())]


class Caller:
    """Sends tool calls to the host and passes the answers to the waiting coroutines.

    If nothing else can run in the guest, a call blocks the thread until its answer arrives, which
    saves iterations of the event loop.

    Args:
        send: Sends a frame; the flag says whether to send at once instead of at the end of the
            event loop's iteration.
        receive: Blocks until frames arrive from the host, and dispatches them.
        loop: The event loop.
    """

    def __init__(
        self,
        send: Callable[[list[Any], bool], None],
        receive: Callable[[], None],
        loop: GuestLoop,
    ) -> None:
        self._send = send
        self._receive = receive
        self._loop = loop
        self.unawaited_calls = UnawaitedCalls()

        # -- calls in flight
        # Numbers calls across the session; the recording of a script numbers its calls from 1.
        self._call_count = 0
        self._call_count_of_earlier_scripts = 0
        # The futures of the unanswered calls, by the numbers of the calls.
        self._future_by_call: dict[int, asyncio.Future[Any]] = {}
        # The last call that blocked the thread; 0 if no call has blocked the thread.
        self._number_of_blocking_call = 0
        # The answers that arrived while the loop holds answers back, by call number.
        self._held_answers: dict[int, list[Any]] = {}
        # The future of :meth:`when_idle`, which completes when no call is in flight.
        self._all_calls_answered: asyncio.Future[None] | None = None

        # -- scripts
        # A new object for each script; None between the end of a script and the next script.
        self._running_script: object | None = None
        # The script that started a task: tasks inherit the context of their creator.
        self._script_of_task: ContextVar[object | None] = ContextVar("script_of_task", default=None)
        # Futures that never complete, for the calls of tasks whose script has ended.
        self._unanswerable_calls: set[asyncio.Future[Any]] = set()
        # The number of calls of each task since the script's last line; None before the last line.
        self._calls_after_end: Counter[Any] | None = None

    @property
    def has_open_calls(self) -> bool:
        """True if any call is unanswered."""
        return bool(self._future_by_call)

    def begin_limit_on_tasks(self) -> None:
        """Begin to count the calls of each asyncio task that outlives the script's last line.

        Each task may make ``_MAX_CALLS_AFTER_END`` calls. A further call raises an error.
        """
        self._calls_after_end = Counter()

    def end_limit_on_tasks(self) -> None:
        """Remove the limit that :meth:`begin_limit_on_tasks` set.

        Called after all asyncio tasks of the script have ended.
        """
        self._calls_after_end = None

    def when_idle(self) -> asyncio.Future[None]:
        """Return a future that completes when the last call in flight has ended.

        :meth:`_send_and_wait` completes the future at the end of that call. Use this method only
        while :attr:`has_open_calls` is True: without a call in flight, the future would not
        complete before the script makes another call.
        """
        self._all_calls_answered = self._loop.create_future()
        return self._all_calls_answered

    def begin_script(self) -> None:
        """Reset the state of the previous script as a new script begins."""
        self._running_script = object()
        self._script_of_task.set(self._running_script)
        self.unawaited_calls.clear()
        self._held_answers.clear()
        self._call_count_of_earlier_scripts = self._call_count

    def end_script(self) -> None:
        """Cancel the calls in flight, because the host answers no call of an ended script."""
        for future in self._future_by_call.values():
            future.cancel()

    def close_script(self) -> None:
        """Stop sending calls of the script, because the outcome of the script was sent.

        A task that outlives the script could call tools while the model writes the next script. A
        replay does not wait for the model, so the replay could not repeat these calls.
        """
        # From now on, _is_task_of_ended_script() is True in the script's tasks.
        self._running_script = None

    def call(self, connection: str, method: str, args: Any, kwargs: Any) -> ToolCall:
        """Create a call that is sent when the script awaits it or uses its result.

        Args:
            connection: The name of the connection or plain tool.
            method: The name of the action; empty for a plain tool.
            args: The positional arguments.
            kwargs: The keyword arguments.
        """
        args = [_iterators_to_lists(argument) for argument in args]
        kwargs = {name: _iterators_to_lists(argument) for name, argument in kwargs.items()}
        label = f"{connection}.{method}(…)" if method else f"{connection}(…)"
        unawaited_key = self.unawaited_calls.add(label, running_script_line())

        def start() -> Coroutine[Any, Any, Any]:
            line = self.unawaited_calls.remove(unawaited_key)
            return self._send_and_wait(line, [connection, method, args, kwargs])

        return ToolCall(self._loop, label, start)

    async def _send_and_wait(self, line: int, fields: list[Any]) -> Any:
        """Send a call and wait for its answer.

        The wait blocks the thread if nothing else can run in the guest.
        """
        if self._is_task_of_ended_script():
            await self._wait_until_cancelled()  # raises CancelledError in the end
        # Check before the call is sent, because a refused call must leave no trace on the host.
        self._refuse_too_many_calls_after_end()
        self._call_count += 1
        number = self._call_count
        is_only_call = not self._future_by_call
        blocks_thread = is_only_call and self._loop.waits_only_for_host()
        # Further calls, such as those of ``gather``, are sent together when the iteration ends.
        sends_at_once = is_only_call
        self._send(["call", number, *fields, blocks_thread, line], sends_at_once)
        # Register the call only now, because _send() raises an error for a call that is too large.
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._future_by_call[number] = future
        try:
            if blocks_thread:
                self._receive_answer(number)  # completes the future
            return await future
        finally:
            self._unregister_call(number)
            is_answered = future.done() and not future.cancelled()
            if not is_answered:  # the script stopped waiting, for example because of a timeout
                self._send(["cancel", number], False)

    def _is_task_of_ended_script(self) -> bool:
        script = self._script_of_task.get()
        return script is not None and script is not self._running_script

    def _receive_answer(self, number: int) -> None:
        """Block the thread until the answer to a call has arrived."""
        self._number_of_blocking_call = number
        while not self._future_by_call[number].done():
            self._receive()

    def _unregister_call(self, number: int) -> None:
        """Ignore further answers to a call; if no call is left, complete ``when_idle()``."""
        del self._future_by_call[number]
        all_answered = self._all_calls_answered
        if not self.has_open_calls and all_answered is not None and not all_answered.done():
            all_answered.set_result(None)

    async def _wait_until_cancelled(self) -> None:
        """Wait until the task is cancelled, instead of sending a call of an ended script.

        No exception is raised, because a task that catches every exception would call again and
        again.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unanswerable_calls.add(future)  # without a reference, the task would be destroyed
        try:
            await future
        finally:
            self._unanswerable_calls.discard(future)

    def _refuse_too_many_calls_after_end(self) -> None:
        """Raise :class:`ToolError` if one task has made too many calls after the script's end."""
        task = asyncio.current_task()
        if self._calls_after_end is None or task is None:
            return
        self._calls_after_end[task] += 1
        if self._calls_after_end[task] > _MAX_CALLS_AFTER_END:
            raise ToolError(
                "a task goes on with calls after the script's end: await it, or cancel it"
            )

    def accept_answer(self, frame: list[Any]) -> None:
        """Pass an answer from the host to the waiting call.

        While the event loop holds answers back, the answer is stored. A replay takes the stored
        answer in the iteration in which the answer arrived in the recorded run.
        """
        number = frame[1]
        if number == self._number_of_blocking_call:
            # Nothing else ran while the call blocked the thread, so there is nothing to record.
            self._resolve_call(frame)
            return
        if self._loop.holds_back_answers:
            self._held_answers[number] = frame
            return
        if number not in self._future_by_call:  # the script no longer waits for the answer
            return
        number_in_script = number - self._call_count_of_earlier_scripts
        is_call_of_this_script = number_in_script > 0  # only this script is being recorded
        if is_call_of_this_script:
            # A replay must give this answer in the same iteration of the event loop.
            self._loop.event_log.record(number_in_script)
        self._resolve_call(frame)

    def replay_answers(self, numbers: Sequence[int]) -> None:
        """Resolve the calls that the recorded run answered in this iteration of the event loop.

        Args:
            numbers: The numbers of the answered calls. The first call of the script has number 1,
                whereas the host counts the calls of all scripts of the session.
        """
        for number in numbers:
            number_in_session = number + self._call_count_of_earlier_scripts
            # The recorded run had the answer in this iteration, so wait if it has not arrived yet.
            while self._waits_for_answer(number_in_session):
                self._receive()
            frame = self._held_answers.pop(number_in_session, None)
            if frame is not None:
                self._resolve_call(frame)

    def release_answers(self) -> None:
        """Resolve the calls whose answers were held back and are not part of the recording.

        Call this method only after the loop has stopped holding answers back. Otherwise,
        :meth:`accept_answer` would store the answers again.
        """
        frames = list(self._held_answers.values())
        self._held_answers.clear()
        for frame in frames:
            self.accept_answer(frame)

    def _waits_for_answer(self, number: int) -> bool:
        """Return True if a call waits for its answer, and the host has not sent the answer."""
        future = self._future_by_call.get(number)
        call_waits = future is not None and not future.done()
        return call_waits and number not in self._held_answers

    def _resolve_call(self, frame: list[Any]) -> None:
        """Give an answer to the waiting call; ignore an answer for which no call waits."""
        future = self._future_by_call.get(frame[1])
        if future is None or future.done():
            return
        match frame:
            case ["return", _, value]:
                future.set_result(value)
            case ["message", _, message]:
                future.set_result(ToolMessage(message))
            case ["raise", _, kind, message, *status]:
                error = EXCEPTIONS.get(kind, ToolError)(message)
                error.call_number = frame[1]
                error.status = status[0] if status else None
                future.set_exception(error)
            case _:
                future.set_exception(ToolError("the host's answer cannot be read"))


def _iterators_to_lists(value: Any) -> Any:
    """Return an iterator's items as a list; return any other argument unchanged."""
    if isinstance(value, _ITERATORS):
        return list(cast("Iterable[Any]", value))
    return value


def running_script_line() -> int:
    """Return the number of the script's line that is running; 0 if no script is running.

    The frames of the sandbox's own code, and of libraries that the script called, are skipped.
    """
    frame = sys._getframe()  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_filename.startswith(SCRIPT_NAME):
            return frame.f_lineno
        frame = frame.f_back
    return 0


class _NoValue(abc.ABC):
    """A connection or action, which raises an error if the script uses it as a value.

    Without the error, a script with ``mail.send`` instead of ``mail.send()`` would go on as if the
    call had been made.
    """

    __slots__ = ()

    @abc.abstractmethod
    def __delf_misuse__(self) -> TypeError:
        """Build the error for a script that uses the object as a value.

        The name has underscores, because a tool may have an action named ``misuse``.
        """

    def _refuse(self, *_args: object) -> NoReturn:
        """Raise an error, because the script uses a tool as a value instead of calling the tool."""
        error = self.__delf_misuse__()
        raise error

    def __bool__(self) -> bool:
        """Return True, for ``if handler:`` where a script has a tool or None."""
        return True

    def __copy__(self, _copies: object = None) -> Self:
        """Return the same tool, also for a deep copy of a value with a tool in it."""
        return self

    __deepcopy__ = __copy__
    __str__ = __repr__ = __format__ = _refuse
    __iter__ = __len__ = __contains__ = _refuse
    __getitem__ = __setitem__ = __setattr__ = __delattr__ = _refuse
    __mro_entries__ = _refuse  # for ``class Mail(mail)``

    def __eq__(self, other: object) -> bool:
        """Compare two tools, as in ``tool in [mail.send, mail.read]``.

        Comparing a tool with another value, as in ``mail.send == "sent"``, raises an error.
        """
        if isinstance(other, _NoValue):
            return self is other
        return self._refuse()

    __hash__ = object.__hash__


class ToolNamespace(_NoValue):
    """A connection as scripts see it: every public attribute is an action.

    Calling the object or entering it as a context manager returns the same object, because some
    scripts take the connection for a class.
    """

    _caller: Caller
    _name: str
    _methods: list[str]

    def __init__(self, caller: Caller, name: str, methods: list[str]) -> None:
        # The ``__setattr__`` of this class raises an error for every name.
        vars(self).update(_caller=caller, _name=name, _methods=methods)

    def __delf_misuse__(self) -> TypeError:
        """Build the error for a script that uses the connection as a value."""
        return TypeError(misuse_message(self._name, self._methods))

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(f"{self._name} has: {', '.join(self._methods)}")
        action_name = method
        if method not in self._methods:
            spelling = normalized_name(method)
            similar = [name for name in self._methods if normalized_name(name) == spelling]
            if len(similar) == 1:
                action_name = similar[0]
            # Any other unknown name is kept: the host refuses its calls.
        action = ToolFunction(self._caller, self._name, action_name)
        # The next access to the attribute finds the action without a call of this method.
        vars(self)[method] = action
        return action

    def __call__(self, *args: Any, **kwargs: Any) -> Self:
        """Return this object, because some scripts write ``mail().send(…)``."""
        if args or kwargs:
            self._refuse()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Do nothing."""

    def __dir__(self) -> list[str]:
        return sorted(self._methods)


class ToolFunction(_NoValue):
    """An action of a connection, or a plain tool, as scripts see it.

    Args:
        caller: Sends the calls.
        connection: The name of the connection or plain tool.
        method: The name of the action; empty for a plain tool.
    """

    __slots__ = ("__delf_later__", "__name__", "__qualname__", "_caller", "_connection", "_method")
    _caller: Caller
    _connection: str
    _method: str

    def __init__(self, caller: Caller, connection: str, method: str = "") -> None:
        def create_awaitable_call(*args: Any, **kwargs: Any) -> ToolCall:
            return caller.call(connection, method, args, kwargs)

        name = method or connection
        attributes = {
            "_caller": caller,
            "_connection": connection,
            "_method": method,
            "__name__": name,
            "__qualname__": name,
            # Rewritten scripts call this variant in ``await mail.send(…)``, and in
            # ``tasks = [mail.send(…)]`` if they await the tasks later.
            ASYNC_VARIANT: create_awaitable_call,
        }
        for key, value in attributes.items():
            # The ``__setattr__`` of this class raises an error for every name.
            object.__setattr__(self, key, value)

    @property
    def _label(self) -> str:
        return f"{self._connection}.{self._method}" if self._method else self._connection

    def __delf_misuse__(self) -> TypeError:
        """Build the error for a script that uses the action as a value."""
        return TypeError(misuse_message(self._label, methods=()))

    def __getattr__(self, name: str) -> NoReturn:
        # A script may group the actions as a vendor's library does: ``api.tickets.list()``.
        raise AttributeError(
            f"there is no tool '{self._label}.{name}': call the tools by their names in the task"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._caller.call(self._connection, self._method, args, kwargs).result()


def misuse_in(value: Any) -> TypeError | None:
    """Return an error if a script's final value is or contains a tool, else None."""
    pending_values = [value]
    remaining = _MAX_INSPECTED
    while pending_values and remaining:
        remaining -= 1
        item = pending_values.pop()
        kind = cast("type[Any]", type(item))
        if issubclass(kind, _NoValue):
            return cast("_NoValue", item).__delf_misuse__()
        # A collection may be huge: take only as many members as may still be inspected.
        if kind is dict:
            pending_values += itertools.islice(cast("dict[Any, Any]", item).values(), remaining)
        elif kind in (list, tuple, set, frozenset):
            pending_values += itertools.islice(cast("Iterable[Any]", item), remaining)
    return None
