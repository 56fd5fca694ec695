"""Connections, kept between calls: one pool for each event loop."""

from __future__ import annotations

import asyncio
import importlib
import json
import ssl
import sys
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from delf.machine.contexts import shared_task
from delf.network.bodies import ACCEPTED
from delf.network.proxies import async_transport
from delf.network.tls import default_context
from delf_model_providers.http import RefusedError, read

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS: Final = 15.0
"""The maximum seconds to connect to a server; the request's timeout includes them."""

_MAX_ERROR_BYTES: Final = 100_000
_MAX_IDLE_CONNECTIONS: Final = 64
_IDLE_SECONDS: Final = 30.0
_import_lock: Final = threading.Lock()


def _has_failed(task: asyncio.Task[Any]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None


class Pool:
    """The HTTP connections to one endpoint, with a client for each event loop.

    Redirects are not followed, because the key would be sent along. The proxies of the environment
    are used.

    Args:
        is_encrypted: Whether the address is ``https``; only then CA certificates are loaded.
    """

    def __init__(self, *, is_encrypted: bool) -> None:
        self._is_encrypted = is_encrypted
        self._clients: WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Task[httpx.AsyncClient]
        ] = WeakKeyDictionary()

    async def get(self) -> httpx.AsyncClient:
        """Return the HTTP client of the running event loop; the first call creates the client."""
        loop = asyncio.get_running_loop()
        client_task = self._clients.get(loop)
        if client_task is None or _has_failed(client_task):
            client_task = shared_task(asyncio.to_thread(self._create_client))
            self._clients[loop] = client_task
        if client_task.done():
            return client_task.result()
        return await asyncio.shield(client_task)

    @asynccontextmanager
    async def posted(
        self, address: str, headers: Mapping[str, str], body: Any
    ) -> AsyncGenerator[httpx.Response]:
        """Post a request, and yield the response with its body still unread.

        Args:
            address: The URL.
            headers: The headers.
            body: The JSON body.

        Raises:
            RefusedError: If the status is not 200.
        """
        client = await self.get()
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        request = client.build_request(
            "POST", address, content=content.encode("utf-8", "replace"), headers=headers
        )
        response = await client.send(request, stream=True)
        try:
            if response.status_code != 200:
                refusal = await read(response, _MAX_ERROR_BYTES, truncate=True)
                raise RefusedError(response.status_code, response.headers, refusal)
            yield response
        finally:
            await response.aclose()

    def _create_client(self) -> httpx.AsyncClient:
        _import_httpx()  # first, because a plain import would also import httpx's command line
        import httpx

        # An unencrypted endpoint needs no certificates, and loading them takes time.
        if self._is_encrypted:
            verify = default_context()
        else:
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        limits = httpx.Limits(
            max_connections=None,
            max_keepalive_connections=_MAX_IDLE_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
        )
        return httpx.AsyncClient(
            transport=async_transport(httpx, verify=verify, limits=limits),
            headers={"Accept-Encoding": ACCEPTED},
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        )

    async def aclose(self) -> None:
        """Close the running loop's connections. Idempotent; later requests open new connections."""
        client_task = self._clients.pop(asyncio.get_running_loop(), None)
        if client_task is None:
            return
        await asyncio.wait((client_task,))
        if not client_task.cancelled() and client_task.exception() is None:
            await client_task.result().aclose()


def _import_httpx() -> None:
    """Import httpx, and the modules that its first request needs, without ``httpx._main``.

    ``httpx._main`` is httpx's command line. It imports rich and a highlighter, which take a third
    of the import's time; httpx works without its command line.
    """
    with _import_lock:
        must_block = "httpx._main" not in sys.modules
        if must_block:
            sys.modules["httpx._main"] = None  # pyright: ignore[reportArgumentType]
        try:
            for name in ("httpx", "httpcore", "anyio._backends._asyncio"):
                importlib.import_module(name)
        finally:
            if must_block:
                del sys.modules["httpx._main"]
