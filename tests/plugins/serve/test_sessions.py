"""Access to the server: sessions, expiry, keys that change, and the log."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from delf import ConfigurationError
from delf_serve.app import make_app
from delf_serve.settings import settings_of
from support.serving import KEYS, Outbox, bearer, doing, make_agent

from .raw import raw


@asynccontextmanager
async def logged_in(server, key="ada-key", **headers):
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as browser:
        answer = await browser.post("/login", json={"key": key})
        assert answer.status_code == 200, answer.text
        browser.headers["x-csrf-token"] = answer.json()["csrf"]
        yield browser


async def ends(lines) -> bool:
    """Return True if a stream ends soon."""
    async for _ in lines:
        continue
    return True


async def test_logout_ends_the_session_on_all_servers(serve):
    first, second = await serve(api_key=KEYS), await serve(api_key=KEYS)
    async with logged_in(first) as browser:
        stolen = {"cookie": f"delf_session={browser.cookies['delf_session']}"}
        for server in (first, second):
            assert (await server.client.get("/tasks", headers=stolen)).status_code == 200
        assert (await browser.post("/logout")).status_code == 204
        for server in (first, second):
            assert (await server.client.get("/tasks", headers=stolen)).status_code == 401


@pytest.mark.parametrize("other", ['state={"a": 1}', "a[b]=1", 'quoted="x', "é=1"])
async def test_session_is_valid_beside_malformed_cookies_of_other_programs(serve, other):
    server = await serve(api_key=KEYS)
    async with logged_in(server) as browser:
        cookies = f"{other}; delf_session={browser.cookies['delf_session']}"
        headers = {"cookie": cookies.encode()}
        assert (await server.client.get("/tasks", headers=headers)).status_code == 200


async def test_logout_keeps_other_sessions_of_the_key(serve):
    server = await serve(api_key=KEYS)
    async with logged_in(server) as one, logged_in(server) as other:
        await one.post("/logout")
        assert (await other.get("/tasks")).status_code == 200


async def test_session_survives_a_server_restart(serve):
    first = await serve(api_key=KEYS)
    async with logged_in(first) as browser:
        cookie = {"cookie": f"delf_session={browser.cookies['delf_session']}"}
    later = await serve(api_key=KEYS)
    assert (await later.client.get("/tasks", headers=cookie)).status_code == 200


async def test_stream_ends_with_its_session(serve):
    first, second = await serve(api_key=KEYS), await serve(api_key=KEYS)
    async with logged_in(first) as browser:
        cookie = {"cookie": f"delf_session={browser.cookies['delf_session']}"}
        client = second.client
        async with (
            browser.stream("GET", "/events") as here,
            client.stream("GET", "/events", headers=cookie) as there,
            client.stream("GET", "/events", headers=bearer("ada-key")) as other,
        ):
            assert here.status_code == there.status_code == other.status_code == 200
            programs = other.aiter_lines()
            assert (await anext(programs)).startswith("retry")
            await browser.post("/logout")
            assert await ends(here.aiter_lines())
            assert await ends(there.aiter_lines())
            accepted = await client.post(
                "/run", json={"task": doing("print(1)")}, headers=bearer("ada-key")
            )
            async for line in programs:
                if accepted.json()["task_id"] in line:
                    break


def test_empty_key_list_is_refused(tmp_path):
    with pytest.raises(ConfigurationError):
        make_app(make_agent(str(tmp_path), Outbox()), {"api_key": " , "}, {})


@pytest.mark.parametrize("name", ["hosts", "allow_origins"])
def test_open_hosts_and_origins_need_a_key(tmp_path, name):
    agent = make_agent(str(tmp_path), Outbox())
    with pytest.raises(ConfigurationError, match="API key"):
        make_app(agent, {name: ["*"]}, {})
    make_app(agent, {name: ["*"], "api_key": "a-long-key"}, {})


@pytest.mark.parametrize(
    ("proxies", "reported", "secure"),
    [([], "https", False), (["127.0.0.1"], "https", True), (["127.0.0.1"], "http", False)],
)
async def test_cookie_is_secure_if_a_declared_proxy_uses_https(serve, proxies, reported, secure):
    server = await serve(api_key=KEYS, trusted_proxies=proxies)
    headers = {"x-forwarded-proto": reported, "x-forwarded-for": "203.0.113.9"}
    answer = await server.client.post("/login", json={"key": "ada-key"}, headers=headers)
    assert ("secure" in answer.headers["set-cookie"].lower()) is secure


async def test_cookie_is_secure_if_the_public_url_uses_https(serve):
    server = await serve(api_key=KEYS, public_url="https://delf.example")
    answer = await server.client.post("/login", json={"key": "ada-key"})
    assert "secure" in answer.headers["set-cookie"].lower()


async def test_unencrypted_page_of_the_same_host_cannot_make_changes(serve):
    server = await serve(api_key=KEYS, hosts="delf.example", trusted_proxies="127.0.0.1")
    reported = {"host": "delf.example", "x-forwarded-proto": "https", **bearer("ada-key")}
    for origin, status in (("https://delf.example", 202), ("http://delf.example", 403)):
        answer = await server.client.post(
            "/run", json={"task": doing("print(1)")}, headers={**reported, "origin": origin}
        )
        assert answer.status_code == status


def from_address(app, address, base_url="http://localhost"):
    transport = httpx.ASGITransport(app, client=(address, 5000))
    return httpx.AsyncClient(transport=transport, base_url=base_url)


@pytest.fixture
async def mounted(tmp_path, monkeypatch):
    """Makes applications for other programs to mount, without or with an API key."""
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.delenv("DELF_API_KEY", raising=False)
    made = []

    def make(**options):
        made.append(make_agent(str(tmp_path), Outbox()).asgi_app(**options))
        return made[-1]

    yield make
    for app in made:
        await app.stop()


async def test_keyless_server_answers_only_this_machine(mounted):
    app = mounted()
    for address in ("203.0.113.9", "10.0.0.1", "::ffff:203.0.113.9", "2001:db8::1", "elsewhere"):
        async with from_address(app, address) as client:
            for path in ("/tasks", "/", "/session", "/health", "/page/app.js"):
                assert (await client.get(path)).status_code == 403, (address, path)
            refused = await client.post("/run", json={"task": "x"})
            assert "API key" in refused.json()["detail"]
    for address in ("127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"):
        async with from_address(app, address) as client:
            assert (await client.get("/tasks")).status_code == 200


async def test_keyless_server_refuses_forwarded_requests(mounted):
    app = mounted()
    for name in ("x-forwarded-for", "forwarded", "x-real-ip"):
        async with from_address(app, "127.0.0.1") as client:
            answer = await client.get("/tasks", headers={name: "203.0.113.9"})
            assert answer.status_code == 403
    declared = mounted(trusted_proxies=["127.0.0.1"])
    async with from_address(declared, "127.0.0.1") as client:
        reported = {"x-forwarded-for": "127.0.0.1"}
        assert (await client.get("/tasks", headers=reported)).status_code == 403


def test_mounted_server_leaves_tasks_resumable(tmp_path, monkeypatch):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.delenv("DELF_API_KEY", raising=False)
    whole = Starlette(routes=[Mount("/delf", make_agent(str(tmp_path), Outbox()).asgi_app())])

    async def until_interrupted() -> str:
        async with from_address(whole, "127.0.0.1") as client:
            order = {"task": doing("await hold()")}
            accepted = (await client.post("/delf/run", json=order)).json()
            place = f"/delf/tasks/{accepted['task_id']}"
            for _ in range(1000):
                seen = (await client.get(place, params={"wait": 0.05})).json()
                if seen["state"] == "running" and seen["events"] > 8:
                    return accepted["task_id"]
        raise AssertionError(seen)

    task_id = asyncio.run(until_interrupted())  # it cancels what runs, as servers do on SIGINT
    with TestClient(
        make_agent(str(tmp_path), Outbox()).asgi_app(grace_seconds=0), base_url="http://localhost",
        client=("127.0.0.1", 50000),
    ) as client:  # fmt: skip
        # The next server may have resumed it already, and asks whether hold() has happened.
        state = client.get(f"/tasks/{task_id}").json()["state"]
        assert state in {"interrupted", "running", "waiting"}


async def test_server_with_a_key_answers_remote_clients(mounted):
    app = mounted(api_key="a-long-key")
    async with from_address(app, "203.0.113.9") as client:
        assert (await client.get("/tasks")).status_code == 401
        shown = bearer("a-long-key")
        assert (await client.get("/tasks", headers=shown)).status_code == 200


def test_starlette_test_client_is_accepted(tmp_path, monkeypatch):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    monkeypatch.delenv("DELF_API_KEY", raising=False)
    app = make_agent(str(tmp_path), Outbox()).asgi_app()
    with TestClient(app) as client:
        assert client.get("/tasks").status_code == 200
    outer = Starlette(routes=[Mount("/delf", app=make_agent(str(tmp_path), Outbox()).asgi_app())])
    with TestClient(outer) as client:
        assert client.get("/delf/tasks").status_code == 200
        assert client.get("/delf/health").status_code == 200


async def test_web_socket_is_refused(mounted):
    app, sent = mounted(), []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    await app({"type": "websocket", "path": "/events", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.parametrize(
    "name",
    ["host", "authorization", "x-api-key", "origin", "content-type", "idempotency-key"],
)
async def test_duplicate_security_header_is_refused(serve, name):
    server = await serve(api_key=KEYS)
    lines = ["POST /run HTTP/1.1"]
    once = {
        "host": "localhost",
        "authorization": "Bearer ada-key",
        "content-type": "application/json",
        "content-length": "2",
    }
    lines += [f"{n}: {v}" for n, v in once.items()]
    lines.append(f"{name}: {once.get(name, 'x')}")
    if name not in once:
        lines.append(f"{name}: y")
    got = await raw(server.url, "\r\n".join([*lines, "", "{}"]).encode())
    assert got.startswith(b"HTTP/1.1 400"), got[:40]


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"content-length: 2\r\ncontent-length: 3\r\n\r\n{} ",
        b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"transfer-encoding: identity\r\n\r\n{}",
        b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
async def test_ambiguous_body_length_is_refused(serve, head):
    server = await serve()
    hidden = b"GET /session HTTP/1.1\r\nhost: localhost\r\n\r\n"
    start = b"POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    got = await raw(server.url, start + head + hidden)
    assert got[9:12] in (b"400", b""), got[:60]
    assert got.count(b"HTTP/1.1") <= 1


async def test_log_lines_name_the_user_without_secrets(serve, caplog):
    caplog.set_level(logging.INFO, "delf_serve.access")
    server = await serve(api_key=KEYS)
    await server.client.get("/tasks?text=s3cret", headers=bearer("ben-key"))
    await server.client.get("/tasks", headers=bearer("wr0ng"))
    answer = await server.client.post("/login", json={"key": "ada-key"})
    await server.client.get("/health")
    reported = [json.loads(r.getMessage()) for r in caplog.records if r.name == "delf_serve.access"]
    assert [(line["user"], line["method"], line["path"], line["status"]) for line in reported] == [
        ("ben", "GET", "/tasks", 200),
        (None, "GET", "/tasks", 401),
        (None, "POST", "/login", 200),
    ]
    assert reported[2]["request_id"] == answer.headers["x-request-id"]
    assert all(line["client"] == "127.0.0.1" and line["ms"] >= 0 for line in reported)
    for secret in ("s3cret", "wr0ng", "ada-key", "ben-key", answer.cookies["delf_session"]):
        assert secret not in caplog.text


async def test_ready_fails_if_the_models_key_is_missing(serve, monkeypatch, caplog):
    server = await serve(api_key=KEYS)
    assert (await server.client.get("/ready")).json() == {"ok": True}
    without = await serve(api_key=KEYS, agent={"llm": "gpt-4o-mini", "sandbox": "local"})
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    answer = await without.client.get("/ready")
    assert answer.status_code == 503
    assert "OPENAI_API_KEY" in caplog.text
    assert "OPENAI" not in answer.text
    assert (await without.client.get("/health")).json() == {"ok": True}


async def test_ready_reports_an_unavailable_sandbox(serve, monkeypatch):
    from delf.errors import SandboxUnavailableError
    from delf_sandbox_local.backend import LocalBackend

    server = await serve()
    opened = []

    async def broken(self, spec):
        opened.append(spec)
        raise SandboxUnavailableError("no processes are left")

    monkeypatch.setattr(LocalBackend, "open", broken)
    for _ in range(5):
        assert (await server.client.get("/ready")).status_code == 503
    assert len(opened) == 1


@pytest.mark.parametrize("hours", [float("inf"), float("nan"), 0])
def test_session_without_an_end_is_refused_at_the_start(hours):
    with pytest.raises(ConfigurationError, match="session_hours"):
        settings_of({"session_hours": hours})
