"""Connections, kept between calls: one pool for each event loop."""

from __future__ import annotations

import asyncio
import importlib
import ssl
import sys
import threading
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from delf.tls import trusted

if TYPE_CHECKING:
    import httpx

CONNECT_SECONDS: Final = 15.0
"""To reach a server; part of the request's time."""

_KEPT: Final = 64
_KEPT_SECONDS: Final = 30.0
_import_lock: Final = threading.Lock()


class Pool:
    """The connections of one model.

    Redirects are not followed: the key would go along. Proxies are those of the environment.

    Args:
        is_encrypted: Whether its address is of ``https``; only then certificates are read.
    """

    def __init__(self, *, is_encrypted: bool) -> None:
        self._is_encrypted = is_encrypted
        self._clients: WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Task[httpx.AsyncClient]
        ] = WeakKeyDictionary()

    async def get(self) -> httpx.AsyncClient:
        """The client of this event loop. Who comes first has it made, off the loop."""
        loop = asyncio.get_running_loop()
        making = self._clients.get(loop)
        if making is None or (making.done() and (making.cancelled() or making.exception())):
            making = loop.create_task(asyncio.to_thread(self._make))
            self._clients[loop] = making
        return making.result() if making.done() else await asyncio.shield(making)

    def _make(self) -> httpx.AsyncClient:
        _import_httpx()
        import httpx

        verify = trusted() if self._is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.AsyncClient(
            verify=verify,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=_KEPT,
                keepalive_expiry=_KEPT_SECONDS,
            ),
        )

    async def aclose(self) -> None:
        """Close this loop's connections. Safe to call twice; a later call opens new ones."""
        making = self._clients.pop(asyncio.get_running_loop(), None)
        if making is None:
            return
        await asyncio.wait((making,))
        if not making.cancelled() and making.exception() is None:
            await making.result().aclose()


def _import_httpx() -> None:
    """Import httpx and what its first request needs, without its command line.

    That would import rich and its highlighter, a third of the time; httpx does without it where
    it cannot be imported.
    """
    with _import_lock:
        own = "httpx._main" not in sys.modules
        if own:
            sys.modules["httpx._main"] = None  # pyright: ignore[reportArgumentType]
        try:
            for name in ("httpx", "httpcore", "anyio._backends._asyncio"):
                importlib.import_module(name)
        finally:
            if own:
                del sys.modules["httpx._main"]
