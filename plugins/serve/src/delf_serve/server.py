"""The server: uvicorn, with a time for the head of a request, on sockets that are bound first."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from delf.errors import ConfigurationError
from delf_serve.app import Application

_log = logging.getLogger(__name__)

_BACKLOG: Final = 2048
_SHUTDOWN_SECONDS: Final = 3


def check_bind(host: str, *, keyed: bool) -> None:
    """Refuse to be open to a network without a key.

    Raises:
        ConfigurationError: When the address is beyond loopback, and nobody needs a key.
    """
    if keyed or host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigurationError(
            f"without an API key, the server listens on loopback only, not on {host!r}",
            hint="set DELF_API_KEY, or --keys FILE",
        )


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        ConfigurationError: When it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host}, port {port}: {error.strerror}", hint="another --port?"
        ) from None
    listener.set_inheritable(True)
    return listener


def address_of(listener: socket.socket) -> str:
    """Where a person finds it."""
    name, port = listener.getsockname()[:2]
    host = "localhost" if name in ("0.0.0.0", "::") else str(name)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which ends a connection whose head does not arrive in time."""

    seconds = 10.0

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._head: asyncio.TimerHandle | None = None
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Begin to wait where a further request begins."""
        if self._head is None and getattr(self.cycle, "response_complete", True):
            self._wait()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._head = self.loop.call_later(self.seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _give_up(self) -> None:
        self._head = None
        if not self.transport.is_closing():
            self.transport.close()


def make_server(app: Application, *, log_level: str = "warning") -> uvicorn.Server:
    """A server of an application, to be given a socket that listens."""
    protocol = type("Protocol", (Protocol,), {"seconds": app.settings.header_seconds})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level=log_level,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=65_536,
    )
    return _Server(config, app)


class _Server(uvicorn.Server):
    """Ends the event streams when it is told to end: it would wait for them."""

    def __init__(self, config: uvicorn.Config, app: Application) -> None:
        super().__init__(config)
        self._delf = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        self._delf.streams.stop()
        await super().shutdown(sockets)


def serve(make: Callable[[], Application], listener: socket.socket) -> None:
    """Serve until the process is told to end.

    Args:
        make: Makes the application.
        listener: The socket.

    Raises:
        ConfigurationError: When it cannot be started.
    """
    app = make()
    server = make_server(app)

    async def main() -> None:
        await app.start()  # what is wrong with the configuration is said as such
        await server.serve(sockets=[listener])

    try:
        _runner(main)
    except KeyboardInterrupt:
        return


def _runner(main: Callable[[], Any]) -> None:
    try:
        import uvloop
    except ImportError:  # Windows
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
