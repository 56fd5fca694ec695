"""Attacks on hooks, schedules, keys, sessions, audit, talk and the doors of other clients.

One server for all of them: each attack ends with an answer that refuses, and changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from typing import Any

import httpx
import pytest

from delf import load_project
from delf_serve.signatures import signature
from plugins.serve.test_people import RIGHTS, add, person
from support.serving import bearer, doing

SECRET = "a-secret-of-the-hook"
BODY = json.dumps({"order": {"id": "A-17"}}).encode()
HOSTILE = "<script>window.hurt=1</script>"
MORNING = {"name": "morning", "cron": "0 8 * * *", "task": "Look."}


@pytest.fixture
async def office(serve, tmp_path, monkeypatch):
    """A server with a hook, a project, and people who see their own tasks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_RUNNER_DBOS_DATABASE", f"sqlite:///{tmp_path}/dbos.sqlite")
    hook = {"secret": SECRET, "task": doing("print(item['order']['id'])"), "person": "ada"}
    rule = {"approvers": ["ada", "bo"], "four_eyes": True}
    agent = {"project": load_project(tmp_path), "approval_rules": {"send": rule}}
    agent["chat"] = {"persist": True}
    server = await serve("ada-key", agent, api_key="boss:boss-key", hooks={"order": hook})
    people = [person(name, scope="own") for name in ("ada", "bo", "eve")]
    await add(server, *people, person("reader", scope="all", rights=("read",)))
    await add(server, person("lead", scope="team", teams=("x",), rights=(*RIGHTS, "people")))
    return server


def signed(body: bytes = BODY, secret: str = SECRET, name: str = "m", at: float = 0) -> dict:
    return signature(secret, name, int(time.time() + at), body)


def github(body: bytes, secret: bytes = SECRET.encode()) -> dict:
    return {"x-hub-signature-256": "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()}


HOOKS: dict[str, tuple[dict[str, str], bytes]] = {
    "another body": (signed(), b'{"order": {"id": "B"}}'),
    "a body with a space more": (signed(), BODY + b" "),
    "signed with nothing": (signed(secret=""), BODY),
    "the secret itself": ({**signed(), "webhook-signature": f"v1,{SECRET}"}, BODY),
    "another version": ({**signed(), "webhook-signature": "v2,AAAA"}, BODY),
    "many wrong signatures": ({**signed(), "webhook-signature": ("v1,AAAA " * 500).strip()}, BODY),
    "no algorithm": ({**signed(), "webhook-signature": signed()["webhook-signature"][3:]}, BODY),
    "an old time": (signed(at=-3600), BODY),
    "a time to come": (signed(at=3600), BODY),
    "a negative time": ({**signed(), "webhook-timestamp": "-1"}, BODY),
    "a time with a point": ({**signed(), "webhook-timestamp": f"{time.time()}"}, BODY),
    "a time in Arabic digits": ({**signed(), "webhook-timestamp": "\xb2"}, BODY),
    "no id": ({k: v for k, v in signed().items() if k != "webhook-id"}, BODY),
    "an empty id": ({**signed(), "webhook-id": ""}, BODY),
    "sha1": ({"x-hub-signature": "sha1=" + "0" * 40}, BODY),
    "github, another body": (github(b"{}"), BODY),
    "github, without a prefix": (
        {"x-hub-signature-256": github(BODY)["x-hub-signature-256"][7:]},
        BODY,
    ),
    "github, another secret": (github(BODY, b"guess"), BODY),
    "an API key in place of a signature": (bearer("ada-key"), BODY),
}


async def test_forged_message_starts_nothing(office):
    async with httpx.AsyncClient(base_url=office.url) as client:
        for name, (headers, body) in HOOKS.items():
            sent = {k: v.encode("latin-1") for k, v in headers.items()}
            answer = await client.post("/hooks/order", content=body, headers=sent)
            assert answer.status_code == 401, (name, answer.status_code, answer.text)
            assert SECRET not in answer.text
        replies = await asyncio.gather(
            *(client.post("/hooks/order", content=BODY, headers=signed()) for _ in range(8))
        )
        assert len({one.json()["task_id"] for one in replies}) == 1
        for path in (
            "/hooks/ORDER",
            "/hooks/order/",
            "/hooks/../run",
            "/hooks/order%2f..",
            "/hooks/",
        ):
            answer = await client.post(path, content=BODY, headers=signed(name=path))
            assert answer.status_code in (401, 404, 405), path
    assert len((await office.client.get("/tasks")).json()["tasks"]) == 1


Attack = tuple[str, str, str, Any]
EVE: list[Attack] = [
    ("a task", "GET", "/tasks/{task}", None),
    ("its events", "GET", "/tasks/{task}/events", None),
    ("its prompts", "GET", "/tasks/{task}/prompts", None),
    ("again", "POST", "/tasks/{task}/again", {}),
    ("a fork", "POST", "/tasks/{task}/fork", {"at": 2}),
    ("its end", "POST", "/tasks/{task}/cancel", {}),
    ("its deletion", "DELETE", "/tasks/{task}", None),
    ("two tasks", "GET", "/tasks/{task}/compare/{task}", None),
    ("a file", "GET", "/tasks/{task}/files/a.csv", None),
    ("a request", "GET", "/approvals/{request}", None),
    ("a decision", "POST", "/approvals/{request}", {"decision": "approve"}),
    ("a comment", "POST", "/approvals/{request}/comments", {"text": "hi"}),
    ("an assignment", "POST", "/approvals/{request}/assignee", {"person": "eve"}),
    ("who is able", "GET", "/approvals/{request}/assignable", None),
    ("a conversation", "GET", "/conversations/{talk}", None),
    ("its deletion as well", "DELETE", "/conversations/{talk}", None),
    ("a schedule's end", "DELETE", "/schedules/morning", None),
    ("a schedule's pause", "POST", "/schedules/morning/pause", {"paused": True}),
    ("a schedule's test", "POST", "/schedules/morning/test", None),
    ("a schedule's history", "GET", "/schedules/morning/history", None),
    ("a session", "DELETE", "/sessions/{session}", None),
]
REFUSED: list[Attack] = [
    ("people", "GET", "/people", None),
    ("a person", "POST", "/people", {"name": "mallory", "key": "x", "scope": "all"}),
    ("their own rights", "POST", "/people", {"name": "eve", "rights": ["people"]}),
    ("a removal", "DELETE", "/people/ada", None),
    ("a key's end", "DELETE", "/people/ada/keys/first", None),
    ("sessions of others", "GET", "/people/ada/sessions", None),
    ("the audit", "GET", "/audit", None),
    ("the audit as a table", "GET", "/audit?format=csv", None),
]


async def test_tasks_of_others_are_out_of_reach(office):
    started = await office.run("print(await send('bob'))")
    request = await office.question(started["task_id"])
    assert (await office.client.post("/schedules", json=MORNING)).status_code == 201
    await office.client.post("/login", json={"key": "ada-key"})
    (session,) = (await office.client.get("/sessions")).json()["sessions"]
    talk = (await office.client.get("/conversations")).json()["conversations"]
    names = {
        "task": started["task_id"],
        "request": request["request_id"],
        "talk": started["conversation_id"] if not talk else talk[0]["conversation_id"],
        "session": session["id"],
    }
    async with httpx.AsyncClient(base_url=office.url, headers=bearer("eve-key")) as eve:
        for what, method, path, body in [*EVE, *REFUSED]:
            more = {} if body is None else {"json": body}
            answer = await eve.request(method, path.format(**names), **more)
            wanted = (404,) if (what, method, path, body) in EVE else (403,)
            assert answer.status_code in wanted, (what, answer.status_code, answer.text)
    async with httpx.AsyncClient(base_url=office.url, headers=bearer("lead-key")) as lead:
        for what, method, path, body in REFUSED:
            more = {} if body is None else {"json": body}
            answer = await lead.request(method, path.format(**names), **more)
            assert answer.status_code == 403, (what, answer.status_code, "a lead of a team")
    now = (await office.client.get(f"/approvals/{request['request_id']}")).json()
    assert (now["state"], now["comments"], now["assignee"]) == ("waiting", [], None)
    assert office.box.sent == []


async def test_other_site_reaches_no_route(office):
    """A cookie alone changes nothing on any route, and another origin reads nothing."""
    login = await office.client.post("/login", json={"key": "ada-key"})
    cookie = {"cookie": f"delf_session={login.cookies['delf_session']}"}
    routes = [(m, p, b) for _, m, p, b in [*EVE, *REFUSED] if m != "GET"]
    routes += [("POST", "/run", {"task": "x"}), ("POST", "/schedules", MORNING)]
    routes += [("POST", "/notices", {"notices": [], "ways": []}), ("POST", "/files?name=a", {})]
    routes += [("POST", "/v1/chat/completions", {"model": "delf", "messages": []})]
    routes += [("POST", "/v1/responses", {"model": "delf", "input": "x"}), ("POST", "/ag-ui", {})]
    routes += [("POST", "/a2a", {}), ("POST", "/logout", {}), ("POST", "/routines/x", {})]
    async with httpx.AsyncClient(base_url=office.url, headers=cookie) as browser:
        for method, path, body in routes:
            more = {} if body is None else {"json": body}
            for headers in (
                {},
                {"origin": "https://evil.example"},
                {"origin": "http://[::1"},
                {"x-csrf-token": "guess"},
            ):
                answer = await browser.request(method, path, headers=headers, **more)
                assert answer.status_code == 403, (method, path, headers, answer.status_code)
    assert (await office.client.get("/tasks")).json()["tasks"] == []


BAD: list[tuple[str, Any]] = [
    ("/schedules", {**MORNING, "cron": "* " * 5000}),
    ("/schedules", {**MORNING, "cron": "0 8 31 2 *,"}),
    ("/schedules", {**MORNING, "name": "a\r\nx: y"}),
    ("/schedules", {**MORNING, "queue": "default/keys"}),
    ("/schedules", {**MORNING, "user": "lead"}),
    ("/schedules", {**MORNING, "setup": {"folder": "/"}}),
    ("/schedules", {**MORNING, "each": "().__class__.__mro__"}),
    ("/notices", {"notices": ["ended"], "ways": ["webhook"], "webhook": "http://169.254.169.254/"}),
    ("/notices", {"notices": ["ended"], "ways": ["webhook"], "webhook": "file:///etc/passwd"}),
    ("/run", {"task": "x", "person": "lead"}),
    ("/run", {"task": "x", "conversation_id": "lead:uid|web-1"}),
    ("/run", {"task": "x", "llm": "https://evil.example"}),
]


async def test_request_beyond_the_callers_rights_is_refused(office):
    for path, body in BAD:
        answer = await office.client.post(path, json=body)
        assert 400 <= answer.status_code < 500, (path, body, answer.status_code, answer.text)
    assert (await office.client.get("/tasks")).json()["tasks"] == []
    assert (await office.client.get("/schedules")).json()["schedules"] == []
