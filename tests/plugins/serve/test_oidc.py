"""Logins by OpenID Connect, with a provider on loopback."""

from __future__ import annotations

import warnings
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from plugins.serve.test_people import add, person
from support.serving import bearer, doing

# The provider of the tests uses what its own library has left behind.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def provider():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import oidc_provider_mock

        with oidc_provider_mock.run_server_in_thread(require_nonce=True) as server:
            yield f"http://localhost:{server.server_port}"


@pytest.fixture
async def served(serve, provider):
    """A server whose people come from the provider, and a browser."""

    async def make(**more):
        server = await serve(
            oidc_issuer=provider,
            oidc_client_id="delf",
            oidc_client_secret="a secret",
            public_url="http://delf.localhost",
            **more,
        )
        await add(server, person("ada", mail="ada@example.com", teams=("finance",)))
        return server

    return make


def knows(provider: str, sub: str, **claims) -> None:
    httpx.put(f"{provider}/users/{sub}", json={"email": sub, **claims}).raise_for_status()


async def gone_to(browser: httpx.AsyncClient, sub: str) -> str:
    """The address to which the provider sends a browser back, once somebody logged in there."""
    begun = await browser.get("/login/oidc")
    assert begun.status_code == 303, begun.text
    query = parse_qs(urlsplit(begun.headers["location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    assert "nonce" in query
    async with httpx.AsyncClient() as other:
        answer = await other.post(begun.headers["location"], data={"sub": sub})
    back = urlsplit(answer.headers["location"])
    assert (back.hostname, back.path) == ("delf.localhost", "/login/callback")
    return f"{back.path}?{back.query}"


async def test_somebody_logs_in_by_the_provider(served, provider):
    server = await served()
    knows(provider, "ada@example.com")
    async with httpx.AsyncClient(base_url=server.url) as browser:
        assert (await browser.get("/session")).json()["hint"] == "GET /login/oidc"
        back = await browser.get(await gone_to(browser, "ada@example.com"))
        assert (back.status_code, back.headers["location"]) == (303, "/")
        known = (await browser.get("/session")).json()
        assert (known["name"], known["way"], known["teams"]) == ("ada", "session", ["finance"])
        order = {"task": doing("print(1)")}
        assert (await browser.post("/run", json=order)).status_code == 403, "without its token"
        token = {"x-csrf-token": known["csrf"]}
        assert (await browser.post("/run", json=order, headers=token)).status_code == 202
        listed = (await browser.get("/sessions")).json()["sessions"]
        assert [(one["way"], one["is_this"]) for one in listed] == [("oidc", True)]
        place = f"/sessions/{listed[0]['id']}"
        assert (await browser.delete(place, headers=token)).status_code == 204
        assert (await browser.get("/tasks")).status_code == 401
    assert (await server.client.get("/tasks", headers=bearer("ada-key"))).status_code == 200


async def test_who_is_not_known_is_refused_or_is_a_guest(served, provider):
    knows(provider, "new@example.com", groups=["ops", "not a name!"])
    server = await served()
    async with httpx.AsyncClient(base_url=server.url) as browser:
        back = await browser.get(await gone_to(browser, "new@example.com"))
        assert back.status_code == 403
        assert "delf_session" not in browser.cookies


async def test_a_guest_has_the_teams_that_the_provider_tells(served, provider):
    knows(provider, "guest@example.com", groups=["ops", "not a name!"])
    server = await served(guests="read@team", oidc_teams_claim="groups")
    async with httpx.AsyncClient(base_url=server.url) as browser:
        await browser.get(await gone_to(browser, "guest@example.com"))
        known = (await browser.get("/session")).json()
        assert (known["rights"], known["scope"], known["teams"]) == (["read"], "team", ["ops"])


async def test_a_login_of_another_browser_is_none(served, provider):
    server = await served()
    knows(provider, "ada@example.com")
    async with (
        httpx.AsyncClient(base_url=server.url) as thief,
        httpx.AsyncClient(base_url=server.url) as victim,
    ):
        back = await gone_to(thief, "ada@example.com")
        assert (await victim.get(back)).status_code == 400, "it has begun no login"
        await gone_to(victim, "ada@example.com")
        assert (await victim.get(back)).status_code == 400, "it has begun another one"
        assert (await thief.get(back.replace("code=", "code=x"))).status_code == 502
        assert "delf_session" not in victim.cookies
        assert "delf_session" not in thief.cookies


async def test_a_mail_that_nobody_has_verified_is_no_name(served, provider):
    server = await served()
    knows(provider, "mallory", email="ada@example.com", email_verified=False)
    async with httpx.AsyncClient(base_url=server.url) as browser:
        back = await browser.get(await gone_to(browser, "mallory"))
        assert back.status_code == 403
        assert "delf_session" not in browser.cookies
