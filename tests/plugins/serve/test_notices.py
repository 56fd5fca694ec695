"""Mails that people choose, reminders, and notices that are reported once."""

from __future__ import annotations

import json

from plugins.serve.test_channel import mailing, quickly, receive, smtp  # noqa: F401 - fixtures
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


async def test_mails_go_to_those_who_may_decide_and_have_chosen_them(serve, monkeypatch):
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


async def test_request_that_waits_is_reported_again(serve, receive, monkeypatch):  # noqa: F811
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


async def test_request_is_reported_once_also_after_restarts(
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


async def test_person_chooses_mails(serve):
    server = await serve("ada-key", api_key="boss:boss-key")
    await add(server, person("ada", mail="ada@example.com"))
    shown = (await server.client.get("/notices")).json()
    assert shown == {"notices": [], "mail": "ada@example.com", "works": False}
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
