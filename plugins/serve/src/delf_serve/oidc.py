"""Login by OpenID Connect: code flow with PKCE, state and nonce."""

from __future__ import annotations

import hmac
import importlib
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from delf.errors import OptionalDependencyError
from delf.network.proxies import async_transport
from delf.network.tls import default_context
from delf_serve.problems import ProblemError
from delf_serve.settings import ServeSettings

_log = logging.getLogger(__name__)

COOKIE: Final = "delf_login"
BEGIN: Final = "/login/oidc"
CALLBACK: Final = "/login/callback"
LOGIN_SECONDS: Final = 600
"""The maximum number of seconds that a person has to log in at the provider."""
_SECONDS: Final = 10.0
_CACHE_SECONDS: Final = 3600.0
_LEEWAY_SECONDS: Final = 60
# The accepted signature algorithms, which are all asymmetric.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginState:
    """The state of a login in progress, stored in a browser cookie.

    Args:
        state: A random value that the provider returns in the redirect URL.
        nonce: A random value that the provider returns in the token.
        verifier: The PKCE verifier, which proves that the same server requests the token.
    """

    state: str
    nonce: str
    verifier: str


class OpenIdConnect:
    """A login provider that supports OpenID Connect.

    Args:
        settings: The settings, with the provider's address and this server's credentials.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._client: Any = None
        # (time of the request, the provider's metadata, the provider's keys)
        self._cached_provider: tuple[float, Mapping[str, Any], Mapping[str, Any]] | None = None

    @property
    def by_mail(self) -> bool:
        """True if people are identified by verified mail addresses."""
        return self._settings.oidc_name_claim == "email"

    async def begin(self) -> tuple[str, str]:
        """Start a login; return the URL of the provider's login page, and the login cookie."""
        login = LoginState(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
        )
        metadata, _ = await self.provider()
        url, _ = self._authlib().create_authorization_url(
            metadata["authorization_endpoint"],
            state=login.state,
            nonce=login.nonce,
            code_verifier=login.verifier,
        )
        return str(url), json.dumps(asdict(login))

    async def finish(self, cookie: str, given: Mapping[str, str]) -> str:
        """Complete a login, and return the verified name or e-mail address.

        Args:
            cookie: The value of the browser's cookie.
            given: The query parameters of the redirect.

        Raises:
            ProblemError: If the redirect's ``state`` is not that of the cookie, if the provider
                refused the login, or if the token is invalid.
        """
        login = _read_cookie(cookie)
        if login is None or not hmac.compare_digest(
            given.get("state", "").encode(), login.state.encode()
        ):
            raise ProblemError(400, "this browser has not started the login", f"GET {BEGIN}")
        if "code" not in given:
            raise ProblemError(403, f"the provider refused: {ascii(given.get('error', ''))[:80]}")
        metadata, keys = await self.provider()
        token = await self.fetch_token(metadata["token_endpoint"], given["code"], login.verifier)
        claims = self._verify_token(token, keys, metadata["issuer"])
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), login.nonce.encode()):
            raise ProblemError(403, "the provider's token is for another login")
        return self._verified_name(claims)

    def _verified_name(self, claims: Mapping[str, Any]) -> str:
        """Return the person's name or e-mail address from the provider's claims.

        Raises:
            ProblemError: If the name is missing, or if the name is an e-mail address that the
                provider has not verified.
        """
        claim = self._settings.oidc_name_claim
        name = claims.get(claim)
        is_verified = str(claims.get("email_verified")).lower() == "true"
        if self.by_mail and not is_verified:
            raise ProblemError(
                403,
                "the provider does not say that it verified the mail address",
                "name another claim in the setting oidc_name_claim",
            )
        if not isinstance(name, str) or not name:
            raise ProblemError(403, f"the provider does not send {claim}")
        return name

    def _verify_token(self, token: str, keys: Mapping[str, Any], issuer: str) -> Mapping[str, Any]:
        """Verify a token's signature, issuer and audience, and return its claims."""
        from joserfc import errors, jwk, jwt

        try:
            claims = jwt.decode(
                token, jwk.KeySet.import_key_set(cast("Any", keys)), algorithms=[*_ALGORITHMS]
            )
            needed: dict[str, Any] = {"essential": True}
            jwt.JWTClaimsRegistry(
                leeway=_LEEWAY_SECONDS,
                iss=cast("Any", {**needed, "value": issuer}),
                aud=cast("Any", {**needed, "value": self._settings.oidc_client_id}),
                exp=cast("Any", needed),
                sub=cast("Any", needed),
            ).validate(claims.claims)
        except (errors.JoseError, ValueError, KeyError):
            self._cached_provider = None  # fetch the keys again: providers rotate them
            raise ProblemError(403, "the provider's token is not valid", "log in again") from None
        self._check_party(claims.claims)
        return claims.claims

    def _check_party(self, claims: Mapping[str, Any]) -> None:
        """Raise an error for a token that was issued to another client.

        The claim ``azp`` (authorized party) names the client. A token with several audiences must
        have this claim.
        """
        party = claims.get("azp")
        audience = claims.get("aud")
        has_several_audiences = isinstance(audience, list) and len(cast("list[Any]", audience)) > 1
        if party is None and not has_several_audiences:
            return
        if party != self._settings.oidc_client_id:
            raise ProblemError(403, "the provider's token was issued to another client")

    async def fetch_token(self, url: str, code: str, verifier: str) -> str:
        """Exchange an authorization code for the ID token."""
        try:
            answer: Any = await self._authlib().fetch_token(url, code=code, code_verifier=verifier)
        except Exception as error:  # of Authlib or of its HTTP library
            _log.warning("the provider of logins gave no token: %s", type(error).__name__)
            raise ProblemError(502, "the provider gave no token", "log in again") from None
        return str(answer.get("id_token", ""))

    async def provider(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the provider's metadata and signing keys, which are cached."""
        import httpx

        if self._cached_provider is not None:
            loaded_at, metadata, keys = self._cached_provider
            if time.monotonic() - loaded_at < _CACHE_SECONDS:
                return metadata, keys
        issuer = self._settings.oidc_issuer.rstrip("/")
        transport = async_transport(httpx, verify=default_context())
        try:
            async with httpx.AsyncClient(transport=transport, timeout=_SECONDS) as client:
                response = await client.get(f"{issuer}/.well-known/openid-configuration")
                metadata = response.raise_for_status().json()
                # Raises KeyError if an address is missing that a login needs later.
                _ = metadata["authorization_endpoint"], metadata["token_endpoint"]
                if str(metadata["issuer"]).rstrip("/") != issuer:
                    raise ProblemError(502, "the provider calls itself by another name")
                keys = (await client.get(metadata["jwks_uri"])).raise_for_status().json()
        # TypeError: the answer is JSON, but not an object.
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
            raise ProblemError(502, "the login provider does not answer") from None
        self._cached_provider = time.monotonic(), metadata, keys
        return metadata, keys

    async def aclose(self) -> None:
        """Close the connections to the provider."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _authlib(self) -> Any:
        """Return Authlib's client, which is created at the first use."""
        if self._client is not None:
            return self._client
        try:
            from authlib.integrations.httpx_client import AsyncOAuth2Client
        except ImportError:
            raise OptionalDependencyError(
                "logins by OpenID Connect need Authlib",
                package="authlib",
                hint='delf plugins install "serve[oidc]"',
            ) from None
        settings = self._settings
        secret = settings.oidc_client_secret
        self._client = AsyncOAuth2Client(
            client_id=settings.oidc_client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            scope=settings.oidc_scopes,
            redirect_uri=f"{settings.public_url}{CALLBACK}",
            code_challenge_method="S256",  # a leaked code is useless without the verifier
            timeout=_SECONDS,
            transport=async_transport(_library_of(AsyncOAuth2Client), verify=default_context()),
        )
        return self._client


def _library_of(client: type) -> Any:
    """Return the module of the HTTP library that an Authlib client uses: httpx or httpx2."""
    base = next(kind for kind in client.__mro__ if kind.__name__ == "AsyncClient")
    return importlib.import_module(base.__module__.partition(".")[0])


def _read_cookie(cookie: str) -> LoginState | None:
    try:
        login = LoginState(**json.loads(cookie))
    except (ValueError, TypeError, RecursionError):
        return None
    # An empty part would be equal to a missing query parameter.
    is_complete = all(isinstance(part, str) and part for part in asdict(login).values())
    return login if is_complete else None
