"""A server as a program: one message per line on standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from delf_mcp.limits import MAX_MESSAGE, MAX_RUBBISH
from delf_mcp.link import Ending
from delf_mcp.repair import needs_repair, repaired

_END_SECONDS: Final = 2.0
_FLUSH_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.01
_PIECE: Final = 65_536
_TAIL: Final = 4000
_LARGE: Final = 1_000_000
_ENDS: Final = 200
"""The bytes at both ends of an oversized line in which the message id is searched."""
_ID: Final = re.compile(rb'"id" ?: ?([0-9]{1,15}|"[\w.-]{1,80}")')


def _cache_variables() -> dict[str, str]:
    """Return variables that keep Python from loading cached bytecode of an untrusted project."""
    from platformdirs import user_cache_path

    return {"PYTHONPYCACHEPREFIX": str(user_cache_path("delf", appauthor=False) / "pycache")}


@asynccontextmanager
async def running(
    command: str,
    args: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str | None,
    ending: Ending,
) -> AsyncGenerator[tuple[Any, Any]]:
    """Run a program as a server, and end it with all its children.

    Invalid UTF-8 is replaced, and lines that are not messages are skipped, to keep the connection.

    Args:
        command: The program.
        args: The arguments.
        env: Variables in addition to PATH, HOME and similar ones.
        cwd: The working directory.
        ending: Called with the reason of its end, and the tail of its standard error.

    Raises:
        OSError: If the program cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        shutil.which(command) or command,  # on Windows npx is npx.cmd
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**get_default_environment(), **_cache_variables(), **env},
        cwd=cwd,
        limit=MAX_MESSAGE,
        start_new_session=True,  # a process group, to end its children, too
    )
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    reader = asyncio.create_task(_read(process, to_session, ending))
    writer = asyncio.create_task(_write(process, from_session, to_session))
    listener = asyncio.create_task(_keep_stderr_tail(process, ending))
    try:
        yield read, write
    finally:
        with anyio.CancelScope(shield=True):
            read.close()
            write.close()
            await asyncio.wait({writer}, timeout=_FLUSH_SECONDS)
            await _end(process)
            for task in (reader, writer, listener):
                task.cancel()
            await asyncio.wait({reader, writer, listener})
            for stream in (read, write, to_session, from_session):
                stream.close()
            # Remaining children may hold the pipes open.
            getattr(process, "_transport").close()  # noqa: B009


async def _read(process: asyncio.subprocess.Process, to_session: Any, ending: Ending) -> None:
    """Pass the program's messages on, then drain the pipe, so that the program is not blocked."""
    stdout = process.stdout
    assert stdout is not None  # noqa: S101 - it was asked for
    rubbish = 0
    # Leaving the block closes the stream, by which the session learns that the server is gone.
    async with to_session:
        while True:
            try:
                line = await stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial
                if not line:
                    break
            except asyncio.LimitOverrunError:
                ending.say(f"it sent a message of more than {MAX_MESSAGE:,} bytes")
                break
            message = await _message(line)
            if message is None:
                rubbish += bool(line.strip())
                if rubbish > MAX_RUBBISH:
                    ending.say("its output is not the protocol")
                    break
                continue
            rubbish = 0
            try:
                await to_session.send(message)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                break  # the session is over
    while await stdout.read(_PIECE):
        pass


async def _message(line: bytes) -> SessionMessage | None:
    if len(line) > _LARGE:
        return await asyncio.to_thread(_parsed, line)
    return _parsed(line)


def _parsed(line: bytes) -> SessionMessage | None:
    text = line.decode("utf-8", "replace")
    # A repair reads the message once more, so it is tried only where it is known to be needed, or
    # once the library has refused the message.
    for repairs in (True,) if needs_repair(text) else (False, True):
        with suppress(ValueError, RecursionError):
            read = repaired(text) if repairs else text
            message = types.jsonrpc_message_adapter.validate_json(read, by_name=False)
            return SessionMessage(message)
    return _unreadable(line)


def _unreadable(line: bytes) -> SessionMessage | None:
    """Return an error message instead of an unreadable response, to end the wait for it."""
    ends = line[:_ENDS] + b" " + line[-_ENDS:]
    match = _ID.search(ends)
    if match is None or b'"jsonrpc"' not in ends or b'"method"' in ends:
        return None
    error = types.ErrorData(code=types.PARSE_ERROR, message="its answer is not JSON that is read")
    number = json.loads(match[1])
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=number, error=error))


async def _write(process: asyncio.subprocess.Process, from_session: Any, to_session: Any) -> None:
    stdin = process.stdin
    assert stdin is not None  # noqa: S101 - it was asked for
    try:
        async with from_session:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(f"{text}\n".encode())
                await stdin.drain()
    except OSError:
        await to_session.aclose()  # ends the wait for answers


async def _keep_stderr_tail(process: asyncio.subprocess.Process, ending: Ending) -> None:
    """Keep the tail of the program's standard error."""
    stderr = process.stderr
    assert stderr is not None  # noqa: S101 - it was asked for
    tail = b""
    while piece := await stderr.read(_PIECE):
        tail = (tail + piece)[-_TAIL:]
        ending.wrote = tail.decode("utf-8", "replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Wait for the program to end by itself, else kill it with all its children."""
    if process.stdin is not None:
        process.stdin.close()
    if await _has_ended(process):
        return
    _send(process, signal.SIGTERM)
    await _has_ended(process)
    _send(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    await _has_ended(process)


def _send(process: asyncio.subprocess.Process, sign: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, sign)
        else:
            process.send_signal(sign)


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Return True if the program ends in time.

    ``process.wait`` is no alternative: it also waits for children that hold the pipes open.
    """
    deadline = asyncio.get_running_loop().time() + _END_SECONDS
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True
