"""The connection to one server, owned by one asyncio task, with restarts."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, Self, cast

from mcp import Client

from delf.errors import ConnectionUnavailableError, DelfError
from delf_mcp.quiet import quietly

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 30.0
_STABLE_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 10.0

Streams = tuple[Any, Any]


class ServerEnd:
    """The end of one run of a server: who is informed, and the cause.

    Args:
        on_end: Called with this object when the server has ended.
    """

    def __init__(self, on_end: Callable[[ServerEnd], None]) -> None:
        self._on_end = on_end
        self.cause = ""
        self.stderr_tail = ""
        """The last part of the child process's standard error."""

    def set_cause(self, cause: str) -> None:
        """Set the cause of the end, unless a cause was set before."""
        self.cause = self.cause or cause

    def report(self) -> None:
        """Report that the server has ended."""
        self._on_end(self)


Open = Callable[[ServerEnd], AbstractAsyncContextManager[Client]]
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
        self._turn = asyncio.Lock()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._server_end = ServerEnd(self._on_end)
        self._failures = 0
        self._start_time = 0.0
        self._not_before = 0.0

    async def client(self) -> Client:
        """Return the client of the running server, starting the server if necessary.

        Raises:
            ConnectionUnavailableError: If the server cannot be started.
        """
        if self._client is not None:
            return self._client
        async with self._turn:
            if self._client is None:
                await self._stop_owner()  # the task of the server that has ended
                await self._wait_for_restart()
                self._client = await self._start()
            return self._client

    @property
    def server_end(self) -> ServerEnd:
        """The record of how the server process that was started last ended."""
        return self._server_end

    def _on_end(self, server_end: ServerEnd) -> None:
        """Forget a server that has ended, so that the next call starts the server again."""
        # A failed start is counted by _start(); the end of an older server is of no interest.
        if self._client is None or server_end is not self._server_end:
            return
        self._client = None
        self._stop.set()
        # A server that ran for a minute is restarted with the shortest delay.
        was_stable = time.monotonic() - self._start_time > _STABLE_SECONDS
        self._back_off(1 if was_stable else self._failures + 1)

    async def aclose(self) -> None:
        """Stop the server; the next call starts the server again."""
        async with self._turn:
            self._client = None
            await self._stop_owner()

    def _back_off(self, failures: int) -> None:
        self._failures = failures
        seconds = min(_FIRST_PAUSE_SECONDS * 2 ** (failures - 1), _MAX_PAUSE_SECONDS)
        self._not_before = time.monotonic() + seconds

    async def _wait_for_restart(self) -> None:
        """Wait until the server may be started again after failures."""
        seconds = self._not_before - time.monotonic()
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _start(self) -> Client:
        self._stop, self._server_end = asyncio.Event(), ServerEnd(self._on_end)
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # With an empty context, later callers do not see the context variables of this caller.
        context = contextvars.Context()
        self._owner = asyncio.get_running_loop().create_task(
            self._run_client(ready, self._stop, self._server_end),
            name=f"mcp server of {self._name}",
            context=context,
        )
        try:
            async with asyncio.timeout(self._start_timeout):
                client = await asyncio.shield(ready)
        except TimeoutError:
            await self._disconnect()
            raise ConnectionUnavailableError(
                f"{self._name}: its MCP server did not start within {self._start_timeout:g} s",
                hint="start_timeout in the connection's settings",
            ) from None
        except asyncio.CancelledError:
            await self._disconnect()
            raise
        except DelfError:
            self._back_off(self._failures + 1)
            raise
        except Exception as error:
            self._back_off(self._failures + 1)
            raise ConnectionUnavailableError(
                f"{self._name}: its MCP server cannot be reached: {first_of(error)}"
            ) from None
        self._start_time = time.monotonic()
        return client

    # The same task enters and leaves the client, because anyio's cancel scopes require it.
    async def _run_client(
        self, ready: asyncio.Future[Client], stop: asyncio.Event, server_end: ServerEnd
    ) -> None:
        """Open a client, and close the client when ``stop`` is set.

        Args:
            ready: The future that gets the client, or the error of the start.
            stop: Set by the caller to close the client.
            server_end: Gets the report that the client is closed.
        """
        try:
            with quietly():
                async with self._open(server_end) as client:
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
            server_end.report()

    async def _disconnect(self) -> None:
        self._back_off(self._failures + 1)
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=_CLOSE_SECONDS)

    async def _stop_owner(self) -> None:
        """Stop the task that owns the client, which closes the client."""
        owner, self._owner = self._owner, None
        self._stop.set()
        if owner is None or owner.done():
            return
        await asyncio.wait({owner}, timeout=_CLOSE_SECONDS)
        if not owner.done():
            owner.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({owner}, timeout=_CLOSE_SECONDS)


class WatchedStream:
    """A stream of a server's messages that reports the end of the server.

    Args:
        stream: The stream.
        server_end: Gets the report when the stream has ended.
        sieve: Called with each message, and may remove parts of the message.
    """

    def __init__(self, stream: Any, server_end: ServerEnd, sieve: Callable[[Any], None]) -> None:
        self._stream = stream
        self._server_end = server_end
        self._sieve = sieve

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the request to which the last message belongs; None if unknown."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        try:
            message = await self._stream.receive()
        except Exception:  # whatever was raised, the stream has ended
            self._server_end.report()
            raise
        self._sieve(message)
        return message

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
        except (StopAsyncIteration, Exception):
            self._server_end.report()
            raise
        self._sieve(message)
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
    server_end: ServerEnd,
    sieve: Callable[[Any], None],
) -> AsyncGenerator[Streams]:
    """Open a transport, and wrap its incoming messages in a :class:`WatchedStream`.

    Args:
        transport: The transport.
        server_end: The record of how the server ended; ``report`` is called when the stream ends.
        sieve: Called with each message from the server, and may remove parts of the message.
    """
    async with transport as (read, write):
        yield WatchedStream(read, server_end, sieve), write


def first_of(error: BaseException) -> str:
    """Format an exception as one line; of exception groups, the first exception inside them."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
