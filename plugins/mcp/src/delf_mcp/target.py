"""The transport to a server: a local program or a URL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from delf import __version__
from delf.errors import ConnectionUnavailableError
from delf.network.proxies import async_transport
from delf.settings import reveal_secrets
from delf.terminal import visible
from delf_mcp.limits import MAX_MESSAGE, bounded
from delf_mcp.link import Ending, first_of, watched
from delf_mcp.listing import Sieve
from delf_mcp.oauth import OpenURL, login
from delf_mcp.program import running
from delf_mcp.settings import MCPSettings

_log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 1.0
_CONNECT_SECONDS: Final = 30.0
_READ_SECONDS: Final = 300.0
_TAIL: Final = 600


class Target:
    """A server and how to reach it.

    Args:
        name: The connection's name.
        settings: The settings of the transport.
        callbacks: The client's callbacks for questions of the server.
        add_secret: Called with each received secret.
        open_url: Shows an address to the user.
        on_tools_changed: Called when the server's tools may have changed.
        sieve: Removes invalid items from lists.
    """

    def __init__(
        self,
        name: str,
        settings: MCPSettings,
        callbacks: dict[str, Any],
        add_secret: Callable[[str], None],
        open_url: OpenURL,
        on_tools_changed: Callable[[], None],
        sieve: Sieve,
    ) -> None:
        self._on_tools_changed = on_tools_changed
        self._sieve = sieve
        self._name = name
        self._settings = settings
        self._callbacks = callbacks
        self._add_secret = add_secret
        self._open_url = open_url

    @asynccontextmanager
    async def open(self, ending: Ending) -> AsyncGenerator[Client]:
        """Yield a client of a new server."""
        opened = self._by_address if self._settings.url is not None else self._by_program
        async with opened(ending) as client:
            yield client

    @asynccontextmanager
    async def _by_address(self, ending: Ending) -> AsyncGenerator[Client]:
        settings = self._settings
        # Ask for uncompressed answers, because compressed ones could expand without limit.
        headers = {"accept-encoding": "identity", **reveal_secrets(settings.headers)}
        made = login(self._name, settings, self._add_secret, self._open_url)
        auth, check = (None, None) if made is None else made
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
        hooks: dict[str, list[Any]] = {"response": [bounded]}
        if check is not None:
            hooks["request"] = [check]
        async with httpx2.AsyncClient(
            transport=async_transport(httpx2),
            headers=headers,
            auth=auth,
            timeout=timeout,
            event_hooks=hooks,
        ) as http:
            transport = streamable_http_client(
                settings.url or "", http_client=http, max_sse_event_size=MAX_MESSAGE
            )
            async with self._client(transport, ending) as client:
                yield client

    @asynccontextmanager
    async def _by_program(self, ending: Ending) -> AsyncGenerator[Client]:
        settings = self._settings
        command = settings.command or ""
        transport = running(
            command, settings.args, reveal_secrets(settings.env), settings.cwd, ending
        )
        started = False
        try:
            async with self._client(transport, ending) as client:
                started = True
                yield client
        except Exception as error:
            if started:
                raise
            wrote = visible(" ".join(ending.wrote.split())[-_TAIL:])
            raise ConnectionUnavailableError(
                f"{self._name}: the MCP server {command!r} does not start: "
                f"{ending.why or first_of(error)}{f'; it wrote: {wrote}' if wrote else ''}",
                hint="run it by hand to see why",
            ) from None

    @asynccontextmanager
    async def _client(self, transport: Any, ending: Ending) -> AsyncGenerator[Client]:
        self._sieve.version = None
        streams: Any = watched(transport, ending, self._sieve)
        new_client = Client(
            streams,
            client_info=types.Implementation(name="delf", version=__version__),
            mode=self._settings.protocol,
            message_handler=self._on_message,
            **self._callbacks,
        )
        async with new_client as client:
            self._sieve.version = client.protocol_version
            # The library's patterns could block the event loop forever.
            client.session.validate_tool_result = _skip_validation
            self._on_tools_changed()
            watcher = asyncio.create_task(self._watch_tools(client))
            try:
                yield client
            finally:
                watcher.cancel()
                await asyncio.wait({watcher})

    async def _on_message(self, message: Any) -> None:
        """Handle notifications of changed tools, as servers before 2026 send them."""
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()

    async def _watch_tools(self, client: Client) -> None:
        """Subscribe to changes of tools, as servers from 2026 on require."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._on_tools_changed()
                return
            except ListenNotSupportedError:
                return
            except (MCPError, TimeoutError) as error:
                _log.debug("%s: whether its tools change is not known: %s", self._name, error)
                return
            except SubscriptionLost:
                self._on_tools_changed()
            await asyncio.sleep(_AGAIN_SECONDS)


async def _skip_validation(name: str, result: types.CallToolResult) -> None:
    """Skip the library's validation of a result."""
