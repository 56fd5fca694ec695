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

from delf.machine.folders import user_folder
from delf_mcp.limits import LARGE_MESSAGE_BYTES, MAX_INVALID_LINES, MAX_MESSAGE_BYTES
from delf_mcp.link import ServerRun
from delf_mcp.repair import needs_repair, repaired

_END_SECONDS: Final = 2.0
_FLUSH_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.01
_READ_BYTES: Final = 65_536
_ID_SEARCH_BYTES: Final = 200
_NETWORK_VARIABLES: Final = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
)
_ID: Final = re.compile(rb'"id" ?: ?([0-9]{1,15}|"[\w.-]{1,80}")')


def _cache_variables() -> dict[str, str]:
    """Return environment variables that make Python ignore bytecode files in the project."""
    return {"PYTHONPYCACHEPREFIX": str(user_folder("cache") / "pycache")}


def _network_variables() -> dict[str, str]:
    """Return the environment variables that name certificates and proxies.

    Behind a company's proxy, ``uvx`` and ``npx`` cannot load a server without these variables.
    """
    return {name: value for name, value in os.environ.items() if name.upper() in _NETWORK_VARIABLES}


@asynccontextmanager
async def running(
    command: str,
    args: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str | None,
    run: ServerRun,
) -> AsyncGenerator[tuple[Any, Any]]:
    """Run a program as a server; at the end, stop the program and all its child processes.

    Invalid UTF-8 is replaced, and lines that are not messages are skipped.

    Args:
        command: The program.
        args: The arguments.
        env: Environment variables in addition to PATH, HOME and similar variables, and to those
            that name certificates and proxies.
        cwd: The working directory.
        run: Gets the cause when the server ends, and what the program writes besides messages.

    Yields:
        The streams of messages from and to the server.

    Raises:
        OSError: If the program cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        shutil.which(command) or command,  # on Windows npx is npx.cmd
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**get_default_environment(), **_network_variables(), **_cache_variables(), **env},
        cwd=cwd,
        limit=MAX_MESSAGE_BYTES,
        start_new_session=True,  # a process group, to stop child processes, too
    )
    # Messages from the server: the task ``reader`` sends them to the session.
    to_session, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    # Messages to the server: the task ``writer`` takes them from the session.
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    reader = asyncio.create_task(_read_messages(process, to_session, run))
    writer = asyncio.create_task(_write_messages(process, from_session, to_session))
    stderr_reader = asyncio.create_task(_read_stderr(process, run))
    try:
        yield incoming, outgoing
    finally:
        with anyio.CancelScope(shield=True):
            # The closed streams end the writer, once it has written its last message, such as the
            # cancellation of a call.
            incoming.close()
            outgoing.close()
            await asyncio.wait({writer}, timeout=_FLUSH_SECONDS)
            await _stop(process)
            # A child process of the program may still hold the pipes, and so never end the readers.
            for task in (reader, writer, stderr_reader):
                task.cancel()
            await asyncio.wait({reader, writer, stderr_reader})
            # Close the pipes that such a child process keeps open; asyncio has no public method.
            getattr(process, "_transport").close()  # noqa: B009


async def _read_messages(
    process: asyncio.subprocess.Process, to_session: Any, run: ServerRun
) -> None:
    """Send the program's messages to the session until the output ends or is faulty.

    Lines that are not messages are skipped, unless there are too many in a row. After a fault, the
    rest of the output is read and dropped, so that the program does not block.
    """
    stdout = process.stdout
    assert stdout is not None  # noqa: S101 - it is a pipe
    consecutive_invalid_lines = 0
    # The closed stream shows the session that the server has ended.
    async with to_session:
        while True:
            try:
                line = await stdout.readline()
            except ValueError:
                run.set_exit_cause(f"it sent a message of more than {MAX_MESSAGE_BYTES:,} bytes")
                break
            if not line:
                run.set_exit_cause("it closed its output")
                break
            message = await _parse_in_time(line)
            if message is not None:
                consecutive_invalid_lines = 0
                try:
                    await to_session.send(message)
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    break  # the session is over
            elif line.strip():  # blank lines do not count
                run.add_output(line)
                consecutive_invalid_lines += 1
                if consecutive_invalid_lines > MAX_INVALID_LINES:
                    run.set_exit_cause("its output is not the protocol")
                    break
    while await stdout.read(_READ_BYTES):
        pass


async def _parse_in_time(line: bytes) -> SessionMessage | None:
    """Parse a line; a large line in a thread, so that the event loop does not block."""
    if len(line) > LARGE_MESSAGE_BYTES:
        return await asyncio.to_thread(_parse, line)
    return _parse(line)


def _parse(line: bytes) -> SessionMessage | None:
    """Parse a line as a message; for an unreadable response, return an error in its place.

    Return None for a line that is not a message, such as a line of a log.
    """
    text = line.decode("utf-8", "replace")
    try:
        if needs_repair(text):  # most lines need no repair, and a repair is slow
            text = repaired(text)
        message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except (ValueError, RecursionError):
        return _error_response(line)
    return SessionMessage(message)


def _error_response(line: bytes) -> SessionMessage | None:
    """Return an error with the id of an unreadable response, which ends the wait for the response.

    Return None if the line has no id near its ends, or is no response.
    """
    ends = line[:_ID_SEARCH_BYTES] + b" " + line[-_ID_SEARCH_BYTES:]
    match = _ID.search(ends)
    if match is None or b'"jsonrpc"' not in ends or b'"method"' in ends:
        return None
    error = types.ErrorData(code=types.PARSE_ERROR, message="its response is not readable JSON")
    message_id = json.loads(match[1])
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=message_id, error=error))


async def _write_messages(
    process: asyncio.subprocess.Process, from_session: Any, to_session: Any
) -> None:
    """Write the session's messages to the program, until the session or the program ends."""
    stdin = process.stdin
    assert stdin is not None  # noqa: S101 - it is a pipe
    try:
        async with from_session:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(f"{text}\n".encode())
                await stdin.drain()
    except OSError:
        await to_session.aclose()  # ends the wait for responses


async def _read_stderr(process: asyncio.subprocess.Process, run: ServerRun) -> None:
    """Read the program's standard error into ``run``."""
    stderr = process.stderr
    assert stderr is not None  # noqa: S101 - it is a pipe
    while piece := await stderr.read(_READ_BYTES):
        run.add_output(piece)


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop the program: close its input; after a timeout, kill the program and its children."""
    if process.stdin is not None:
        process.stdin.close()
    if await _ends_in_time(process):
        return
    _send_signal(process, signal.SIGTERM)
    await _ends_in_time(process)
    # Send SIGKILL even if the program has ended now, because its child processes may still run.
    _send_signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    await _ends_in_time(process)


def _send_signal(process: asyncio.subprocess.Process, number: int) -> None:
    """Send a signal to the program and its child processes; on Windows, to the program only."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


async def _ends_in_time(process: asyncio.subprocess.Process) -> bool:
    """Wait up to two seconds for the end of the program; return True if the program has ended.

    ``process.wait`` would also wait for child processes that keep the pipes open.
    """
    deadline = asyncio.get_running_loop().time() + _END_SECONDS
    while process.returncode is None:
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(_POLL_SECONDS)
    return True
