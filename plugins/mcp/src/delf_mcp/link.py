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

import anyio
import mcp_types as types
from mcp import Client, MCPError

from delf.errors import ConnectionUnavailableError, DelfError
from delf.terminal import visible
from delf_mcp.quiet import quietly

_log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 30.0
_STABLE_SECONDS: Final = 60.0
_OUTPUT_TAIL_BYTES: Final = 4000
_MAX_OUTPUT_CHARACTERS: Final = 600
CLOSE_SECONDS: Final = 10.0
"""The maximum time to wait for the end of a server, in seconds."""

Streams = tuple[Any, Any]


class ServerRun:
    """A run of a server, with its client, its requests in progress, and the cause of its end.

    Args:
        on_exit: Called with this object when the server has ended.
    """

    def __init__(self, on_exit: Callable[[ServerRun], None]) -> None:
        self._on_exit = on_exit
        self.exit_cause = ""
        """The cause of the server's end, as far as it is known."""
        self._output_tail = b""
        # The task that opens the client, keeps the client open, and closes it after _close is set.
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._close = asyncio.Event()
        self._request_count = 0  # of requests in progress
        self._is_retired = False  # new requests use another run
        self._ignores_cancellation = False

    def set_exit_cause(self, cause: str) -> None:
        """Set the cause of the server's end, unless a cause was set before."""
        self.exit_cause = self.exit_cause or cause

    def add_output(self, data: bytes) -> None:
        """Keep the end of the text that the server's program writes besides messages."""
        self._output_tail = (self._output_tail + data)[-_OUTPUT_TAIL_BYTES:]

    @property
    def output_note(self) -> str:
        """The kept output, such as ``; it wrote: …``, to append to an error message; else ""."""
        text = " ".join(self._output_tail.decode("utf-8", "replace").split())
        return f"; it wrote: {visible(text[-_MAX_OUTPUT_CHARACTERS:])}" if text else ""

    def report_exit(self) -> None:
        """Report that the server has ended."""
        self._on_exit(self)

    @property
    def client(self) -> Client:
        """The client of the server, which has started."""
        if self._client is None:
            raise RuntimeError("the server has not started")
        return self._client

    async def start(self, name: str, open_client: Open) -> None:
        """Start a task that owns the client, and wait until the client is open.

        Args:
            name: The name of the connection, for the task and the log.
            open_client: Starts the server and opens its client.
        """
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(
            self._own_client(name, open_client, ready),
            name=f"mcp server of {name}",
            # With an empty context, later callers do not see the variables of this caller.
            context=contextvars.Context(),
        )
        self._client = await ready

    # The same task enters and leaves the client, because anyio's cancel scopes require it.
    async def _own_client(
        self, name: str, open_client: Open, ready: asyncio.Future[Client]
    ) -> None:
        """Open the client, and close the client when requested.

        Args:
            name: The name of the connection, for the log.
            open_client: As for :meth:`start`.
            ready: The future that gets the client, or the error of the start.
        """
        try:
            with quietly():
                async with open_client(self) as client:
                    if not ready.done():  # the caller of start() may have been cancelled
                        ready.set_result(client)
                    await self._close.wait()
        except asyncio.CancelledError:
            ready.cancel()
            raise
        except BaseException as error:  # after the start, an error is only logged
            if ready.done():
                _log.debug("%s: its MCP server ended: %s", name, first_error_text(error))
            else:
                ready.set_exception(error)
        finally:
            self.report_exit()

    async def cancel_start(self) -> None:
        """Cancel a start that is in progress, and wait a limited time for its end."""
        if self._task is not None:
            self._task.cancel()
            _, unfinished = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
            self._ignores_cancellation = bool(unfinished)

    @contextlib.contextmanager
    def request(self) -> Generator[None]:
        """Count a request of the client as in progress while the block runs."""
        self._request_count += 1
        try:
            yield
        finally:
            self._request_count -= 1
            self._close_if_retired_and_unused()

    def retire(self) -> None:
        """Close the client as soon as none of its requests is in progress."""
        self._is_retired = True
        self._close_if_retired_and_unused()

    def _close_if_retired_and_unused(self) -> None:
        if self._is_retired and self._request_count == 0:
            self.close_soon()

    def close_soon(self) -> None:
        """Ask the task that owns the client to close the client."""
        self._close.set()

    async def stop(self) -> None:
        """Close the client, and wait until the client is closed."""
        self._close.set()
        # A start that has ignored its cancellation would ignore the next one, too.
        if self._task is None or self._task.done() or self._ignores_cancellation:
            return
        await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)

    @property
    def is_closed(self) -> bool:
        """True if the client is closed, or was never opened."""
        return self._task is None or self._task.done()


Open = Callable[[ServerRun], AbstractAsyncContextManager[Client]]
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
        self._run: ServerRun | None = None
        # A run whose server has ended, and whose client may still be open.
        self._ended_run: ServerRun | None = None
        # Runs whose sessions the server has ended, and that may still have requests in progress.
        self._retired_runs: list[ServerRun] = []
        # The number of failures in a row, and the monotonic times of the last start, and before
        # which the server is not started again.
        self._failures = 0
        self._start_time = 0.0
        self._earliest_start_time = 0.0

    async def run(self) -> ServerRun:
        """Return the run of the server, starting the server if necessary.

        Raises:
            ConnectionUnavailableError: If the server cannot be started.
        """
        if self._run is not None:
            return self._run
        async with self._start_lock:
            if self._run is None:
                await self._stop_ended_run()
                await self._wait_for_restart()
                self._run = await self._start()
            return self._run

    def end_session(self, run: ServerRun) -> None:
        """Retire a run whose session the server has ended; the next request starts a new run.

        The retired run goes on until its other requests have ended.
        """
        if run is not self._run:
            return  # another request has noticed before
        self._run = None
        self._retired_runs = [each for each in self._retired_runs if not each.is_closed]
        self._retired_runs.append(run)
        run.retire()

    def _on_exit(self, run: ServerRun) -> None:
        """Forget a server that has ended, so that the next call starts the server again."""
        # A failed start is counted by _start(); the end of an older server is of no interest.
        if run is not self._run:
            return
        self._run, self._ended_run = None, run
        run.close_soon()
        # After a stable run, only the end of this run counts as a failure: the next start has the
        # shortest delay.
        was_stable = time.monotonic() - self._start_time > _STABLE_SECONDS
        if was_stable:
            self._failures = 0
        self._count_failure()

    async def aclose(self) -> None:
        """Stop the server; the next call starts the server again."""
        async with self._start_lock:
            # Forget the runs before they are stopped, so that _on_exit() does not count the end of
            # the server as a failure.
            run, self._run = self._run, None
            retired_runs, self._retired_runs = self._retired_runs, []
            await self._stop_ended_run()
            for each in (run, *retired_runs):
                if each is not None:
                    await each.stop()

    async def _stop_ended_run(self) -> None:
        run, self._ended_run = self._ended_run, None
        if run is not None:
            await run.stop()

    def _count_failure(self) -> None:
        """Count a failure, and delay the next start: twice as long after each further failure."""
        # The exponent is limited, because a float cannot be larger than 2 ** 1024.
        doublings = min(self._failures, 60)
        self._failures += 1
        seconds = min(_FIRST_PAUSE_SECONDS * 2**doublings, _MAX_PAUSE_SECONDS)
        self._earliest_start_time = time.monotonic() + seconds

    async def _wait_for_restart(self) -> None:
        """Wait until the server may be started again after failures."""
        seconds = self._earliest_start_time - time.monotonic()
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _start(self) -> ServerRun:
        """Start the server. A failed start delays the next start.

        Raises:
            ConnectionUnavailableError: If the server does not start in time, or not at all.
        """
        run = ServerRun(self._on_exit)
        try:
            async with asyncio.timeout(self._start_timeout):
                await run.start(self._name, self._open)
        except TimeoutError:
            await self._cancel_and_count_failure(run)
            raise ConnectionUnavailableError(
                f"{self._name}: its MCP server did not start within {self._start_timeout:g} s"
                f"{run.output_note}",
                hint="if it is only slow, raise start_timeout in the connection's settings",
            ) from None
        except asyncio.CancelledError:
            await self._cancel_and_count_failure(run)
            raise
        except Exception as error:
            self._count_failure()
            # anyio puts errors into exception groups.
            cause = _first_exception(error)
            if isinstance(cause, DelfError):  # such as a refused login
                raise cause from None
            raise ConnectionUnavailableError(
                f"{self._name}: its MCP server cannot be reached: {first_error_text(error)}"
            ) from None
        self._start_time = time.monotonic()
        return run

    async def _cancel_and_count_failure(self, run: ServerRun) -> None:
        """Cancel a start that is in progress, and count it as failed."""
        self._count_failure()
        self._ended_run = run  # the next start or aclose() waits until the server has ended
        await run.cancel_start()


class WatchedStream:
    """A stream of a server's messages that reports its end to a run of the server.

    Args:
        stream: The stream.
        run: The run of the server.
        remove_invalid_items: Called with each message; removes invalid items from a list in place.
    """

    def __init__(
        self, stream: Any, run: ServerRun, remove_invalid_items: Callable[[Any], None]
    ) -> None:
        self._stream = stream
        self._run = run
        self._remove_invalid_items = remove_invalid_items

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the request to which the last message belongs; None if unknown."""
        return getattr(self._stream, "last_context", None)

    async def __anext__(self) -> Any:
        """Return the next message; if the stream has ended, report the end and raise the error."""
        try:
            message = await self._stream.__anext__()
        except Exception:  # also StopAsyncIteration, at the stream's regular end
            self._run.report_exit()
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


@asynccontextmanager
async def watched(
    transport: AbstractAsyncContextManager[Streams],
    run: ServerRun,
    remove_invalid_items: Callable[[Any], None],
) -> AsyncGenerator[Streams]:
    """Open a transport, and wrap its messages in a :class:`WatchedStream`.

    Args:
        transport: The transport.
        run: The run of the server, which records the end of the messages.
        remove_invalid_items: Called with each message; removes invalid items from a list in place.
    """
    async with transport as (read, write):
        yield WatchedStream(read, run, remove_invalid_items), write


def first_error_text(error: BaseException) -> str:
    """Format an exception as one line; for an exception group, the first exception in the group.

    The text may be a server's, so invisible characters are escaped.
    """
    first = _first_exception(error)
    text = visible(" ".join(str(first).split()))
    if text:
        return f"{type(first).__name__}: {text}"[:300]
    return type(first).__name__


def is_connection_loss(error: BaseException) -> bool:
    """Return True if an error means that the connection to the server was closed.

    False for an error that the server returned.
    """
    first = _first_exception(error)
    if isinstance(first, MCPError):
        return first.code == types.CONNECTION_CLOSED
    return isinstance(first, (anyio.ClosedResourceError, anyio.BrokenResourceError))


def _first_exception(error: BaseException) -> BaseException:
    """Return the first exception in an exception group, also nested; other exceptions unchanged."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
