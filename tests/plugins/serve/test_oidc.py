"""Logins by OpenID Connect, with a provider on loopback."""

from __future__ import annotations

import base64
import json
import time
import warnings
from dataclasses import asdict
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from joserfc import jwk, jwt

from delf_serve import oidc
from delf_serve.problems import ProblemError
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
    """Opens servers at which people log in through the provider."""

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
    message = {"email": sub, "email_verified": True, **claims}
    httpx.put(f"{provider}/users/{sub}", json=message).raise_for_status()


async def gone_to(browser: httpx.AsyncClient, sub: str) -> str:
    """Log a person in at the provider; return the address to which it redirects the browser."""
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


async def test_person_can_log_in_by_the_provider(served, provider):
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


async def test_unknown_person_is_refused(served, provider):
    knows(provider, "new@example.com")
    server = await served()
    async with httpx.AsyncClient(base_url=server.url) as browser:
        back = await browser.get(await gone_to(browser, "new@example.com"))
        assert back.status_code == 403
        assert "delf_session" not in browser.cookies


async def test_login_begun_in_another_browser_is_refused(served, provider):
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


@pytest.mark.parametrize("verified", [False, None, "no", ""])
async def test_unverified_mail_address_is_not_accepted_as_name(served, provider, verified):
    server = await served()
    knows(provider, "mallory", email="ada@example.com", email_verified=verified)
    async with httpx.AsyncClient(base_url=server.url) as browser:
        back = await browser.get(await gone_to(browser, "mallory"))
        assert back.status_code == 403
        assert "delf_session" not in browser.cookies


async def logs_in(server, sub: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url) as browser:
        back = await browser.get(await gone_to(browser, sub))
        return await browser.get("/session") if back.status_code == 303 else back


async def test_mail_addresses_are_compared_without_case(served, provider):
    server = await served()
    knows(provider, "one", email="Ada@Example.COM")
    assert (await logs_in(server, "one")).json()["name"] == "ada"
    await add(server, person("kim", mail="kim@example.com"), person("joe", mail="Joe@Example.com"))
    knows(provider, "two", email="joe@example.com")
    assert (await logs_in(server, "two")).json()["name"] == "joe"
    knows(provider, "mallory", email="\N{KELVIN SIGN}im@example.com")
    assert (await logs_in(server, "mallory")).status_code == 403, "another letter that folds to k"


async def test_concurrent_logins_share_a_client(served, monkeypatch):
    server = await served()
    from authlib.integrations import httpx_client

    made = []
    original = httpx_client.AsyncOAuth2Client.__init__
    monkeypatch.setattr(
        httpx_client.AsyncOAuth2Client,
        "__init__",
        lambda self, **options: (made.append(self), original(self, **options))[1],
    )
    async with httpx.AsyncClient(base_url=server.url) as browser:
        for _ in range(3):
            assert (await browser.get("/login/oidc")).status_code == 303
    assert len(made) == 1


async def test_display_name_does_not_identify_a_sender(served, provider):
    server = await served(oidc_name_claim="preferred_username")
    knows(provider, "mallory", preferred_username="ada@example.com")
    assert (await logs_in(server, "mallory")).status_code == 403
    knows(provider, "ada", preferred_username="ada")
    assert (await logs_in(server, "ada")).json()["name"] == "ada"


@pytest.mark.parametrize(
    "cookie",
    [
        '{"state": "", "nonce": "", "verifier": ""}',
        '{"state": null, "nonce": null, "verifier": null}',
        '{"state": 1, "nonce": 2, "verifier": 3}',
        '{"state": "x"}',
        "[]",
        "",
    ],
)
async def test_callback_without_a_begun_login_is_refused(served, cookie):
    server = await served()
    async with httpx.AsyncClient(base_url=server.url) as browser:
        headers = {"cookie": f"delf_login={quote(cookie)}"}
        for query in ("code=x", "code=x&state=", "code=x&state=1", ""):
            back = await browser.get(f"/login/callback?{query}", headers=headers)
            assert back.status_code == 400, (cookie, query)


async def test_login_callback_can_be_used_once(served, provider):
    server = await served()
    knows(provider, "ada@example.com")
    async with httpx.AsyncClient(base_url=server.url) as browser:
        address = await gone_to(browser, "ada@example.com")
        cookie = {"cookie": f"delf_login={browser.cookies['delf_login']}"}
        assert (await browser.get(address)).status_code == 303
        async with httpx.AsyncClient(base_url=server.url) as thief:
            assert (await thief.get(address, headers=cookie)).status_code == 502
            assert "delf_session" not in thief.cookies


@pytest.mark.parametrize(
    "forged",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": ["delf", "another"]},
        {"aud": ["delf", "another"], "azp": "another"},
        {"azp": "another"},
        {"azp": 7},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"alg": "none"},
        {"alg": "HS256"},
        {"key": "own"},
    ],
    ids=str,
)
async def test_forged_identity_token_is_refused(served, provider, monkeypatch, forged):
    """The token differs in one thing from one that the provider would sign."""
    server = await served()
    connect = server.app.service.oidc
    issuer = f"{provider}"
    good, other = (jwk.RSAKey.generate_key(2048, {"kid": "k"}) for _ in range(2))
    about, _ = await connect.provider()
    begun = oidc.LoginState(state="s", nonce="n", verifier="v")
    claims = {
        "iss": about["issuer"],
        "aud": "delf",
        "sub": "ada",
        "nonce": "n",
        "exp": int(time.time()) + 300,
        "email": "ada@example.com",
        "email_verified": True,
    }
    assert about["issuer"].rstrip("/") == issuer

    async def known():
        return about, {"keys": [good.as_dict(private=False)]}

    def signed(message, alg="RS256", key=good):
        if alg == "none":
            parts = ({"alg": "none"}, message)
            head, body = (
                base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
                for part in parts
            )
            return f"{head}.{body}."
        used = jwk.OctKey.import_key("a secret" * 4) if alg == "HS256" else key
        return jwt.encode({"alg": alg, "kid": "k"}, message, used, algorithms=[alg])

    token = signed(claims)

    async def gives(*_):
        return token

    monkeypatch.setattr(connect, "provider", known)
    monkeypatch.setattr(connect, "fetch_token", gives)
    cookie, query = json.dumps(asdict(begun)), {"state": "s", "code": "c"}
    assert await connect.finish(cookie, query) == "ada@example.com"
    token = signed({**claims, "aud": ["delf", "another"], "azp": "delf"})
    assert await connect.finish(cookie, query) == "ada@example.com"
    message = {**claims, **{n: v for n, v in forged.items() if n not in ("alg", "key")}}
    message = {name: value for name, value in message.items() if value is not None}
    token = signed(message, forged.get("alg", "RS256"), other if "key" in forged else good)
    with pytest.raises(ProblemError) as refused:
        await connect.finish(cookie, query)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    "changed",
    [None, [], "text", {"jwks_uri": 7}, {"jwks_uri": "http://a:b"}, {"token_endpoint": None}],
    ids=str,
)
async def test_unreadable_metadata_of_the_provider_is_a_bad_gateway(served, monkeypatch, changed):
    server = await served()
    about, _ = await server.app.service.oidc.provider()
    connect = oidc.OpenIdConnect(server.app.settings)  # which knows no metadata yet
    metadata = changed
    if isinstance(changed, dict):
        merged = {**about, **changed}
        metadata = {name: value for name, value in merged.items() if value is not None}

    async def get(client: httpx.AsyncClient, url: str) -> httpx.Response:
        return httpx.Response(200, json=metadata, request=client.build_request("GET", url))

    monkeypatch.setattr(httpx.AsyncClient, "get", get)
    with pytest.raises(ProblemError) as caught:
        await connect.provider()
    assert caught.value.status == 502
