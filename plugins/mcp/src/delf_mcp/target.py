"""How a server is reached: as a program of this machine, or by its address."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TextIO, cast

import httpx2
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from delf import __version__
from delf.errors import ConnectionUnavailableError
from delf_mcp.link import first_of, watched
from delf_mcp.oauth import OpenURL, login
from delf_mcp.settings import MCPSettings

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 1.0
_CONNECT_SECONDS: Final = 30.0
_READ_SECONDS: Final = 300.0
_TAIL: Final = 600


class Target:
    """One server.

    Args:
        name: The connection's name.
        settings: How it is reached.
        callbacks: What it may ask.
        learned: Told of each secret that is had.
        open_url: Shows an address to the user.
        others: Told when its tools may have become others.
    """

    def __init__(
        self,
        name: str,
        settings: MCPSettings,
        callbacks: dict[str, Any],
        learned: Callable[[str], None],
        open_url: OpenURL,
        others: Callable[[], None],
    ) -> None:
        self._others = others
        self._name = name
        self._settings = settings
        self._callbacks = callbacks
        self._learned = learned
        self._open_url = open_url

    @asynccontextmanager
    async def open(self, ended: Callable[[], None]) -> AsyncGenerator[Client]:
        """A client of a new server.

        Args:
            ended: Called when the server has gone.
        """
        opened = self._by_address if self._settings.url is not None else self._by_program
        async with opened(ended) as client:
            yield client

    @asynccontextmanager
    async def _by_address(self, ended: Callable[[], None]) -> AsyncGenerator[Client]:
        settings = self._settings
        headers = {key: value.get_secret_value() for key, value in settings.headers.items()}
        auth = login(self._name, settings, self._learned, self._open_url)
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
        async with httpx2.AsyncClient(headers=headers, auth=auth, timeout=timeout) as http:
            transport = streamable_http_client(settings.url or "", http_client=http)
            async with self._client(transport, ended) as client:
                yield client

    @asynccontextmanager
    async def _by_program(self, ended: Callable[[], None]) -> AsyncGenerator[Client]:
        settings = self._settings
        parameters = StdioServerParameters(
            command=settings.command or "",
            args=list(settings.args),
            env={key: value.get_secret_value() for key, value in settings.env.items()},
            cwd=settings.cwd,
        )
        started = False
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
            errors = cast("TextIO", said)
            try:
                async with self._client(stdio_client(parameters, errors), ended) as client:
                    started = True
                    yield client
            except Exception as error:
                if started:
                    raise
                raise ConnectionUnavailableError(
                    f"{self._name}: the MCP server {settings.command!r} does not start: "
                    f"{first_of(error)}{_tail(errors)}",
                    hint="run it by hand to see why",
                ) from None

    @asynccontextmanager
    async def _client(self, transport: Any, ended: Callable[[], None]) -> AsyncGenerator[Client]:
        streams: Any = watched(transport, ended)
        made = Client(
            streams,
            client_info=types.Implementation(name="delf", version=__version__),
            mode=self._settings.protocol,
            message_handler=self._hear,
            **self._callbacks,
        )
        async with made as client:
            self._others()
            listening = asyncio.create_task(self._listen(client))
            try:
                yield client
            finally:
                listening.cancel()
                await asyncio.wait({listening})

    async def _hear(self, message: Any) -> None:
        """Servers before 2026 say by themselves that their tools are others."""
        if isinstance(message, types.ToolListChangedNotification):
            self._others()

    async def _listen(self, client: Client) -> None:
        """Servers of 2026 say it to who listens."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        while True:
            try:
                async with client.listen(tools_list_changed=True) as coming:
                    async for _ in coming:
                        self._others()
                return
            except ListenNotSupportedError:
                return
            except (MCPError, TimeoutError) as error:
                _log.debug("%s: whether its tools change is not known: %s", self._name, error)
                return
            except SubscriptionLost:
                self._others()
            await asyncio.sleep(_AGAIN_SECONDS)


def _tail(said: TextIO) -> str:
    """The end of what a server wrote to its errors."""
    said.seek(0)
    text = " ".join(said.read()[-_TAIL:].split())
    return f"; it wrote: {text}" if text else ""
