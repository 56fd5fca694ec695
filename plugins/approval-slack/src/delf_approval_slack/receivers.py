"""The two transports of Slack's interactions: Socket Mode, and signed HTTP requests."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast
from urllib.parse import parse_qs

from aiohttp import web
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

from delf_approval_slack.settings import SlackSettings

Handle = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]
"""Handles a button press or form; returns the reply to a form, None for a button press."""
_MAX_BYTES: Final = 1_000_000
PATH: Final = "/slack/interactions"


def receiver_of(
    settings: SlackSettings, client: AsyncWebClient, handle: Handle
) -> SocketMode | Http:
    """Return a receiver for Socket Mode or HTTP, as the settings choose."""
    if settings.app_token is not None:
        return SocketMode(settings.app_token.get_secret_value(), client, handle)
    assert settings.signing_secret is not None  # noqa: S101 - the settings were checked
    return Http(settings.host, settings.port, settings.signing_secret.get_secret_value(), handle)


class SocketMode:
    """Receives button presses and forms over a WebSocket that this process opens to Slack."""

    def __init__(self, token: str, client: AsyncWebClient, handle: Handle) -> None:
        self._handle = handle
        self._client = SocketModeClient(app_token=token, web_client=client)
        self._client.proxy = client.proxy  # which SocketModeClient does not take over itself
        self._client.socket_mode_request_listeners.append(self._receive)

    async def open(self) -> None:
        """Start listening."""
        await self._client.connect()

    async def aclose(self) -> None:
        """Stop listening."""
        await self._client.close()

    async def _receive(self, client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        untyped_request: Any = request
        payload: dict[str, Any] = untyped_request.payload
        # Slack also sends events and slash commands of the app. They only need to be acknowledged.
        reply = await self._handle(payload) if request.type == "interactive" else None
        await client.send_socket_mode_response(
            SocketModeResponse(envelope_id=request.envelope_id, payload=reply)
        )


class Http:
    """Receives button presses and forms as HTTP requests that Slack signs.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 for any free port.
        secret: The app's signing secret.
        handle: Handles each button press and form.
    """

    def __init__(self, host: str, port: int, secret: str, handle: Handle) -> None:
        self._host = host
        self.port = port
        self._verifier = SignatureVerifier(secret)
        self._handle = handle
        app = web.Application(client_max_size=_MAX_BYTES)
        app.router.add_post(PATH, self._receive)
        self._runner = web.AppRunner(app, access_log=None)

    async def open(self) -> None:
        """Start listening.

        Raises:
            OSError: If the port is in use.
        """
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])  # the system chooses a port if it was 0

    async def aclose(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        """Respond to a request; respond with 401 if it does not have Slack's signature."""
        body = await request.read()
        try:
            is_signed = self._verifier.is_valid_request(body, request.headers)
        except (ValueError, TypeError):  # a timestamp without a number, a signature outside ASCII
            is_signed = False
        if not is_signed:
            return web.Response(status=401)
        try:
            payload: Any = json.loads(parse_qs(body.decode())["payload"][0])
        except (ValueError, KeyError, RecursionError):
            return web.Response(status=400)
        if not isinstance(payload, dict):
            return web.Response(status=400)
        reply = await self._handle(cast("dict[str, Any]", payload))
        return web.Response() if reply is None else web.json_response(reply)
