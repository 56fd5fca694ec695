"""Tools as scripts see them: names whose calls travel to the host."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, NoReturn

from delf_sandbox.guest.loop import GuestLoop

SCRIPT_NAME = "<script "
"""How the file names of scripts begin, as tracebacks show them."""


class ToolError(Exception):
    """A tool call failed; the message says why."""


class ToolException(ToolError):  # noqa: N818 - the name that tools' authors know
    """A tool said no, with a message for the script."""


class ToolArgumentError(ToolError):
    """A tool was called with arguments that do not fit."""


class ToolNotAllowed(ToolError):  # noqa: N818 - reads as what it says
    """A tool does not exist here or may not be used."""


class ApprovalRejected(ToolError):  # noqa: N818 - reads as what it says
    """A person said no to this call."""


EXCEPTIONS: dict[str, type[ToolError]] = {
    cls.__name__: cls
    for cls in (ToolError, ToolException, ToolArgumentError, ToolNotAllowed, ApprovalRejected)
}


class ToolMessage(str):
    """A tool's error message, returned in place of a result.

    It is text; a script that takes it for a record or a list gets the message as an error.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> str:
        if isinstance(key, str):
            raise ToolException(str(self))
        return super().__getitem__(key)

    def __iter__(self) -> NoReturn:
        raise ToolException(str(self))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ToolException(str(self))


class ToolCall(Coroutine[Any, Any, Any]):
    """A call that was written and, once awaited, is made.

    A true coroutine for asyncio. Used as if it were the result, it says that ``await`` is
    missing.
    """

    def __init__(
        self, caller: Caller, number: int, connection: str, method: str, args: Any, kwargs: Any
    ) -> None:
        self._caller = caller
        self._number = number
        self._connection = connection
        self._method = method
        self._args = args
        self._kwargs = kwargs
        self._inner: Coroutine[Any, Any, Any] | None = None

    def _begin(self) -> Coroutine[Any, Any, Any]:
        if self._inner is None:
            self._inner = self._caller.make(
                self._number, self._connection, self._method, self._args, self._kwargs
            )
        return self._inner

    def send(self, value: Any) -> Any:
        return self._begin().send(value)

    def throw(self, *args: Any) -> Any:
        return self._begin().throw(*args)

    def close(self) -> None:
        self._begin().close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._begin().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or name in ("cr_frame", "cr_code", "cr_running", "cr_await"):
            raise AttributeError(name)
        self._missing_await()

    def __getitem__(self, key: Any) -> NoReturn:
        self._missing_await()

    def __iter__(self) -> NoReturn:
        self._missing_await()

    def _missing_await(self) -> NoReturn:
        label = _label(self._connection, self._method)
        raise TypeError(f"{label} must be awaited: write `await {label}`")

    def __repr__(self) -> str:
        return f"<{_label(self._connection, self._method)}, not awaited>"


def _label(connection: str, method: str) -> str:
    return f"{connection}.{method}(…)" if method else f"{connection}(…)"


class Caller:
    """Makes calls and gives their answers to the coroutines that wait for them.

    While nothing else can happen in the guest, a call blocks until its answer is there: that
    spares the turns of the event loop which would only wait for it.

    Args:
        send: Passes a frame on, at once if told so.
        receive: Waits for frames of the host and takes them.
        loop: Where it works.
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
        self._before = 0
        self._last = 0
        self._blocked = 0
        self._arrived: dict[int, list[Any]] = {}
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._unawaited: dict[int, tuple[str, int]] = {}

    def forget(self) -> None:
        """A new script begins; what an earlier one did not await is not its concern."""
        self._unawaited.clear()
        self._arrived.clear()
        self._before = self._last

    def note_unawaited(self, call: str, line: int) -> None:
        """Something was written as a call on a line and never made."""
        self._unawaited[-line] = (call, line)

    def unawaited(self) -> list[str]:
        """The calls that were written and never made."""
        return [f"{call} on line {line}" for call, line in self._unawaited.values()]

    def call(self, connection: str, method: str, args: Any, kwargs: Any, depth: int) -> ToolCall:
        """A call to be awaited."""
        number = self._last = next(self._numbers)
        self._unawaited[number] = (_label(connection, method), _line_of_script(depth + 1))
        return ToolCall(self, number, connection, method, args, kwargs)

    def make(
        self, number: int, connection: str, method: str, args: Any, kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """The coroutine that makes a call."""
        _, line = self._unawaited.pop(number, ("", 0))
        return self._make(number, line, ["call", number, connection, method, list(args), kwargs])

    async def _make(self, number: int, line: int, frame: list[Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        alone = not self._waiting
        only = alone and self._loop.only_waits()
        self._send([*frame, only, line], alone)
        self._waiting[number] = future
        try:
            if only:
                self._blocked = number
                while not future.done():
                    self._receive()
            return await future
        except BaseException:
            if not future.done() or future.cancelled():
                self._send(["cancel", number], False)
            raise
        finally:
            del self._waiting[number]

    def cut(self, error: BaseException) -> None:
        """Let all calls that wait for an answer raise something."""
        self._loop.stop_repeating()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    def answer(self, frame: list[Any]) -> None:
        """Take an answer from the host, now or in its turn."""
        number = frame[1]
        if number == self._blocked:
            self._hand_over(frame)
        elif self._loop.repeats:
            self._arrived[number] = frame
        elif number in self._waiting:
            self._loop.note(number - self._before)
            self._hand_over(frame)

    def deliver(self, numbers: Sequence[int]) -> None:
        """Hand over answers once they are there, in the turn in which the script got them.

        Args:
            numbers: The calls, counted from the script's first.
        """
        for number in numbers:
            wanted = number + self._before
            while wanted in self._waiting and wanted not in self._arrived and self._is_told(wanted):
                self._receive()
            frame = self._arrived.pop(wanted, None)
            if frame is not None:
                self._hand_over(frame)
        if not self._loop.repeats:  # any more: take what came meanwhile
            rest, self._arrived = self._arrived, {}
            for frame in rest.values():
                self.answer(frame)

    def _is_told(self, number: int) -> bool:
        return not self._waiting[number].done()

    def _hand_over(self, frame: list[Any]) -> None:
        """Give an answer to who waits for it; one that nobody waits for is dropped."""
        future = self._waiting.get(frame[1])
        if future is None or future.done():
            return
        match frame:
            case ["return", _, value]:
                future.set_result(value)
            case ["told", _, message]:
                future.set_result(ToolMessage(message))
            case ["raise", _, kind, message]:
                future.set_exception(EXCEPTIONS.get(kind, ToolError)(message))
            case _:
                future.set_exception(ToolError("the host's answer cannot be read"))


def _line_of_script(depth: int) -> int:
    """The line of the script that runs, past the library code that it called; 0 for none."""
    frame = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_filename.startswith(SCRIPT_NAME):
            return frame.f_lineno
        frame = frame.f_back
    return 0


class ToolNamespace:
    """A connection as a script sees it: every public attribute is a method to call."""

    def __init__(self, caller: Caller, name: str, methods: list[str]) -> None:
        self._caller = caller
        self._name = name
        self._methods = methods

    def __getattr__(self, method: str) -> Callable[..., ToolCall]:
        if method.startswith("_"):
            raise AttributeError(f"{self._name} has: {', '.join(self._methods)}")
        caller, name = self._caller, self._name

        def call(*args: Any, **kwargs: Any) -> ToolCall:
            return caller.call(name, method, args, kwargs, 2)

        call.__name__ = method
        self.__dict__[method] = call
        return call

    def __dir__(self) -> list[str]:
        return sorted(self._methods)

    def __repr__(self) -> str:
        return f"<{self._name}: {', '.join(self._methods)}>"


def tool_function(caller: Caller, name: str) -> Callable[..., ToolCall]:
    """A tool that is called by its own name."""

    def call(*args: Any, **kwargs: Any) -> ToolCall:
        return caller.call(name, "", args, kwargs, 2)

    call.__name__ = name
    call.__qualname__ = name
    return call
