"""Logging in without a browser: by a key, by a workload's token, by a company's identity provider."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
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
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


class Company(ThreadingHTTPServer):
    """A server that wants a login, where one logs in, and an identity provider."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.place = f"http://127.0.0.1:{self.server_port}"
        self.asked: list[dict[str, str]] = []


class Handler(BaseHTTPRequestHandler):
    @property
    def company(self) -> Company:
        return cast("Company", self.server)

    def do_GET(self) -> None:
        place = self.company.place
        if self.path.startswith("/.well-known/oauth-protected-resource"):
            return self._say({"resource": f"{place}/mcp", "authorization_servers": [place]})
        if self.path.startswith("/.well-known/oauth-authorization-server"):
            return self._say(
                {
                    "issuer": place,
                    "authorization_endpoint": f"{place}/authorize",
                    "token_endpoint": f"{place}/token",
                    "response_types_supported": ["code"],
                }
            )
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
        return self._say({"access_token": "the-token", "token_type": "Bearer"})

    def _say(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
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
