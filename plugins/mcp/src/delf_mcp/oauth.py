"""OAuth login at a server: with a browser that returns to loopback, or without one."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import webbrowser
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import ValidationError

from delf.environment import beside
from delf.errors import ConnectionConfigurationError, ConnectionUnavailableError
from delf.machine.folders import user_folder
from delf.machine.own_files import locked, write_private
from delf.network.addresses import is_private
from delf.terminal import visible
from delf.tools.json_schema import clean
from delf_mcp.settings import MCPSettings

_log = logging.getLogger(__name__)

_LOGIN_SECONDS: Final = 300.0
_LOGGED_IN: Final = b"You are logged in, and can close this page."
_NOT_LOGGED_IN: Final = b"You are not logged in. You can close this page."
_MAX_REASON_CHARACTERS: Final = 300

OpenURL = Callable[[str], Awaitable[None]]


async def open_browser(url: str) -> None:
    """Open a URL in the user's browser."""
    _log.warning("to log in, open %s", url)
    await asyncio.to_thread(webbrowser.open, url)


class TokenFile:
    """A private file with OAuth tokens and the origin of the server that issued them.

    Args:
        path: The path of the file.
        add_secret: Called with each token, to redact the token from now on.
    """

    def __init__(self, path: Path, add_secret: Callable[[str], None]) -> None:
        self.path = path
        self._add_secret = add_secret
        # The origin to which the token request in progress is sent; stored with its tokens.
        self._pending_issuer: str | None = None

    @property
    def issuer(self) -> str | None:
        """The origin of the server that issued the tokens; None if unknown."""
        issuer = self._content().get("issuer")
        return issuer if isinstance(issuer, str) else None

    def set_pending_issuer(self, origin: str) -> None:
        """Set the origin that the next :meth:`set_tokens` stores as the tokens' issuer.

        Called before each token request.
        """
        self._pending_issuer = origin

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens; None if there are none."""
        tokens = self._read("tokens", OAuthToken)
        if tokens is not None:
            self._redact_from_now_on(tokens)
        return tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens with their issuer."""
        self._redact_from_now_on(tokens)
        # In one write, so that a refresh token is never stored with the issuer of other tokens.
        self._write(
            issuer=self._pending_issuer, tokens=tokens.model_dump(mode="json", exclude_none=True)
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the stored registration of this client at the login server, if any."""
        return self._read("client", OAuthClientInformationFull)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the registration of this client at the login server."""
        if client_info.client_secret:
            self._add_secret(client_info.client_secret)
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def _redact_from_now_on(self, tokens: OAuthToken) -> None:
        self._add_secret(tokens.access_token)
        if tokens.refresh_token:
            self._add_secret(tokens.refresh_token)

    def _content(self) -> dict[str, Any]:
        try:
            return json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}

    def _read(self, name: str, model: Any) -> Any:
        """Return a stored value; None if it is missing or invalid."""
        content = self._content()
        if name not in content:
            return None
        try:
            return model.model_validate(content[name])
        except ValidationError:
            return None

    def _write(self, **values: Any) -> None:
        with locked(self.path):
            write_private(self.path, json.dumps({**self._content(), **values}).encode())


class RedirectListener:
    """A local HTTP server to which the browser is redirected after a login.

    Args:
        name: The connection's name, for messages.
        port: The loopback port.
        open_url: Shows a URL to the user.
    """

    def __init__(self, name: str, port: int, open_url: OpenURL) -> None:
        self._name = name
        self._port = port
        self._open_url = open_url
        # The secret of the current login, which only the login server sends with its result.
        self._state: str | None = None
        self._result: asyncio.Future[AuthorizationCodeResult] | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The redirect URL for the login server."""
        return f"http://127.0.0.1:{self._port}/callback"

    async def show(self, url: str) -> None:
        """Start listening, and show the login URL to the user.

        Raises:
            ConnectionUnavailableError: If the port is in use.
        """
        self._state = _first_values(url).get("state")
        self._result = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._handle_request, "127.0.0.1", self._port)
        except OSError as error:
            raise ConnectionUnavailableError(
                f"{self._name}: port {self._port} of loopback is in use, but the login page must "
                "answer there",
                hint="oauth_port in the connection's settings",
            ) from error
        try:
            await self._open_url(url)
        except BaseException:  # also a cancellation: wait(), which closes the port, is not called
            self._server.close()
            raise

    async def wait(self) -> AuthorizationCodeResult:
        """Wait until the browser is redirected here; return the authorization code.

        Raises:
            ConnectionUnavailableError: If nobody logs in within five minutes, or if the login
                server reports an error.
        """
        if self._result is None:
            raise ConnectionUnavailableError(f"{self._name}: no login was begun")
        try:
            async with asyncio.timeout(_LOGIN_SECONDS):
                return await self._result
        except TimeoutError:
            raise ConnectionUnavailableError(
                f"{self._name}: nobody logged in within {_LOGIN_SECONDS:g} s"
            ) from None
        finally:
            if self._server is not None:
                self._server.close()

    async def _handle_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Read the result of a login from the browser's request, and answer with a page."""
        faults = (EOFError, ConnectionError, ValueError, LookupError, asyncio.LimitOverrunError)
        with contextlib.suppress(*faults):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            address = head.split(" ")[1]  # as in "GET /callback?code=… HTTP/1.1"
            is_logged_in = self._take_result(_first_values(address))
            page = _LOGGED_IN if is_logged_in else _NOT_LOGGED_IN
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
            writer.write(b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(page) + page)
            await writer.drain()
        writer.close()

    def _take_result(self, query: Mapping[str, str]) -> bool:
        """Take the result of the login from the query of a request.

        Any local program and any page in the browser can send a request. Only the login server
        knows the login's ``state``, so all requests without it are ignored.

        Returns:
            True if the user has logged in.
        """
        result = self._result
        is_from_login_server = self._state is not None and query.get("state") == self._state
        if not is_from_login_server or result is None or result.done():
            return False
        if "code" not in query:
            reason = " ".join(query[key] for key in ("error", "error_description") if key in query)
            shown_reason = clean(reason, _MAX_REASON_CHARACTERS) or "it gives no reason"
            message = f"{self._name}: the login server refuses the login: {shown_reason}"
            result.set_exception(ConnectionUnavailableError(message))
            return False
        result.set_result(
            AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))
        )
        return True


def _first_values(url: str) -> dict[str, str]:
    """Return the parameters of a URL's query; of a repeated parameter, the first value."""
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


class _BrowserLogin(OAuthClientProvider):
    """A login by the user in a browser, only at the permitted login server.

    Args:
        name: The connection's name, for messages.
        issuer: The permitted login server; None to permit the one that the MCP server names.
        options: The arguments of the base class.
    """

    def __init__(self, name: str, issuer: str | None, **options: Any) -> None:
        super().__init__(**options)
        self._name = name
        self._issuer = issuer

    def _select_authorization_server(self, advertised: list[str]) -> str:
        """Return the login server to use, of those that the MCP server names.

        Raises:
            ConnectionConfigurationError: If none is the login server that the setting ``issuer``
                permits.
        """
        if self._issuer is None:
            return advertised[0]
        for server in advertised:
            if issuers_match(server, self._issuer):
                return server
        raise self._wrong_server_error(advertised[0])

    async def _perform_authorization(self) -> httpx2.Request:
        """Let the user log in.

        Raises:
            ConnectionConfigurationError: If the setting ``issuer`` permits only another login
                server.
        """
        metadata = self.context.oauth_metadata
        if metadata is None:  # the MCP server is its own login server
            server = self.context.get_authorization_base_url(self.context.server_url)
        else:
            server = str(metadata.issuer)
        if self._issuer is not None and not issuers_match(server, self._issuer):
            raise self._wrong_server_error(server)
        return await super()._perform_authorization()

    def _wrong_server_error(self, server: str) -> ConnectionConfigurationError:
        return ConnectionConfigurationError(
            f"{self._name}: the MCP server wants you to log in at {visible(server)}, and the "
            f"setting issuer permits only {self._issuer}",
            hint="if that is right, change issuer in the connection's settings",
        )


RequestHook = Callable[[httpx2.Request], Awaitable[None]]


def login(
    name: str, settings: MCPSettings, add_secret: Callable[[str], None], open_url: OpenURL
) -> tuple[httpx2.Auth, RequestHook] | None:
    """Return the OAuth authentication for a server's requests, and a hook that guards credentials.

    Args:
        name: The connection's name.
        settings: The settings of the connection.
        add_secret: Called with each token, to redact the token from now on.
        open_url: Shows a URL to the user.

    Returns:
        The authentication, and a hook that is called with each request and raises if the request
        would send credentials to a wrong server. None if OAuth is off.

    Raises:
        ConnectionConfigurationError: If settings are missing.
    """
    if settings.oauth == "off" or settings.url is None:
        return None
    tokens = TokenFile(_token_path(name, settings), add_secret)
    auth = _provider(name, settings, settings.url, tokens, open_url)
    return auth, CredentialGuard(name, settings, tokens).check


def _provider(
    name: str,
    settings: MCPSettings,
    url: str,
    tokens: TokenFile,
    open_url: OpenURL,
) -> httpx2.Auth:
    """Return the configured login: by the user in a browser, or by the client's credentials."""
    if settings.oauth == "client_credentials":
        return _client_credentials_login(name, settings, url, tokens)
    secret = settings.client_secret.get_secret_value() if settings.client_secret else None
    listener = RedirectListener(name, settings.oauth_port, open_url)
    fields: dict[str, Any] = {
        "client_name": "delf",
        "redirect_uris": [listener.address],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "scope": " ".join(settings.scopes) or None,
    }
    storage: Any = tokens
    if settings.client_id:  # otherwise the library registers delf, or sends client_metadata_url
        storage = _RegisteredClient(
            tokens, {**fields, "client_id": settings.client_id, "client_secret": secret}
        )
    return _BrowserLogin(
        name,
        settings.issuer,
        server_url=url,
        client_metadata=OAuthClientMetadata.model_validate(fields),
        storage=storage,
        redirect_handler=listener.show,
        callback_handler=listener.wait,
        client_metadata_url=settings.client_metadata_url,
    )


def _client_credentials_login(
    name: str, settings: MCPSettings, url: str, tokens: TokenFile
) -> OAuthClientProvider:
    """Return the login without a user, by client secret or private key.

    Raises:
        ConnectionConfigurationError: If settings are missing.
    """
    client_id = settings.client_id
    key = settings.private_key
    secret = settings.client_secret
    scope = " ".join(settings.scopes) or None
    has_credential = key is not None or secret is not None
    if client_id is None or not has_credential:
        missing: list[str] = []
        if client_id is None:
            missing.append("client_id")
        if not has_credential:
            missing.append("client_secret or private_key")
        raise ConnectionConfigurationError(
            f"connection {name!r} cannot log in by oauth = 'client_credentials'",
            hint=f"give {' and '.join(missing)}",
        )
    if key is not None:
        signed = SignedJWTParameters(
            issuer=client_id,
            subject=client_id,
            signing_key=key.get_secret_value(),
            signing_algorithm=settings.signing_algorithm,
        )
        assertion_provider = signed.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(
            url, tokens, client_id, assertion_provider, scope=scope, issuer=settings.issuer
        )
    secret_text = "" if secret is None else secret.get_secret_value()
    return ClientCredentialsOAuthProvider(
        url, tokens, client_id, secret_text, scope=scope, issuer=settings.issuer
    )


class CredentialGuard:
    """Prevents an MCP server, which chooses the addresses of the login, from misusing the login.

    The request hook :meth:`check` raises if

    - the client's secret or private key would go to another origin than ``url`` or ``issuer``,
    - a refresh token would go to another origin than its issuer,
    - an MCP server in the public internet leads a request into a private network.

    Args:
        name: The connection's name, for messages.
        settings: The settings with addresses, secret and private key.
        tokens: The stored tokens.
    """

    def __init__(self, name: str, settings: MCPSettings, tokens: TokenFile) -> None:
        # The addresses that the user has set, unlike those that the MCP server chooses.
        accepted_addresses = [url for url in (settings.url, settings.issuer) if url is not None]
        self._name = name
        self._tokens = tokens
        self._accepted_hosts = {urlsplit(url).hostname or "" for url in accepted_addresses}
        self._accepted_origins = {_origin(url) for url in accepted_addresses}
        self._has_key = settings.client_secret is not None or settings.private_key is not None

    async def check(self, request: httpx2.Request) -> None:
        """Raise if a request of the login must not be sent.

        Raises:
            ConnectionConfigurationError: If the request's address is not acceptable.
        """
        origin = _origin(str(request.url))
        fields = parse_qs(request.content.decode("latin-1")) if _is_form(request) else {}
        await self._check_network(request.url.host, origin)
        self._check_refresh_token(fields, origin)
        if self._has_key and _sends_key(request, fields):
            self._check_key(origin)
        if "grant_type" in fields:
            # The response has tokens. set_tokens() gets the tokens without their sender, and stores
            # this origin as their issuer.
            self._tokens.set_pending_issuer(origin)

    async def _check_network(self, host: str, origin: str) -> None:
        """Raise if a server in the public internet sends the login into a private network."""
        if host in self._accepted_hosts or not await asyncio.to_thread(is_private, host):
            return
        for accepted_host in self._accepted_hosts:
            if await asyncio.to_thread(is_private, accepted_host):
                return  # the login is in the user's own network
        raise ConnectionConfigurationError(
            f"{self._name}: the MCP server wants the login to go to {origin}, a private address",
            hint="if that is right, set issuer to the address of the login server",
        )

    def _check_refresh_token(self, fields: Mapping[str, Any], origin: str) -> None:
        """Raise an error if a refresh token would go to another server than its issuer."""
        tokens = self._tokens
        if "refresh_token" in fields and origin != tokens.issuer:
            raise ConnectionConfigurationError(
                f"{self._name}: the MCP server wants the refresh token of "
                f"{tokens.issuer or 'an unknown server'} to go to {origin}",
                hint=f"if the login has moved there, delete {tokens.path} and log in again",
            )

    def _check_key(self, origin: str) -> None:
        """Raise an error unless the client's key may be sent to a login server."""
        if origin not in self._accepted_origins:
            raise ConnectionConfigurationError(
                f"{self._name}: the MCP server wants your client's key to go to {origin}, which "
                "you have not accepted",
                hint=f'if that is right, set issuer = "{origin}"',
            )


def _sends_key(request: httpx2.Request, fields: Mapping[str, Any]) -> bool:
    """Return True if a request contains the client's secret or a signature with its key."""
    has_basic_auth = request.headers.get("authorization", "").lower().startswith("basic ")
    return has_basic_auth or "client_secret" in fields or "client_assertion" in fields


def _is_form(request: httpx2.Request) -> bool:
    kind = request.headers.get("content-type", "")
    return kind.startswith("application/x-www-form-urlencoded")


def _origin(url: str) -> str:
    """Return the scheme and host of a URL, and the port if it is not the scheme's default."""
    parts = urlsplit(url)
    default_port = {"http": 80, "https": 443}.get(parts.scheme)
    port = default_port if parts.port is None else parts.port
    port_text = "" if port == default_port else f":{port}"
    return f"{parts.scheme}://{parts.hostname or ''}{port_text}"


class _RegisteredClient:
    """Token storage with a fixed client, which the user has registered at the login server."""

    def __init__(self, tokens: TokenFile, client: dict[str, Any]) -> None:
        # Tokens are stored as for any client. Only the registration is fixed, and is not stored.
        self.get_tokens = tokens.get_tokens
        self.set_tokens = tokens.set_tokens
        method = "client_secret_basic" if client["client_secret"] else "none"
        self._client = OAuthClientInformationFull.model_validate(
            {**client, "token_endpoint_auth_method": method}
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


def _token_path(name: str, settings: MCPSettings) -> Path:
    if settings.tokens is not None:
        return Path(beside(Path(), settings.tokens))
    url_digest = hashlib.sha256((settings.url or "").encode()).hexdigest()[:12]
    return user_folder("data") / "mcp" / f"{name}-{url_digest}.json"
