"""The vendor's login: who may do what, tokens, and the pages that give them."""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode

from support.google.calls import ApiError

CLIENT_ID = "delf-test.apps.googleusercontent.com"
CLIENT_SECRET = "GOCSPX-client-secret-of-tests"
LIFE = 3600
VENDOR_AUDIENCE = "https://oauth2.googleapis.com/token"  # whatever token_uri says


@dataclass
class Token:
    user: str
    scopes: frozenset[str]
    ends: float


@dataclass
class Grant:
    """The scopes that a user agreed to, until the login is revoked."""

    user: str
    scopes: frozenset[str]
    refresh_token: str
    revoked: bool = False


class Logins:
    """Users, service accounts, grants and tokens."""

    def __init__(self) -> None:
        self.tokens: dict[str, Token] = {}
        self.grants: dict[str, Grant] = {}
        self.codes: dict[str, dict[str, Any]] = {}
        self.service_keys: dict[str, Any] = {}  # public keys by e-mail of the account
        self.delegation = True
        self.consenting_user = "ada@example.com"
        self.declined: frozenset[str] = frozenset()
        self.refreshes = 0
        self.quota_project: str | None = None  # that requests have to name
        self._lock = threading.Lock()

    def token_for(self, user: str, scopes: Any, life: float = LIFE) -> str:
        text = f"ya29.{secrets.token_urlsafe(24)}"
        self.tokens[text] = Token(user, frozenset(scopes), time.time() + life)
        return text

    def grant(self, user: str, scopes: Any) -> Grant:
        grant = Grant(user, frozenset(scopes), f"1//{secrets.token_urlsafe(24)}")
        self.grants[grant.refresh_token] = grant
        return grant

    def expire_all(self) -> None:
        """Every access token is over; grants stay."""
        for token in self.tokens.values():
            token.ends = 0

    def revoke_all(self) -> None:
        self.tokens.clear()
        for grant in self.grants.values():
            grant.revoked = True

    def check(self, headers: Any, method: Any) -> Token:
        """A request's token; refused where it is not good for a method."""
        header = headers.get("Authorization") or ""
        token = self.tokens.get(header.removeprefix("Bearer "))
        if not header.startswith("Bearer ") or token is None or token.ends < time.time():
            raise ApiError(
                401,
                "Request had invalid authentication credentials. Expected OAuth 2 access token.",
                "authError",
            )
        allowed = frozenset(method.spec.get("scopes", ()))
        if allowed and not allowed & token.scopes:
            raise ApiError(
                403,
                "Request had insufficient authentication scopes.",
                "insufficientPermissions",
                details=[
                    {
                        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                        "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
                        "domain": "googleapis.com",
                        "metadata": {"method": method.id},
                    }
                ],
            )
        if self.quota_project not in (None, headers.get("X-Goog-User-Project")):
            raise ApiError(
                403,
                "Your application is authenticating by using local Application Default Credentials. "
                "The API requires a quota project, which is not set by default.",
                "forbidden",
            )
        return token

    # -- pages --------------------------------------------------------------------------

    def consent(self, query: dict[str, list[str]]) -> tuple[int, dict[str, str], bytes]:
        """The page that asks a user, who agrees at once."""
        one = {name: values[0] for name, values in query.items()}
        if one.get("client_id") != CLIENT_ID or one.get("response_type") != "code":
            return 400, {}, b"invalid_client"
        redirect = one.get("redirect_uri", "")
        if not redirect.startswith(("http://localhost:", "http://127.0.0.1:")):
            return 400, {}, b"redirect_uri_mismatch"
        code = secrets.token_urlsafe(16)
        scopes = frozenset(one["scope"].split()) - self.declined
        self.codes[code] = {**one, "scopes": scopes}
        answer = {"code": code, "state": one.get("state", ""), "scope": " ".join(sorted(scopes))}
        return 302, {"Location": f"{redirect}?{urlencode(answer)}"}, b""

    def token_page(self, body: bytes, audience: str) -> tuple[int, dict[str, Any]]:
        """The token endpoint."""
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        kind = form.get("grant_type")
        with self._lock:
            self.refreshes += 1
            if kind == "refresh_token":
                return self._refresh(form)
            if kind == "authorization_code":
                return self._exchange(form)
            if kind == "urn:ietf:params:oauth:grant-type:jwt-bearer":
                return self._assertion(form["assertion"], audience)
        return 400, {"error": "unsupported_grant_type"}

    def revoke_page(self, body: bytes) -> int:
        token = parse_qs(body.decode()).get("token", [""])[0]
        grant = self.grants.get(token)
        if grant is None or grant.revoked:
            return 400
        grant.revoked = True
        return 200

    def _refresh(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client", "error_description": "Unauthorized"}
        grant = self.grants.get(form.get("refresh_token", ""))
        if grant is None or grant.revoked:
            return 400, {
                "error": "invalid_grant",
                "error_description": "Token has been expired or revoked.",
            }
        return 200, self._tokens(grant.user, grant.scopes)

    def _exchange(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or asked["redirect_uri"] != form.get("redirect_uri"):
            return 400, {"error": "invalid_grant", "error_description": "Malformed auth code."}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if asked.get("code_challenge") and asked["code_challenge"] != proof:
            return 400, {"error": "invalid_grant", "error_description": "Invalid code verifier."}
        grant = self.grant(self.consenting_user, asked["scopes"])
        return 200, self._tokens(grant.user, grant.scopes) | {"refresh_token": grant.refresh_token}

    def _assertion(self, assertion: str, audience: str) -> tuple[int, dict[str, Any]]:
        from google.auth import jwt
        from google.auth.exceptions import GoogleAuthError

        try:
            claimed = jwt.decode(assertion, verify=False)
            key = self.service_keys[claimed["iss"]]
            claims = jwt.decode(assertion, certs=key, audience=[audience, VENDOR_AUDIENCE])
        except (GoogleAuthError, KeyError, ValueError) as error:
            return 400, {"error": "invalid_grant", "error_description": f"Invalid JWT: {error}"}
        user = claims.get("sub", claims["iss"])
        if user != claims["iss"] and not self.delegation:
            return 401, {
                "error": "unauthorized_client",
                "error_description": "Client is unauthorized to retrieve access tokens using this method.",
            }
        return 200, self._tokens(user, claims["scope"].split())

    def _tokens(self, user: str, scopes: Any) -> dict[str, Any]:
        token = self.token_for(user, scopes)
        return {
            "access_token": token,
            "expires_in": LIFE,
            "scope": " ".join(sorted(scopes)),
            "token_type": "Bearer",
        }

    # -- files of credentials ----------------------------------------------------------------

    def service_account(self, url: str) -> dict[str, Any]:
        """A new service account with its key, as the vendor's console writes the file."""
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric import rsa

        email = f"robot-{secrets.token_hex(3)}@tests.iam.gserviceaccount.com"
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = key.public_key().public_bytes(
            form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo
        )
        self.service_keys[email] = public
        private = key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        )
        return {
            "type": "service_account",
            "project_id": "tests",
            "private_key_id": "1",
            "private_key": private.decode(),
            "client_email": email,
            "client_id": "1",
            "token_uri": f"{url}/token",
        }

    def client_secrets(self, url: str) -> dict[str, Any]:
        return {
            "installed": {
                "client_id": CLIENT_ID,
                "client_secret": CLIENT_SECRET,
                "auth_uri": f"{url}/o/oauth2/auth",
                "token_uri": f"{url}/token",
                "redirect_uris": ["http://localhost"],
            }
        }

    def authorized_user(self, url: str, user: str, scopes: Any) -> dict[str, Any]:
        return {
            "type": "authorized_user",
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "refresh_token": self.grant(user, scopes).refresh_token,
            "token_uri": f"{url}/token",
        }
