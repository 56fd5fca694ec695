"""Tenancy: each way to reach what is another person's, tried against a server that runs."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from delf.protocols.people import PersonKey, digest_of
from plugins.serve.test_people import add, change, person
from support.serving import Outbox, Served, bearer, doing, make_agent, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORD = "Zanzibar"
"""The word that is in all that is Ada's, and in nothing else."""
YES = {"decision": "approve"}
WHO = ("eve", "mo", "spy")
"""The attackers: a person of no team, one who sees another team, a key of the settings."""


@dataclass
class Office:
    """A server, with everything that Ada owns there."""

    server: Served
    ids: dict[str, str]

    async def ask(self, who: str, method: str, path: str, body: Any = None, **headers: str):
        given: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
        given = {} if body is None else given
        headers = {**bearer(f"{who}-key"), **headers}
        return await self.server.client.request(method, path, headers=headers, **given)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office(tmp_path_factory):
    place = tmp_path_factory.mktemp("tenancy")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{place / 'journal.db'}")
        patch.setenv("DELF_SERVE_FILES_FOLDER", str(place / "files"))
        patch.chdir(place)
        async with AsyncExitStack() as stack:
            box = Outbox()
            agent = make_agent(
                str(place), box, chat={"persist": True}, budget_usd=1e6, cost_usd=0.5
            )
            keys = "boss:boss-key,spy:read+run+decide+delete@own:spy-key"
            server = await stack.enter_async_context(serving(agent, box, api_key=keys))
            people = (
                person("ada", teams=("finance",)),
                person("eve"),
                person("mo", scope="team", teams=("ops",)),
                person("zed", scope="team", teams=("ops",)),
            )
            await add(server, *people)
            yield await furnished(Office(server, {}))


async def furnished(office: Office) -> Office:
    """Create one thing of each kind for Ada."""
    sent = (await office.ask("ada", "POST", f"/files?name={WORD}.txt", WORD.encode())).json()
    code = f"add_to_output_files('{WORD}.txt', '{WORD}')\nprint('{WORD}', await look())"
    order = {"task": doing(code, WORD), "wait": 20, "files": [{"id": sent["id"]}]}
    key = {"idempotency-key": "ada's"}
    done = (await office.ask("ada", "POST", "/run", order, **key)).json()
    assert done["state"] == "done", done
    lasting = {**YES, "remember": "until_revoked", "covers": "action"}
    first = await question(office, f"print(await note([{{'to': '{WORD}'}}]))")
    assert (await office.ask("ada", "POST", f"/approvals/{first[1]}", lasting)).is_success
    asked = await question(office, f"print(await send('{WORD}'))")
    cookie = (await office.server.client.post("/login", json={"key": "ada-key"})).cookies
    office.server.client.cookies.clear()
    mine = {"cookie": f"delf_session={cookie['delf_session']}"}
    (session,) = (await office.server.client.get("/sessions", headers=mine)).json()["sessions"]
    office.ids = {
        "done": done["task_id"],
        "talk": done["conversation_id"],
        "asked": asked[0],
        "request": asked[1],
        "decided": first[1],
        "file": sent["id"],
        "session": session["id"],
    }
    return office


async def question(office: Office, code: str) -> tuple[str, str]:
    """Start a task of Ada's that waits; return the ids of the task and of its question."""
    order = {"task": doing(code, WORD), "wait": 20}
    task = (await office.ask("ada", "POST", "/run", order)).json()
    return task["task_id"], task["approvals"][0]


async def ran(office: Office, who: str, code: str = "print(1)", **more: Any) -> str:
    """Run a task of a person to its end; return its id."""
    order = {"task": doing(code), "wait": 20, **more}
    task = (await office.ask(who, "POST", "/run", order)).json()
    assert task["state"] == "done", task
    return task["task_id"]


async def forget(office: Office, who: str) -> None:
    """Delete everything that a person owns."""
    for task in (await office.ask(who, "GET", "/tasks")).json()["tasks"]:
        await office.ask(who, "POST", f"/tasks/{task['task_id']}/cancel")
        assert (await office.ask(who, "DELETE", f"/tasks/{task['task_id']}")).is_success
    for talk in (await office.ask(who, "GET", "/conversations")).json()["conversations"]:
        assert (
            await office.ask(who, "DELETE", f"/conversations/{talk['conversation_id']}")
        ).is_success


@dataclass(frozen=True)
class Attack:
    method: str
    path: str
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.body or ''}{dict(self.headers) or ''}"

    def on(self, ids: dict[str, str]) -> Attack:
        text = json.dumps([self.path, self.body])
        for name, value in ids.items():
            text = re.sub(rf"<{name}(:(\d+))?>", lambda m, v=value: v[: int(m[2] or 99)], text)
        assert "<" not in text
        path, body = json.loads(text)
        return replace(self, path=path, body=body)


NAMED = [
    Attack("GET", "/tasks/<done>"),
    Attack("HEAD", "/tasks/<done>"),
    Attack("GET", "/tasks/<done:12>"),
    Attack("GET", "/tasks/<done:20>"),
    Attack("GET", "/tasks/<asked>?wait=1"),
    Attack("GET", "/tasks/<done>/events"),
    Attack("GET", "/tasks/<done>/events?after=1"),
    Attack("GET", "/tasks/<done>/events?after=9999"),
    Attack("GET", "/tasks/<done>/events", headers=(("last-event-id", "1"),)),
    Attack("GET", "/tasks/<done>/events", headers=(("last-event-id", "9999"),)),
    Attack("GET", "/tasks/<asked>/events"),
    Attack("GET", "/tasks/<done:14>/events"),
    Attack("GET", "/tasks/<done>/prompts"),
    Attack("GET", "/tasks/<done>/prompts?offset=1"),
    Attack("GET", f"/tasks/<done>/files/{WORD}.txt"),
    Attack("GET", f"/tasks/<done:14>/files/{WORD}.txt"),
    Attack("POST", "/tasks/<asked>/cancel"),
    Attack("POST", "/tasks/<done>/resume"),
    Attack("POST", "/tasks/<asked>/resume"),
    Attack("POST", "/tasks/<done>/fork", {}),
    Attack("POST", "/tasks/<done>/fork", {"at": 3}),
    Attack("POST", "/tasks/<done>/fork", {"script": "print(1)"}),
    Attack("POST", "/tasks/<asked>/fork", {}),
    Attack("GET", "/tasks/<done>/compare/<asked>"),
    Attack("GET", "/tasks/<own>/compare/<done>"),
    Attack("GET", "/tasks/<done>/compare/<own>"),
    Attack("GET", "/tasks/<own>/compare/<done:14>"),
    Attack("DELETE", "/tasks/<done>"),
    Attack("DELETE", "/tasks/<asked>"),
    Attack("GET", "/approvals/<request>"),
    Attack("GET", "/approvals/<request:9>"),
    Attack("GET", "/approvals/<decided>"),
    Attack("POST", "/approvals/<request>", YES),
    Attack("POST", "/approvals/<request>", {"decision": "reject", "reason": "no"}),
    Attack("POST", "/approvals/<request>", {"decision": "edit", "arguments": {"to": "eve"}}),
    Attack("POST", "/approvals/<request>", {**YES, "remember": "task", "covers": "action"}),
    Attack("POST", "/approvals/<request:9>", YES),
    Attack("DELETE", "/remembered/<decided>"),
    Attack("DELETE", "/remembered/<decided:9>"),
    Attack("GET", "/conversations/<talk>"),
    Attack("DELETE", "/conversations/<talk>"),
    Attack("GET", "/conversations/ada:ada-uid%7C<talk>"),
    Attack("DELETE", "/conversations/ada:ada-uid%7C<talk>"),
    Attack("GET", "/search?before=<done>"),
    Attack("GET", "/search?before=<done:14>"),
    Attack("POST", "/routines", {"task_id": "<done>", "name": "theirs"}),
    Attack("POST", "/routines", {"task_id": "<done:14>", "name": "theirs"}),
    Attack("POST", "/run", {"task": "do it", "files": [{"id": "<file>"}]}),
    Attack(
        "POST",
        "/run",
        {"task": "do it", "files": [{"id": "<file>"}]},
        (("idempotency-key", "n"),),
    ),
    Attack("DELETE", "/files/<file>"),
    Attack("DELETE", "/sessions/<session>"),
]
"""Requests that name something of Ada's: the answer is the same as for something unknown."""

LISTED = [
    "/tasks",
    f"/tasks?text={WORD}",
    "/tasks?state=waiting",
    "/tasks?state=done",
    "/tasks?limit=1",
    "/tasks?after=99999999999.000000000~task_z",
    "/tasks?after=99999999999.000000000~<done>",
    "/search",
    f"/search?text={WORD}",
    f'/search?text="{WORD}"',
    "/search?text=zanz",
    "/search?person=ada",
    "/search?action=send",
    "/search?connection=note",
    "/search?model=scripted",
    "/search?least_cost=0.1",
    "/figures?by=day",
    "/figures?by=person",
    "/figures?by=person&person=ada",
    "/figures?by=connection",
    "/figures?by=model",
    "/figures?by=action",
    "/figures?by=action&action=send",
    "/figures?by=day&person=ada&since=0&until=99999999999",
    "/search?since=0&until=99999999999",
    f"/figures?by=model&text={WORD}",
    "/approvals",
    "/approvals?waiting=false",
    "/approvals?mine=true",
    "/approvals?limit=1&offset=0",
    "/remembered",
    "/conversations",
    "/conversations?limit=1&offset=0",
    "/files",
    "/sessions",
]
"""Lists, of which none has anything of Ada's."""


def plain(answer, sent: Attack) -> tuple[int, str]:
    """Return an answer without the parts that differ between any two answers."""
    body = re.sub(r'"request_id":\s*"[0-9a-f]{16}"', "", answer.text)
    for part in re.findall(r"[\w-]{4,}", f"{sent.path} {json.dumps(sent.body)}"):
        body = body.replace(part, "…")
    return answer.status_code, body


@pytest.mark.parametrize("attack", NAMED, ids=str)
async def test_object_of_another_user_is_answered_as_missing(office, attack):
    nothing = {name: re.sub(r"[0-9a-f]", "d", text[5:]) for name, text in office.ids.items()}
    nothing = {name: office.ids[name][:5] + text for name, text in nothing.items()}
    for who in WHO:
        own = {"own": await ran(office, who)} if "<own>" in attack.path else {}
        answers = []
        for one in (attack.on({**office.ids, **own}), attack.on({**nothing, **own})):
            message = await office.ask(who, one.method, one.path, one.body, **dict(one.headers))
            assert message.status_code == 404, (who, message.text)
            assert WORD not in message.text.replace(f"{WORD}.txt", "")
            answers.append(plain(message, one))
        assert answers[0] == answers[1], f"it tells {who} that there is something"
        if own:
            await forget(office, who)


def noted(steps: list[str], name: str, real):
    """Return a function that records its name before it runs."""

    def note(*args, **more):
        steps.append(name)
        return real(*args, **more)

    return note


async def test_missing_and_foreign_tasks_need_the_same_lookups(office):
    """A slower answer would reveal that the task exists."""
    journal, steps = office.server.app.tasks.journal, list[str]()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("resolve", "task", "find", "read"):
            patch.setattr(journal, name, noted(steps, name, getattr(journal, name)))
        taken = []
        for text in (office.ids["done"], "task_" + "d" * 16, office.ids["done"][:12], "task_dddd"):
            steps.clear()
            assert (await office.ask("eve", "GET", f"/tasks/{text}")).status_code == 404
            taken.append([*steps])
    assert taken == [["resolve"]] * 4


@pytest.mark.parametrize("path", LISTED)
async def test_lists_omit_other_users(office, path):
    path = Attack("GET", path).on(office.ids).path
    theirs = await office.ask("ada", "GET", path)
    for who in WHO:
        answer = await office.ask(who, "GET", path)
        assert answer.status_code == 200, answer.text
        assert WORD not in answer.text
        assert not [name for name in office.ids.values() if name in answer.text]
        assert next(iter(answer.json().values())) == [], (who, answer.text)
    assert next(iter(theirs.json().values())), "a list without anything proves nothing"


async def test_csv_figures_omit_other_users(office):
    for who in WHO:
        answer = await office.ask(who, "GET", "/figures?by=person&format=csv")
        assert len(answer.text.splitlines()) == 1


async def test_figures_of_all_users_need_access_to_all_tasks(office):
    for who in WHO:
        assert (await office.ask(who, "GET", "/metrics")).status_code == 404
        own = await ran(office, who)
        for path in ("/budget", "/session"):
            message = (await office.ask(who, "GET", path)).json()
            message = message["budget"] if path == "/session" else message
            assert (message["limit_usd"], message["left_usd"]) == (None, None), (
                "they tell all spending"
            )
            assert message["tasks"][0] == {"task_id": own, "cost_usd": 0.5}
            assert not {one["task_id"] for one in message["tasks"]} & {*office.ids.values()}
        await forget(office, who)
    assert (await office.ask("boss", "GET", "/metrics")).status_code == 200
    every = (await office.ask("boss", "GET", "/budget")).json()
    own = (await office.ask("ada", "GET", "/budget")).json()
    assert every["limit_usd"] - every["cost_usd"] == every["left_usd"]
    assert 0 < own["cost_usd"] < every["cost_usd"]


@pytest.mark.parametrize("who", WHO)
async def test_idempotency_keys_are_separate_per_user(office, who):
    order = {"task": doing("print(2)"), "wait": 20}
    key = {"idempotency-key": "ada's"}
    answer = await office.ask(who, "POST", "/run", order, **key)
    assert answer.json()["result"] == "2"
    assert answer.json()["task_id"] != office.ids["done"]
    assert "idempotent-replayed" not in answer.headers
    await forget(office, who)


@pytest.mark.parametrize("who", WHO)
async def test_conversation_names_are_separate_per_user(office, who):
    talk = office.ids["talk"]
    own = await ran(office, who, conversation_id=talk)
    message = (await office.ask(who, "GET", f"/conversations/{talk}")).json()["messages"]
    assert {line["task_id"] for line in message} == {own}
    prompts = (await office.ask(who, "GET", f"/tasks/{own}/prompts")).text
    assert WORD not in prompts
    for name in (f"ada:ada-uid|{talk}", f"ada:ada-uid%7C{talk}"):
        order = {"task": doing("print(1)"), "conversation_id": name}
        assert (await office.ask(who, "POST", "/run", order)).status_code == 422
    await forget(office, who)


async def test_stream_of_all_tasks_omits_events_of_other_users(office):
    client = office.server.client
    async with AsyncExitStack() as stack:
        streams = []
        for who in WHO:
            headers = {**bearer(f"{who}-key"), "last-event-id": "0"}
            opened = await stack.enter_async_context(
                client.stream("GET", "/events", headers=headers)
            )
            lines = opened.aiter_lines()
            await anext(lines)
            streams.append(lines)
        theirs = await ran(office, "ada", f"print('{WORD}')")
        for who, lines in zip(WHO, streams, strict=True):
            own, message = await ran(office, who), ""
            while f'"{own}"' not in message:
                message += await anext(lines)
            assert WORD not in message
            assert theirs not in message
    for who in WHO:
        await forget(office, who)


async def test_remembered_decision_of_another_user_has_no_effect(office):
    for who in WHO:
        order = {"task": doing("print(await note([{'a': 1}]))"), "wait": 20}
        task = (await office.ask(who, "POST", "/run", order)).json()
        assert task["state"] == "waiting", who
        await forget(office, who)


@pytest.mark.parametrize("name", ["../journal", "..%2fjournal.db", "%2e%2e/x", "a/../../b"])
async def test_path_as_routine_name_is_refused(office, name):
    for who in WHO:
        answer = await office.ask(who, "POST", f"/routines/{name}", {})
        assert answer.status_code in (404, 405), answer.text


async def test_reused_person_name_inherits_nothing(office):
    server, ada = office.server, person("ada", teams=("finance",))
    other = PersonKey(label="first", digest=digest_of("later-key"), made_at=1.0)
    await change(server, ada, later := replace(ada, uid="later", keys=(other,), teams=()))
    try:
        for path in ("/tasks", "/files", "/conversations", "/remembered", "/approvals", "/search"):
            answer = await office.ask("later", "GET", path)
            assert next(iter(answer.json().values())) == [], path
        place = f"/files/{office.ids['file']}"
        assert (await office.ask("later", "DELETE", place)).status_code == 404
        order = {"task": "do it", "files": [{"id": office.ids["file"]}]}
        assert (await office.ask("later", "POST", "/run", order)).status_code == 404
    finally:
        await change(server, later, ada)


NOTHING = [
    "/tasks/%25",
    "/tasks/_",
    "/tasks/task_",
    "/tasks/task__",
    "/tasks/<done:8>%25",
    "/tasks/task_%25/events",
    "/tasks/_____/prompts",
    "/tasks/task_%25/compare/task_%25",
    f"/tasks/task_%25/files/{WORD}.txt",
    "/approvals/%25",
    "/approvals/_",
    "/approvals/req_",
    "/approvals/<request:8>%25",
    "/conversations/%25",
    "/conversations/ada:%25",
]
"""Names that are patterns, or the beginning of every name."""


@pytest.mark.parametrize("path", NOTHING)
async def test_name_with_wildcards_finds_nothing_of_other_users(office, path):
    path = Attack("GET", path).on(office.ids).path
    for who in WHO:
        answer = await office.ask(who, "GET", path)
        assert answer.status_code == 404, answer.text
        assert WORD not in answer.text.replace(f"{WORD}.txt", "")
        assert not [name for name in office.ids.values() if name in answer.text]


@pytest.mark.parametrize(
    "text",
    ["*", "Zanz*", f"task:{WORD}", f"x OR {WORD}", f"NEAR({WORD} look)", '" OR 1=1 --', "%", "_"],
)
async def test_search_reveals_no_task_of_another_user(office, text):
    for who in WHO:
        for path in ("/search", "/tasks", "/figures"):
            answer = await office.server.client.get(
                path, params={"text": text}, headers=bearer(f"{who}-key")
            )
            assert answer.status_code in (200, 422), answer.text
            assert WORD not in answer.text.replace(text, "")
            if answer.status_code == 200:
                assert next(iter(answer.json().values())) == []


async def test_header_and_session_name_cannot_change_the_user(office):
    ids = office.ids
    for who in WHO:
        for name in ("x-remote-user", "x-forwarded-user", "x-delf-user", "remote-user"):
            message = (await office.ask(who, "GET", "/session", **{name: "ada"})).json()
            assert message["name"] == who
        for cookie in (ids["session"], f"{ids['session']}; delf_session={ids['session']}"):
            message = await office.ask(who, "GET", "/session", cookie=f"delf_session={cookie}")
            assert message.json()["name"] == who
    cookie = {"cookie": f"delf_session={ids['session']}"}
    assert (await office.server.client.get("/tasks", headers=cookie)).status_code == 401
    login = await office.server.client.post("/login", json={"key": "ada-key"})
    office.server.client.cookies.clear()
    held = f"delf_session={login.cookies['delf_session']}"
    try:
        message = await office.ask("eve", "GET", "/tasks", cookie=held)
        assert message.json()["tasks"] == [], "a key that is shown counts, and no cookie beside it"
    finally:
        headers = {"cookie": held, "x-csrf-token": login.json()["csrf"]}
        await office.server.client.post("/logout", headers=headers)


async def test_script_cannot_read_uploads_of_another_user(office):
    folder = Path(office.server.app.settings.files_folder)
    (path,) = [path for path in folder.rglob("*") if path.is_file()]
    assert WORD in path.read_text()
    code = f"print(open({str(path)!r}).read())"
    for who in WHO:
        own = await ran(office, who)
        order = {"task": doing(code), "wait": 20}
        message = (await office.ask(who, "POST", "/run", order)).json()
        assert message["state"] == "failed", message
        fork = await office.ask(who, "POST", f"/tasks/{own}/fork", {"script": code})
        place = f"/tasks/{fork.json()['task_id']}"
        await office.ask(who, "GET", f"{place}?wait=20")
        for answer in (place, f"{place}/prompts"):
            assert WORD not in (await office.ask(who, "GET", answer)).text.replace(str(path), "")
        sent = await office.ask(who, "POST", f"/files?name={WORD}.txt", b"mine")
        assert sent.json()["id"] != office.ids["file"]
        listed = (await office.ask(who, "GET", "/files")).json()["files"]
        assert [one["id"] for one in listed] == [sent.json()["id"]]
        assert (await office.ask(who, "DELETE", f"/files/{sent.json()['id']}")).is_success
        await forget(office, who)


async def test_routines_and_drafts_reveal_no_foreign_task(office):
    done, given = office.ids["done"], {"name": "theirs"}
    draft = await office.ask("ada", "POST", "/routines", {"task_id": done, **given})
    for who in WHO:
        message = await office.ask(who, "GET", "/routines")
        assert message.status_code == 200
        assert WORD not in message.text
        assert done not in message.text
        if draft.is_success:
            own = await ran(office, who, "print((await look(3))['name'])")
            order = {"task_id": own, **given, "seen": draft.json()["digest"]}
            answer = await office.ask(who, "POST", "/routines", order)
            assert WORD not in answer.text
            assert not (answer.is_success and answer.json()["saved"])
            await forget(office, who)
    assert draft.is_success, draft.text


@pytest.mark.slow
async def test_cross_tenant_attacks_change_nothing(office):
    """After all attacks the questions still wait, and nothing was sent."""
    ids = office.ids
    assert office.server.box.sent == []
    for path in (
        f"/tasks/{ids['done']}",
        f"/tasks/{ids['done']}/files/{WORD}.txt",
        f"/approvals/{ids['request']}",
        f"/conversations/{ids['talk']}",
    ):
        answer = await office.ask("ada", "GET", path)
        assert answer.status_code == 200, path
        assert WORD in answer.text
    assert (await office.ask("ada", "GET", f"/tasks/{ids['asked']}")).json()["state"] == "waiting"
    (kept,) = (await office.ask("ada", "GET", "/remembered")).json()["remembered"]
    assert kept["request_id"] == ids["decided"]
    (file,) = (await office.ask("ada", "GET", "/files")).json()["files"]
    assert file["id"] == ids["file"]
    (session,) = (await office.ask("ada", "GET", "/sessions")).json()["sessions"]
    assert session["id"] == ids["session"]
