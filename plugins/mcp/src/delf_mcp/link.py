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

_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0
_STEADY_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 10.0

Streams = tuple[Any, Any]


class Ending:
    """The end of one server, and its cause if known.

    Args:
        over: Called when the server has ended.
    """

    def __init__(self, over: Callable[[Ending], None]) -> None:
        self._over = over
        self.why = ""
        self.wrote = ""
        """The tail of its standard error."""

    def say(self, why: str) -> None:
        """Record the cause of the end; the first one counts."""
        self.why = self.why or why

    def over(self) -> None:
        """Record that the server has ended."""
        self._over(self)


Open = Callable[[Ending], AbstractAsyncContextManager[Client]]
"""A function that makes the client of a new server and reports the server's end."""


class Link:
    """A server that is started on first use and restarted after its end.

    All contexts of a client are entered and left in one asyncio task, so that cancelling a caller
    does not break the connection for others.

    Args:
        name: The connection's name, for messages.
        open_client: Makes the client for a new server.
        start_timeout: Seconds for the start.
    """

    def __init__(self, name: str, open_client: Open, start_timeout: float) -> None:
        self._name = name
        self._open = open_client
        self._start_timeout = start_timeout
        self._turn = asyncio.Lock()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._ending = Ending(self._on_end)
        self._failures = 0
        self._started = 0.0
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
                # First let the owner task of a dead server leave its contexts.
                await self._end()
                await self._pause()
                self._client = await self._start()
            return self._client

    @property
    def ending(self) -> Ending:
        """The end of the last server."""
        return self._ending

    def _on_end(self, ending: Ending) -> None:
        """Forget a dead server: the next call starts another one."""
        # Ignore a failed start, which _start() counts, and the end of an older server.
        if self._client is None or ending is not self._ending:
            return
        self._client = None
        self._stop.set()
        # Back off while servers die early; restart a server that ran for long without delay.
        ran_long = time.monotonic() - self._started > _STEADY_SECONDS
        self._back_off(1 if ran_long else self._failures + 1)

    async def aclose(self) -> None:
        """Stop the server; the next call starts it again."""
        async with self._turn:
            self._client = None
            await self._end()

    def _back_off(self, failures: int) -> None:
        self._failures = failures
        wait = min(_FIRST_PAUSE * 2 ** (failures - 1), _LONGEST_PAUSE)
        self._not_before = time.monotonic() + wait

    async def _pause(self) -> None:
        """Wait until the server may be started again."""
        wait = self._not_before - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)

    async def _start(self) -> Client:
        self._stop, self._ending = asyncio.Event(), Ending(self._on_end)
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # An empty context, because later callers must not inherit the first caller's.
        context = contextvars.Context()
        self._owner = asyncio.get_running_loop().create_task(
            self._run_client(ready, self._stop, self._ending),
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
        self._started = time.monotonic()
        return client

    # The same task enters and leaves the client, because anyio's cancel scopes require it.
    async def _run_client(
        self, ready: asyncio.Future[Client], stop: asyncio.Event, ending: Ending
    ) -> None:
        """Keep a client open until ``stop``; set the client or a failure on ``ready``."""
        try:
            with quietly():
                async with self._open(ending) as client:
                    if not ready.done():
                        ready.set_result(client)
                    await stop.wait()
        except asyncio.CancelledError:
            ready.cancel()
            raise
        except BaseException as error:  # a failure to end is ignored
            if ready.done():
                _log.debug("%s: its MCP server ended: %s", self._name, first_of(error))
            else:
                ready.set_exception(error)
        finally:
            ending.over()

    async def _disconnect(self) -> None:
        self._back_off(self._failures + 1)
        if self._owner is not None:
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=_CLOSE_SECONDS)

    async def _end(self) -> None:
        """End the owner task, which closes its contexts."""
        owner, self._owner = self._owner, None
        self._stop.set()
        if owner is None or owner.done():
            return
        _, unfinished = await asyncio.wait({owner}, timeout=_CLOSE_SECONDS)
        for task in unfinished:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task}, timeout=_CLOSE_SECONDS)


class WatchedStream:
    """The messages of a server, with detection of its end.

    Args:
        stream: The stream.
        ending: Called with the end.
        sieve: Called with each message, and may remove parts of it.
    """

    def __init__(self, stream: Any, ending: Ending, sieve: Callable[[Any], None]) -> None:
        self._stream = stream
        self._ending = ending
        self._sieve = sieve

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the last message's sender, if the transport knows it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        try:
            message = await self._stream.receive()
        except Exception:  # the stream is over in any case
            self._ending.over()
            raise
        self._sieve(message)
        return message

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
        except (StopAsyncIteration, Exception):
            self._ending.over()
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
    transport: AbstractAsyncContextManager[Streams], ending: Ending, sieve: Callable[[Any], None]
) -> AsyncGenerator[Streams]:
    """Wrap a transport to detect its end and check its messages."""
    async with transport as (read, write):
        yield WatchedStream(read, ending, sieve), write


def first_of(error: BaseException) -> str:
    """Format the first exception inside exception groups as one line."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
