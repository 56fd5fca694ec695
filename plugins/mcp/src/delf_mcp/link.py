"""The connection to one server, owned by one asyncio task, with restarts."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self, cast

from mcp import Client

from delf.errors import ConnectionUnavailableError, DelfError
from delf.terminal import visible
from delf_mcp.quiet import quietly

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 30.0
_STABLE_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 10.0

Streams = tuple[Any, Any]


class ServerExit:
    """The end of one run of a server: its cause, and a callback.

    Args:
        on_exit: Called with this object when the server has ended.
    """

    def __init__(self, on_exit: Callable[[ServerExit], None]) -> None:
        self._on_exit = on_exit
        self.cause = ""
        self.stderr_tail = ""
        """The last part of the child process's standard error."""

    def set_cause(self, cause: str) -> None:
        """Set the cause of the end, unless a cause was set before."""
        self.cause = self.cause or cause

    def report(self) -> None:
        """Report that the server has ended."""
        self._on_exit(self)


Open = Callable[[ServerExit], AbstractAsyncContextManager[Client]]
"""A function that starts a server and opens its client.

The function reports the end of the server to its argument.
"""


class Link:
    """A server that is started on first use and restarted after its end.

    An asyncio task of its own keeps the client open, so that the cancellation of a caller does not
    break the connection for other callers.

    Args:
        name: The connection's name, for messages.
        open_client: Starts a server and opens its client.
        start_timeout: The seconds within which a server must start.
    """

    def __init__(self, name: str, open_client: Open, start_timeout: float) -> None:
        self._name = name
        self._open = open_client
        self._start_timeout = start_timeout
        self._start_lock = asyncio.Lock()
        self._client: Client | None = None
        self._client_task: asyncio.Task[None] | None = None
        self._request_count = 0
        self._has_no_request = asyncio.Event()
        self._has_no_request.set()
        self._stop = asyncio.Event()
        self._server_exit = ServerExit(self._on_exit)
        self._failures = 0
        self._start_time = 0.0
        self._earliest_start_time = 0.0

    async def client(self) -> Client:
        """Return the client of the running server, starting the server if necessary.

        Raises:
            ConnectionUnavailableError: If the server cannot be started.
        """
        if self._client is not None:
            return self._client
        async with self._start_lock:
            if self._client is None:
                await self._wait_for_requests()
                await self._stop_client_task()  # left over from an ended server or session
                await self._wait_for_restart()
                self._client = await self._start()
            return self._client

    @contextlib.contextmanager
    def request(self) -> Generator[None]:
        """Count a request of the client in progress while the block runs."""
        self._request_count += 1
        self._has_no_request.clear()
        try:
            yield
        finally:
            self._request_count -= 1
            if self._request_count == 0:
                self._has_no_request.set()

    def end_session(self, client: Client) -> None:
        """Forget a client whose session the server does not know, so that a new one is opened.

        The client is closed when its other requests have ended.
        """
        if self._client is client:
            self._client = None

    async def _wait_for_requests(self) -> None:
        """Wait a few seconds for the answers to the requests in progress."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._has_no_request.wait()

    @property
    def server_exit(self) -> ServerExit:
        """The record of how the most recently started server ended."""
        return self._server_exit

    def _on_exit(self, server_exit: ServerExit) -> None:
        """Forget a server that has ended, so that the next call starts the server again."""
        # A failed start is counted by _start(); the end of an older server is of no interest.
        if self._client is None or server_exit is not self._server_exit:
            return
        self._client = None
        self._stop.set()  # the client of the ended server is still open: let its task close it
        # A server that ran for a minute is restarted with the shortest delay.
        was_stable = time.monotonic() - self._start_time > _STABLE_SECONDS
        self._back_off(1 if was_stable else self._failures + 1)

    async def aclose(self) -> None:
        """Stop the server; the next call starts the server again."""
        async with self._start_lock:
            self._client = None
            await self._stop_client_task()

    def _back_off(self, failures: int) -> None:
        self._failures = failures
        seconds = min(_FIRST_PAUSE_SECONDS * 2 ** (failures - 1), _MAX_PAUSE_SECONDS)
        self._earliest_start_time = time.monotonic() + seconds

    async def _wait_for_restart(self) -> None:
        """Wait until the server may be started again after failures."""
        seconds = self._earliest_start_time - time.monotonic()
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _start(self) -> Client:
        """Start the task that owns the client, and wait for the client.

        A failed start delays the next start.

        Raises:
            ConnectionUnavailableError: If the server does not start in time, or not at all.
        """
        self._stop, self._server_exit = asyncio.Event(), ServerExit(self._on_exit)
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # With an empty context, later callers do not see the context variables of this caller.
        context = contextvars.Context()
        self._client_task = asyncio.get_running_loop().create_task(
            self._run_client(ready, self._stop, self._server_exit),
            name=f"mcp server of {self._name}",
            context=context,
        )
        try:
            async with asyncio.timeout(self._start_timeout):
                client = await asyncio.shield(ready)
        except TimeoutError:
            await self._abandon_start()
            raise ConnectionUnavailableError(
                f"{self._name}: its MCP server did not start within {self._start_timeout:g} s",
                hint="start_timeout in the connection's settings",
            ) from None
        except asyncio.CancelledError:
            await self._abandon_start()
            raise
        except DelfError:
            self._back_off(self._failures + 1)
            raise
        except Exception as error:
            self._back_off(self._failures + 1)
            cause = _first_exception(error)
            if isinstance(cause, DelfError):  # such as a refused login
                raise cause from None
            raise ConnectionUnavailableError(
                f"{self._name}: its MCP server cannot be reached: {first_of(error)}"
            ) from None
        self._start_time = time.monotonic()
        return client

    # The same task enters and leaves the client, because anyio's cancel scopes require it.
    async def _run_client(
        self, ready: asyncio.Future[Client], stop: asyncio.Event, server_exit: ServerExit
    ) -> None:
        """Open a client, and close the client when ``stop`` is set.

        Args:
            ready: The future that gets the client, or the error of the start.
            stop: Set by the caller to close the client.
            server_exit: Gets the report that the client is closed.
        """
        try:
            with quietly():
                async with self._open(server_exit) as client:
                    if not ready.done():
                        ready.set_result(client)
                    await stop.wait()
        except asyncio.CancelledError:
            ready.cancel()
            raise
        except BaseException as error:  # after the start, an error is only logged
            if ready.done():
                _log.debug("%s: its MCP server ended: %s", self._name, first_of(error))
            else:
                ready.set_exception(error)
        finally:
            server_exit.report()

    async def _abandon_start(self) -> None:
        """Cancel a start that is in progress, and count it as failed."""
        self._back_off(self._failures + 1)
        if self._client_task is not None:
            self._client_task.cancel()
            await asyncio.wait({self._client_task}, timeout=_CLOSE_SECONDS)

    async def _stop_client_task(self) -> None:
        """Stop the task that owns the client, which closes the client."""
        client_task, self._client_task = self._client_task, None
        self._stop.set()
        if client_task is None or client_task.done():
            return
        await asyncio.wait({client_task}, timeout=_CLOSE_SECONDS)
        if not client_task.done():
            client_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({client_task}, timeout=_CLOSE_SECONDS)


class WatchedStream:
    """A stream of a server's messages that calls ``server_exit.report()`` at its end.

    Args:
        stream: The stream.
        server_exit: The object to which the end of the stream is reported.
        remove_invalid_items: Called with each message; removes invalid items from a list in place.
    """

    def __init__(
        self, stream: Any, server_exit: ServerExit, remove_invalid_items: Callable[[Any], None]
    ) -> None:
        self._stream = stream
        self._server_exit = server_exit
        self._remove_invalid_items = remove_invalid_items

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the request to which the last message belongs; None if unknown."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message.

        If the stream has ended, report the end to ``server_exit``, and raise the stream's error.
        """
        try:
            message = await self._stream.receive()
        except Exception:  # whatever was raised, the stream has ended
            self._server_exit.report()
            raise
        self._remove_invalid_items(message)
        return message

    async def __anext__(self) -> Any:
        """Return the next message.

        If the stream has ended, report the end to ``server_exit``, and raise the stream's error.
        """
        try:
            message = await self._stream.__anext__()
        except Exception:  # also StopAsyncIteration, at the stream's regular end
            self._server_exit.report()
            raise
        self._remove_invalid_items(message)
        return message

    def __aiter__(self) -> WatchedStream:
        return self

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._stream.__aexit__(*error)

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[Streams],
    server_exit: ServerExit,
    remove_invalid_items: Callable[[Any], None],
) -> AsyncGenerator[Streams]:
    """Open a transport, and wrap its messages in a :class:`WatchedStream`.

    Args:
        transport: The transport.
        server_exit: Gets the report when the server has ended.
        remove_invalid_items: Called with each message; removes invalid items from a list in place.
    """
    async with transport as (read, write):
        yield WatchedStream(read, server_exit, remove_invalid_items), write


def first_of(error: BaseException) -> str:
    """Format an exception as one line; of exception groups, the first exception inside them.

    The text may be a server's, so invisible characters are escaped.
    """
    first = _first_exception(error)
    text = visible(" ".join(str(first).split()))
    if text:
        return f"{type(first).__name__}: {text}"[:300]
    return type(first).__name__


def _first_exception(error: BaseException) -> BaseException:
    """Return the first exception inside of exception groups; any other exception itself."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
