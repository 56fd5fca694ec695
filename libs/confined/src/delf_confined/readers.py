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
from delf.notes import note
from delf.values.encoding import dumps, loads
from delf.values.sizes import LARGE, has_too_many_values, is_large, run_in_thread
from delf_confined.children import Child, Template
from delf_confined.limits import Limits
from delf_confined.turns import Turn, Turns
from delf_confined.wire import LENGTH, check
from delf_confined.words import shorten_message

AT_ONCE: Final = 4
"""The most concurrent children of one agent, over all its connections."""
_ERRORS: Final[dict[str, type[DelfError]]] = {
    "ToolException": ToolException,
    "ToolRefusedError": ToolRefusedError,
}


class Readers:
    """Calls functions in children that can read their input and write nothing.

    Each call has a fresh child, forked from a process that has imported its module. The child has
    no environment and no other file, no network and no subprocesses, and ends with the call. The
    answer of a call is plain data.

    Args:
        at_once: The maximum number of concurrent children, shared by all readers of an event loop
            with the same number; further calls wait in fair order.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._template = Template()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="delf-confined")
        """The thread for forking, which takes milliseconds, and some hundred the first time."""

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
        """Call a function in a child.

        Args:
            function: The function as ``module:name``; may be async.
            arguments: The keyword arguments, as plain data.
            about: The work, for messages, such as ``reading a.csv``.
            key: The caller; calls of one key share a fair part of the children.
            readable: Files that the child may read.
            limits: The limits of the call.
            preload: Modules to import, or functions (``module:name``) to call, once for all calls,
                before any untrusted data.

        Raises:
            ToolExecutionError: If the function raises, or a limit is exceeded.
            ToolRefusedError: If the function raises it.
            OptionalDependencyError: If the function raises it.
        """
        payload = await run_in_thread(dumps, arguments) if is_large(arguments) else dumps(arguments)
        turn, turns = Turn(key), Turns.of_loop(self._at_once)
        while True:
            async with turns.acquire(turn):
                answer = await self._once(turn, function, payload, about, readable, limits, preload)
            # Restart a preempted child; the first attempt cannot have changed anything.
            if answer is not None:
                break
        many = len(answer) > LARGE
        if many and await run_in_thread(has_too_many_values, answer):
            raise limit_error("answer", about, limits)
        return result_of(
            await run_in_thread(loads, answer) if many else loads(answer), about, limits
        )

    async def _once(
        self,
        turn: Turn,
        function: str,
        payload: bytes,
        about: str,
        readable: Sequence[str],
        limits: Limits,
        preload: Sequence[str],
    ) -> bytes | None:
        """Run a call in a child; return its result, or None if it was preempted by another call."""
        forking = self._thread.submit(self._template.fork, function, limits, readable, preload)
        try:
            child = await asyncio.shield(asyncio.wrap_future(forking))
        except asyncio.CancelledError:
            # The thread still forks the child, which must then be ended.
            forking.add_done_callback(_end_later)
            raise
        loop = asyncio.get_running_loop()
        asking = loop.create_task(_exchange(child, payload, limits.answer))
        waits: set[asyncio.Future[Any]] = {asking}
        preempted = turn.preempted
        if preempted is not None:
            waits.add(preempted)
        try:
            await asyncio.wait(waits, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            is_answered = asking.done()
            is_preempted = preempted is not None and preempted.done()
        finally:
            asking.cancel()
            # Stop reading before another thread closes the socket.
            await asyncio.gather(asking, return_exceptions=True)
            child.kill()
            stopped_child = self._thread.submit(child.end)
        if not is_answered:
            if is_preempted:
                return None
            raise limit_error("seconds", about, limits)
        try:
            return asking.result()
        except ValueError:
            raise limit_error("answer", about, limits) from None
        except (EOFError, OSError):
            status = await asyncio.wrap_future(stopped_child)
            raise child_death_error(status, about) from None

    async def aclose(self) -> None:
        """End the template and all children. The next call starts the processes again."""
        await asyncio.wrap_future(self._thread.submit(self._template.close))


def _end_later(forking: Future[Child]) -> None:
    if forking.exception() is None:
        forking.result().end()


async def _exchange(child: Child, payload: bytes, max_bytes: int) -> bytes:
    loop = asyncio.get_running_loop()
    child.wire.setblocking(False)
    await loop.sock_sendall(child.wire, LENGTH.pack(len(payload)))
    await loop.sock_sendall(child.wire, payload)
    (length,) = LENGTH.unpack(await _exactly(child, LENGTH.size))
    check(length, max_bytes)
    return await _exactly(child, length)


async def _exactly(child: Child, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    pieces: list[bytes] = []
    while size:
        piece = await loop.sock_recv(child.wire, min(size, 1024 * 1024))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def result_of(answer: dict[str, Any], about: str, limits: Limits) -> Any:
    """Return the value of an answer, adding its notes to this call.

    Raises:
        DelfError: If the function raised this error.
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
    """Return the error for a call that exceeded a limit."""
    words = {
        "seconds": f"took longer than {limits.seconds:g} s and was cancelled",
        "memory": f"needs more than {limits.memory // 1_000_000:,} MB of memory",
        "answer": "gives more than fits into one result: read less at once",
        "depth": "is nested too deeply",
    }
    return ToolExecutionError(f"{about} {words[limit]}", hint=limits.hint)


def child_death_error(status: int, about: str) -> ToolExecutionError:
    """Make the error for a child that died before it answered."""
    if -status == signal.SIGXCPU:
        cause = "it used more processor time than it may"
    elif status < 0:
        cause = f"{signal.Signals(-status).name}; it may have needed too much memory"
    else:
        cause = f"status {status}"
    return ToolExecutionError(f"{about}: the process that did it ended ({cause})")
