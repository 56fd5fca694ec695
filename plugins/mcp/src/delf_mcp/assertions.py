"""Logging in without a browser, by a token that a platform or an identity provider has issued."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.client.auth.extensions.client_credentials import (
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.shared.auth import (
    JWT_BEARER_GRANT_TYPE,
    OAuthClientInformationFull,
    OAuthClientMetadata,
)

from delf.errors import ConnectionConfigurationError, ConnectionUnavailableError
from delf_mcp.limits import bounded
from delf_mcp.settings import MCPSettings

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a name
_ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
_SECONDS: Final = 30.0

Learned = Callable[[str], None]
"""Told of each secret that is had."""


def by_private_key(
    name: str, settings: MCPSettings, storage: TokenStorage, url: str
) -> httpx2.Auth:
    """A client that proves with a key who it is.

    Raises:
        ConnectionConfigurationError: When settings are missing.
    """
    needs(name, settings, "client_id", "private_key")
    client, key = settings.client_id or "", settings.private_key
    signed = SignedJWTParameters(
        issuer=client,
        subject=client,
        signing_key="" if key is None else key.get_secret_value(),
        signing_algorithm=settings.signing_algorithm,
    )
    return PrivateKeyJWTOAuthProvider(
        url,
        storage,
        client,
        signed.create_assertion_provider(),
        scope=" ".join(settings.scopes) or None,
        issuer=settings.issuer,
    )


def by_enterprise(
    name: str, settings: MCPSettings, storage: TokenStorage, url: str, learned: Learned
) -> httpx2.Auth:
    """A user whose company vouches for them: its identity provider gives a grant for the server.

    Raises:
        ConnectionConfigurationError: When settings are missing.
    """
    fields = ("client_id", "client_secret", "issuer", "idp", "idp_client_id", "assertion_file")
    needs(name, settings, *fields)
    secret = settings.client_secret
    read = token_reader(settings, learned)

    async def grant(audience: str, resource: str) -> str:
        given = {
            "grant_type": _EXCHANGE,
            "requested_token_type": _ID_JAG,
            "subject_token": await read(),
            "subject_token_type": _ID_TOKEN,
            "audience": audience,
            "resource": resource,
            "client_id": settings.idp_client_id,
            "scope": " ".join(settings.scopes),
        }
        return await _exchange(settings, {key: value for key, value in given.items() if value})

    return IdentityAssertionOAuthProvider(
        url,
        storage,
        settings.client_id or "",
        "" if secret is None else secret.get_secret_value(),
        settings.issuer or "",
        grant,
        scope=" ".join(settings.scopes) or None,
        token_endpoint_auth_method="client_secret_basic",  # noqa: S106 - a way, no secret
    )


async def _exchange(settings: MCPSettings, given: dict[str, Any]) -> str:
    """The grant that the identity provider gives for a user's identity token."""
    secret, client = settings.idp_client_secret, settings.idp_client_id or ""
    login = None if secret is None else httpx2.BasicAuth(client, secret.get_secret_value())
    try:
        async with httpx2.AsyncClient(
            timeout=_SECONDS, auth=login, event_hooks={"response": [bounded]}
        ) as http:
            answer = await http.post(settings.idp or "", data=given)
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        raise ConnectionUnavailableError(
            f"the identity provider {settings.idp} cannot be reached: {error}"
        ) from error
    try:
        return str(answer.json()["access_token"])
    except (ValueError, KeyError, TypeError):
        raise ConnectionUnavailableError(
            f"the identity provider {settings.idp} gave no grant: status {answer.status_code}",
            hint="is the identity token in assertion_file still valid?",
        ) from None


class WorkloadProvider(OAuthClientProvider):
    """A program whose platform vouches for it: the JWT that it was given is its grant.

    Args:
        url: The server's.
        storage: Keeps tokens.
        client_id: What the login's server knows the program as.
        read: The JWT as it is now: platforms renew them.
        scope: What is asked for; what the server names when None.
        issuer: The only server to which the JWT is sent; without it, the one that is named by the
            MCP server.
    """

    def __init__(
        self,
        url: str,
        storage: TokenStorage,
        client_id: str,
        read: Callable[[], Awaitable[str]],
        scope: str | None,
        issuer: str | None,
    ) -> None:
        asked = OAuthClientMetadata(
            redirect_uris=None,
            grant_types=[JWT_BEARER_GRANT_TYPE],
            token_endpoint_auth_method="none",  # noqa: S106 - a way, no secret
            scope=scope,
        )
        super().__init__(url, asked, storage, None, None)
        self._read = read
        self._scope = scope
        self._issuer = issuer
        self._client = OAuthClientInformationFull.model_validate(
            {**asked.model_dump(), "client_id": client_id}
        )

    async def _initialize(self) -> None:
        self.context.current_tokens = await self.context.storage.get_tokens()
        self.context.client_info = self._client
        self._initialized = True

    async def _perform_authorization(self) -> httpx2.Request:
        known = self.context.oauth_metadata
        found = None if known is None else str(known.issuer).rstrip("/")
        if self._issuer is not None and found != self._issuer.rstrip("/"):
            raise OAuthFlowError(f"the login leads to {found}, and not to {self._issuer}")
        given: dict[str, Any] = {
            "grant_type": JWT_BEARER_GRANT_TYPE,
            "assertion": await self._read(),
            "client_id": self._client.client_id,
        }
        if self.context.should_include_resource_param(self.context.protocol_version):
            given["resource"] = self.context.get_resource_url()
        scope = self._scope or self.context.client_metadata.scope
        if scope:
            given["scope"] = scope
        return httpx2.Request("POST", self._get_token_endpoint(), data=given)


def by_workload(
    name: str, settings: MCPSettings, storage: TokenStorage, url: str, learned: Learned
) -> httpx2.Auth:
    """A program whose platform vouches for it.

    Raises:
        ConnectionConfigurationError: When settings are missing.
    """
    needs(name, settings, "client_id", "assertion_file")
    read = token_reader(settings, learned)
    scope = " ".join(settings.scopes) or None
    return WorkloadProvider(url, storage, settings.client_id or "", read, scope, settings.issuer)


def token_reader(settings: MCPSettings, learned: Learned) -> Callable[[], Awaitable[str]]:
    """Make the function that reads the token of ``assertion_file`` at the time of use."""
    path = Path(settings.assertion_file or "")

    async def read() -> str:
        try:
            token = (await asyncio.to_thread(path.read_text, "utf-8")).strip()
        except (OSError, ValueError) as error:
            raise ConnectionUnavailableError(f"{path} cannot be read: {error}") from error
        if token:
            learned(token)
        return token

    return read


def needs(name: str, settings: MCPSettings, *fields: str) -> None:
    """See that settings are given.

    Raises:
        ConnectionConfigurationError: For those that are not.
    """
    missing = [field for field in fields if not getattr(settings, field)]
    if missing:
        raise ConnectionConfigurationError(
            f"connection {name!r} cannot log in by oauth = {settings.oauth!r}",
            hint=f"give {', '.join(missing)}",
        )
