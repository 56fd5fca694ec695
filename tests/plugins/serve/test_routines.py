"""Routines over HTTP: listed with their parameters, and run without a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delf.trust.decisions import Trust
from delf_routines.routine import Parameter, Routine, UsedAction
from delf_routines.store import RoutineStore
from plugins.serve.test_people import RIGHTS, add, person
from support.serving import KEYS, bearer, doing

LOOK = UsedAction(effect="irreversible", parameters=("number: int = 0",), returns="dict[str, Any]")


@pytest.fixture
def journal_url(tmp_path: Path):
    return str(tmp_path / "journal.db")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_TRUST", str(tmp_path))
    store = RoutineStore(tmp_path, Trust.here())
    number = Parameter(name="number", type="integer", default=7)
    script = "print((await look(number))['name'])"
    actions = {"look": LOOK}
    given: dict[str, Any] = {
        "title": "What is thing 7?",
        "task": "What is thing 7?",
        "script": script,
    }
    store.keep(Routine(name="thing", parameters={"number": number}, actions=actions, **given))
    return store


async def test_routines_are_listed_with_their_parameters(store: Any, serve: Any):
    server = await serve()
    (found,) = (await server.client.get("/routines")).json()["routines"]
    assert (found["name"], found["title"]) == ("thing", "What is thing 7?")
    parameter = {"name": "number", "type": "integer", "default": 7, "pattern": None}
    assert found["parameters"] == [parameter]


async def test_routine_is_run_with_inputs_and_without_a_model(store: Any, serve: Any):
    server = await serve()
    order = {"inputs": {"number": 9}, "wait": 20}
    answer = await server.client.post("/routines/thing", json=order)
    assert (answer.status_code, answer.json()["result"]) == (200, "thing 9"), answer.text
    assert answer.json()["task"] == "thing(number=9)"
    assert answer.json()["cost_usd"] == 0
    usual = await server.client.post("/routines/thing", json={"wait": 20})
    assert usual.json()["result"] == "thing 7"


async def test_idempotency_key_gives_the_same_task(store: Any, serve: Any):
    server = await serve()
    order, headers = {"inputs": {"number": 9}, "wait": 20}, {"idempotency-key": "k"}
    first = (await server.client.post("/routines/thing", json=order, headers=headers)).json()
    again = (await server.client.post("/routines/thing", json=order, headers=headers)).json()
    assert first["task_id"] == again["task_id"]


async def done(server: Any, code: Any, words: Any = "do it"):
    """Run a task with a fixed script."""
    answer = await server.client.post("/run", json={"task": doing(code, words), "wait": 20})
    assert answer.json()["state"] == "done", answer.text
    return answer.json()["task_id"]


async def test_task_is_saved_once_as_the_shown_routine(store: Any, serve: Any):
    server = await serve()
    task = await done(server, "print((await look(9))['name'])")
    order = {"task_id": task, "name": "nine"}
    shown = (await server.client.post("/routines", json=order)).json()
    assert "# /// routine" in shown["change"]
    assert (shown["parameters"], shown["differences"], shown["saved"]) == (["number"], [], False)
    assert shown["warnings"] == []
    assert store.names() == ["thing"]
    other = {**order, "seen": "0" * 64}
    assert (await server.client.post("/routines", json=other)).json()["saved"] is False
    fixed = (await server.client.post("/routines", json={**order, "fixed": ["number"]})).json()
    assert fixed["parameters"] == []
    saved = (await server.client.post("/routines", json={**order, "seen": shown["digest"]})).json()
    assert saved["saved"] is True
    assert set(store.find("nine").parameters) == {"number"}
    await server.client.post("/routines/nine", json={"inputs": {"number": 5}, "wait": 20})
    found = (await server.client.get("/routines")).json()["routines"]
    (nine,) = [one for one in found if one["name"] == "nine"]
    assert nine["done"] == 1
    assert nine["runs"][0]["task"] == "nine(number=5)"
    assert nine["text"].startswith("# /// routine")


async def test_routine_is_saved_under_the_name_of_its_preview(store: Any, serve: Any):
    server = await serve()
    order = {"task_id": await done(server, "print((await look(9))['name'])"), "name": "nine"}
    shown = (await server.client.post("/routines", json=order)).json()
    renamed = {**order, "name": "ten", "seen": shown["digest"]}
    shown = (await server.client.post("/routines", json=renamed)).json()
    assert (shown["name"], shown["saved"]) == ("ten", False)
    renamed["seen"] = shown["digest"]
    assert (await server.client.post("/routines", json=renamed)).json()["saved"] is True
    assert store.names() == ["ten", "thing"]


async def test_unsuitable_task_is_refused_as_routine_with_the_reason(store: Any, serve: Any):
    server = await serve()
    answer = await server.client.post("/routines", json={"task_id": "task_x", "name": "nine"})
    assert answer.status_code == 404
    task = await done(server, "print(1)")
    answer = await server.client.post("/routines", json={"task_id": task, "name": "../nine"})
    assert (answer.status_code, "name of a routine" in answer.text) == (409, True)


async def test_routine_save_needs_the_decide_right(store: Any, serve: Any):
    server = await serve(api_key=KEYS)
    for key, status in (("ben-key", 403), ("cy-key", 403), ("ada-key", 404)):
        order = {"task_id": "task_x", "name": "nine"}
        answer = await server.client.post("/routines", json=order, headers=bearer(key))
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("name", "inputs", "status", "message"),
    [
        ("thin", {}, 404, "there is no routine 'thin'"),
        ("thing", {"number": "x"}, 422, "a whole number"),
        ("thing", {"nummer": 1}, 422, "no parameter 'nummer'"),
        ("thing", {"number": [1]}, 422, "inputs"),
    ],
)
async def test_wrong_routine_input_is_reported_before_any_call(
    store: Any, serve: Any, name: Any, inputs: Any, status: Any, message: Any
):
    server = await serve()
    answer = await server.client.post(f"/routines/{name}", json={"inputs": inputs})
    assert answer.status_code == status
    assert message in answer.text
    assert not (await server.client.get("/tasks")).json()["tasks"]


EVIL = "print(await send('EVIL-BOB', 5000))"


async def approved(server: Any, who: str, code: str, words: str, **more: Any) -> str:
    """Run a task of a person, who approves its request if it has one, and return its id."""
    order = {"task": doing(code, words), "wait": 20}
    begun = (await server.client.post("/run", json=order, headers=bearer(f"{who}-key"))).json()
    for request_id in begun["approvals"]:
        decision = {"decision": "approve", **more}
        place = f"/approvals/{request_id}"
        answer = await server.client.post(place, json=decision, headers=bearer(f"{who}-key"))
        assert answer.is_success, answer.text
    place = f"/tasks/{begun['task_id']}?wait=20"
    ended = (await server.client.get(place, headers=bearer(f"{who}-key"))).json()
    assert ended["state"] == "done", ended
    return begun["task_id"]


async def kept(server: Any, who: str, task_id: str, name: str) -> Any:
    """Preview a task as a routine and save it, and return the last answer."""
    order = {"task_id": task_id, "name": name}
    headers = bearer(f"{who}-key")
    shown = await server.client.post("/routines", json=order, headers=headers)
    if not shown.is_success:
        return shown
    order["seen"] = shown.json()["digest"]
    return await server.client.post("/routines", json=order, headers=headers)


@pytest.fixture
async def team(store: Any, serve: Any):
    """A server where ada's routine ``month`` runs under her remembered approval."""
    server = await serve(api_key="boss:boss-key")
    await add(
        server,
        person("ada"),
        person("bob"),
        person("all", scope="all"),
        person("mate", scope="team", rights=(*RIGHTS, "people")),
        person("lead", scope="all", rights=(*RIGHTS, "people")),
    )
    more = {"remember": "until_revoked", "covers": "action"}
    task_id = await approved(server, "ada", "print(await send('shop', 1))", "Pay secretly", **more)
    saved = await kept(server, "ada", task_id, "month")
    assert saved.json()["saved"] is True, saved.text
    server.task_id = task_id
    return server


@pytest.mark.parametrize("who", ["bob", "all", "mate"])
async def test_routine_of_somebody_else_is_not_replaced(team: Any, store: Any, who: str):
    task_id = await approved(team, who, EVIL, "Mine")
    team.box.sent.clear()
    before = store.path("month").read_text()
    refused = await kept(team, who, task_id, "month")
    problem = refused.json()
    assert (refused.status_code, problem["param"]) == (403, "name"), problem
    assert "'month' is not known to be yours" in problem["detail"]
    assert "another name" in problem["hint"]
    assert "secretly" not in refused.text
    assert store.path("month").read_text() == before
    run = {"inputs": {}, "wait": 20}
    done = await team.client.post("/routines/month", json=run, headers=bearer("ada-key"))
    assert done.json()["state"] == "done", done.text
    assert team.box.sent == [("shop", 1)]
    assert (await kept(team, who, task_id, "other")).json()["saved"] is True


@pytest.mark.parametrize("who", ["ada", "lead", "boss"])
async def test_routine_can_be_replaced_by_its_user_and_by_managers(team: Any, store: Any, who: str):
    task_id = await approved(team, "ada", "print(await look(3), await send('b'))", "New")
    saved = await kept(team, who, task_id, "month")
    assert saved.json()["saved"] is True, saved.text
    assert "look" in store.find("month").script


@pytest.mark.parametrize("saved_from", [None, "task_gone", "PREFIX"])
async def test_routine_of_unknown_origin_can_be_replaced_only_by_managers(
    team: Any, store: Any, saved_from: Any
):
    if saved_from == "PREFIX":
        saved_from = team.task_id[:-1]
    store.keep(replace(store.find("month"), saved_from=saved_from))
    for who, status in (("ada", 403), ("mate", 403), ("lead", 200)):
        task_id = await approved(team, who, "print(await look(4), await send('c'))", "New")
        assert (await kept(team, who, task_id, "month")).status_code == status, who


async def test_name_that_was_taken_after_the_preview_is_not_replaced(team: Any, store: Any):
    task_id = await approved(team, "bob", EVIL, "Mine")
    order = {"task_id": task_id, "name": "late"}
    shown = (await team.client.post("/routines", json=order, headers=bearer("bob-key"))).json()
    assert (await kept(team, "ada", team.task_id, "late")).json()["saved"] is True
    order["seen"] = shown["digest"]
    refused = await team.client.post("/routines", json=order, headers=bearer("bob-key"))
    assert (refused.status_code, "has changed since" in refused.text) == (409, True), refused.text
    assert "EVIL" not in store.path("late").read_text()


async def test_routine_is_listed_without_a_task_that_is_hidden(team: Any, store: Any):
    for who, shows in (("bob", False), ("mate", False), ("ada", True), ("all", True)):
        answer = await team.client.get("/routines", headers=bearer(f"{who}-key"))
        listed = {one["name"]: one for one in answer.json()["routines"]}
        month = listed["month"]
        assert "await send(" in month["text"]
        assert (month["title"] is not None) is shows
        assert ("secretly" in answer.text, team.task_id in answer.text) == (shows, shows), who
    store.keep(replace(store.find("month"), title="Pays the shop"))
    answer = await team.client.get("/routines", headers=bearer("bob-key"))
    assert "Pays the shop" in {one["title"] for one in answer.json()["routines"]}
    assert "secretly" not in answer.text
