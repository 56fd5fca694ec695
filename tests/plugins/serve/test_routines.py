"""Routines over HTTP: listed with their parameters, and run without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delf.trust.decisions import Trust
from delf_routines.routine import Parameter, Routine, UsedAction
from delf_routines.store import RoutineStore
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
