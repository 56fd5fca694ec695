"""DPoP (RFC 9449): a token that is bound to a key, and a proof of that key with each request."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm
from pydantic import BaseModel, ConfigDict, Field

_ALGORITHM: Final = "ES256"
_SCHEME: Final = "DPoP"
_HEADER: Final = "DPoP"
_NONCE: Final = "DPoP-Nonce"
_WANTS_NONCE: Final = "use_dpop_nonce"
_FORM: Final = "application/x-www-form-urlencoded"
_CHALLENGE: Final = re.compile(r"(?:^|,)\s*DPoP(?:\s|,|$)", re.IGNORECASE)


class Binding(BaseModel):
    """A key, as PEM, and the digest of the access token that is bound to it."""

    model_config = ConfigDict(frozen=True)

    key: str = Field(repr=False)
    token: str


class Bindings(Protocol):
    """The store of a binding beside its token."""

    async def get_binding(self) -> Binding | None:
        """The binding of last time."""
        ...

    async def set_binding(self, binding: Binding) -> None:
        """Keep a binding."""
        ...


class Bound(httpx2.Auth):
    """A login whose tokens are bound to a key where the server asks for it.

    A server asks by its challenge (``WWW-Authenticate: DPoP``) or its metadata, and the login's
    server has to offer it; all others get the bearer's token that they know.

    Args:
        inner: The login.
        storage: Keeps the binding.
    """

    requires_response_body = True

    def __init__(self, inner: httpx2.Auth, storage: Bindings) -> None:
        self._inner = inner
        self._storage = storage
        self._key: ec.EllipticCurvePrivateKey | None = None
        self._token: str | None = None
        self._read = False
        self._asked = False
        self._offered = False
        self._nonces: dict[str, str] = {}

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The login's own requests and the request itself, each with its proof."""
        await self._load()
        flow = self._inner.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                proven = self._prove(outgoing)
                response = yield outgoing
                if proven and await self._is_nonce_wanted(response):
                    self._prove(outgoing)
                    response = yield outgoing
                if outgoing is request:
                    self._hear_challenge(response)
                else:
                    response = await self._hear_login(response)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _load(self) -> None:
        if self._read:
            return
        self._read = True
        known = await self._storage.get_binding()
        if known is not None:
            key = load_pem_private_key(known.key.encode(), None)
            self._key = cast("ec.EllipticCurvePrivateKey", key)
            self._token = known.token
            self._asked = self._offered = True

    def _prove(self, request: httpx2.Request) -> bool:
        """Put a fresh proof into a request that needs one."""
        request.headers.pop(_HEADER, None)
        _, _, token = request.headers.get("Authorization", "").partition(" ")
        if token and self._token == _digest(token):
            request.headers["Authorization"] = f"{_SCHEME} {token}"
        elif not (self._asked and self._offered and _is_token_request(request)):
            return False
        else:
            token = ""
        request.headers[_HEADER] = self._proof(request, token)
        return True

    def _proof(self, request: httpx2.Request, token: str) -> str:
        if self._key is None:
            self._key = ec.generate_private_key(ec.SECP256R1())
        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(24),
            "htm": request.method,
            "htu": _target(request),
            "iat": int(time.time()),
        }
        nonce = self._nonces.get(_target(request))
        if nonce is not None:
            claims["nonce"] = nonce
        if token:
            claims["ath"] = _digest(token)
        public = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        head = {"typ": "dpop+jwt", "jwk": public}
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM, headers=head)

    async def _is_nonce_wanted(self, response: httpx2.Response) -> bool:
        """Tell whether the same request is to be sent again with the nonce that just came."""
        nonce = response.headers.get(_NONCE)
        if nonce is None:
            return False
        self._nonces[_target(response.request)] = nonce
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            return _WANTS_NONCE in response.headers.get("WWW-Authenticate", "")
        if response.status_code == HTTPStatus.BAD_REQUEST:
            await response.aread()
            return _object(response).get("error") == _WANTS_NONCE
        return False

    def _hear_challenge(self, response: httpx2.Response) -> None:
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            challenges = response.headers.get_list("WWW-Authenticate")
            self._asked |= any(_CHALLENGE.search(challenge) for challenge in challenges)

    async def _hear_login(self, response: httpx2.Response) -> httpx2.Response:
        """Note what metadata says; a bound token goes on as the bearer's that the login knows."""
        await response.aread()
        said = _object(response)
        algorithms = said.get("dpop_signing_alg_values_supported") or ()
        if "token_endpoint" in said:
            self._offered = _ALGORITHM in algorithms
        elif "authorization_servers" in said:
            self._asked |= said.get("dpop_bound_access_tokens_required") is True
        if str(said.get("token_type")).lower() != _SCHEME.lower() or self._key is None:
            return response
        self._token = _digest(str(said.get("access_token")))
        await self._storage.set_binding(Binding(key=_pem(self._key), token=self._token))
        return httpx2.Response(
            response.status_code, json={**said, "token_type": "Bearer"}, request=response.request
        )


def _is_token_request(request: httpx2.Request) -> bool:
    return request.method == "POST" and request.headers.get("Content-Type", "").startswith(_FORM)


def _object(response: httpx2.Response) -> dict[str, Any]:
    try:
        value: Any = json.loads(response.content)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _target(request: httpx2.Request) -> str:
    """Return a request's target as a proof names it: without query, fragment and credentials."""
    path, _, _ = request.url.raw_path.partition(b"?")
    return f"{request.url.scheme}://{(request.url.netloc + path).decode('ascii')}"


def _digest(token: str) -> str:
    """As a proof names its token: SHA-256 in base64url."""
    digest = hashlib.sha256(token.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
