"""Logging in without a browser, and tokens that are bound to a key."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from delf.errors import ConnectionConfigurationError, ConnectionUnavailableError
from delf_mcp.oauth import login, open_browser
from delf_mcp.settings import MCPSettings

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
WANTS_NONCE = "use_dpop_nonce"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


class Company(ThreadingHTTPServer):
    """A server that wants a login, where one logs in, and an identity provider."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.place = f"http://127.0.0.1:{self.server_port}"
        self.asked: list[dict[str, str]] = []
        self.binds = False
        """Whether tokens are bound to a key, and proofs want a nonce (RFC 9449)."""
        self.proofs: list[Proof] = []

    def look_at(self, proof: str, method: str, path: str, nonce: str) -> bool:
        """Whether a proof is right; keeps it, and refuses one that was seen before."""
        head = jwt.get_unverified_header(proof)
        key = jwt.PyJWK(head["jwk"], "ES256").key
        claims = jwt.decode(proof, key, algorithms=["ES256"])
        seen = Proof(head, claims, path)
        fresh = claims["jti"] not in {known.claims["jti"] for known in self.proofs}
        self.proofs.append(seen)
        right = (head["typ"], claims["htm"], claims["htu"]) == (
            "dpop+jwt",
            method,
            f"{self.place}{path}",
        )
        return fresh and right and claims.get("nonce") == nonce


class Proof(NamedTuple):
    """A proof that was shown."""

    head: dict[str, Any]
    claims: dict[str, Any]
    path: str


class Handler(BaseHTTPRequestHandler):
    @property
    def company(self) -> Company:
        return cast("Company", self.server)

    def do_GET(self) -> None:
        place, binds = self.company.place, self.company.binds
        if self.path.startswith("/.well-known/oauth-protected-resource"):
            return self._say({"resource": f"{place}/mcp", "authorization_servers": [place]})
        if self.path.startswith("/.well-known/oauth-authorization-server"):
            return self._say(
                {
                    "issuer": place,
                    "authorization_endpoint": f"{place}/authorize",
                    "token_endpoint": f"{place}/token",
                    "response_types_supported": ["code"],
                    **({"dpop_signing_alg_values_supported": ["ES256"]} if binds else {}),
                }
            )
        if binds:
            return self._bound()
        allowed = self.headers.get("Authorization") == "Bearer the-token"
        return self._say({"hello": "you"}) if allowed else self._say({}, 401)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        given = {name: values[0] for name, values in parse_qs(body).items()}
        given["login"] = self.headers.get("Authorization", "")
        self.company.asked.append({"path": self.path, **given})
        if self.path == "/idp":
            right = given.get("subject_token") == "who-i-am"
            return self._say({"access_token": "the-grant"} if right else {}, 200 if right else 400)
        if not self.company.binds:
            return self._say({"access_token": "the-token", "token_type": "Bearer"})
        proof = self.headers.get("DPoP", "")
        if not self.company.look_at(proof, "POST", "/token", "login-nonce"):
            return self._say({"error": WANTS_NONCE}, 400, {"DPoP-Nonce": "login-nonce"})
        return self._say({"access_token": "the-token", "token_type": "DPoP"})

    def _bound(self) -> None:
        """Says hello to who has the token and its key."""
        challenge = {"WWW-Authenticate": "DPoP"}
        if self.headers.get("Authorization") != "DPoP the-token":
            return self._say({}, 401, challenge)
        if not self.company.look_at(self.headers["DPoP"], "GET", "/mcp", "nonce"):
            challenge["WWW-Authenticate"] += f' error="{WANTS_NONCE}"'
            return self._say({}, 401, {**challenge, "DPoP-Nonce": "nonce"})
        return self._say({"hello": "you"})

    def _say(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Says nothing."""


@pytest.fixture
def company() -> Iterator[Company]:
    with Company() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def logged_in(company: Company, folder: Path, **options: Any) -> tuple[str, list[str]]:
    """What the server says to who logs in, and the secrets that were learned."""
    url = f"{company.place}/mcp"
    learned: list[str] = []
    given = {"url": url, "tokens": str(folder / "tokens.json"), **options}
    auth = login("srv", MCPSettings.for_instance("srv", given), learned.append, open_browser)
    async with httpx2.AsyncClient(auth=auth) as http:
        return (await http.get(url)).text, learned


async def test_a_key_proves_who_the_client_is(company: Company, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    options = {"oauth": "client_credentials", "client_id": "delf-1", "private_key": pem}
    said, learned = await logged_in(
        company, tmp_path, signing_algorithm="ES256", issuer=company.place, **options
    )
    assert said == '{"hello": "you"}'
    assert learned == ["the-token"]
    (asked,) = company.asked
    assert (asked["grant_type"], asked["client_assertion_type"]) == (
        "client_credentials",
        ASSERTION,
    )
    claims = jwt.decode(
        asked["client_assertion"], key.public_key(), algorithms=["ES256"], audience=company.place
    )
    assert (claims["iss"], claims["sub"]) == ("delf-1", "delf-1")


async def test_a_workload_gives_the_token_of_its_platform(company: Company, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-the-platform\n")
    options = {"oauth": "workload", "client_id": "pod", "assertion_file": str(tmp_path / "token")}
    said, learned = await logged_in(company, tmp_path, scopes=["notes"], **options)
    assert said == '{"hello": "you"}'
    assert learned == ["from-the-platform", "the-token"]
    (asked,) = company.asked
    assert (asked["grant_type"], asked["assertion"]) == (BEARER, "from-the-platform")
    assert (asked["client_id"], asked["scope"]) == ("pod", "notes")


async def test_a_workloads_token_goes_to_no_other_issuer(company: Company, tmp_path: Path) -> None:
    from mcp.client.auth import OAuthFlowError

    (tmp_path / "token").write_text("from-the-platform")
    options = {"oauth": "workload", "client_id": "pod", "assertion_file": str(tmp_path / "token")}
    with pytest.raises(OAuthFlowError, match="and not to https://right"):
        await logged_in(company, tmp_path, issuer="https://right.example", **options)
    assert company.asked == []


def workload(folder: Path) -> dict[str, Any]:
    (folder / "token").write_text("from-the-platform")
    return {"oauth": "workload", "client_id": "pod", "assertion_file": str(folder / "token")}


async def test_a_token_is_bound_to_a_key_where_the_server_asks(
    company: Company, tmp_path: Path
) -> None:
    company.binds = True
    said, learned = await logged_in(company, tmp_path, **workload(tmp_path))
    assert said == '{"hello": "you"}'
    assert "the-token" in learned
    # Each is sent again with the nonce that the first answer brought.
    assert [(p.path, p.claims.get("nonce")) for p in company.proofs] == [
        ("/token", None),
        ("/token", "login-nonce"),
        ("/mcp", None),
        ("/mcp", "nonce"),
    ]
    assert len({json.dumps(proof.head["jwk"]) for proof in company.proofs}) == 1
    assert "d" not in company.proofs[0].head["jwk"]
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"the-token").digest()).rstrip(b"=").decode()
    assert [proof.claims.get("ath") for proof in company.proofs] == [None, None, digest, digest]


async def test_a_bound_token_is_used_again_with_its_key(company: Company, tmp_path: Path) -> None:
    company.binds = True
    await logged_in(company, tmp_path, **workload(tmp_path))
    before = company.proofs[-1]
    said, learned = await logged_in(company, tmp_path, **workload(tmp_path))
    assert said == '{"hello": "you"}'
    assert len(company.asked) == 2  # the token, whose first request lacked the nonce
    assert company.proofs[-1].head["jwk"] == before.head["jwk"]
    assert company.proofs[-1].claims["jti"] != before.claims["jti"]
    assert any("PRIVATE KEY" in secret for secret in learned)
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0


async def test_a_key_is_not_shown_to_who_does_not_ask(company: Company, tmp_path: Path) -> None:
    said, _ = await logged_in(company, tmp_path, **workload(tmp_path))
    assert said == '{"hello": "you"}'
    assert company.proofs == []
    assert "binding" not in json.loads((tmp_path / "tokens.json").read_text())


def enterprise(company: Company, folder: Path, identity: str) -> dict[str, Any]:
    (folder / "identity").write_text(identity)
    return {
        "oauth": "enterprise",
        "client_id": "delf",
        "client_secret": "s3cret",
        "issuer": company.place,
        "idp": f"{company.place}/idp",
        "idp_client_id": "delf-at-idp",
        "assertion_file": str(folder / "identity"),
    }


async def test_a_company_vouches_for_its_user(company: Company, tmp_path: Path) -> None:
    said, learned = await logged_in(company, tmp_path, **enterprise(company, tmp_path, "who-i-am"))
    assert said == '{"hello": "you"}'
    assert learned == ["who-i-am", "the-token"]
    exchanged, asked = company.asked
    assert (exchanged["path"], exchanged["grant_type"]) == ("/idp", EXCHANGE)
    assert exchanged["audience"] == company.place
    assert exchanged["resource"] == f"{company.place}/mcp"
    assert exchanged["client_id"] == "delf-at-idp"
    assert (asked["grant_type"], asked["assertion"]) == (BEARER, "the-grant")
    assert base64.b64decode(asked["login"].removeprefix("Basic ")) == b"delf:s3cret"


async def test_an_identity_that_is_not_valid_is_said(company: Company, tmp_path: Path) -> None:
    with pytest.raises(ConnectionUnavailableError, match="gave no grant: status 400"):
        await logged_in(company, tmp_path, **enterprise(company, tmp_path, "old"))


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"oauth": "client_credentials", "client_id": "x"}, "client_secret"),
        ({"oauth": "client_credentials", "private_key": "k"}, "client_id"),
        ({"oauth": "workload", "client_id": "x"}, "assertion_file"),
        ({"oauth": "enterprise", "client_id": "x", "client_secret": "y"}, "issuer, idp"),
    ],
)
async def test_what_is_missing_is_named(
    company: Company, tmp_path: Path, options: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ConnectionConfigurationError) as caught:
        await logged_in(company, tmp_path, **options)
    assert missing in (caught.value.hint or "")
