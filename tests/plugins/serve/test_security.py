"""Requests that the server refuses, by key and right; no refusal loses data."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from delf import ConfigurationError, OptionalDependencyError
from delf_devkit.testing.hosts import TestHost
from delf_serve.keys import Keys
from delf_serve.server import check_bind
from delf_serve.settings import settings_of
from support.serving import KEYS, Outbox, bearer, doing, make_agent

from .raw import raw

WRONG = ("wrong", "ada-ke", "ada-key2", "ADA-KEY", "ada-key,ben-key", "ada:read:ada-key")


@pytest.fixture
async def keyed(serve):
    return await serve(api_key=KEYS)


async def test_wrong_key_is_refused(keyed):
    every = [(bearer(key), {"x-api-key": key}, {"authorization": key}) for key in WRONG]
    for headers in (headers for some in every for headers in some):
        answer = await keyed.client.get("/tasks", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["code"] == "ERR-HTTP-401"


async def test_non_ascii_key_gets_401_and_not_500(keyed):
    for value in (b"Bearer \xc3\xa4da", b"Bearer \xff\xfe", "Bearer ключ".encode()):
        request = b"GET /tasks HTTP/1.1\r\nhost: localhost\r\nauthorization: " + value
        assert (await raw(keyed.url, request + b"\r\n\r\n")).startswith(b"HTTP/1.1 401")
    keys = Keys.of(settings_of({"api_key": "ключ"}), {})
    assert keys.find("ключ".encode()) is not None


async def test_keyless_request_gets_only_health(keyed):
    for path in ("/tasks", "/approvals", "/events", "/metrics", "/openapi.json", "/docs", "/nope"):
        assert (await keyed.client.get(path)).status_code == 401, path
    for path in ("/health", "/ready", "/", "/page/app.js"):
        assert (await keyed.client.get(path)).status_code == 200, path


async def test_key_has_only_its_rights(keyed):
    order = {"task": doing("print(await send('bob'))")}
    client = keyed.client
    assert (await client.post("/run", json=order, headers=bearer("ben-key"))).status_code == 403
    assert (
        await client.post("/files?name=a", content=b"", headers=bearer("dee-key"))
    ).status_code == 403
    accepted = await client.post("/run", json=order, headers=bearer("cy-key"))
    assert accepted.status_code == 202
    client.headers.update(bearer("ada-key"))
    name = (await keyed.question(accepted.json()["task_id"]))["request_id"]
    yes = {"decision": "approve"}
    for key in ("ben-key", "cy-key"):
        answer = await client.post(f"/approvals/{name}", json=yes, headers=bearer(key))
        assert answer.status_code == 403
    assert keyed.box.sent == []
    done = await client.post(f"/approvals/{name}", json=yes, headers=bearer("dee-key"))
    assert done.json()["by"] == "dee"


async def test_failed_key_attempts_are_limited_without_locking_out_valid_keys(keyed, caplog):
    for n in range(31):
        last = await keyed.client.get("/tasks", headers=bearer(f"guess-{n}"))
    assert (last.status_code, last.headers["retry-after"]) == (429, "60")
    assert (await keyed.client.post("/login", json={"key": "guess"})).status_code == 429
    assert (await keyed.client.get("/tasks", headers=bearer("ada-key"))).status_code == 200
    assert (await keyed.client.post("/login", json={"key": "ada-key"})).status_code == 200
    assert "127.0.0.1" in caplog.text
    assert "guess" not in caplog.text


async def test_clients_are_distinguished_behind_a_declared_proxy_only(serve):
    def message(name):
        return {**bearer("guess"), "x-forwarded-for": name}

    behind = await serve(api_key=KEYS, trusted_proxies="127.0.0.0/8")
    for n in range(31):
        own = {"authorization": f"Bearer guess-{n}", "x-forwarded-for": "203.0.113.1"}
        last = await behind.client.get("/tasks", headers=own)
    assert last.status_code == 429
    other = await behind.client.get("/tasks", headers=message("203.0.113.2"))
    assert other.status_code == 401
    direct = await serve(api_key=KEYS)
    for n in range(31):
        own = {"authorization": f"Bearer guess-{n}", "x-forwarded-for": f"203.0.113.{n}"}
        last = await direct.client.get("/tasks", headers=own)
    assert last.status_code == 429


async def test_wrong_key_is_counted_across_addresses(serve):
    behind = await serve(api_key=KEYS, trusted_proxies=["127.0.0.1"])
    for n in range(31):
        message = {**bearer("old-key"), "x-forwarded-for": f"203.0.113.{n}"}
        last = await behind.client.get("/tasks", headers=message)
    assert last.status_code == 429


async def test_every_key_is_compared_for_constant_time(monkeypatch):
    seen = []
    given = "ada:ada-key,ben:ben-key,cy:cy-key,dee:dee-key"
    keys = Keys.of(settings_of({"api_key": given}), {})
    import hmac

    true = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: seen.append(b) or true(a, b))
    for secret in (b"ada-key", b"dee-key", b"nobody"):
        seen.clear()
        keys.find(secret)
        assert len(seen) == 4


def test_invalid_key_setting_error_hides_the_key():
    for text in (
        "a:b:c:d",
        "ada:fly:s3cret",
        "ada:read+run:s3cret",
        "1x:s3cret",
        "ada:read:",
        "ada:k1,ada:k2",
        "ada:k1,ben:k1",
    ):
        with pytest.raises(ConfigurationError) as error:
            Keys.of(settings_of({"api_key": text}), {})
        assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_bind_beyond_loopback_needs_a_key(host):
    with pytest.raises(ConfigurationError, match="API key"):
        check_bind(host, keyed=False)
    check_bind(host, keyed=True)
    for own in ("127.0.0.1", "::1", "localhost", "127.0.0.2"):
        check_bind(own, keyed=False)


async def test_foreign_host_name_is_refused(serve):
    server = await serve()
    for host in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80", "a@[b"):
        for path in ("/tasks", "/"):
            answer = await server.client.get(path, headers={"host": host})
            assert answer.status_code == 421, (host, path)
        for path in ("/health", "/ready"):  # load balancers ask by what name they like
            assert (await server.client.get(path, headers={"host": host})).status_code == 200
    for host in ("localhost:1", "127.0.0.1", "[::1]:80", "delf.localhost"):
        assert (await server.client.get("/tasks", headers={"host": host})).status_code == 200, host
    own = await serve(hosts=["delf.example"])
    assert (await own.client.get("/tasks", headers={"host": "delf.example"})).status_code == 200


async def test_cross_origin_change_is_refused(serve):
    server = await serve()
    order = {"task": doing("print(1)")}
    evil = {"origin": "https://evil.example"}
    assert (await server.client.post("/run", json=order, headers=evil)).status_code == 403
    form = await server.client.post(
        "/run", content=json.dumps(order), headers={"content-type": "text/plain"}
    )
    assert form.status_code == 415
    asked = {**evil, "access-control-request-method": "POST"}
    assert (await server.client.options("/run", headers=asked)).status_code == 403
    assert (
        "access-control-allow-origin"
        not in (await server.client.get("/tasks", headers=evil)).headers
    )
    assert not (await server.client.get("/tasks")).json()["tasks"]
    open_one = await serve(allow_origins=["https://good.example"])
    good = {"origin": "https://good.example"}
    preflight = await open_one.client.options(
        "/run", headers={**good, "access-control-request-method": "POST"}
    )
    assert preflight.headers["access-control-allow-origin"] == "https://good.example"
    assert (await open_one.client.post("/run", json=order, headers=good)).status_code == 202


async def test_session_change_needs_its_csrf_token(keyed):
    order = {"task": doing("print(1)")}
    async with httpx.AsyncClient(base_url=keyed.url) as browser:
        answer = await browser.post("/login", json={"key": "cy-key"})
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "cy-key" not in cookie
        assert (await browser.get("/tasks")).status_code == 200
        assert (await browser.post("/run", json=order)).status_code == 403
        wrong = {"x-csrf-token": "wrong"}
        assert (await browser.post("/run", json=order, headers=wrong)).status_code == 403
        right = {"x-csrf-token": answer.json()["csrf"]}
        assert (await browser.post("/run", json=order, headers=right)).status_code == 202
        name, value = next(iter(browser.cookies.items()))
        for forged in (value[:-2], value.swapcase(), "x.y", ".", value + "A", "é"):
            headers = {"cookie": f"{name}={forged}".encode()}
            async with httpx.AsyncClient(base_url=keyed.url) as thief:
                assert (await thief.get("/tasks", headers=headers)).status_code == 401, forged
        assert (await browser.post("/logout", headers=right)).status_code == 204
        assert (await browser.get("/tasks")).status_code == 401


async def test_session_ends_after_session_hours(serve):
    server = await serve(api_key=KEYS, session_hours=1e-9)
    key = server.app.keys.find(b"ada-key")
    cookie = await server.app.sessions.begin(key, "key", "127.0.0.1", "")
    assert await server.app.sessions.caller_of(cookie) is None


async def test_session_with_another_secret_is_invalid(serve):
    server = await serve(api_key="ada:ada-key")
    cookie = await server.app.sessions.begin(server.app.keys.find(b"ada-key"), "key", "", "")
    assert (await server.app.sessions.caller_of(cookie)).name == "ada"
    other = await serve(api_key="ada:new-key")
    assert await other.app.sessions.caller_of(cookie) is None


async def test_body_size_is_limited(serve, tmp_path):
    server = await serve(body_bytes=2000, file_bytes=5000)
    big = await server.client.post("/run", json={"task": "x" * 3000})
    assert (big.status_code, big.headers["connection"]) == (413, "close")

    async def endless():
        while True:
            yield b"x" * 1000

    try:
        chunked = await server.client.post("/files?name=a", content=endless())
        assert chunked.status_code == 413
    except httpx.TransportError:
        pass  # it was closed while it was still sent
    assert not list((tmp_path / "files").rglob("a"))
    head = b"POST /files?name=a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000000\r\n\r\n"
    assert (await raw(server.url, head)).startswith(b"HTTP/1.1 413")
    for length in (b"-1", b"x"):
        odd = head.replace(b"1000000000", length)
        assert (await raw(server.url, odd))[9:12] in (b"413", b"400")


async def test_slow_heads_and_bodies_are_abandoned(serve):
    server = await serve(header_seconds=0.3, body_seconds=0.3)
    assert await raw(server.url, b"GET /tasks HTTP/1.1\r\nhost: loc") == b""
    dripping = [bytes([letter]) for letter in b"GET /tasks HTTP/1.1\r\nhost: localhost\r\n"]
    assert await raw(server.url, *dripping[:20], pause=0.03) == b""
    head = (
        b"POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        b"content-length: 100\r\n\r\n{"
    )
    assert (await raw(server.url, head)).startswith(b"HTTP/1.1 408")
    assert (await server.client.get("/health")).status_code == 200


async def test_malformed_requests_are_refused_as_json(serve):
    server = await serve()
    post = server.client.post
    for body in (
        b"",
        b"{",
        b"[]",
        b'{"task": 5}',
        b'{"task": " "}',
        b'{"task":"x","more":1}',
        b"\xff",
    ):
        answer = await post("/run", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 422, body
        assert answer.headers["content-type"] == "application/problem+json"
        message = answer.json()
        assert (message["status"], message["code"]) == (422, "ERR-HTTP-422")
        assert message["request_id"] == answer.headers["x-request-id"]
    assert (await post("/run", json={"task": "x", "wait": -1})).json()["param"] == "wait"
    files = [{"id": "../x"}]
    wrong = await post("/run", json={"task": "x", "files": files})
    assert wrong.json()["param"] == "files.0.id"
    deep = b"[" * 100_000 + b"]" * 100_000
    answer = await post("/run", content=deep, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert (await server.client.get("/tasks?limit=x")).status_code == 422
    twice = await server.client.get("/tasks?limit=1&limit=2")
    assert (twice.status_code, twice.json()["param"]) == (422, "limit")
    assert (await server.client.delete("/tasks")).status_code == 405
    odd = {"last-event-id": "-1"}
    task = (await server.run("print(1)"))["task_id"]
    assert (await server.client.get(f"/tasks/{task}/events", headers=odd)).status_code == 422


async def test_requests_and_open_tasks_are_limited_per_user(serve):
    server = await serve(key="ada-key", api_key=KEYS, rate=5, open_tasks=2, agent={"max_tasks": 1})
    answers = [(await server.client.get("/session")).status_code for _ in range(12)]
    assert answers.count(429) >= 4
    other = await serve(key="ada-key", api_key=KEYS, open_tasks=2)
    for _ in range(2):
        await other.run("await hold()")
    third = await other.client.post("/run", json={"task": doing("print(1)")})
    assert third.status_code == 429
    fine = await other.client.post(
        "/run", json={"task": doing("print(1)")}, headers=bearer("cy-key")
    )
    assert fine.status_code == 202


async def test_concurrent_requests_with_a_budget_cannot_exceed_the_open_tasks(serve):
    server = await serve(key="ada-key", api_key=KEYS, open_tasks=2, budgets={"*": 5.0})
    order = {"task": doing("await hold()")}
    answers = await asyncio.gather(*(server.client.post("/run", json=order) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [202, 202, 429, 429, 429, 429]


async def test_concurrent_equal_requests_with_a_budget_count_as_one_open_task(serve):
    server = await serve(key="ada-key", api_key=KEYS, open_tasks=2, budgets={"*": 5.0})
    order, headers = {"task": doing("await hold()")}, {"idempotency-key": "once"}
    answers = await asyncio.gather(
        *(server.client.post("/run", json=order, headers=headers) for _ in range(4))
    )
    assert {answer.status_code for answer in answers} == {202}
    await server.client.post(f"/tasks/{answers[0].json()['task_id']}/cancel")
    for _ in range(2):
        assert (await server.client.post("/run", json=order)).status_code == 202


async def test_rate_below_one_permits_the_first_request(serve):
    server = await serve(key="ada-key", api_key=KEYS, rate=0.01)
    first, second = [(await server.client.get("/session")).status_code for _ in range(2)]
    assert (first, second) == (200, 429)


async def test_every_answer_has_security_headers(serve):
    server = await serve()
    for path in ("/", "/tasks", "/nothing"):
        headers = (await server.client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "server" not in headers


async def test_control_codes_are_escaped_in_the_log(serve, caplog):
    server = await serve()
    for path in ("/tasks/%1b[2Jx", "/%1b]0;title%07", "/tasks/%00"):
        await server.client.get(path)
    await server.client.post("/run", json={"task": doing("raise ValueError('\\x1b[2J')")})
    assert "\x1b" not in caplog.text


def test_error_names_the_missing_package():
    agent = make_agent("", Outbox(), TestHost.discover(environ={"DELF_DISABLE_PLUGINS": "serve"}))
    with pytest.raises((OptionalDependencyError, ConfigurationError)) as error:
        agent.asgi_app()
    assert "serve" in str(error.value)
