"""HTTP over connections to checked addresses only."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, cast

import httpcore
import httpx

from delf_web.addresses import Guard

_MAX_CONNECTIONS: Final = 100
_IDLE_SECONDS: Final = 10.0


class PinnedNetwork(httpcore.AsyncNetworkBackend):
    """A network backend that connects only to IP addresses that a guard has checked.

    Args:
        guard: Resolves hosts and checks their IP addresses.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first IP address of the host that responds."""
        last_error: Exception | None = None
        for address in await self._guard.addresses(host, port):
            try:
                return await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last_error = error
        raise last_error or httpcore.ConnectError("no address")

    async def sleep(self, seconds: float) -> None:
        """Sleep as the event loop requires; httpcore calls this method between attempts."""
        await self._network.sleep(seconds)


class _Body(httpx.AsyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._response.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._response.aclose()


class PinnedTransport:
    """Sends GET requests to checked IP addresses, without proxies, cookies, logins or redirects.

    Args:
        guard: Resolves hosts and checks their IP addresses.
        timeout: The timeout in seconds of each step: connect, read, write, and wait for the pool.
        tls: The TLS context.
    """

    def __init__(self, guard: Guard, timeout: float, tls: ssl.SSLContext) -> None:
        self._timeouts = dict.fromkeys(("connect", "read", "write", "pool"), timeout)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=_MAX_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=PinnedNetwork(guard),
        )

    async def get(self, url: httpx.URL, headers: dict[str, str]) -> httpx.Response:
        """Send a GET request; the caller reads the body and closes the response.

        Args:
            url: The URL.
            headers: The headers, except ``Host``.

        Raises:
            httpcore.NetworkError: If the server cannot be reached.
        """
        request = httpx.Request("GET", url, headers=headers)
        response = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                extensions={"timeout": cast("Any", self._timeouts)},
            )
        )
        return httpx.Response(
            response.status, headers=response.headers, stream=_Body(response), request=request
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()
