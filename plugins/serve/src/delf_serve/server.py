"""The server: uvicorn on pre-bound sockets, with connection limits."""

from __future__ import annotations

import asyncio
import gc
import secrets
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from delf.errors import ConfigurationError
from delf_serve.access import to_stderr
from delf_serve.app import Application
from delf_serve.clients import is_loopback
from delf_serve.problems import MEDIA, ProblemError

# The number of new objects that triggers a garbage collection.
_GC_THRESHOLD: Final = 50_000
_SHUTDOWN_SECONDS: Final = 3
_IDLE_SECONDS: Final = 30.0
UNREAD_BODY_SECONDS: Final = 5.0
"""The time in seconds, after a response, for the client to send the rest of its request body."""
# The seconds that a client has to read sent bytes before its connection is closed.
_CLOSE_SECONDS: Final = 5.0
# The maximum number of seconds for which a client may not read its response.
_STALL_SECONDS: Final = 60.0
_HEAD_BYTES: Final = 65_536
# The maximum number of pipelined requests that are queued for one connection.
_MAX_QUEUED: Final = 16
# The number of file descriptors reserved for sandboxes, the journal and files.
_RESERVED_FILES: Final = 256


def check_bind(host: str, *, keyed: bool) -> None:
    """Check that a server without keys listens on loopback only.

    Raises:
        ConfigurationError: If the address is not loopback and no key is required.
    """
    if not keyed and host != "localhost" and not is_loopback(host):
        raise ConfigurationError(
            f"without an API key, the server listens on loopback only, not on {host!r}",
            hint="set DELF_API_KEY, or add people: delf users add NAME",
        )


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol with additional limits for size and time.

    The head of a request is limited in size and time, and so is each pause within a body. uvicorn
    0.54 has no such limits: it takes heads of any size, and waits without end for the rest of a
    head, for the first byte, and for a client that does not read. It also keeps all connections
    open (``limit_concurrency`` only refuses their requests), treats trailers as headers, and
    forgets its own ``timeout_keep_alive`` after an empty line. A proxy such as nginx has most of
    these limits, but the server may also be reached without a proxy.
    """

    max_connections: int
    head_seconds = 10.0

    # -- of the connection ----------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Start the timeout for the first request; abort if there are too many connections."""
        super().connection_made(transport)
        self._is_gone = False
        self._is_reading_head = False
        self._unread_bytes = 0
        # The response that send_400_response() sends. A callback such as on_header() sets a more
        # exact response and raises it, and uvicorn then calls send_400_response().
        self._refusal = ProblemError(400, "the request is not valid HTTP")
        self._timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.max_connections:
            self.abort()
            return
        self._start_timer(self.head_seconds, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers of the connection."""
        self._is_gone = True
        self._cancel_timer()
        self.resume_writing()  # pending sends would otherwise wait forever
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection without waiting for unsent data."""
        self._is_gone = True
        self.transport.abort()

    def pause_writing(self) -> None:
        """Start a timeout for a client that does not read."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(_STALL_SECONDS, self.abort)

    def resume_writing(self) -> None:
        """Cancel the timeout, because the client reads again."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    # -- of requests ----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Process received data, and refuse a request whose head is too large."""
        self._unread_bytes += len(data)
        # The parser calls on_headers_complete(), on_body() and on_message_complete(), which set the
        # counter to 0. An endless head reaches none of these calls.
        super().data_received(data)
        if self._unread_bytes > _HEAD_BYTES and not self.transport.is_closing():
            self._set_size_refusal()
            self.send_400_response("")  # sends the refusal that was just set

    def on_message_begin(self) -> None:
        """Start the timeout for the head of a request."""
        super().on_message_begin()
        self._is_reading_head = True
        self._head_size = 0
        self._start_timer(self.head_seconds, self._handle_late_head)

    def on_url(self, url: bytes) -> None:
        """Process a part of the URL."""
        self._count_head_bytes(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; refuse a request with headers after its body (trailers)."""
        if not self._is_reading_head:
            self._refusal = ProblemError(400, "headers after the body are not supported")
            raise self._refusal
        self._count_head_bytes(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Process the end of a request's head.

        Refuse an upgrade with a body, and a request beyond the limit of queued requests.
        """
        self._is_reading_head = False
        self._unread_bytes = 0
        self._cancel_timer()
        parser: Any = self.parser
        if parser.should_upgrade() and self._has_body():
            self._refusal = ProblemError(400, "a request with a body cannot upgrade its connection")
            raise self._refusal
        if len(self.pipeline) >= _MAX_QUEUED:
            self._refusal = ProblemError(429, "too many requests were sent at once")
            raise self._refusal
        super().on_headers_complete()
        if parser.should_upgrade():  # no upgrade is supported: answer, then close
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Process a part of the body."""
        # The bytes of a body do not count towards the limit in data_received().
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Process the end of a request."""
        self._unread_bytes = 0
        super().on_message_complete()
        # If the response was sent before the body ended, only the next request is due now.
        if self.cycle.response_complete:
            self._start_timer(_IDLE_SECONDS, self._close)

    def on_response_complete(self) -> None:
        """Start the timeout for the client's next step.

        The client has to close the connection, to send the rest of a body, or to send a request.
        """
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_timer(_CLOSE_SECONDS, self.abort)
            return
        # ``cycle`` is the newest request. A client may send several at once (pipelining).
        is_server_busy = not self.cycle.response_complete
        if is_server_busy:  # nothing is due from the client
            return
        if self._is_reading_head:  # on_message_begin() has started the timeout for the head
            return
        if self.cycle.more_body:
            self._start_timer(UNREAD_BODY_SECONDS, self._close)
        else:  # the client may send its next request
            self._start_timer(_IDLE_SECONDS, self._close)

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request, and close the connection.

        Send no refusal while an earlier request waits for its response: the client would take the
        refusal for that response.
        """
        # The newest request whose head is complete.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:  # all earlier requests are answered
            self._write_refusal()
        elif cycle.more_body and not self.pipeline and not cycle.response_started:
            # The application handles the invalid request, whose body has the invalid data, and has
            # sent nothing yet.
            self._write_refusal()
            cycle.disconnected = True  # the application's response is ignored from now on
            cycle.message_event.set()
        self._close()

    def _write_refusal(self) -> None:
        problem = self._refusal
        body = problem.body(secrets.token_hex(8), "")  # an unreadable request has no path
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b"
            % (problem.status, problem.title.encode(), MEDIA.encode(), len(body), body)
        )

    def _has_body(self) -> bool:
        headers = dict(self.headers)
        return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"

    def _handle_late_head(self) -> None:
        """Close the connection, because the head of a request is late.

        While an earlier request is answered, wait and look again.
        """
        if self.flow.read_paused:  # by uvicorn, until the earlier request is answered
            self._start_timer(self.head_seconds, self._handle_late_head)
        else:
            self._close()

    def _count_head_bytes(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _HEAD_BYTES:
            self._set_size_refusal()
            raise self._refusal

    def _set_size_refusal(self) -> None:
        what = "head" if self._is_reading_head else "frame of a piece of the body"
        status = 431 if self._is_reading_head else 400
        self._refusal = ProblemError(status, f"the {what} is larger than {_HEAD_BYTES:,} bytes")

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
        self._start_timer(_CLOSE_SECONDS, self.abort)

    def _start_timer(self, seconds: float, act: Callable[[], None]) -> None:
        self._cancel_timer()
        if not self._is_gone:
            self._timer = self.loop.call_later(seconds, act)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def make_server(
    app: Application, *, announce: Callable[[], None] = lambda: None, log_level: str = "error"
) -> uvicorn.Server:
    """Create the uvicorn server of an application."""
    settings = app.settings
    # uvicorn makes the protocol of each connection, so the options are attributes of a subclass.
    attributes = {
        "head_seconds": settings.header_seconds,
        "max_connections": _max_connections(settings.connections),
    }
    config = uvicorn.Config(
        app,
        http=type("Protocol", (Protocol,), attributes),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level=log_level,
        server_header=False,  # a version would help attackers only
        date_header=False,
        proxy_headers=False,  # the application reads these headers, even when mounted
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=int(_IDLE_SECONDS),
    )
    return _Server(config, app, announce)


def _max_connections(wanted_count: int) -> int:
    """Return how many of the wanted connections the limit of file descriptors allows.

    Args:
        wanted_count: The wanted number of connections.
    """
    try:
        import resource
    except ImportError:  # Windows
        return wanted_count
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return wanted_count
    return max(16, min(wanted_count, soft_limit - _RESERVED_FILES))


def _raise_file_limit(connection_count: int) -> None:
    """Raise this process's limit of file descriptors, as far as the system allows.

    Args:
        connection_count: The wanted number of connections.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connection_count + _RESERVED_FILES
    if hard_limit != resource.RLIM_INFINITY:
        wanted = min(wanted, hard_limit)
    if soft_limit != resource.RLIM_INFINITY and soft_limit < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard_limit))


class _Server(uvicorn.Server):
    """A uvicorn server that ends event streams and waiting requests at shutdown."""

    def __init__(
        self, config: uvicorn.Config, app: Application, announce: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._application = app
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then call ``announce``."""
        await super().startup(sockets)
        if self.started:
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and waiting requests, then shut down."""
        # uvicorn waits until all responses have ended, and a stream does not end by itself.
        self._application.begin_stop()
        await super().shutdown(sockets)


def serve(
    app: Application,
    listeners: Sequence[socket.socket],
    announce: Callable[[], None] = lambda: None,
) -> None:
    """Serve until a signal ends the process.

    Args:
        app: The application.
        listeners: The listening sockets.
        announce: Called once the agent is started and requests are served.

    Raises:
        ConfigurationError: If the server cannot start.
    """
    _raise_file_limit(app.settings.connections)
    server = make_server(app, announce=announce)

    async def main() -> None:
        # Start here, because uvicorn would hide a configuration error of a lifespan event.
        await app.start()
        for listener in listeners:
            check_bind(listener.getsockname()[0], keyed=bool(app.keys))
        with fewer_garbage_collections():
            await server.serve(sockets=[*listeners])

    try:
        with to_stderr(enabled=app.settings.access_log):
            _run_event_loop(main)
    except KeyboardInterrupt:
        return


@contextmanager
def fewer_garbage_collections() -> Generator[None]:
    """Collect garbage less often while the block runs, and exempt all existing objects.

    With Python's defaults, the collector takes a third of a busy server's processor time, because
    it visits the objects of all imported modules and of all waiting tasks again and again.
    """
    previous_thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, *previous_thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*previous_thresholds)


def _run_event_loop(main: Callable[[], Any]) -> None:
    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
