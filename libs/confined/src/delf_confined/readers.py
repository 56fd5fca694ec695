"""``Readers``: a program's calls in confined children, a few at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from delf.errors import (
    DelfError,
    OptionalDependencyError,
    ToolException,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.machine.forks import reset_in_forks
from delf.notes import note
from delf.records import dataclass
from delf.values.encoding import dumps, loads
from delf.values.sizes import LARGE, has_too_many_values, is_large, run_in_thread
from delf_confined.children import Child, Template
from delf_confined.limits import Limits
from delf_confined.turns import Turn, Turns
from delf_confined.wire import LENGTH, check_length
from delf_confined.words import shorten_message, signal_name

MAX_CHILDREN: Final = 4
"""The maximum number of concurrent child processes of an agent, over all its connections."""
_ERRORS: Final[dict[str, type[DelfError]]] = {
    "ToolException": ToolException,
    "ToolRefusedError": ToolRefusedError,
}


@dataclass(frozen=True)
class _Call:
    """A call of a function in a child; see :meth:`Readers.call` for the fields."""

    function: str
    payload: bytes
    about: str
    readable: Sequence[str]
    limits: Limits
    preload: Sequence[str]


class Readers:
    """Calls functions in child processes that can access little else than their input.

    Each call has a new child, forked from a template process that has imported the function's
    module. The child can read the arguments and files that the call names, and nothing else: no
    further files, no environment variables and no network. The child can write only in the folders
    of :class:`Limits`, by default in none. The child cannot start subprocesses, and ends with the
    call. The answer of a call is plain data.

    Args:
        at_once: The maximum number of concurrent children. All readers of an event loop with the
            same maximum share these children. Further calls wait, in an order that is fair to the
            callers.
    """

    def __init__(self, at_once: int = MAX_CHILDREN) -> None:
        self._at_once = at_once
        self._template = Template()  # the process from which the children are forked
        # A thread forks the children, because forking blocks for milliseconds, and the first time
        # for hundreds of milliseconds.
        self._thread = _make_thread()
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """Make a new thread for forking children, because a forked process has no other threads."""
        self._thread = _make_thread()

    async def call(
        self,
        function: str,
        arguments: dict[str, Any],
        *,
        about: str,
        key: Hashable,
        readable: Sequence[str] = (),
        limits: Limits = Limits(),  # noqa: B008 - frozen
        preload: Sequence[str] = (),
    ) -> Any:
        """Call a function in a child process, and return its result.

        Args:
            function: The name of the function, as ``module:name``; the function may be async.
            arguments: The keyword arguments, as plain data.
            about: A description of the work for messages, such as ``reading a.csv``.
            key: The caller. Each caller gets a fair share of the children.
            readable: The files that the child may read.
            limits: The limits of the call.
            preload: The names of modules to import, and of functions (``module:name``) to call,
                once in the template process.

        Raises:
            ToolRefusedError: If the function raises this error.
            OptionalDependencyError: If the function raises this error.
            ToolException: If the function raises this error.
            ToolExecutionError: If the function raises any other error, or a limit is exceeded.
        """
        if is_large(arguments):
            payload = await run_in_thread(dumps, arguments)
        else:
            payload = dumps(arguments)
        call = _Call(function, payload, about, readable, limits, preload)
        turn = Turn(key)
        turns = Turns.of_loop(self._at_once)
        answer = None
        # A preempted call has no answer. The call is attempted again, because it cannot have
        # changed anything.
        while answer is None:
            async with turns.acquire(turn):
                answer = await self._attempt(turn, call)
        return unpack_answer(await _decode_answer(answer, call), about, limits)

    async def _attempt(self, turn: Turn, call: _Call) -> bytes | None:
        """Run a call in a new child, and return the encoded answer.

        Return None if the call was stopped so that a waiting call can run; the call then has to run
        again.
        """
        child = await self._fork(call)
        exchange = asyncio.create_task(_exchange(child, call.payload, call.limits.answer))
        preemption = turn.preemption_request  # completed when a waiting call needs the permit
        awaited = {exchange} if preemption is None else {exchange, preemption}
        try:
            await asyncio.wait(
                awaited, timeout=call.limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            # Test this before _end() cancels the exchange: a cancelled exchange is done, too.
            is_answered = exchange.done()
            is_preempted = preemption is not None and preemption.done()
        finally:
            exit_status = await self._end(child, exchange)
        if is_answered:
            return await _answer_or_error(exchange, exit_status, call)
        if is_preempted:
            return None
        raise limit_error("seconds", call.about, call.limits)

    async def _end(self, child: Child, exchange: asyncio.Task[bytes]) -> Future[int]:
        """Kill a child; return a future for the exit status."""
        exchange.cancel()
        try:
            # Stop reading before another thread closes the socket.
            await asyncio.gather(exchange, return_exceptions=True)
        finally:  # even if the caller is cancelled, perhaps for the second time
            child.kill()  # at once: the thread may be busy with another child
            exit_status = self._thread.submit(child.end)  # blocks the thread until the end
        return exit_status

    async def _fork(self, call: _Call) -> Child:
        """Fork a child that will run a call's function."""
        forking = self._thread.submit(
            self._template.fork, call.function, call.limits, call.readable, call.preload
        )
        try:
            return await asyncio.shield(asyncio.wrap_future(forking))
        except asyncio.CancelledError:
            # The thread still forks the child, which must then be ended.
            forking.add_done_callback(_end_later)
            raise

    async def aclose(self) -> None:
        """End the template process, from which readers are forked, and all readers.

        The next call starts a new template process.
        """
        await asyncio.wrap_future(self._thread.submit(self._template.close))


def _make_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="delf-confined")


def _end_later(forking: Future[Child]) -> None:
    if forking.exception() is None:
        forking.result().end()


async def _answer_or_error(
    exchange: asyncio.Task[bytes], exit_status: Future[int], call: _Call
) -> bytes:
    """Return the answer of an ended exchange with a child, or raise the error for its failure."""
    try:
        return exchange.result()
    except ValueError:
        raise limit_error("answer", call.about, call.limits) from None
    except (EOFError, OSError):
        status = await asyncio.wrap_future(exit_status)
        raise child_death_error(status, call.about) from None


async def _decode_answer(answer: bytes, call: _Call) -> Any:
    if len(answer) <= LARGE:
        return loads(answer)
    if await run_in_thread(has_too_many_values, answer):
        raise limit_error("answer", call.about, call.limits)
    return await run_in_thread(loads, answer)


async def _exchange(child: Child, payload: bytes, max_bytes: int) -> bytes:
    loop = asyncio.get_running_loop()
    child.wire.setblocking(False)
    await loop.sock_sendall(child.wire, LENGTH.pack(len(payload)))
    await loop.sock_sendall(child.wire, payload)
    (length,) = LENGTH.unpack(await _receive_exactly(child, LENGTH.size))
    check_length(length, max_bytes)
    return await _receive_exactly(child, length)


async def _receive_exactly(child: Child, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    pieces: list[bytes] = []
    while size:
        piece = await loop.sock_recv(child.wire, min(size, 1024 * 1024))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def unpack_answer(answer: dict[str, Any], about: str, limits: Limits) -> Any:
    """Return the value in a child's answer, and add the answer's notes to the current tool call.

    Raises:
        DelfError: If the called function raised a DelfError (``error`` in the answer) or another
            exception (``failed``), or exceeded a limit (``limit``).
    """
    for warning in answer["notes"]:
        note(str(warning))
    if "limit" in answer:
        raise limit_error(str(answer["limit"]), about, limits)
    if "failed" in answer:
        raise ToolExecutionError(f"{about} failed: {shorten_message(str(answer['failed']))}")
    if "error" in answer:
        kind, message, hint, package = answer["error"]
        if package is not None:
            raise OptionalDependencyError(message, package=package, hint=hint)
        raise _ERRORS.get(kind, ToolExecutionError)(message, hint=hint)
    return answer["value"]


def limit_error(limit: str, about: str, limits: Limits) -> ToolExecutionError:
    """Return the error for a call that exceeded the named limit."""
    words = {
        "seconds": f"took longer than {limits.seconds:g} s and was cancelled",
        "memory": f"needs more than {limits.memory // 1_000_000:,} MB of memory",
        "answer": "gives more than fits into one result: read less at once",
        "depth": "is nested too deeply",
    }
    return ToolExecutionError(f"{about} {words[limit]}", hint=limits.hint)


def child_death_error(status: int, about: str) -> ToolExecutionError:
    """Return the error for a child that ended before it answered.

    A negative status is the number of the signal that ended the child.
    """
    if -status == signal.SIGXCPU:
        cause = "it used more processor time than it may"
    elif status < 0:
        cause = f"{signal_name(-status)}; it may have needed too much memory"
    else:
        cause = f"status {status}"
    return ToolExecutionError(f"{about} failed: its process ended ({cause})")
