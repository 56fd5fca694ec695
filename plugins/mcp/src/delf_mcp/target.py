"""The transport to a server: a local program or a URL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from delf import __version__
from delf.environment import beside
from delf.errors import ConnectionUnavailableError
from delf.network.proxies import async_transport
from delf.settings import reveal_secrets
from delf_mcp.limits import MAX_MESSAGE_BYTES, limit_response_size
from delf_mcp.link import ServerRun, first_error_text, is_connection_loss, watched
from delf_mcp.listing import InvalidItemFilter, Omitted
from delf_mcp.oauth import OpenURL, login
from delf_mcp.program import running
from delf_mcp.settings import MCPSettings

_log = logging.getLogger(__name__)

_RESUBSCRIBE_SECONDS: Final = 1.0
_CONNECT_SECONDS: Final = 30.0
_READ_SECONDS: Final = 300.0


class Target:
    """A server, and the transport that reaches the server: a program or a URL.

    Args:
        name: The connection's name.
        settings: The settings of the connection.
        callbacks: The callbacks of the MCP client for questions of the server.
        add_secret: Called with each received secret, to redact the secret from now on.
        open_url: Shows a URL to the user.
        on_tools_changed: Called when the server's tools may have changed.
        omitted: Gets the invalid items that are removed from the server's lists.
    """

    def __init__(
        self,
        name: str,
        settings: MCPSettings,
        callbacks: dict[str, Any],
        add_secret: Callable[[str], None],
        open_url: OpenURL,
        on_tools_changed: Callable[[], None],
        omitted: Omitted,
    ) -> None:
        self._on_tools_changed = on_tools_changed
        self._omitted = omitted
        self._name = name
        self._settings = settings
        cwd = settings.cwd
        self._working_folder = None if cwd is None else beside(Path(), cwd)
        self._callbacks = callbacks
        self._add_secret = add_secret
        self._open_url = open_url

    @asynccontextmanager
    async def open(self, run: ServerRun) -> AsyncGenerator[Client]:
        """Start or reach the server, and yield a client.

        Args:
            run: The run of the server, which records when and why the server has ended.
        """
        open_client = self._open_url_client if self._settings.url else self._open_program_client
        async with open_client(run) as client:
            yield client

    @asynccontextmanager
    async def _open_url_client(self, run: ServerRun) -> AsyncGenerator[Client]:
        """Yield a client that is connected to the server's address."""
        settings = self._settings
        # Ask for uncompressed responses, because compressed responses could expand without limit.
        headers = {"accept-encoding": "identity", **reveal_secrets(settings.headers)}
        timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
        hooks: dict[str, list[Any]] = {"response": [limit_response_size]}
        auth: httpx2.Auth | None = None
        oauth_login = login(self._name, settings, self._add_secret, self._open_url)
        if oauth_login is not None:
            # The hook raises if a request with credentials would go to another server.
            auth, raise_if_wrong_server = oauth_login
            hooks["request"] = [raise_if_wrong_server]
        async with httpx2.AsyncClient(
            transport=async_transport(httpx2),
            headers=headers,
            auth=auth,
            timeout=timeout,
            event_hooks=hooks,
        ) as http:
            transport = streamable_http_client(
                settings.url or "", http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
            )
            async with self._client(transport, run) as client:
                yield client

    @asynccontextmanager
    async def _open_program_client(self, run: ServerRun) -> AsyncGenerator[Client]:
        """Start the server's program, and yield a client that is connected to the program.

        Raises:
            ConnectionUnavailableError: If the program does not start, or does not answer as a
                server.
        """
        settings = self._settings
        command = settings.command or ""
        env = reveal_secrets(settings.env)
        transport = running(command, settings.args, env, self._working_folder, run)
        has_started = False
        try:
            async with self._client(transport, run) as client:
                has_started = True
                yield client
        except Exception as error:
            if has_started:
                raise
            cause = first_error_text(error)
            # The program's end is the cause only if the connection was lost. After another error,
            # such as a refusal by the server, the program's end is a consequence.
            if run.exit_cause and is_connection_loss(error):
                cause = run.exit_cause
            raise ConnectionUnavailableError(
                f"{self._name}: the MCP server {command!r} does not start: {cause}"
                f"{run.output_note}",
                hint="run it by hand to see why; besides PATH and HOME, it gets only the variables "
                "for certificates and proxies, and those of `env`",
            ) from None

    @asynccontextmanager
    async def _client(self, transport: Any, run: ServerRun) -> AsyncGenerator[Client]:
        """Yield a client for a transport, and report changes of the tools until the end."""
        # The validity of items depends on the version that this client negotiates.
        item_filter = InvalidItemFilter(self._settings.max_tools, self._omitted)
        streams: Any = watched(transport, run, item_filter.remove_invalid_items)
        new_client = Client(
            streams,
            client_info=types.Implementation(name="delf", version=__version__),
            mode=self._settings.protocol,
            message_handler=self._on_message,
            **self._callbacks,
        )
        async with new_client as client:
            item_filter.version = client.protocol_version
            # A pattern in the server's schema could make the library's check run forever.
            client.session.validate_tool_result = _skip_validation
            self._on_tools_changed()  # a restarted server may be another version
            watcher = asyncio.create_task(self._watch_tools(client))
            try:
                yield client
            finally:
                watcher.cancel()
                await asyncio.wait({watcher})

    async def _on_message(self, message: Any) -> None:
        """Handle a notification of changed tools, which servers send in protocols before 2026."""
        if isinstance(message, types.ToolListChangedNotification):
            self._on_tools_changed()

    async def _watch_tools(self, client: Client) -> None:
        """Watch for changed tools; protocols from 2026 on require a subscription."""
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
            except SubscriptionLost:  # changes may have been missed
                self._on_tools_changed()
            await asyncio.sleep(_RESUBSCRIBE_SECONDS)


async def _skip_validation(name: str, result: types.CallToolResult) -> None:
    """Accept any result; replaces the client library's validation."""
