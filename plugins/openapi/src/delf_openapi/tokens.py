"""OAuth2 tokens for client credentials: fetched lazily, kept until they expire."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from delf.errors import ToolExecutionError
from delf.machine.contexts import shared_task
from delf.network.addresses import is_private
from delf_openapi.answers import Answer
from delf_openapi.requests import Request
from delf_openapi.settings import OpenAPISettings

_MAX_MARGIN_SECONDS: Final = 30.0
_MARGIN_SHARE: Final = 0.1
_DEFAULT_LIFETIME: Final = 300.0


class _Token(NamedTuple):
    """An access token.

    Args:
        text: The token.
        expires_at: The time of :func:`time.monotonic` from which the token is not used.
    """

    text: str
    expires_at: float

    @property
    def has_expired(self) -> bool:
        """True if the token may not be used any more."""
        return time.monotonic() >= self.expires_at


class Tokens:
    """The OAuth2 tokens of one API, cached by token URL.

    Args:
        name: The connection's name, for messages.
        settings: The settings with client id, client secret and scopes.
        send: Sends a request.
        hide_in_messages: Receives each obtained token, to redact the token in messages.
    """

    def __init__(
        self,
        name: str,
        settings: OpenAPISettings,
        send: Callable[[Request], Awaitable[Answer]],
        hide_in_messages: Callable[[str], None],
    ) -> None:
        self._name = name
        self._hide_in_messages = hide_in_messages
        self._settings = settings
        self._send = send
        self._tokens_by_url: dict[str, _Token] = {}
        # The requests for a new token, which concurrent calls share.
        self._requests_by_url: dict[str, asyncio.Task[str]] = {}

    async def get(self, url: str, *, instead_of: str | None = None) -> str:
        """Return the cached token, or obtain a token; concurrent calls share one request.

        Args:
            url: The URL of the token endpoint.
            instead_of: A token that the API rejected, which is not returned again.

        Raises:
            ToolExecutionError: If the server grants no token, or the URL is public without TLS.
        """
        cached = self._tokens_by_url.get(url)
        if cached is not None and cached.text != instead_of and not cached.has_expired:
            return cached.text
        token_task = self._requests_by_url.get(url)
        if token_task is not None and token_task.get_loop() is not asyncio.get_running_loop():
            token_task = None  # a task of an earlier event loop cannot be awaited in this one
        if token_task is None or token_task.done():
            token_task = self._requests_by_url[url] = shared_task(self._obtain(url))
        # Cancelling one call does not cancel the request for other calls.
        return await asyncio.shield(token_task)

    async def _obtain(self, url: str) -> str:
        """Request a token, and cache it until shortly before it expires."""
        host = urlsplit(url).hostname or ""
        if urlsplit(url).scheme != "https" and not await asyncio.to_thread(is_private, host):
            raise ToolExecutionError(f"{self._name}: the token's address is not secure (http)")
        answer = await self._send(self._request(url, in_body=False))
        if answer.status in (400, 401):  # some servers accept the secret only in the body
            answer = await self._send(self._request(url, in_body=True))
        try:
            token, seconds = _token_and_lifetime(json.loads(answer.content))
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
            raise ToolExecutionError(
                f"{self._name}: no OAuth2 token was given: status {answer.status}",
                hint="check client_id, client_secret and scopes",
            ) from None
        self._hide_in_messages(token)
        margin_seconds = min(_MAX_MARGIN_SECONDS, seconds * _MARGIN_SHARE)
        self._tokens_by_url[url] = _Token(token, time.monotonic() + seconds - margin_seconds)
        return token

    def _request(self, url: str, *, in_body: bool) -> Request:
        """Return the request for a token, with the client's secret in the body or in a header."""
        settings = self._settings
        name = settings.client_id or ""
        secret = settings.client_secret.get_secret_value() if settings.client_secret else ""
        form = {"grant_type": "client_credentials"}
        if settings.scopes:
            form["scope"] = " ".join(settings.scopes)
        headers: dict[str, str] = {}
        if in_body:
            form |= {"client_id": name, "client_secret": secret}
        else:
            pair = f"{quote_plus(name)}:{quote_plus(secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return Request(
            label="the OAuth2 token",
            method="POST",
            url=url,
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
            content=urlencode(form).encode(),
            secret_headers=headers,
            query="",
            changes_nothing=True,  # a token request may be repeated
        )


def _token_and_lifetime(body: Any) -> tuple[str, float]:
    """Return the token in a token server's answer, and its lifetime in seconds.

    Raises:
        ValueError: If the token is empty or not a text, or the lifetime is a text that is
            not a number, such as ``"soon"``.
        TypeError: If the answer is not an object, or the lifetime is neither a number nor a text.
        KeyError: If the answer has no token.
        OverflowError: If the lifetime is too large.
    """
    token = body["access_token"]
    if not isinstance(token, str) or not token:
        raise ValueError("the token is not a text")
    lifetime = body.get("expires_in")
    seconds = _DEFAULT_LIFETIME if lifetime is None else float(lifetime)
    return token, seconds
