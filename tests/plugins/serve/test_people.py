"""People of a server: changes of keys, visible tasks, and the recorded name of each actor."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from click.testing import CliRunner

from delf.errors import DelfError
from delf.protocols.people import Person, PersonKey, digest_of
from delf.protocols.sessions import SessionRecord
from delf_cli.main import cli
from delf_serve.keys import Keys
from support.serving import Outbox, bearer, doing, make_agent, serving
from support.until import until

RIGHTS = ("read", "run", "decide", "delete")


def person(name: str, *, scope="own", teams=(), rights=RIGHTS, **more) -> Person:
    """Return a person whose key is their name followed by ``-key``."""
    key = PersonKey(label="first", digest=digest_of(f"{name}-key"), made_at=1.0)
    known = {"rights": rights, "scope": scope, "teams": teams, "keys": (key,), **more}
    return Person(name=name, uid=f"{name}-uid", made_at=1.0, **known)


async def add(server, *people: Person) -> None:
    """Add people to a running server."""
    for one in people:
        assert await server.app.tasks.journal.keep_person(one, None)
    await server.app.keys.reload(server.app.tasks.journal, at_once=True)


async def change(server, before: Person, after: Person) -> None:
    assert await server.app.tasks.journal.keep_person(after, before)
    await server.app.keys.reload(server.app.tasks.journal, at_once=True)


@pytest.fixture
async def team(serve):
    """A server with two people of a team, one outside it, and one who sees all tasks."""
    server = await serve(api_key="boss:boss-key", chat={"persist": True})
    await add(
        server,
        person("ada", scope="own", teams=("finance",)),
        person("bo", scope="team", teams=("finance",)),
        person("eve", scope="own"),
        person("mo", scope="team", teams=("ops",)),
    )
    return server


@pytest.fixture
def serve(serve):
    async def open_one(key="", chat=None, agent=None, **options):
        return await serve(key, agent if chat is None else {"chat": chat}, **options)

    return open_one


async def run(server, name: str, code: str, **more):
    answer = await server.client.post(
        "/run", json={"task": doing(code), "wait": 20, **more}, headers=bearer(f"{name}-key")
    )
    assert answer.is_success, answer.text
    return answer.json()


async def test_key_is_added_and_revoked_on_a_running_server(serve):
    server = await serve(api_key="boss:boss-key")
    assert (await server.client.get("/tasks", headers=bearer("ada-key"))).status_code == 401
    ada = person("ada")
    await add(server, ada)
    assert (await server.client.get("/tasks", headers=bearer("ada-key"))).status_code == 200
    (key,) = ada.keys
    await change(server, ada, replace(ada, keys=(replace(key, revoked_at=2.0),)))
    assert (await server.client.get("/tasks", headers=bearer("ada-key"))).status_code == 401


async def test_first_person_added_makes_a_key_necessary(serve):
    server = await serve()
    assert (await server.client.get("/tasks")).status_code == 200
    await add(server, person("ada"))
    assert (await server.client.get("/tasks")).status_code == 401
    assert (await server.client.get("/tasks", headers=bearer("ada-key"))).status_code == 200
    later = await serve()
    assert (await later.client.get("/tasks")).status_code == 401


async def test_additional_key_has_at_most_the_rights_of_its_person(serve):
    server = await serve(api_key="boss:boss-key")
    ada = person("ada", rights=("read", "run"), scope="own")
    keys = (
        *ada.keys,
        PersonKey(label="ci", digest=digest_of("ci"), made_at=1.0, rights=("read", "decide")),
        PersonKey(label="wide", digest=digest_of("wide"), made_at=1.0, scope="all"),
    )
    await add(server, replace(ada, keys=keys))
    known = [
        (await server.client.get("/session", headers=bearer(key))).json()
        for key in ("ada-key", "ci", "wide")
    ]
    assert [one["rights"] for one in known] == [["read", "run"], ["read"], ["read", "run"]]
    assert {one["scope"] for one in known} == {"own"}
    assert {one["name"] for one in known} == {"ada"}


@pytest.mark.parametrize("limits", [{"rights": ("read",)}, {"scope": "own"}])
async def test_key_with_fewer_rights_cannot_change_settings_of_its_person(serve, limits):
    server = await serve(api_key="boss:boss-key", notice_hosts=["hooks.example.com"])
    key = PersonKey(label="ci", digest=digest_of("ci-key"), made_at=1.0, **limits)
    ada = person("ada", scope="all")
    await add(server, replace(ada, keys=(*ada.keys, key)))
    cookies = (await server.client.post("/login", json={"key": "ada-key"})).cookies
    server.client.cookies.clear()
    (session,) = (await server.client.get("/sessions", headers=bearer("ci-key"))).json()["sessions"]
    place = {"notices": ["asked"], "ways": ["webhook"], "webhook": "https://hooks.example.com/x"}
    for key, status in (("ci-key", 403), ("ada-key", 200)):
        answer = await server.client.post("/notices", json=place, headers=bearer(key))
        assert answer.status_code == status
    path = f"/sessions/{session['id']}"
    assert (await server.client.delete(path, headers=bearer("ci-key"))).status_code == 403
    login = {"cookie": f"delf_session={cookies['delf_session']}"}
    assert (await server.client.get("/tasks", headers=login)).is_success


@pytest.mark.parametrize("url", ["https:///x", "http://hooks.example.com/x", "https://a b/x"])
async def test_invalid_webhook_is_refused_although_every_host_is_permitted(serve, url):
    server = await serve(api_key="boss:boss-key", notice_hosts=["*"])
    await add(server, person("ada"))
    place = {"notices": ["asked"], "ways": ["webhook"], "webhook": url}
    answer = await server.client.post("/notices", json=place, headers=bearer("ada-key"))
    assert answer.status_code == 422
    assert "begins with https:// and a host" in answer.text


async def test_revoked_person_loses_session_and_stream(serve):
    server = await serve(api_key="boss:boss-key")
    ada = person("ada")
    await add(server, ada)
    answer = await server.client.post("/login", json={"key": "ada-key"})
    cookie = {"cookie": f"delf_session={answer.cookies['delf_session']}"}
    server.client.cookies.clear()
    async with server.client.stream("GET", "/events", headers=cookie) as stream:
        lines = stream.aiter_lines()
        await anext(lines)
        await change(server, ada, replace(ada, revoked_at=2.0))
        async for _ in lines:
            continue
    assert (await server.client.get("/tasks", headers=cookie)).status_code == 401


async def test_wait_ends_with_the_access_of_its_caller(team):
    mo = next(one for one in await team.app.tasks.journal.people() if one.name == "mo")
    await change(team, mo, sees_all := replace(mo, scope="all"))
    cookies = (await team.client.post("/login", json={"key": "mo-key"})).cookies
    team.client.cookies.clear()
    task = {"task": doing("print(await hold())")}
    held = (await team.client.post("/run", json=task, headers=bearer("ada-key"))).json()["task_id"]
    chat = {"model": "delf", "messages": [{"role": "user", "content": task["task"]}]}
    path = f"/tasks/{held}?wait=60"
    session = {"cookie": f"delf_session={cookies['delf_session']}"}
    waits = [
        asyncio.create_task(team.client.get(path, headers=bearer("mo-key"))),
        asyncio.create_task(team.client.get(path, headers=session)),
        asyncio.create_task(
            team.client.post("/v1/chat/completions", json=chat, headers=bearer("mo-key"))
        ),
    ]
    await until(lambda: team.app.sessions.open_count == 3)
    await change(team, sees_all, replace(sees_all, revoked_at=time.time()))
    for answer in await asyncio.gather(*waits):
        assert answer.status_code == 401
    team.box.gate.set()


async def test_wait_answer_depends_on_the_scope_of_the_caller_at_the_end_of_the_wait(team):
    mo = next(one for one in await team.app.tasks.journal.people() if one.name == "mo")
    await change(team, mo, sees_all := replace(mo, scope="all"))
    task = {"task": doing("print(await hold())")}
    held = (await team.client.post("/run", json=task, headers=bearer("ada-key"))).json()["task_id"]
    path = f"/tasks/{held}?wait=60"
    waits = [
        asyncio.create_task(team.client.get(path, headers=bearer(key)))
        for key in ("mo-key", "bo-key")
    ]
    await until(lambda: team.app.sessions.open_count == 2)
    await change(team, sees_all, replace(mo, teams=("finance", "ops"), scope="own"))
    team.box.gate.set()
    lowered, member = await asyncio.gather(*waits)
    assert (lowered.status_code, member.json()["result"]) == (404, "held")


async def test_interrupted_task_of_a_removed_person_fails_instead_of_resuming(serve, tmp_path):
    box = Outbox()
    ada = person("ada")
    async with serving(make_agent(str(tmp_path), box), box, "ada-key") as first:
        await add(first, ada)
        task_id = (await first.run("print(await send('bob'))"))["task_id"]
        await first.until(task_id, "waiting")
        await change(first, ada, replace(ada, revoked_at=2.0))
    server = await serve("boss-key", api_key="boss:boss-key")
    task = await server.until(task_id, "failed")
    assert task["error"] == "ada may not run tasks any more"


async def test_waiting_task_of_a_removed_person_fails_unstarted(serve):
    server = await serve("boss-key", api_key="boss:boss-key", agent={"max_tasks": 1})
    ada = person("ada")
    await add(server, ada)
    running_id = (await server.run("print(await hold())"))["task_id"]
    await server.until(running_id, "running")
    order = {"task": doing("print(await send('bob'))")}
    answer = await server.client.post("/run", json=order, headers=bearer("ada-key"))
    waiting_id = answer.json()["task_id"]
    await server.until(waiting_id, "queued")
    await change(server, ada, replace(ada, revoked_at=2.0))
    await server.client.post(f"/tasks/{running_id}/cancel")
    task = await server.until(waiting_id, "failed")
    assert task["error"] == "ada may not run tasks any more"


async def test_ended_task_of_a_person_without_rights_cannot_be_resumed(serve):
    server = await serve("boss-key", api_key="boss:boss-key")
    ada = person("ada")
    await add(server, ada)
    failed = await run(server, "ada", "import asyncio\nawait asyncio.sleep(7)", timeout=1)
    assert failed["state"] == "failed", failed
    await change(server, ada, replace(ada, rights=("read",)))
    answer = await server.client.post(f"/tasks/{failed['task_id']}/resume", json={"timeout": 60})
    assert answer.status_code == 409
    assert "ada may not run tasks any more" in answer.text


@pytest.mark.parametrize("way", ["fork", "resume"])
async def test_resumed_task_of_a_removed_person_gets_no_place(serve, way):
    server = await serve("boss-key", api_key="boss:boss-key", agent={"max_tasks": 1})
    ada = person("ada")
    await add(server, ada)
    script = "import asyncio\nawait asyncio.sleep(7)"
    failed = await run(server, "ada", script, timeout=1)
    running_id = (await server.run("print(await hold())"))["task_id"]
    await server.until(running_id, "running")
    order = {"timeout": 60} if way == "resume" else {}
    answer = await server.client.post(
        f"/tasks/{failed['task_id']}/{way}", json=order, headers=bearer("ada-key")
    )
    waiting_id = answer.json()["task_id"]
    await change(server, ada, replace(ada, revoked_at=2.0))
    await server.client.post(f"/tasks/{running_id}/cancel")
    await server.until(running_id, "stopped")
    next_id = (await server.run("print(1)"))["task_id"]
    await server.until(next_id, "done")
    task = await server.until(waiting_id, "failed")
    events = await server.events(waiting_id)
    assert "TaskResumed" not in [event["type"] for event in events]
    if way == "fork":
        assert task["error"] == "ada may not run tasks any more"
    else:  # it keeps its end
        assert "Timeout" in task["error"]


async def test_remembered_approval_holds_while_its_person_may_decide(serve):
    server = await serve(api_key="boss:boss-key")
    ada = person("ada")
    await add(server, ada)
    yes = {"decision": "approve", "remember": "until_revoked"}
    code = "print(await send('bob'))"

    async def asked() -> str:
        answer = await server.client.post(
            "/run", json={"task": doing(code)}, headers=bearer("ada-key")
        )
        return (await server.question(answer.json()["task_id"]))["request_id"]

    async def remembered() -> list:
        listed = await server.client.get("/remembered", headers=bearer("ada-key"))
        return listed.json()["remembered"]

    server.client.headers.update(bearer("boss-key"))
    done = await server.client.post(
        f"/approvals/{await asked()}", json=yes, headers=bearer("ada-key")
    )
    assert done.json()["remember"] == "until_revoked"
    assert (await run(server, "ada", code))["state"] == "done"
    may_only_run = replace(ada, rights=("read", "run"))
    await change(server, ada, may_only_run)
    assert await remembered() == []
    await asked()
    await change(server, may_only_run, ada)
    assert len(await remembered()) == 1
    assert (await run(server, "ada", code))["state"] == "done"


async def test_scope_limits_the_visible_tasks(team):
    made = {name: (await run(team, name, "print(1)"))["task_id"] for name in ("ada", "bo", "eve")}
    seen = {}
    for name in ("ada", "bo", "eve", "mo", "boss"):
        listed = await team.client.get("/tasks", headers=bearer(f"{name}-key"))
        seen[name] = {task["asked_by"] for task in listed.json()["tasks"]}
    assert seen["ada"] == {"ada"}
    assert seen["bo"] == {"ada", "bo"}
    assert seen["eve"] == {"eve"}
    assert seen["mo"] == set()
    assert seen["boss"] == {"ada", "bo", "eve"}
    own = await team.client.get(f"/tasks/{made['ada'][:12]}", headers=bearer("ada-key"))
    assert own.json()["task_id"] == made["ada"]


async def test_child_task_and_fork_belong_to_their_person(team):
    task = await run(team, "bo", "print(await look())")
    answer = await team.client.post(
        f"/tasks/{task['task_id']}/fork", json={}, headers=bearer("boss-key")
    )
    fork = answer.json()
    assert fork["asked_by"] == "boss"
    place = f"/tasks/{fork['task_id']}"
    assert (await team.client.get(place, headers=bearer("bo-key"))).status_code == 404


async def test_task_shows_who_asked_and_who_stopped_it(team):
    order = {"task": doing("print(await hold())")}
    accepted = await team.client.post("/run", json=order, headers=bearer("ada-key"))
    name = accepted.json()["task_id"]
    team.client.headers.update(bearer("boss-key"))
    await team.until(name, "running")
    stopped = await team.client.post(f"/tasks/{name}/cancel", headers=bearer("bo-key"))
    assert stopped.json()["cancelled"]
    task = (await team.client.get(f"/tasks/{name}")).json()
    assert task["state"] == "stopped"
    assert (task["asked_by"], task["asked_from"]) == ("ada", "127.0.0.1")
    assert (task["stopped_by"], task["stopped_from"]) == ("bo", "API, 127.0.0.1")


async def test_task_shows_who_decided_and_from_where(team):
    order = {"task": doing("print(await send('bob'))"), "wait": 20}
    asked = (await team.client.post("/run", json=order, headers=bearer("ada-key"))).json()
    place, yes = f"/approvals/{asked['approvals'][0]}", {"decision": "approve"}
    assert (await team.client.post(place, json=yes, headers=bearer("bo-key"))).is_success
    team.client.headers.update(bearer("ada-key"))
    (message,) = (await team.until(asked["task_id"], "done"))["decisions"]
    assert (message["action"], message["decision"], message["by"]) == ("send", "approved", "bo")
    assert (message["via"], message["source"], message["is_final"]) == (
        "API, 127.0.0.1",
        "person",
        True,
    )


@pytest.mark.parametrize("here", [True, False], ids=["its own process", "another process"])
async def test_stopped_task_shows_who_stopped_it_on_every_server(serve, here):
    one, two = await serve(), await serve()
    task = await one.run("print(await hold())")
    await one.until(task["task_id"], "running")
    await (one if here else two).client.post(f"/tasks/{task['task_id']}/cancel")
    message = await two.until(task["task_id"], "stopped")
    assert (message["stopped_by"], message["stopped_from"]) == ("local", "API, 127.0.0.1")


async def test_user_lists_and_ends_own_sessions(serve):
    server = await serve(api_key="boss:boss-key")
    await add(server, person("ada"), person("eve"))
    for key in ("ada-key", "ada-key", "eve-key"):
        await server.client.post("/login", json={"key": key}, headers={"user-agent": "Browser 7"})
        server.client.cookies.clear()
    listed = (await server.client.get("/sessions", headers=bearer("ada-key"))).json()["sessions"]
    assert [(one["client"], one["browser"]) for one in listed] == [("127.0.0.1", "Browser 7")] * 2
    place = f"/sessions/{listed[0]['id']}"
    assert (await server.client.delete(place, headers=bearer("eve-key"))).status_code == 404
    assert (await server.client.delete(place, headers=bearer("ada-key"))).status_code == 204
    left = (await server.client.get("/sessions", headers=bearer("ada-key"))).json()["sessions"]
    assert [one["id"] for one in left] == [listed[1]["id"]]


async def test_cookie_from_before_a_login_is_invalid_after_it(serve):
    server = await serve(api_key="boss:boss-key")
    await add(server, person("ada"), person("eve"))
    planted = (await server.client.post("/login", json={"key": "eve-key"})).cookies["delf_session"]
    again = await server.client.post("/login", json={"key": "ada-key"})
    assert again.cookies["delf_session"] != planted
    server.client.cookies.clear()
    headers = {"cookie": f"delf_session={planted}"}
    assert (await server.client.get("/tasks", headers=headers)).status_code == 401


# -- a trusted proxy ---------------------------------------------------------------------


async def test_trusted_proxy_names_the_user(serve):
    proxied = {"user_header": "X-Remote-User", "trusted_proxies": ["127.0.0.1"]}
    server = await serve(**proxied)
    await add(server, person("ada", mail="ada@example.com", teams=("sales",)))
    assert (await server.client.get("/tasks")).status_code == 401
    for name in ("ada", "ada@example.com"):
        known = await server.client.get("/session", headers={"x-remote-user": name})
        assert (known.json()["name"], known.json()["way"]) == ("ada", "proxy")
    nobody = await server.client.get("/tasks", headers={"x-remote-user": "mallory"})
    assert nobody.status_code == 403
    twice = [("x-remote-user", "mallory"), ("x-remote-user", "ada")]
    assert (await server.client.get("/tasks", headers=twice)).status_code == 400


async def test_empty_user_header_names_no_person_without_mail(serve):
    server = await serve(user_header="X-Remote-User", trusted_proxies=["127.0.0.1"])
    await add(server, person("ada"))
    answer = await server.client.get("/tasks", headers={"x-remote-user": ""})
    assert answer.status_code == 403


async def test_user_header_from_another_address_is_ignored(serve):
    server = await serve(user_header="X-Remote-User", trusted_proxies=["10.0.0.0/8"])
    await add(server, person("ada"))
    for more in ({}, {"x-forwarded-for": "10.1.2.3"}, {"x-real-ip": "10.1.2.3"}):
        headers = {"x-remote-user": "ada", **more}
        assert (await server.client.get("/tasks", headers=headers)).status_code == 401


async def test_proxied_change_needs_the_page_header(serve):
    server = await serve(user_header="X-Remote-User", trusted_proxies=["127.0.0.1"])
    await add(server, person("ada"))
    message, order = {"x-remote-user": "ada"}, {"task": doing("print(1)")}
    assert (await server.client.post("/run", json=order, headers=message)).status_code == 403
    token = (await server.client.get("/session", headers=message)).json()["csrf"]
    good = {**message, "x-csrf-token": token}
    assert (await server.client.post("/run", json=order, headers=good)).status_code == 202
    foreign = {**good, "origin": "https://evil.example"}
    assert (await server.client.post("/run", json=order, headers=foreign)).status_code == 403


# -- the command ----------------------------------------------------------------------------


def delf(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(cli, ["users", *words])
    assert done.exit_code == status, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("words", "is_emitted"),
    [("", True), ("--scope all", False), ("--scope own", False), ("--rights read+run", False)],
)
def test_adding_a_decider_who_sees_no_other_task_warns(words, is_emitted, tmp_path, monkeypatch):
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", str(tmp_path / "journal.db"))
    done = CliRunner().invoke(cli, ["users", "add", "ada", *words.split()])
    assert done.exit_code == 0, done.output
    assert ("sees only their own tasks" in done.stderr) is is_emitted


async def test_people_are_added_listed_and_revoked_by_the_command(serve):
    server = await serve(api_key="boss:boss-key")

    async def say(*words: str, status: int = 0) -> str:
        return await asyncio.to_thread(delf, *words, status=status)

    async def asks(key: str) -> int:
        await server.app.keys.reload(server.app.tasks.journal, at_once=True)
        return (await server.client.get("/tasks", headers=bearer(key))).status_code

    key = (await say("add", "ada", "--rights", "read+run", "--team", "finance")).strip()
    further = json.loads(await say("add", "ada", "--key", "ci", "--rights", "read", "--json"))
    assert [await asks(one) for one in (key, further["key"])] == [200, 200]
    for mail in ("ada@example.com", ""):
        await say("add", "ada", "--no-key", "--mail", mail)
        assert [one["mail"] for one in json.loads(await say("list", "--json"))] == [mail]
    (known,) = json.loads(await say("list", "--json"))
    assert (known["rights"], known["scope"], known["teams"]) == (
        ["read", "run"],
        "own",
        ["finance"],
    )
    assert [one["label"] for one in known["keys"]] == ["first", "ci"]
    assert key not in json.dumps(known)
    await say("add", "ada", "--key", "ci", status=2)
    await say("add", "local", status=2)
    for name in ("Ada", "finance", "Finance"):
        await say("add", name, status=2)
    await say("add", "bo", "--mail", "bo@example.com", "--team", "ada", status=2)
    await say("add", "bo", "--mail", "bo@example.com")
    await say("add", "cy", "--mail", "BO@example.com", status=2)
    await say("add", "bo@example.com", status=2)
    await say("revoke", "bo")
    await say("revoke", "ada", "--key", "ci")
    assert [await asks(one) for one in (key, further["key"])] == [200, 401]
    await server.app.tasks.journal.begin_login(
        SessionRecord(digest="d" * 64, name="ada", began=time.time(), until=time.time() + 60)
    )
    assert "ada" in await say("sessions")
    for too_short in ("", "d"):
        await say("sessions", "--end", too_short, status=1)
    assert "ada" in await say("sessions")
    await say("sessions", "ada", "--end", "d" * 16)
    assert "nobody" in await say("sessions")
    await say("revoke", "ada")
    assert await asks(key) == 401
    await say("revoke", "ada", status=2)
    await say("revoke", "eve", status=2)


async def test_question_may_be_answered_by_its_asker_and_by_approvers(serve):
    server = await serve(api_key="boss:boss-key")
    may_run, sees_all = ("read", "run"), {"scope": "all"}
    await add(
        server,
        person("ada", rights=may_run),
        person("bo", rights=("read", "decide"), **sees_all),
        person("cy", rights=may_run, **sees_all),
    )
    code = "print(await ask('Who?', ['Ann', 'Bob']))\nprint(await ask('Sure?', answer='yes/no'))"
    order = {"task": doing(code + "\nprint(await send('bob'))")}
    task = (await server.client.post("/run", json=order, headers=bearer("ada-key"))).json()
    server.client.headers.update(bearer("boss-key"))

    async def says(who: str, decision: str, **more: Any) -> Any:
        asked = await server.question(task["task_id"])
        place, body = f"/approvals/{asked['request_id']}", {"decision": decision, **more}
        return await server.client.post(place, json=body, headers=bearer(f"{who}-key"))

    assert (await says("cy", "answer", answer="Ann")).status_code == 403
    assert (await says("ada", "answer", answer="Eve")).status_code == 422
    assert (await says("ada", "approve")).status_code == 409
    mine = await server.client.get("/approvals?mine=true", headers=bearer("ada-key"))
    assert [one["is_question"] for one in mine.json()["approvals"]] == [True]
    assert (await says("ada", "answer", answer="bob")).json()["answer"] == "Bob"
    assert (await says("bo", "answer", answer=True)).json()["by"] == "bo"
    assert (await says("ada", "approve")).status_code == 403, "approving takes the right to decide"
    assert (await says("bo", "reject", reason="no")).is_success


async def test_login_with_a_key_that_is_also_in_the_settings_is_a_session_of_the_person():
    ada = person("ada")
    keys, journal = Keys(["boss:ada-key"]), AsyncMock()
    journal.people.return_value = [ada]
    await keys.reload(journal)
    caller = keys.find(b"ada-key")
    session = SessionRecord(
        digest="d",
        name=caller.name,
        began=1.0,
        until=2.0,
        user=caller.user,
        key=caller.digest.hex(),
    )
    assert keys.caller_of_session(session) == caller


def test_stored_user_name_of_a_settings_key_is_stable():
    """The users are stored: with another name, a key would lose its tasks, files and budget."""
    caller = Keys(["ada:ada-key"]).find(b"ada-key")
    assert caller is not None
    assert caller.user == "ada:92d481941049"


async def test_concurrent_first_loads_of_people_all_find_them():
    """A task that begins at the same time as another one is charged to the budget of its user."""
    keys, journal = Keys(), AsyncMock()
    ada = person("ada")

    async def people() -> list[Person]:
        await asyncio.sleep(0)
        return [ada]

    journal.people = people

    async def of_user() -> object:
        await keys.reload(journal)
        return keys.caller_of(ada.user)

    assert None not in await asyncio.gather(of_user(), of_user())


async def test_outage_of_the_people_is_logged_once(caplog: pytest.LogCaptureFixture):
    keys, journal = Keys(), AsyncMock(place="postgresql://db")
    journal.people.return_value = [person("ada")]
    await keys.reload(journal)
    journal.people.side_effect = DelfError("the database does not answer")
    for _ in range(3):
        await keys.reload(journal, at_once=True)
    journal.people.side_effect = None
    await keys.reload(journal, at_once=True)
    assert keys.find(b"ada-key")
    assert [record.getMessage() for record in caplog.records] == [
        "changes of people and keys are not loaded (failure 1): the database does not answer",
        "changes of people and keys are not loaded: works again after 3 failures in 0 s",
    ]
