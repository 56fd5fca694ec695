"""Mails that people choose, reminders, and notices that are reported once."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qs

import pytest

from delf.errors import ConfigurationError
from delf.testing import request_for
from delf_serve import channel
from delf_serve.settings import ServeSettings
from plugins.serve.test_channel import (  # noqa: F401 - fixtures
    Receiver,
    mailing,
    quickly,
    receive,
    smtp,
)
from plugins.serve.test_people import add, person
from support.serving import Outbox, bearer, doing, make_agent, serving
from support.until import until

SEND = doing("print(await send('bob'))")


def staff() -> list:
    def one(name: str, **more):
        return person(name, mail=f"{name}@example.com", **more)

    return [
        one("ada", scope="all", notices=("asked",)),
        one("bo", scope="all", notices=("asked", "ended")),
        one("cy", scope="own", notices=("asked", "ended")),
        one("dee", scope="all"),
        one("eve", scope="all", notices=("asked",), rights=("read", "run")),
        one("fay", scope="all", notices=("asked",), revoked_at=1.0),
        one("gus", scope="all", notices=("reminded",)),
        person("hal", scope="all", notices=("asked",)),
    ]


async def run(server, who: str) -> dict:
    answer = await server.client.post("/run", json={"task": SEND}, headers=bearer(f"{who}-key"))
    return answer.json()


async def test_mails_go_to_approvers_who_chose_them(serve, monkeypatch):
    with smtp() as box:
        monkeypatch.setenv("DELF_SERVE_SMTP_URL", f"smtp://127.0.0.1:{box.port}")
        rules = {"send": {"four_eyes": True}}
        agent = {"approvals": ["web"], "approval_rules": rules}
        server = await serve("ada-key", agent=agent)
        await add(server, *staff())
        task = await run(server, "bo")
        asked = await server.question(task["task_id"])
        await until(lambda: len(box.mails) >= 1)
        got = [(to, message["Subject"]) for to, message in box.mails]
        assert got[0] == (["ada@example.com"], "delf waits for you: send"), got
        place = f"/approvals/{asked['request_id']}"
        await server.client.post(place, json={"decision": "approve"})
        await server.until(task["task_id"], "done")
        await until(lambda: any(to == ["bo@example.com"] for to, _ in box.mails))
        ended = [m["Subject"] for to, m in box.mails if to == ["bo@example.com"]]
        assert ended[0].startswith("delf: done: ")
        everybody = {to[0] for to, _ in box.mails}
        assert everybody <= {"ada@example.com", "bo@example.com", "gus@example.com"}


async def test_end_is_mailed_to_a_person_who_opted_in_on_another_server(serve, monkeypatch):
    with smtp() as box:
        monkeypatch.setenv("DELF_SERVE_SMTP_URL", f"smtp://127.0.0.1:{box.port}")
        server = await serve("ada-key", api_key="boss:boss-key")
        ada = person("ada", mail="ada@example.com")
        await add(server, ada)
        order = {"task": doing("print(await hold())")}
        await server.client.post("/run", json=order)
        # The other server writes to the journal only: this one is not told.
        assert await server.app.tasks.journal.keep_person(replace(ada, notices=("ended",)), ada)
        server.box.gate.set()
        await until(lambda: box.mails)
    assert box.mails[0][0] == ["ada@example.com"]


async def test_pending_request_is_reported_again(serve, receive, monkeypatch):  # noqa: F811
    receiver = receive()
    monkeypatch.setenv("DELF_SERVE_REMIND_MINUTES", "0.001,0.003")
    server = await serve(agent={"approvals": ["web"]})
    task = await server.run("print(await send('bob'))")
    asked = await server.question(task["task_id"])
    await until(lambda: len(receiver.got) == 3)
    reported = [json.loads(body) for _, body in receiver.got]
    assert [(one["event"], one.get("minutes")) for one in reported] == [
        ("approval_requested", None),
        ("approval_reminder", 0.001),
        ("approval_reminder", 0.003),
    ]
    assert {one["request_id"] for one in reported} == {asked["request_id"]}


async def test_request_is_reported_once_despite_restarts(
    tmp_path,
    monkeypatch,
    receive,  # noqa: F811
):
    receiver = receive()
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{tmp_path / 'journal.db'}")
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", str(tmp_path / "files"))
    name = ""
    for start in range(3):
        agent = make_agent(str(tmp_path), box := Outbox(), approvals=["web"])
        async with serving(agent, box) as server:
            if not start:
                name = (await server.run("print(await send('bob'))"))["task_id"]
                await until(lambda: receiver.got)
            asked = await server.question(name)
            if start < 2:
                continue
            place = f"/approvals/{asked['request_id']}"
            await server.client.post(place, json={"decision": "approve"})
            await server.until(name, "done")
            await until(lambda: len(receiver.got) >= 2)
    events = [json.loads(body)["event"] for _, body in receiver.got]
    assert events == ["approval_requested", "task_finished"]


async def test_person_can_choose_mail_notices(serve):
    server = await serve("ada-key", api_key="boss:boss-key")
    await add(server, person("ada", mail="ada@example.com"))
    shown = (await server.client.get("/notices")).json()
    assert shown == {
        "notices": [],
        "ways": ["mail", "browser"],
        "mail": "ada@example.com",
        "webhook": "",
        "webhook_secret": None,
        "works": ["browser"],
        "reaches": ["browser"],
    }
    body = {"notices": ["ended", "asked"]}
    assert (await server.client.post("/notices", json=body)).json()["notices"] == ["asked", "ended"]
    assert (await server.client.get("/notices")).json()["notices"] == ["asked", "ended"]
    (known,) = await server.app.tasks.journal.people()
    assert known.notices == ("asked", "ended")
    wrong = await server.client.post("/notices", json={"notices": ["all"]})
    assert wrong.status_code == 422
    boss = bearer("boss-key")
    assert (await server.client.get("/notices", headers=boss)).status_code == 404
    assert (await server.client.post("/notices", json=body, headers=boss)).status_code == 404


async def test_person_can_choose_channels_and_a_permitted_webhook(serve):
    hosts = ["hooks.example.com", "*.example.org"]
    server = await serve("ada-key", notice_hosts=hosts, slack_token="xoxb-1")
    await add(server, person("ada", mail="ada@example.com"))

    async def chosen(**more):
        return await server.client.post("/notices", json={"notices": ["asked"], **more})

    first = (await chosen(ways=["webhook", "slack"], webhook="https://hooks.example.com/a")).json()
    assert (first["ways"], first["works"]) == (
        ["slack", "webhook"],
        ["slack", "webhook", "browser"],
    )
    assert first["webhook_secret"].startswith("whsec_")
    again = (await chosen(webhook="https://hooks.example.com/a")).json()
    assert (again["webhook"], again["webhook_secret"]) == ("https://hooks.example.com/a", None)
    for wrong in (
        "http://hooks.example.com/a",
        "https://hooks.example.com.evil.net/a",
        "https://evil.net/hooks.example.com",
        "https://hooks.example.com@evil.net/",
        "https://example.org/a",
        "https://hooks.example.com:8443/a",
        "https://[::1]/a",
        "https://169.254.169.254/latest",
        "https://localhost/a",
        "file:///etc/passwd",
        "https://[::1/a",
        "hooks.example.com/a",
    ):
        answer = await chosen(webhook=wrong)
        assert (answer.status_code, answer.json()["param"]) == (422, "webhook"), wrong
    assert (await server.client.get("/notices")).json()["webhook"] == "https://hooks.example.com/a"
    people = (await server.client.get("/openapi.json")).text
    assert first["webhook_secret"] not in people
    gone = (await chosen(webhook="", ways=[])).json()
    assert (gone["webhook"], gone["ways"], gone["reaches"]) == ("", [], ["slack", "browser"])


class Sent:
    """The messages sent over each channel, which never reach the network."""

    def __init__(self, monkeypatch) -> None:
        self.got: list[tuple[str, str, str]] = []
        ways = {"mail": "to", "message_in_slack": "address", "post_to": "person"}
        for way, field in ways.items():
            monkeypatch.setattr(channel, way, self.way(way, field))

    def way(self, name, field):
        def send(_settings, notice, **more):
            to = more[field]
            event = notice.content["event"]
            self.got.append((name, event, getattr(to, "name", to if name != "mail" else to[0])))

        return send


async def test_notices_of_comments_reach_participants_by_their_channels(serve, monkeypatch):
    sent = Sent(monkeypatch)
    monkeypatch.setenv("DELF_SERVE_SMTP_URL", "smtp://127.0.0.1:1")
    monkeypatch.setenv("DELF_SERVE_SLACK_TOKEN", "xoxb-1")
    monkeypatch.setenv("DELF_SERVE_NOTICE_HOSTS", '["hooks.example.com"]')
    server = await serve("ada-key", agent={"approvals": ["web"]})
    wants = {"notices": ("assigned", "commented"), "scope": "all"}

    def one(name, *ways, **more):
        return person(name, mail=f"{name}@a.com", notice_ways=ways, **{**wants, **more})

    hook = {"webhook": "https://hooks.example.com/cy", "webhook_secret": "whsec_YQ=="}
    await add(
        server,
        one("ada", "mail"),
        one("bo", "slack"),
        one("cy", "webhook", "mail", **hook),
        one("dee", "mail"),
        one("eve", "mail", notices=()),
        one("fay", "mail", scope="own"),
    )
    task = await run(server, "ada")
    request = await server.question(task["task_id"])

    async def says(who, what, **body):
        place = f"/approvals/{request['request_id']}/{what}"
        assert (await server.client.post(place, json=body, headers=bearer(f"{who}-key"))).is_success

    await says("ada", "assignee", person="cy")
    await until(lambda: len(sent.got) == 2)
    assert set(sent.got) == {
        ("post_to", "approval_assigned", "cy"),
        ("mail", "approval_assigned", "cy@a.com"),
    }
    sent.got.clear()
    await says("bo", "comments", text="why?")  # to who asked, and who is assigned
    await until(lambda: len(sent.got) == 3)
    assert {to for _, _, to in sent.got} == {"ada@a.com", "cy", "cy@a.com"}
    sent.got.clear()
    await says("ada", "comments", text="because")  # also to who has commented before
    await until(lambda: len(sent.got) == 3)
    assert {to for _, _, to in sent.got} == {"bo@a.com", "cy", "cy@a.com"}
    assert ("message_in_slack", "approval_commented", "bo@a.com") in sent.got
    sent.got.clear()
    await says("ada", "assignee", person="eve")  # who wants no notices
    await says("ada", "assignee", person=None)
    await says("ada", "assignee", person="ada")  # one's own
    await says("ada", "assignee", person="bo")
    await until(lambda: sent.got)
    assert sent.got == [("message_in_slack", "approval_assigned", "bo@a.com")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"ok": True, "user": {"id": "U0ADA"}}, None),
        ({"ok": False, "error": "users_not_found"}, "Slack says users_not_found"),
        ({"ok": True, "user": None}, "names no user"),
        ({"ok": True}, "names no user"),
        (None, "not an object"),
        ([], "not an object"),
    ],
)
async def test_slack_notice_is_a_plain_direct_message(content, problem):
    """The message is plain text without mentions."""
    slack = Receiver([200, 200], json.dumps(content).encode())
    given = {"slack_token": "xoxb-1", "slack_api_url": slack.url}
    settings = ServeSettings.model_validate(given)
    notice = channel.notice_of(settings, replace(request_for(), task="<!channel> *look*"))
    send = partial(channel.message_in_slack, settings, notice, address="ada@example.com")
    try:
        if problem is not None:
            with pytest.raises(ConfigurationError, match=problem):
                await asyncio.to_thread(send)
            return
        await asyncio.to_thread(send)
    finally:
        slack.close()
    (asked, (headers, body)) = slack.got
    assert parse_qs(asked[1].decode()) == {"email": ["ada@example.com"]}
    assert headers["authorization"] == "Bearer xoxb-1"
    message = parse_qs(body.decode())
    assert message["channel"] == ["U0ADA"]
    (block,) = json.loads(message["blocks"][0])
    assert block["text"]["type"] == "plain_text"
    assert "<!channel> *look*" in block["text"]["text"]
