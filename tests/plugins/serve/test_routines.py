"""Routines over HTTP: listed with their parameters, and run without a model."""

from __future__ import annotations

import pytest

from delf.trust import Trust
from delf_routines.routine import Parameter, Routine, UsedAction
from delf_routines.store import RoutineStore

LOOK = UsedAction(effect="irreversible", parameters=("number: int = 0",), returns="dict[str, Any]")


@pytest.fixture
def journal_url(tmp_path):
    return str(tmp_path / "journal.db")


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELF_TRUST", str(tmp_path))
    store = RoutineStore(tmp_path, Trust.here())
    number = Parameter(name="number", type="integer", default=7)
    script = "print((await look(number))['name'])"
    actions = {"look": LOOK}
    given = {"title": "What is thing 7?", "task": "What is thing 7?", "script": script}
    store.keep(Routine(name="thing", parameters={"number": number}, actions=actions, **given))
    return store


async def test_routines_are_listed_with_their_parameters(store, serve):
    server = await serve()
    (found,) = (await server.client.get("/routines")).json()["routines"]
    assert (found["name"], found["title"]) == ("thing", "What is thing 7?")
    parameter = {"name": "number", "type": "integer", "default": 7, "pattern": None}
    assert found["parameters"] == [parameter]


async def test_a_routine_is_run_with_its_inputs_and_asks_no_model(store, serve):
    server = await serve()
    order = {"inputs": {"number": 9}, "wait": 20}
    answer = await server.client.post("/routines/thing", json=order)
    assert (answer.status_code, answer.json()["result"]) == (200, "thing 9"), answer.text
    assert answer.json()["task"] == "thing(number=9)"
    assert answer.json()["cost_usd"] == 0
    usual = await server.client.post("/routines/thing", json={"wait": 20})
    assert usual.json()["result"] == "thing 7"


async def test_the_same_key_gives_the_same_task(store, serve):
    server = await serve()
    order = {"inputs": {"number": 9}, "wait": 20, "idempotency_key": "k"}
    first = (await server.client.post("/routines/thing", json=order)).json()
    again = (await server.client.post("/routines/thing", json=order)).json()
    assert first["task_id"] == again["task_id"]


@pytest.mark.parametrize(
    ("name", "inputs", "status", "told"),
    [
        ("thin", {}, 404, "there is no routine 'thin'"),
        ("thing", {"number": "x"}, 422, "a whole number"),
        ("thing", {"nummer": 1}, 422, "no parameter 'nummer'"),
        ("thing", {"number": [1]}, 422, "inputs"),
    ],
)
async def test_what_does_not_fit_is_told_before_anything_is_done(
    store, serve, name, inputs, status, told
):
    server = await serve()
    answer = await server.client.post(f"/routines/{name}", json={"inputs": inputs})
    assert answer.status_code == status
    assert told in answer.text
    assert not (await server.client.get("/tasks")).json()["tasks"]
