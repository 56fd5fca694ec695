"""More attacks on people, notices, triggers, money and four eyes, each of another kind.

They use names and addresses that look like others, several signatures, races for the last money,
messages that other programs read as commands, and the doors of other clients.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from delf.events import TaskFinished
from delf.testing import request_for
from delf_serve import channel
from delf_serve.channel import EndNotices, Notices, notice_of, notice_of_end
from delf_serve.keys import Keys
from delf_serve.settings import ServeSettings
from delf_serve.signatures import signature
from plugins.serve.test_channel import quickly, receive, smtp  # noqa: F401 - fixtures
from plugins.serve.test_people import RIGHTS, add, change, person
from support.serving import bearer, doing
from support.until import until

SECRET = "a-secret-of-the-hook"
EVERY = (*RIGHTS, "people")
SEND = doing("print(await send('bob'))")
YES = {"decision": "approve"}


@pytest.fixture
async def office(serve):
    """A server with a lead who manages people, two who decide, and a hook of ada's."""
    hook = {"secret": SECRET, "task": SEND, "person": "ada"}
    server = await serve(
        "lead-key",
        agent={"approval_rules": {"send": {"four_eyes": True}}},
        hooks={"order": hook},
        notice_hosts=["hooks.a.com"],
    )
    lead, kim = person("lead", scope="all", rights=EVERY), person("kim", mail="kim@example.com")
    await add(server, lead, kim, person("ada", scope="all"), person("bo", scope="all"))
    return server


def signed(body: bytes, name: str = "m") -> dict[str, str]:
    return signature(SECRET, name, int(time.time()), body)


# -- people -----------------------------------------------------------------------------------

NAMES: tuple[tuple[str, Any], ...] = (
    ("a mail with a second header", {"mail": "a@b.example\nBcc: evil@x.example"}),
    ("two mails", {"mail": "a@b.example, evil@x.example"}),
    ("a mail with a display name", {"mail": "Ada <a@b.example>"}),
    ("a mail with a comment", {"mail": "a@b.example(evil@x.example)"}),
    ("a mail with an invisible character", {"mail": "a\u200b@b.example"}),
    ("a mail of which one letter folds to another's", {"mail": "\u212aim@example.com"}),
    ("a name with a letter of another alphabet", {"name": "ad\u0430"}),
    ("a wide letter", {"name": "a\uff44a"}),
    ("a team like a person", {"teams": ["ADA"]}),
    ("a team with a comma", {"teams": ["finance,ops"]}),
    ("the star of all budgets", {"name": "*"}),
    ("a name with a colon, which ends the name in a user", {"name": "ada:ada-uid"}),
    ("a key of the same label", {"name": "bo", "key": "first"}),
    ("a label that breaks a line", {"name": "bo", "key": "ci\nx"}),
)


async def test_names_that_look_like_others_are_refused(office):
    before = await office.app.tasks.journal.people()
    for what, wish in NAMES:
        body = {"name": "new", "rights": ["read"], **wish}
        answer = await office.client.post("/people", json=body)
        assert answer.status_code in (409, 422), (what, answer.status_code, answer.text)
    assert await office.app.tasks.journal.people() == before


async def test_removed_person_comes_back_with_nothing(office):
    """A new person with the name of a former one gets neither their keys nor their sessions."""
    login = await office.client.post("/login", json={"key": "bo-key"})
    session = {"cookie": f"delf_session={login.cookies['delf_session']}"}
    assert (await office.client.delete("/people/bo")).status_code == 204
    made = (await office.client.post("/people", json={"name": "bo", "key": "first"})).json()
    async with httpx.AsyncClient(base_url=office.url) as client:
        for headers in (bearer("bo-key"), session):
            assert (await client.get("/tasks", headers=headers)).status_code == 401
        shown = await client.get("/people", headers=bearer("lead-key"))
        assert made["key"] not in shown.text, "a key is shown once"
        assert (await client.get("/tasks", headers=bearer(made["key"]))).status_code == 200


# -- hooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "twice", ["webhook-id", "webhook-timestamp", "webhook-signature", "x-hub-signature-256"]
)
async def test_message_with_two_signatures_is_refused(office, twice):
    body = b"{}"
    sent = [*signed(body).items(), (twice, "v1,AAAA"), (twice, "v1,AAAA")]
    async with httpx.AsyncClient(base_url=office.url) as client:
        answer = await client.post("/hooks/order", content=body, headers=sent)
    assert (answer.status_code, "comes twice" in answer.text) == (400, True)


async def test_person_of_a_hook_counts_as_requester_of_its_tasks(office):
    async with httpx.AsyncClient(base_url=office.url) as client:
        sent = await client.post("/hooks/order", content=b"{}", headers=signed(b"{}"))
        task = sent.json()["task_id"]
        asked = await office.question(task)
        place = f"/approvals/{asked['request_id']}"
        statuses = [
            (await client.post(place, json=YES, headers=bearer(f"{who}-key"))).status_code
            for who in ("ada", "bo")
        ]
    assert (asked["asked_by"], statuses) == ("ada", [403, 200])


@pytest.mark.parametrize("less", [{"rights": ("read",)}, {"revoked_at": 2.0}])
async def test_hook_of_a_person_without_rights_starts_nothing(office, less):
    ada = next(one for one in await office.app.tasks.journal.people() if one.name == "ada")
    await change(office, ada, replace(ada, **less))
    async with httpx.AsyncClient(base_url=office.url) as client:
        sent = await client.post("/hooks/order", content=b"{}", headers=signed(b"{}"))
    assert sent.status_code == 409
    assert (await office.client.get("/tasks")).json()["tasks"] == []


# -- money ------------------------------------------------------------------------------------


async def test_concurrent_tasks_do_not_exceed_the_remaining_budget(serve):
    paid = {"cost_usd": 0.5, "allow_unpriced": True}
    hooks = {
        "hers": {"secret": SECRET, "task": doing("print(1)"), "person": "ada"},
        "nobodys": {"secret": SECRET, "task": doing("print(1)")},
    }
    server = await serve("boss-key", agent=paid, budgets={"*": 1.0}, hooks=hooks)
    await add(server, person("boss", scope="all"), person("ada"))
    order, ada = {"task": doing("print(1)"), "wait": 20}, bearer("ada-key")
    tries = [server.client.post("/run", json=order, headers=ada) for _ in range(8)]
    answers = [answer.json() for answer in await asyncio.gather(*tries)]
    done = [one for one in answers if one.get("state") == "done"]
    assert len(done) == 2
    assert sum(one.get("cost_usd") or 0 for one in answers) == 1.0
    place = f"/tasks/{done[0]['task_id']}"
    ways: list[tuple[str, Any]] = [(f"{place}/again", {}), (f"{place}/fork", {"at": 2})]
    for path, body in ways:
        answer = await server.client.post(path, json=body, headers=ada)
        assert answer.status_code == 402, (path, answer.status_code, answer.text)
    async with httpx.AsyncClient(base_url=server.url) as client:
        sent = [
            (await client.post(f"/hooks/{name}", content=b"{}", headers=signed(b"{}"))).status_code
            for name in ("hers", "nobodys")
        ]
    assert sent == [402, 202], "a hook of nobody does not pay with what people spent"


# -- notices ----------------------------------------------------------------------------------

HOSTILE = "Pay\r\nBcc: evil@x.example\r\n\r\n<script>x</script> \ud800 <!channel>"


def test_hostile_notice_becomes_plain_text_with_a_one_line_subject():
    settings = ServeSettings()
    end = TaskFinished(task_id="t", seq=2, at=2.0, status=True, text=HOSTILE, duration_ms=1.0)
    for notice in (
        notice_of_end(settings, HOSTILE, end),
        notice_of(settings, replace(request_for(), action=HOSTILE, task=HOSTILE)),
    ):
        assert notice.subject.isprintable()
        with smtp() as box:
            sent = ServeSettings(smtp_url=f"smtp://127.0.0.1:{box.port}")
            channel.mail(sent, notice, ["ada@example.com"])
            ((to, message),) = box.mails
        assert to == ["ada@example.com"]
        assert (message["Bcc"], message.get_content_type()) == (None, "text/plain")
        json.dumps(notice.content).encode("ascii")


def test_direct_message_in_slack_mentions_nobody(monkeypatch):
    calls: list[Any] = []

    def slack(_settings: Any, method: str, fields: Any) -> Any:
        calls.append((method, fields))
        return {"user": {"id": "U1"}}

    monkeypatch.setattr(channel, "call_slack", slack)
    notice = notice_of(ServeSettings(), replace(request_for(), action="<!channel> <http://x|y>"))
    channel.message_in_slack(ServeSettings(), notice, "ada@example.com")
    (_, given) = calls[-1]
    assert "<" not in given["text"]
    ((block,),) = [json.loads(given["blocks"])]
    assert block["text"]["type"] == "plain_text"


@pytest.mark.parametrize(
    "hostile", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200]
)
async def test_broken_webhook_receiver_does_not_stop_other_notices(hostile, quickly):  # noqa: F811
    """One channel fails, and notices over the others still count as sent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(hostile)
        writer.close()

    noted: list[bool] = []

    async def sent() -> None:
        noted.append(True)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with smtp() as box:
        settings = ServeSettings(
            webhook_url=f"http://127.0.0.1:{port}/",
            smtp_url=f"smtp://127.0.0.1:{box.port}",
            mail_to=["ada@example.com"],
        )
        notices = Notices(settings)
        notices.tell(notice_of(settings, request_for()), on_sent=sent)
        await until(lambda: noted)
        assert len(box.mails) == 1
        await notices.aclose()
    server.close()


WEBHOOKS = (
    "https://hooks.a.com/\r\nX-Api-Key: x",
    "https://hooks.a.com/ x",
    "https://hooks.a.com/\x00",
    "https://hooks.\u0430.com/",
    "https://hooks.a.com:8443/",
    "https://hooks.a.com.evil.example/",
    "https://evil.example/#hooks.a.com",
    "//hooks.a.com/",
    "https://[hooks.a.com]/",
)


async def test_invalid_webhook_address_of_a_person_is_refused(office):
    for url in WEBHOOKS:
        body = {"notices": ["asked"], "ways": ["webhook"], "webhook": url}
        answer = await office.client.post("/notices", json=body)
        assert answer.status_code == 422, (url, answer.status_code)
    assert (await office.client.get("/notices")).json()["webhook"] == ""


async def test_removed_person_gets_no_notice_of_a_tasks_end(quickly):  # noqa: F811
    """Ada is removed while her task runs; her namesake and the local user have chosen nothing."""
    ada = person("ada", mail="ada@example.com", notices=("ended",))
    bo = person("bo", mail="bo@example.com", notices=("ended",))
    keys, journal = Keys(), AsyncMock()
    journal.people.return_value = [ada, bo]
    await keys.reload(journal)
    journal.people.return_value = [replace(ada, revoked_at=2.0), bo]
    users = {"t1": ada.user, "t2": "ada:another", "t3": None, "t4": bo.user}
    journal.task.side_effect = lambda name: SimpleNamespace(task="Pay", user=users[name])
    with smtp() as box:
        settings = ServeSettings(smtp_url=f"smtp://127.0.0.1:{box.port}")
        ends = EndNotices(settings, keys, lambda: journal)
        for name in users:
            ends.tell(
                TaskFinished(task_id=name, seq=2, at=2.0, status=True, text="", duration_ms=1.0)
            )
        await until(lambda: box.mails)
        await ends.aclose()
        assert [to for to, _ in box.mails] == [["bo@example.com"]]


# -- the doors of other clients, and what browsers keep ----------------------------------------


async def test_requester_cannot_approve_by_chat_session_or_second_key(office):
    """A chat reply, a session or a second key of the asker is no other person's approval."""
    ada = bearer("ada-key")
    task = (await office.client.post("/run", json={"task": SEND}, headers=ada)).json()
    asked = await office.question(task["task_id"])
    login = await office.client.post("/login", json={"key": "ada-key"})
    session = {"cookie": f"delf_session={login.cookies['delf_session']}"}
    token = {"x-csrf-token": login.json()["csrf"]}
    chat = {"model": "delf", "messages": [{"role": "user", "content": SEND}]}
    first = (await office.client.post("/v1/chat/completions", json=chat, headers=ada)).json()
    reply = first["choices"][0]["message"]
    so_far = [*chat["messages"], reply, {"role": "user", "content": "approve"}]
    await office.client.post("/v1/chat/completions", json={**chat, "messages": so_far}, headers=ada)
    place = f"/approvals/{asked['request_id']}"
    async with httpx.AsyncClient(base_url=office.url) as page:
        answer = await page.post(place, json=YES, headers={**session, **token})
    assert answer.status_code == 403
    assert (await office.client.get(place)).json()["state"] == "waiting"
    assert office.box.sent == []


async def test_no_answer_about_tasks_is_kept_by_a_browser(office):
    """A shared browser shows the next person nothing of the one before."""
    for path in ("/tasks", "/approvals", "/waiting", "/people", "/audit", "/session", "/notices"):
        answer = await office.client.get(path, headers={"if-none-match": "*"})
        kept = answer.headers["cache-control"], answer.headers.get("etag")
        assert (answer.status_code, kept) == (200, ("no-store", None)), path
    page = await office.client.get("/page/app.js")
    same = {"if-none-match": page.headers["etag"], **bearer("ada-key")}
    assert (await office.client.get("/page/app.js", headers=same)).status_code == 304
