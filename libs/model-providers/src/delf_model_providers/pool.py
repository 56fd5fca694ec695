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
"""The seconds to connect to a server, part of the request's timeout."""

_MAX_ERROR_BYTES: Final = 100_000
_KEPT: Final = 64
_KEPT_SECONDS: Final = 30.0
_import_lock: Final = threading.Lock()


class Pool:
    """The connections to one endpoint.

    Redirects are not followed, because the key would be sent along. The proxies of the environment
    are used.

    Args:
        is_encrypted: Whether its address is of ``https``; only then certificates are read.
    """

    def __init__(self, *, is_encrypted: bool) -> None:
        self._is_encrypted = is_encrypted
        self._clients: WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Task[httpx.AsyncClient]
        ] = WeakKeyDictionary()

    async def get(self) -> httpx.AsyncClient:
        """Return the client of this event loop. The first caller creates the client in a thread."""
        loop = asyncio.get_running_loop()
        making = self._clients.get(loop)
        if making is None or (making.done() and (making.cancelled() or making.exception())):
            making = shared_task(asyncio.to_thread(self._make))
            self._clients[loop] = making
        return making.result() if making.done() else await asyncio.shield(making)

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

    def _make(self) -> httpx.AsyncClient:
        _import_httpx()
        import httpx

        verify = (
            default_context() if self._is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        limits = httpx.Limits(
            max_connections=None,
            max_keepalive_connections=_KEPT,
            keepalive_expiry=_KEPT_SECONDS,
        )
        return httpx.AsyncClient(
            transport=async_transport(httpx, verify=verify, limits=limits),
            headers={"Accept-Encoding": ACCEPTED},
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        )

    async def aclose(self) -> None:
        """Close this loop's connections. Idempotent; a later call opens new connections."""
        making = self._clients.pop(asyncio.get_running_loop(), None)
        if making is None:
            return
        await asyncio.wait((making,))
        if not making.cancelled() and making.exception() is None:
            await making.result().aclose()


def _import_httpx() -> None:
    """Import httpx and the modules of its first request, without its command line.

    The command line imports rich and its highlighter, a third of the import's time; httpx works
    without it.
    """
    with _import_lock:
        is_unimported = "httpx._main" not in sys.modules
        if is_unimported:
            sys.modules["httpx._main"] = None  # pyright: ignore[reportArgumentType]
        try:
            for name in ("httpx", "httpcore", "anyio._backends._asyncio"):
                importlib.import_module(name)
        finally:
            if is_unimported:
                del sys.modules["httpx._main"]
