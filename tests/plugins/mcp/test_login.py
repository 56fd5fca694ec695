"""Logging in, in a browser and without one."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from delf.errors import ConnectionConfigurationError, ConnectionUnavailableError
from delf_mcp.oauth import OpenURL, RedirectListener, login, open_browser
from delf_mcp.settings import MCPSettings
from support.server import free_port

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class Company(ThreadingHTTPServer):
    """A server that requires a login, with its authorization server."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.place = f"http://127.0.0.1:{self.server_port}"
        self.asked: list[dict[str, str]] = []
        self.names_login_server = True


class Handler(BaseHTTPRequestHandler):
    @property
    def company(self) -> Company:
        return cast("Company", self.server)

    def do_GET(self) -> None:
        place = self.company.place
        if self.path.startswith("/.well-known/") and not self.company.names_login_server:
            return self._say({}, 404)
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
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def logged_in(
    company: Company, folder: Path, open_url: OpenURL = open_browser, **options: Any
) -> tuple[str, list[str]]:
    """Log in; return the server's answer, and the secrets that the connection learned."""
    url = f"{company.place}/mcp"
    learned: list[str] = []
    given = {"url": url, "tokens": str(folder / "tokens.json"), **options}
    made = login("srv", MCPSettings.for_instance("srv", given), learned.append, open_url)
    assert made is not None
    auth, check = made
    async with httpx2.AsyncClient(auth=auth, event_hooks={"request": [check]}) as http:
        return (await http.get(url)).text, learned


async def test_private_key_authenticates_the_client(company: Company, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    options: dict[str, Any] = {
        "oauth": "client_credentials",
        "client_id": "delf-1",
        "private_key": pem,
    }
    message, learned = await logged_in(
        company, tmp_path, signing_algorithm="ES256", issuer=company.place, **options
    )
    assert message == '{"hello": "you"}'
    assert json.loads((tmp_path / "tokens.json").read_text())["issuer"] == company.place
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


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"oauth": "client_credentials", "client_id": "x"}, "client_secret"),
        ({"oauth": "client_credentials", "private_key": "k"}, "client_id"),
    ],
)
async def test_error_names_the_missing_login_setting(
    company: Company, tmp_path: Path, options: dict[str, Any], missing: str
) -> None:
    with pytest.raises(ConnectionConfigurationError) as caught:
        await logged_in(company, tmp_path, **options)
    assert missing in (caught.value.hint or "")


# -- in a browser -------------------------------------------------------------------------------


class Browser:
    """A user's browser: it returns to delf with given answers, in which STATE is the login's."""

    def __init__(self, *answers: dict[str, str]) -> None:
        self.answers = answers
        self.opened: list[str] = []
        self.pages: list[str] = []

    async def open(self, url: str) -> None:
        self.opened.append(url)
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        async with httpx2.AsyncClient() as http:
            for answer in self.answers:
                params = {
                    name: text.replace("STATE", asked["state"]) for name, text in answer.items()
                }
                self.pages.append((await http.get(asked["redirect_uri"], params=params)).text)


def browser_options(**options: Any) -> dict[str, Any]:
    return {"oauth": "browser", "client_id": "me", "oauth_port": free_port(), **options}


ACCEPTED = {"code": "c", "state": "STATE"}


async def test_forged_answers_do_not_end_a_browser_login(company: Company, tmp_path: Path) -> None:
    forged = [{"code": "bad"}, {"code": "bad", "state": "x"}, {"error": "bad", "state": "x"}, {}]
    browser = Browser(*forged, ACCEPTED)
    answer, learned = await logged_in(company, tmp_path, browser.open, **browser_options())
    assert json.loads(answer) == {"hello": "you"}
    assert learned == ["the-token"]
    assert [request["code"] for request in company.asked] == ["c"]
    assert ["You are logged in" in page for page in browser.pages] == [False] * 4 + [True]


async def test_port_of_a_login_that_cannot_be_shown_is_closed() -> None:
    async def fail(_: str) -> None:
        raise RuntimeError("no browser")

    listener = RedirectListener("srv", free_port(), fail)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no browser"):
            await listener.show("https://login.example/?state=s")


@pytest.mark.parametrize("request_head", [b"\r\n\r\n", b"GET\r\n\r\n", b"x" * 200_000])
async def test_request_that_is_not_http_is_closed(request_head: bytes) -> None:
    async def show(_: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_head)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    port = free_port()
    listener = RedirectListener("srv", port, show)
    await listener.show("https://login.example/?state=s")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(listener.wait(), 0.01)


async def test_refused_browser_login_is_an_error_at_once(company: Company, tmp_path: Path) -> None:
    words = {"error": "access_denied", "error_description": "\x1b[2Jnot you", "state": "STATE"}
    browser = Browser(words)
    with pytest.raises(ConnectionUnavailableError, match=r"^srv: .*: access_denied .*not you$"):
        await logged_in(company, tmp_path, browser.open, **browser_options())
    assert "You are not logged in" in browser.pages[0]


@pytest.mark.parametrize("names_login_server", [True, False])
async def test_browser_login_goes_only_to_the_permitted_issuer(
    company: Company, tmp_path: Path, names_login_server: bool
) -> None:
    company.names_login_server = names_login_server
    browser = Browser(ACCEPTED)
    options = browser_options(issuer="https://login.example")
    with pytest.raises(ConnectionConfigurationError, match=r"permits only https://login.example"):
        await logged_in(company, tmp_path, browser.open, **options)
    assert (browser.opened, company.asked) == ([], [])
    options = browser_options(issuer=company.place)
    answer, _ = await logged_in(company, tmp_path, browser.open, **options)
    assert json.loads(answer) == {"hello": "you"}
