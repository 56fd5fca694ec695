"""The API: tasks, events, questions, files; everything comes from the journal."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from delf import load_project
from delf.errors import DelfError, TaskTimeoutError
from delf.events import TaskPostponed, TaskQueued
from delf.protocols.conversation import ChatMessage
from delf_journal_sql import SqlJournal
from delf_serve.keys import ANYBODY
from delf_serve.tasks.conversation_names import CLIENT_CONVERSATION_PREFIX
from support.serving import KEYS, Outbox, bearer, doing, make_agent, serving
from support.until import until

MOMENT = "0.0000000001h"
"""As long as tasks stay of which nothing is to stay."""


async def test_submitted_task_can_be_looked_up(serve):
    server = await serve()
    accepted = await server.run("print(await look(7))")
    assert accepted["state"] == "queued"
    view = await server.until(accepted["task_id"], "done")
    assert view["result"] == "{'number': 7, 'name': 'thing 7'}"
    assert view["is_terminal"]
    short = (await server.client.get(f"/tasks/{accepted['task_id'][5:12]}")).json()
    assert short["task_id"] == accepted["task_id"]
    listed = (await server.client.get("/tasks", params={"state": "done"})).json()
    assert [task["task_id"] for task in listed["tasks"]] == [accepted["task_id"]]
    assert not (await server.client.get("/tasks", params={"text": "nothing like it"})).json()[
        "tasks"
    ]


async def test_answers_on_an_open_connection_are_not_delayed(serve):
    """Nagle's algorithm, beside delayed acknowledgements, would add 40 ms to each."""
    server = await serve()
    seconds = []
    for _ in range(40):
        begun = time.monotonic()
        assert (await server.client.get("/tasks")).status_code == 200
        seconds.append(time.monotonic() - begun)
    # Linux delays no acknowledgement of a new connection.
    assert min(seconds[20:]) < 0.03


async def test_run_waits_for_the_result_on_request(serve):
    server = await serve()
    answer = await server.client.post("/run", json={"task": doing("print(1 + 1)"), "wait": 20})
    assert (answer.status_code, answer.json()["result"]) == (200, "2")
    late = await server.client.post("/run", json={"task": doing("await hold()"), "wait": 0.05})
    assert (late.status_code, late.json()["state"] in ("queued", "running")) == (202, True)


async def test_failed_task_has_the_code_and_hint_of_its_error(serve):
    server = await serve()
    order = {"task": doing("await hold()"), "timeout": 0.3, "wait": 20}
    failed = (await server.client.post("/run", json=order)).json()
    assert (failed["state"], failed["code"]) == ("failed", TaskTimeoutError.code)
    assert failed["hint"] == TaskTimeoutError.default_hint
    (*_, end) = await server.events(failed["task_id"], until="TaskFinished")
    assert end["data"]["hint"] == failed["hint"]


async def test_answer_follows_the_given_schema(serve):
    server = await serve()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    order = {"task": doing("await answer({'n': 7})"), "output": schema, "wait": 20}
    answer = await server.client.post("/run", json=order)
    assert (answer.status_code, answer.json()["value"]) == (200, {"n": 7})
    order = {"task": doing("await answer({'n': 'x'})"), "output": schema, "wait": 20}
    failed = (await server.client.post("/run", json=order)).json()
    assert (failed["state"], failed["value"]) == ("failed", None)
    wrong = await server.client.post("/run", json={"task": "x", "output": {"type": "nonsense"}})
    assert wrong.status_code == 422
    assert "output" in wrong.text


async def test_wait_ends_at_a_request_and_can_be_repeated(serve):
    server = await serve()
    order = {"task": doing("print(await send('bob'))"), "wait": 60}
    asked = await server.client.post("/run", json=order)
    assert (asked.status_code, asked.json()["state"]) == (202, "waiting")
    (name,) = asked.json()["approvals"]
    place = f"/tasks/{asked.json()['task_id']}"
    again = (await server.client.get(place, params={"wait": 60})).json()
    assert (again["state"], again["approvals"]) == ("waiting", [name])
    await server.client.post(f"/approvals/{name}", json={"decision": "approve"})
    over = (await server.client.get(place, params={"wait": 60})).json()
    assert (over["state"], over["result"], over["approvals"]) == ("done", "sent 1 to bob", [])


@pytest.mark.parametrize("journal_url", ["sqlite", "postgresql"], indirect=True)
async def test_wait_ignores_requests_decided_by_policy(serve):
    server = await serve(agent={"approval_mode": "approve_all"})
    order = {
        "task": doing("for n in range(9):\n    await send('bob', n + 1)\nprint(n)"),
        "wait": 60,
    }
    for _ in range(5):
        answer = await server.client.post("/run", json=order)
        assert (answer.status_code, answer.json()["state"]) == (200, "done")


@pytest.mark.parametrize("journal_url", ["sqlite", "postgresql"], indirect=True)
async def test_answered_request_is_no_longer_listed_as_open(serve):
    servers = [await serve(), await serve()]
    first = servers[0]
    for _ in range(3):
        first.box.gate.clear()
        task = await first.run("await send('bob')\nprint(await hold())", wait=60)
        assert task["state"] == "waiting"
        (name,), place = task["approvals"], f"/tasks/{task['task_id']}"
        for server in servers:  # events that they have read must not come again
            assert (await server.client.get(place)).json()["state"] == "waiting"
        decided = await servers[1].client.post(f"/approvals/{name}", json={"decision": "approve"})
        assert decided.status_code == 200
        for server in servers:
            assert (await server.client.get(place)).json()["state"] == "running"
            listed = (await server.client.get("/tasks", params={"state": "waiting"})).json()
            assert listed["tasks"] == []
        waits = [server.client.get(place, params={"wait": 60}) for server in servers]
        over = asyncio.gather(*waits)
        first.box.gate.set()
        assert [answer.json()["state"] for answer in await over] == ["done", "done"]


@pytest.mark.parametrize("journal_url", ["sqlite", "postgresql"], indirect=True)
async def test_wait_covers_tasks_of_other_processes(serve):
    first, second = await serve(), await serve()
    order = {"task": doing("print(await hold())")}
    headers = {"idempotency-key": "once"}
    accepted = (await first.client.post("/run", json=order, headers=headers)).json()
    waits = asyncio.create_task(
        second.client.post("/run", json={**order, "wait": 60}, headers=headers)
    )
    looks = asyncio.create_task(
        second.client.get(f"/tasks/{accepted['task_id']}", params={"wait": 60})
    )
    await second.until(accepted["task_id"], "running")
    first.box.gate.set()
    for answer in await asyncio.gather(waits, looks):
        assert (answer.status_code, answer.json()["result"]) == (200, "held")


async def test_stopping_server_answers_waiting_clients(serve):
    server = await serve()
    task = await server.run("print(await hold())")
    order = {"task": doing("print(await hold())"), "wait": 600}
    waits = [
        asyncio.create_task(server.client.post("/run", json=order)),
        asyncio.create_task(server.client.get(f"/tasks/{task['task_id']}", params={"wait": 600})),
    ]
    await until(lambda: server.app.sessions.open_count == 2)
    server.app.begin_stop()
    answers = [await each for each in waits]
    assert [answer.status_code for answer in answers] == [202, 200]
    assert [answer.json()["state"] for answer in answers] == ["running", "running"]
    server.box.gate.set()


async def test_repeated_request_returns_the_task_state(serve):
    server = await serve(open_tasks=1)
    order = {"task": doing("print(await send('bob'))")}
    headers = {"idempotency-key": "once"}
    first = await server.client.post("/run", json=order, headers=headers)
    assert (first.status_code, first.json()["state"]) == (202, "queued")
    assert "idempotent-replayed" not in first.headers
    name = (await server.question(first.json()["task_id"]))["request_id"]
    again = await server.client.post("/run", json=order, headers=headers)
    assert (again.status_code, again.json()["state"]) == (202, "waiting")
    assert (again.json()["approvals"], again.headers["idempotent-replayed"]) == ([name], "true")
    await server.client.post(f"/approvals/{name}", json={"decision": "approve"})
    await server.until(first.json()["task_id"], "done")
    over = await server.client.post("/run", json=order, headers=headers)
    assert (over.status_code, over.json()["result"]) == (200, "sent 1 to bob")
    assert server.box.sent == [("bob", 1)]


async def test_idempotency_key_gives_the_same_task(serve):
    server = await serve()
    order = {"task": doing("await hold()")}
    headers = {"idempotency-key": "once"}
    answers = await asyncio.gather(
        *(server.client.post("/run", json=order, headers=headers) for _ in range(5))
    )
    assert len({answer.json()["task_id"] for answer in answers}) == 1
    assert len((await server.client.get("/tasks")).json()["tasks"]) == 1
    other = await server.client.post("/run", json={"task": doing("print(2)")}, headers=headers)
    assert other.status_code == 409
    task_id = answers[0].json()["task_id"]  # those that came too late did not disown it
    stopped = (await server.client.post(f"/tasks/{task_id}/cancel")).json()
    assert stopped == {"task_id": task_id, "cancelled": True}


async def test_repeated_request_is_found_by_a_server_without_conversations(serve):
    server = await serve(agent={"chat": {"persist": True}})
    order = {"task": doing("print(1)"), "conversation_id": "diary"}
    headers = {"idempotency-key": "once"}
    first = (await server.client.post("/run", json=order, headers=headers)).json()
    await server.until(first["task_id"], "done")
    other = await serve()  # such as the same server after a change of its agent
    again = await other.client.post("/run", json=order, headers=headers)
    assert again.json()["task_id"] == first["task_id"]
    refused = await other.client.post("/run", json=order)
    assert refused.status_code == 409
    assert "keeps no conversations" in refused.text


async def test_unknown_ids_are_not_found(serve):
    server = await serve()
    for method, path in (
        ("GET", "/tasks/task_nothing"),
        ("GET", "/tasks/task_nothing/events"),
        ("POST", "/tasks/task_nothing/cancel"),
        ("POST", "/tasks/task_nothing/resume"),
        ("GET", "/tasks/task_nothing/files/a.txt"),
        ("GET", "/approvals/req_nothing"),
        ("GET", "/conversations/nothing"),
        ("GET", "/nothing"),
    ):
        answer = await server.client.request(method, path)
        assert answer.status_code == 404, (method, path, answer.text)
        assert answer.json()["status"] == 404
        assert "delf " not in answer.text


async def test_wrong_method_returns_the_allowed_methods(serve):
    server = await serve()
    for path, allowed in (("/approvals/req_nothing", "GET, HEAD, POST"), ("/run", "POST")):
        answer = await server.client.delete(path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_event_stream_resumes_after_the_last_received_event(serve):
    server = await serve()
    accepted = await server.run("for n in range(5):\n    print(await look(n))")
    whole = await server.events(accepted["task_id"])
    assert [event["seq"] for event in whole] == list(range(1, len(whole) + 1))
    assert whole[-1]["type"] == "TaskFinished"
    for after in (1, 7, len(whole) - 1):
        assert await server.events(accepted["task_id"], after) == whole[after:]
    over = await server.client.get(
        f"/tasks/{accepted['task_id']}/events", headers={"last-event-id": str(len(whole))}
    )
    assert over.status_code == 204


async def test_pending_request_is_answered_through_the_journal(serve):
    server = await serve(key="ada-key", api_key=KEYS)
    accepted = await server.run("print(await send('bob'))")
    asked = await server.question(accepted["task_id"])
    assert (asked["action"], asked["arguments"]) == ("send", {"to": "bob"})
    place = f"/approvals/{asked['request_id']}"
    first, second = await asyncio.gather(
        server.client.post(place, json={"decision": "approve"}),
        server.client.post(place, json={"decision": "reject"}, headers=bearer("dee-key")),
    )
    lost = second if first.is_success else first
    won = first if first.is_success else second
    assert (won.status_code, lost.status_code) == (200, 409)
    assert won.json()["by"] in lost.json()["detail"]
    again = await server.client.post(place, json={"decision": "approve"})
    assert again.status_code == 409


async def test_invalid_decision_is_refused_with_its_field(serve):
    server = await serve()
    accepted = await server.run("print(await send('bob'))")
    name = (await server.question(accepted["task_id"]))["request_id"]
    for body, param in (
        ({"decision": "approve", "arguments": {"to": "eve"}}, "arguments"),
        ({"decision": "approve", "result": "sent"}, "result"),
        ({"decision": "edit"}, "arguments"),
        ({"decision": "edit", "arguments": {}}, "arguments"),
        ({"decision": "edit", "arguments": {"to": "eve"}, "remember": "task"}, "remember"),
        ({"decision": "reject", "remember": "session"}, "remember"),
        ({"decision": "reject", "arguments": {"to": "eve"}}, "arguments"),
        ({"decision": "yes"}, "decision"),
        ({"arguments": {"to": "eve"}}, "decision"),
        ({"decision": "approve", "approve": True}, "approve"),
        ({"decision": "approve", "reason": 5}, "reason"),
    ):
        answer = await server.client.post(f"/approvals/{name}", json=body)
        assert (answer.status_code, answer.json()["param"]) == (422, param), body
    assert (await server.question(accepted["task_id"]))["decided"] is None
    assert server.box.sent == []


async def test_changing_request_needs_the_full_id(serve):
    server = await serve()
    task_id = (await server.run("print(await send('bob'))"))["task_id"]
    name = (await server.question(task_id))["request_id"]
    for text in ("r", "req_", name[:-1], name[4:], name.upper()):
        answer = await server.client.post(f"/approvals/{text}", json={"decision": "approve"})
        assert answer.status_code == 404, text
    for text in ("t", "task_", task_id[:-1], task_id[5:]):
        for what in ("cancel", "resume"):
            answer = await server.client.post(f"/tasks/{text}/{what}")
            assert answer.status_code == 404, text
    assert (await server.client.get(f"/approvals/{name[:9]}")).json()["request_id"] == name
    assert server.box.sent == []
    odd = await server.client.post(f"/tasks/{task_id}/cancel", json={"reason": "x"})
    assert odd.status_code == 422
    assert (await server.client.post(f"/tasks/{task_id}/cancel", json={})).status_code == 200


async def test_request_lists_defaults_of_omitted_arguments_and_effects(serve):
    server = await serve()
    first = await server.question((await server.run("await send('bob')"))["task_id"])
    assert (first["arguments"], first["defaults"]) == ({"to": "bob"}, {"copies": 1})
    both = await server.question((await server.run("await send('bob', 2)"))["task_id"])
    assert (both["arguments"], both["defaults"]) == ({"to": "bob", "copies": 2}, {})
    assert (first["effect"], first["effects"]) == ("irreversible", {})
    plan = await serve(agent={"confirm_mode": "plan"})
    asked = await plan.question((await plan.run("await send('bob')\nawait note([])"))["task_id"])
    assert asked["effects"] == {"send": "irreversible", "note": "irreversible"}
    assert set(asked["actions"]) == set(asked["effects"])


async def test_edited_arguments_are_checked_and_used(serve):
    server = await serve()
    accepted = await server.run("print(await send('bob'))")
    name = (await server.question(accepted["task_id"]))["request_id"]
    bad = {"decision": "edit", "arguments": {"copies": "many"}}
    refused = await server.client.post(f"/approvals/{name}", json=bad)
    assert refused.status_code == 422
    assert "copies" in refused.json()["detail"]
    good = {"decision": "edit", "arguments": {"to": "eve", "copies": 2}}
    assert (await server.client.post(f"/approvals/{name}", json=good)).status_code == 200
    view = await server.until(accepted["task_id"], "done")
    assert (view["result"], server.box.sent) == ("sent 2 to eve", [("eve", 2)])


YES = {"decision": "approve", "remember": "until_revoked"}


async def test_remembered_decision_applies_to_its_key_until_revoked(serve):
    server = await serve(api_key=KEYS)
    ada, cy = bearer("ada-key"), bearer("cy-key")
    client = server.client
    client.headers.update(ada)
    accepted = await server.run("print(await send('bob'))")
    asked = await server.question(accepted["task_id"])
    done = await client.post(f"/approvals/{asked['request_id']}", json=YES)
    assert done.json()["remember"] == "until_revoked"
    await server.until(accepted["task_id"], "done")
    again = await server.run("print(await send('bob'))")
    await server.until(again["task_id"], "done")
    (shown,) = [
        e for e in await server.events(again["task_id"]) if e["type"] == "ApprovalRemembered"
    ]
    assert shown["data"]["by"] == "ada"
    assert shown["data"]["from_task"] == accepted["task_id"]
    client.headers.update(cy)
    others = await server.run("print(await send('bob'))")
    await server.until(others["task_id"], "waiting")
    (held,) = (await client.get("/remembered")).json()["remembered"]
    assert (held["request_id"], held["by"], held["user"]) == (asked["request_id"], "ada", "ada")
    path = f"/remembered/{held['request_id']}"
    assert (await client.delete(path)).status_code == 403, "cy decides nothing"
    client.headers.update(ada)
    assert (await client.delete(path[:-1])).status_code == 404
    assert (await client.delete(path)).json() == held
    assert (await client.get("/remembered")).json() == {"remembered": [], "more": False}
    assert (await client.delete(path)).status_code == 404
    last = await server.run("print(await send('bob'))")
    await server.until(last["task_id"], "waiting")
    assert server.box.sent == [("bob", 1)] * 2


async def test_remembered_decision_on_a_foreign_task_covers_only_that_task(serve):
    server = await serve(api_key=KEYS)
    client = server.client
    code = "await send('bob')\nawait send('bob')\nprint('twice')"
    client.headers.update(bearer("cy-key"))
    accepted = await server.run(code)
    asked = await server.question(accepted["task_id"])
    answer = {**YES, "covers": "action"}
    path = f"/approvals/{asked['request_id']}"
    done = await client.post(path, json=answer, headers=bearer("dee-key"))
    assert done.json()["remember"] == "task"
    await server.until(accepted["task_id"], "done")
    for key in ("cy-key", "ada-key"):
        client.headers.update(bearer(key))
        other = await server.run(code)
        await server.until(other["task_id"], "waiting")
    assert (await client.get("/remembered")).json() == {"remembered": [], "more": False}


@pytest.mark.parametrize(
    "answer",
    [
        {"decision": "reject", "remember": "task"},
        {"decision": "approve", "remember": "session"},
        {"decision": "approve", "remember": "task", "like": {"to": "*"}},
    ],
)
async def test_unrememberable_decision_is_refused(serve, answer):
    server = await serve()
    accepted = await server.run("await send('bob')")
    name = (await server.question(accepted["task_id"]))["request_id"]
    assert (await server.client.post(f"/approvals/{name}", json=answer)).status_code == 422
    assert server.box.sent == []


async def test_cancel_stops_running_and_queued_tasks(serve):
    server = await serve(agent={"max_tasks": 1})
    runs = await server.run("await hold()")
    await server.until(runs["task_id"], "running")
    queued = await server.run("print(1)")
    for task_id in (queued["task_id"], runs["task_id"]):
        answer = await server.client.post(f"/tasks/{task_id}/cancel")
        assert answer.json() == {"task_id": task_id, "cancelled": True}
        assert (await server.until(task_id, "stopped"))["is_terminal"]
    again = await server.client.post(f"/tasks/{runs['task_id']}/cancel")
    assert again.json()["cancelled"] is False


async def test_queued_task_is_not_resumed_because_it_is_queued(serve, journal_url):
    server = await serve()
    journal = SqlJournal(journal_url)
    queued = TaskQueued(task_id="task_q", seq=1, at=time.time(), task="later", queue="delf")
    await journal.append(queued)
    await journal.aclose()
    answer = await server.client.post("/tasks/task_q/resume")
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "the task cannot be resumed: it is queued",
    )


@pytest.mark.parametrize("path", ["/tasks", "/search"])
async def test_queued_tasks_are_listed_as_queued(serve, journal_url, path):
    server = await serve(agent={"max_tasks": 1})
    runs = await server.run("await hold()")
    await server.until(runs["task_id"], "running")
    for_a_place = await server.run("print(1)")
    journal = SqlJournal(journal_url)
    for name in ("at_first", "again"):
        fields = {"task_id": f"task_{name}", "at": time.time()}
        await journal.append(TaskQueued(**fields, seq=1, task="later", queue="delf"))
    away = {"error": "away", "code": "NET-001", "tries": 1, "not_before": 9e9}
    await journal.append(TaskPostponed(**fields, seq=2, **away))
    await journal.aclose()
    answer = await server.client.get(path, params={"state": "queued"})
    tasks = [one if path == "/tasks" else one["task"] for one in answer.json()["tasks"]]
    assert {(task["task_id"], task["state"]) for task in tasks} == {
        (for_a_place["task_id"], "queued"),
        ("task_at_first", "queued"),
        ("task_again", "queued"),
    }


@pytest.mark.parametrize("journal_url", ["sqlite", "postgresql"], indirect=True)
async def test_servers_share_one_journal(serve):
    first, second = await serve(), await serve()
    accepted = await first.run("print(await send('bob'))")
    assert (await second.until(accepted["task_id"], "waiting"))["state"] == "waiting"
    name = (await second.question(accepted["task_id"]))["request_id"]
    assert (await second.client.post(f"/approvals/{name}", json={"decision": "approve"})).is_success
    events = await second.events(accepted["task_id"])
    assert events[-1]["data"]["text"] == "sent 1 to bob"
    assert first.box.sent == [("bob", 1)]
    held = await first.run("await hold()")
    await second.until(held["task_id"], "running")
    answer = await second.client.post(f"/tasks/{held['task_id']}/cancel")
    assert answer.json()["cancelled"] is True
    assert (await first.until(held["task_id"], "stopped"))["is_terminal"]
    seen = [await server.events(held["task_id"]) for server in (first, second)]
    assert seen[0] == seen[1]


async def test_stopped_server_leaves_its_tasks_to_another(serve, tmp_path):

    async with contextlib.AsyncExitStack() as stack:
        box = Outbox()
        one = await stack.enter_async_context(serving(make_agent(str(tmp_path), box), box))
        asks = await one.run("print(await send('bob'))")
        name = (await one.question(asks["task_id"]))["request_id"]
    two = await serve()
    view = await two.until(asks["task_id"], "waiting")
    assert view["state"] == "waiting"
    assert (await two.client.post(f"/approvals/{name}", json={"decision": "approve"})).is_success
    assert (await two.until(asks["task_id"], "done"))["result"] == "sent 1 to bob"
    events = await two.events(asks["task_id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_server_stops_its_agent_while_the_journal_is_away(serve, monkeypatch):
    server = await serve()

    async def fail(*_: object, **__: object) -> None:
        raise DelfError("the journal is away")

    monkeypatch.setattr(server.app.tasks.journal, "find_requests", fail)
    await server.app.stop()
    assert not server.app.agent.started


async def test_unreadable_task_does_not_keep_others_from_being_resumed(serve, tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        box = Outbox()
        one = await stack.enter_async_context(serving(make_agent(str(tmp_path), box), box))
        older, newer = [await one.run("print(await send('bob'))") for _ in range(2)]
        for task in (older, newer):
            await one.until(task["task_id"], "waiting")
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as raw:
        raw.execute(
            "UPDATE delf_events SET v = 99 WHERE seq = 2 "
            "AND task = (SELECT id FROM delf_tasks WHERE task_id = ?)",
            (newer["task_id"],),
        )
    two = await serve()
    assert (await two.until(older["task_id"], "waiting"))["state"] == "waiting"


async def test_project_is_null_for_tasks_of_the_servers_own_project(serve, tmp_path):
    server = await serve(agent={"project": load_project(tmp_path)})
    task_id = (await server.run("print(await send('bob'))"))["task_id"]
    await server.until(task_id, "waiting")
    assert (await server.app.tasks.journal.task(task_id)).folder == str(tmp_path)
    for path, key in (("/approvals", "approvals"), ("/tasks", "tasks")):
        assert [one["project"] for one in (await server.client.get(path)).json()[key]] == [None]


@pytest.mark.parametrize("is_moved", [False, True])
async def test_server_of_another_project_leaves_an_interrupted_task_alone(
    serve, tmp_path, is_moved
):
    shop, bank = [tmp_path / name for name in ("shop", "bank")]
    shop.mkdir()
    bank.mkdir()
    box = Outbox()
    agent = make_agent(str(tmp_path), box, project=load_project(shop))
    async with serving(agent, box) as one:
        task_id = (await one.run("print(await send('bob'))"))["task_id"]
        await one.until(task_id, "waiting")
    other = await serve(agent={"project": load_project(bank)})
    own = (await other.run("print(await send('eve'))"))["task_id"]
    await other.until(own, "waiting")  # its first look for tasks of dead servers is over
    answer = await other.client.post(f"/tasks/{task_id}/resume")
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "the task belongs to the project shop, whose tools this server does not have",
    )
    assert (await other.client.get(f"/tasks/{task_id}")).json()["state"] == "interrupted"
    moved = {"project": load_project(bank), "former_folders": [str(shop)]}
    again = await serve(agent=moved if is_moved else {"project": load_project(shop)})
    view = await again.until(task_id, "waiting")
    assert view["project"] is None


@pytest.mark.slow
async def test_task_of_repeatedly_dying_servers_is_left_interrupted(serve, tmp_path):
    task_id = ""
    for _ in range(6):
        box = Outbox()
        async with serving(make_agent(str(tmp_path), box), box) as one:
            task_id = task_id or (await one.run("print(await send('bob'))"))["task_id"]
            await one.until(task_id, "waiting")
    last = await serve()
    later = await serve()  # it has looked at what was left once it answers about a task of its own
    await later.until((await later.run("print(1)"))["task_id"], "done")
    assert (await last.until(task_id, "interrupted", "waiting"))["state"] == "interrupted"
    assert (await last.client.post(f"/tasks/{task_id}/resume")).status_code == 202
    await later.until(task_id, "waiting")


async def test_files_can_be_uploaded_and_downloaded(serve):
    server = await serve()
    up = await server.client.post("/files", params={"name": "in.txt"}, content=b"from a file")
    assert up.status_code == 201
    accepted = await server.run(
        "text = await files.read('in.txt')\n"
        "add_to_output_files('out.txt', text.upper())\nprint(text)",
        files=[{"id": up.json()["id"]}],
    )
    view = await server.until(accepted["task_id"], "done", "failed")
    assert view["result"] == "from a file", view["error"]
    assert view["files"] == [{"name": "out.txt", "size": 11}]
    down = await server.client.get(f"/tasks/{accepted['task_id']}/files/out.txt")
    assert down.content == b"FROM A FILE"
    assert down.headers["content-disposition"].startswith("attachment")
    for path in ("..%2Fjournal.db", "%2Fetc%2Fpasswd", "../../etc/passwd", "out.txt%00"):
        answer = await server.client.get(f"/tasks/{accepted['task_id']}/files/{path}")
        assert answer.status_code == 404, path


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "..", ".", "a\\b", "a\0b", "a\nb", " x", "x" * 300, "a\u202eb"]
)
async def test_path_as_file_name_is_refused(serve, name, tmp_path):
    server = await serve()
    answer = await server.client.post("/files", params={"name": name}, content=b"x")
    assert answer.status_code == 422, answer.text
    inline = {"name": name, "content": "eA=="}
    order = {"task": doing("print(1)"), "files": [inline]}
    assert (await server.client.post("/run", json=order)).status_code == 422
    assert not list((tmp_path / "files").rglob("*"))


async def test_file_name_of_too_many_bytes_is_refused(serve):
    server = await serve()
    for name, status in (("語" * 80, 201), ("語" * 100, 409)):
        answer = await server.client.post("/files", params={"name": name}, content=b"x")
        assert answer.status_code == status, answer.text


async def test_conversation_continues_over_tasks(serve):
    server = await serve(agent={"chat": {"persist": True}})
    first = await server.run("print('Ada')", "who are you?")
    await server.until(first["task_id"], "done")
    second = await server.run(
        "print('again')", "once more", conversation_id=first["conversation_id"]
    )
    await server.until(second["task_id"], "done")
    (known,) = (await server.client.get("/conversations")).json()["conversations"]
    assert known["messages"] == 4
    words = (await server.client.get(f"/conversations/{first['conversation_id']}")).json()
    assert [line["content"] for line in words["messages"]][1::2] == ["Ada", "again"]


async def test_health_ready_and_metrics_respond(serve):
    server = await serve()
    await server.until((await server.run("print(1)"))["task_id"], "done")
    assert (await server.client.get("/health")).json() == {"ok": True}
    assert (await server.client.get("/ready")).json() == {"ok": True}
    text = (await server.client.get("/metrics")).text
    assert 'delf_tasks{state="done"} 1' in text


async def test_lists_come_in_pages(serve):
    server = await serve()
    names = [(await server.run("print(await send('bob'))"))["task_id"] for _ in range(3)]
    for name in names:
        await server.until(name, "waiting")
    for n in range(3):
        await server.client.post("/files", params={"name": f"{n}.txt"}, content=b"x")
    for field in ("tasks", "approvals", "files"):
        path = f"/{field}"
        whole = (await server.client.get(path)).json()
        assert (len(whole[field]), whole["more"]) == (3, False), path
        first = (await server.client.get(path, params={"limit": 2})).json()
        on = {"after": first["next"]} if field == "tasks" else {"offset": 2}
        last = (await server.client.get(path, params={"limit": 2, **on})).json()
        assert (first["more"], last["more"]) == (True, False), path
        assert first[field] + last[field] == whole[field], path
        for odd in ({"limit": 0}, {"limit": 1001}, {"offset": -1}, {"page": 2}, {"after": "x"}):
            assert (await server.client.get(path, params=odd)).status_code == 422, (path, odd)


async def test_task_list_pages_stay_consistent_during_changes(serve):
    server = await serve()
    names = [(await server.run("print(1)"))["task_id"] for _ in range(5)]
    for name in names:
        await server.until(name, "done")
    wanted = {"limit": 2, "state": "done"}
    first = (await server.client.get("/tasks", params=wanted)).json()
    await server.client.delete(f"/tasks/{first['tasks'][-1]['task_id']}")
    await server.until((await server.run("print(1)"))["task_id"], "done")
    seen = [task["task_id"] for task in first["tasks"]]
    page = first
    while page["more"]:
        page = (await server.client.get("/tasks", params={**wanted, "after": page["next"]})).json()
        seen += [task["task_id"] for task in page["tasks"]]
    assert seen == names[::-1]
    assert page["next"] is None


async def test_conversations_and_messages_are_paged(serve):
    server = await serve(agent={"chat": {"persist": True}})
    for _ in range(3):
        task = await server.run("print('Ada')")
        await server.until(task["task_id"], "done")
    first = (await server.client.get("/conversations", params={"limit": 2})).json()
    last = (await server.client.get("/conversations", params={"offset": 2})).json()
    assert (len(first["conversations"]), first["more"]) == (2, True)
    assert (len(last["conversations"]), last["more"]) == (1, False)
    place = f"/conversations/{last['conversations'][0]['conversation_id']}"
    one = (await server.client.get(place, params={"limit": 1})).json()
    (asked,) = one["messages"]
    assert (asked["role"], one["more"]) == ("user", True)
    rest = (await server.client.get(place, params={"after": asked["position"]})).json()
    assert ([line["role"] for line in rest["messages"]], rest["more"]) == (["assistant"], False)
    end = await server.client.get(place, params={"after": rest["messages"][0]["position"]})
    assert (end.status_code, end.json()["messages"]) == (200, [])


async def test_task_of_a_text_is_found_behind_longer_texts(serve, tmp_path):
    server = await serve()
    journal = SqlJournal(str(tmp_path / "journal.db"))
    texts = ["Pay Ada.", *(f"Pay Ada. And again: {number}" for number in range(60))]
    for at, text in enumerate(texts):
        event = TaskQueued(task_id=f"task_{at}", seq=1, at=float(at), task=text, queue="q")
        await journal.append(event)
    await journal.aclose()
    assert await server.app.tasks.views.newest("Pay Ada.", ANYBODY) == "task_0"
    assert await server.app.tasks.views.newest("Pay Ada", ANYBODY) is None


async def test_conversations_that_clients_keep_hide_no_others(serve, tmp_path):
    server = await serve(agent={"chat": {"persist": True}})
    journal = SqlJournal(str(tmp_path / "journal.db"))
    names = ["own-1", "own-2", *(f"{CLIENT_CONVERSATION_PREFIX}{n}" for n in range(5))]
    for at, name in enumerate(names):
        message = ChatMessage(role="user", content="hello", at=float(at))
        await journal.conversations("default").append(name, [message])
    await journal.aclose()
    first = (await server.client.get("/conversations", params={"limit": 1})).json()
    assert [one["conversation_id"] for one in first["conversations"]] == ["own-2"]
    assert first["more"]
    params = {"limit": 1, "offset": 1}
    last = (await server.client.get("/conversations", params=params)).json()
    assert [one["conversation_id"] for one in last["conversations"]] == ["own-1"]
    assert not last["more"]


async def test_conversation_of_a_program_with_any_id_is_read_and_deleted(serve, tmp_path):
    server = await serve(agent={"chat": {"persist": True}})
    journal = SqlJournal(str(tmp_path / "journal.db"))
    name = "support/42 ü?#%2F"
    await journal.conversations("default").append(name, [ChatMessage(role="user", content="hello")])
    await journal.aclose()
    (known,) = (await server.client.get("/conversations")).json()["conversations"]
    assert known["conversation_id"] == name
    place = f"/conversations/{quote(name, safe='')}"
    shown = (await server.client.get(place)).json()
    assert [line["content"] for line in shown["messages"]] == ["hello"]
    assert (await server.client.delete(place)).status_code == 204
    assert (await server.client.get(place)).status_code == 404


async def test_finished_task_can_be_deleted_with_the_right(serve):
    server = await serve(key="del-key", api_key=f"{KEYS},del:read+run+delete:del-key")
    task = await server.run("add_to_output_files('out.txt', 'text')\nprint(1)")
    place = f"/tasks/{task['task_id']}"
    await server.until(task["task_id"], "done")
    assert (await server.client.get(f"{place}/files/out.txt")).text == "text"
    (path,) = (await server.app.tasks.views.output_files(task["task_id"], ANYBODY)).values()
    assert (await server.client.delete(place, headers=bearer("ada-key"))).status_code == 403
    assert (await server.client.delete(place[:-1])).status_code == 404
    assert (await server.client.delete(place)).status_code == 204
    for gone in (place, f"{place}/events", f"{place}/files/out.txt"):
        assert (await server.client.get(gone)).status_code == 404
    assert (await server.client.delete(place)).status_code == 404
    assert not Path(path).exists()
    runs = await server.run("await hold()")
    await server.until(runs["task_id"], "running")
    refused = await server.client.delete(f"/tasks/{runs['task_id']}")
    assert (refused.status_code, refused.json()["hint"]) == (409, "cancel it")


async def test_conversations_and_files_can_be_deleted(serve):
    server = await serve(agent={"chat": {"persist": True}})
    task = await server.run("print('Ada')")
    await server.until(task["task_id"], "done")
    place = f"/conversations/{task['conversation_id']}"
    assert (await server.client.delete(place)).status_code == 204
    assert (await server.client.get(place)).status_code == 404
    assert (await server.client.delete(place)).status_code == 404
    sent = (await server.client.post("/files", params={"name": "a"}, content=b"x")).json()
    place = f"/files/{sent['id']}"
    assert (await server.client.delete(place)).status_code == 204
    assert (await server.client.delete(place)).status_code == 404
    assert (await server.client.get("/files")).json()["files"] == []


@pytest.mark.parametrize("way", ["removed", "old"])
async def test_files_are_deleted_with_their_tasks(serve, monkeypatch, way):
    server = await serve()
    sent = [
        (await server.client.post("/files", params={"name": f"{n}.txt"}, content=b"x")).json()["id"]
        for n in range(3)
    ]
    outputs, names = [], []
    for files in ([sent[0], sent[1]], [sent[1]]):
        task = await server.run(
            "add_to_output_files('deep/report.txt', 'x')", files=[{"id": name} for name in files]
        )
        await server.until(task["task_id"], "done")
        names.append(task["task_id"])
        outputs += (await server.app.tasks.views.output_files(names[-1], ANYBODY)).values()
    if way == "removed":
        assert (await server.client.delete(f"/tasks/{names[0]}")).status_code == 204
        gone, left = {sent[0]}, [False, True]
    else:
        monkeypatch.setenv("DELF_JOURNAL_SQL_KEEP", MOMENT)
        second = await serve()

        async def happened() -> bool:
            return not ((await second.client.get("/tasks")).json()["tasks"])

        await until(happened)
        await until(lambda: not Path(outputs[1]).exists())
        gone, left = {sent[0], sent[1]}, [False, False]
    assert [Path(path).parent.parent.exists() for path in outputs] == left

    async def happened() -> bool:
        return not ({f["id"] for f in (await server.client.get("/files")).json()["files"]} & gone)

    await until(happened)
    there = {f["id"] for f in (await server.client.get("/files")).json()["files"]}
    assert there == set(sent) - gone


async def test_file_in_a_relative_folder_is_deleted_with_its_task(serve, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_SERVE_FILES_FOLDER", "uploads")
    server = await serve()
    sent = await server.client.post("/files", params={"name": "a.txt"}, content=b"x")
    task = await server.run("print(1)", files=[{"id": sent.json()["id"]}])
    await server.until(task["task_id"], "done")
    assert [path.name for path in (tmp_path / "uploads").glob("*/*/*")] == ["a.txt"]
    await server.client.delete(f"/tasks/{task['task_id']}")
    assert [*(tmp_path / "uploads").glob("*/*/*")] == []


async def test_budget_lists_the_tasks_that_used_it(serve):
    priced = {"cost_usd": 0.25, "budget_usd": 1.0, "allow_unpriced": True}
    server = await serve(agent=priced)
    empty = (await server.client.get("/budget")).json()
    assert empty == {"limit_usd": 1.0, "cost_usd": 0.0, "left_usd": 1.0, "tasks": []}
    names = []
    for _ in range(2):
        task = await server.run("print(1)")
        await server.until(task["task_id"], "done")
        names.insert(0, task["task_id"])
    found = (await server.client.get("/budget")).json()
    assert (found["cost_usd"], found["left_usd"]) == (0.5, 0.5)
    assert found["tasks"] == [{"task_id": name, "cost_usd": 0.25} for name in names]
    assert (await server.client.get("/session")).json()["budget"] == found
    without = await serve()
    assert (await without.client.get("/budget")).status_code == 404


async def test_prompts_are_listed_by_model_call(serve):
    server = await serve(agent={"retry_count": 1, "system_prompt": "Be kind."})
    task = await server.run("1 / 0")
    await server.until(task["task_id"], "failed")
    place = f"/tasks/{task['task_id']}/prompts"
    found = (await server.client.get(place)).json()
    first, second = found["prompts"]
    assert found["more"] is False
    assert any("Be kind." in message["text"] for message in first["messages"])
    assert "1 / 0" in first["answer"]
    assert not any(message["same"] for message in first["messages"])
    same = [message for message in second["messages"] if message["same"]]
    assert [message["text"] for message in same] == [m["text"] for m in first["messages"]]
    assert "ZeroDivisionError" in second["messages"][-1]["text"]
    part = (await server.client.get(place, params={"limit": 1})).json()
    assert (len(part["prompts"]), part["more"]) == (1, True)
    events = await server.events(task["task_id"])
    assert all(
        not event["data"].get("prompt") for event in events if event["type"] == "ModelCalled"
    )
    assert (await server.client.get("/tasks/task_none/prompts")).status_code == 404


async def test_forked_task_repeats_no_call(serve):
    server = await serve()
    task = await server.run("print(await send('bob'))\nprint(await look(3))")
    asked = await server.question(task["task_id"])
    await server.client.post(f"/approvals/{asked['request_id']}", json={"decision": "approve"})
    done = await server.until(task["task_id"], "done")
    events = await server.events(task["task_id"])
    at = next(e["seq"] for e in events if e["type"] == "CallFinished")
    place = f"/tasks/{task['task_id']}/fork"
    answer = await server.client.post(place, json={"at": at})
    assert answer.status_code == 202
    name = answer.json()["task_id"]
    assert name != task["task_id"]
    again = await server.until(name, "done")
    assert again["result"] == done["result"]
    assert server.box.sent == [("bob", 1)]
    late = await server.client.post(place, json={"at": 10_000})
    assert (late.status_code, late.json()["param"]) == (422, "at")
    assert (await server.client.post("/tasks/task_none/fork", json={})).status_code == 404


async def test_server_resumes_its_task_although_programs_left_newer_ones(
    serve, tmp_path, monkeypatch
):
    monkeypatch.setattr("delf_serve.tasks.adoption.PAGE", 1)
    box = Outbox()
    async with serving(make_agent(str(tmp_path), box), box) as one:
        own = (await one.run("print(await send('bob'))"))["task_id"]
        await one.until(own, "waiting")
    program = make_agent(str(tmp_path), Outbox())
    seen: list[str] = []
    listeners = [lambda event: seen.append(type(event).__name__)]
    await program.asubmit(doing("print(await hold())"), listeners=listeners)
    await until(lambda: "CallStarted" in seen)
    await program.astop(keep_resumable=True)
    two = await serve()
    assert (await two.until(own, "waiting"))["state"] == "waiting"


async def test_file_can_be_deleted_only_by_its_key(serve):
    server = await serve(key="ada-key", api_key=KEYS)
    sent = (await server.client.post("/files", params={"name": "a"}, content=b"x")).json()
    place, cy = f"/files/{sent['id']}", bearer("cy-key")
    assert (await server.client.get("/files", headers=cy)).json()["files"] == []
    assert (await server.client.delete(place, headers=cy)).status_code == 404
    assert (await server.client.delete(place)).status_code == 204


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/page/style.css", "/page/states.js"])
async def test_unchanged_page_file_is_not_sent_again(serve, path):
    server = await serve()
    first = await server.client.get(path)
    tag = first.headers["etag"]
    assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
    for known in (tag, f'"other", {tag}', f"W/{tag}"):
        again = await server.client.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = await server.client.get(path, headers={"if-none-match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)


async def test_page_loads_its_scripts_once(serve):
    """The page names the version of its files, which a browser caches without asking again."""
    server = await serve()
    page = (await server.client.get("/")).text
    addresses = re.findall(r'="(page/[^"]+)"', page)
    assert {address.rpartition("/")[2] for address in addresses} >= {"app.js", "style.css"}
    for address in addresses:
        kept = await server.client.get(f"/{address}")
        assert (kept.status_code, "immutable" in kept.headers["cache-control"]) == (200, True)
    script = (await server.client.get("/page/app.js")).text
    other = await server.client.get("/page/another-version/app.js")
    assert (other.text, other.headers["cache-control"]) == (script, "no-cache")
    for wrong in ("/page/another-version/app.py", "/page/x/../../app.py", "/page/a/b/app.js"):
        assert (await server.client.get(wrong)).status_code == 404


async def test_ended_task_that_waits_to_continue_keeps_its_end_when_cancelled(serve):
    server = await serve(agent={"max_tasks": 1})
    ended = await server.run("import asyncio\nawait asyncio.sleep(7)", timeout=1)
    await server.until(ended["task_id"], "failed")
    running = await server.run("print(await hold())")
    await server.until(running["task_id"], "running")
    place = f"/tasks/{ended['task_id']}"
    await server.client.post(f"{place}/resume", json={"timeout": 60})
    await server.client.post(f"{place}/cancel")
    task = await server.until(ended["task_id"], "failed")
    assert "Timeout" in task["error"]
