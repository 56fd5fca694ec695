"""Models, money and tasks that are done again: what a task costs, and who pays."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from delf.events import ModelReplied, TaskFinished, TaskStarted
from delf.llm import LLMConfig
from delf.messages import Usage
from delf_devkit.testing.hosts import TestHost
from delf_engine.config import AgentConfig
from delf_journal_sql import SqlJournal
from delf_serve import budgets as budgets_module
from delf_serve.keys import Caller
from plugins.serve.test_people import add, change, person
from support.serving import bearer, doing

GATEWAY = "https://gateway.test/v1"
MAIN = LLMConfig(
    "gpt-4o",
    base_url=GATEWAY,
    api_key="a-key",
    headers={"x-team": "finance"},
    settings={"temperature": 0.1},
)
LIGHT = LLMConfig("gpt-4o-mini", base_url="https://light.test/v1", settings={"top_p": 0.5})
PROVIDERS = TestHost.discover(environ={}).providers


def settings_of(config: LLMConfig) -> tuple:
    return config.model, config.base_url, config.api_key, config.headers, dict(config.settings)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("gpt-4o-mini", LIGHT),
        ("openai/gpt-4o-mini", LIGHT),
        ("openai:gpt-4o-mini", LIGHT),
        ("gpt-4o", MAIN),
    ],
)
def test_chosen_configured_model_keeps_its_settings(chosen, expected):
    config = AgentConfig(heavy_llm=MAIN, light_llm=LIGHT)
    assert settings_of(config.chosen_llm(chosen, PROVIDERS)) == settings_of(expected)


@pytest.mark.parametrize("chosen", ["o3", "claude-sonnet-4-5", "anthropic/claude-x", "own-model"])
def test_model_chosen_by_a_client_uses_the_gateway(chosen):
    found = AgentConfig(llm=MAIN).with_main_llm(chosen, PROVIDERS).main_llm
    expected = ("a-key", {"x-team": "finance"}, {"temperature": 0.1})
    assert settings_of(found) == (chosen, GATEWAY, *expected)


def test_model_key_is_not_used_for_another_provider():
    main = LLMConfig("gpt-4o", api_key="a-key", settings={"temperature": 0.1})
    config = AgentConfig(llm=main)
    assert settings_of(config.chosen_llm("o3", PROVIDERS)) == (
        "o3",
        None,
        "a-key",
        None,
        main.settings,
    )
    assert config.chosen_llm("claude-x", PROVIDERS) == LLMConfig("claude-x")


@pytest.mark.parametrize(
    "own", [LLMConfig("x", base_url="https://x.test"), LLMConfig("x", provider="anthropic")]
)
def test_model_with_its_own_endpoint_is_unchanged(own):
    assert AgentConfig(llm=MAIN).chosen_llm(own, PROVIDERS) is own


# -- again ------------------------------------------------------------------------------------


SCHEMA = {
    "type": "object",
    "properties": {"words": {"type": "string"}},
    "required": ["words"],
    "additionalProperties": False,
}


async def sent_in(server, name: str = "note.txt", data: bytes = b"hello") -> str:
    answer = await server.client.post(
        f"/files?name={name}", content=data, headers={"content-type": "application/octet-stream"}
    )
    return answer.json()["id"]


CHAT = {"chat": {"persist": True}}
CODE = 'print(open("note.txt").read())'


async def test_repeated_task_keeps_files_and_conversation(serve):
    server = await serve(agent=CHAT)
    order = {"task": doing(CODE), "files": [{"id": await sent_in(server)}], "wait": 20}
    first = (await server.client.post("/run", json=order)).json()
    assert (first["state"], first["result"]) == ("done", "hello")
    again = await server.client.post(f"/tasks/{first['task_id']}/again", json={"wait": 20})
    second = again.json()
    assert (second["state"], second["result"]) == ("done", "hello"), second
    assert second["task_id"] != first["task_id"]
    assert second["conversation_id"] == first["conversation_id"] is not None


@pytest.mark.parametrize(
    ("setup", "names"),
    [
        ({"input_files": []}, []),
        ({}, None),
        ({"flags": {"files": ["given.txt"]}}, ["given.txt"]),
        ({"flags": {"files": ["given.txt"]}, "input_files": []}, []),
        ({"flags": {"files": None}}, None),
    ],
    ids=["none", "the-agents", "of-a-command", "none-again", "no-flag"],
)
async def test_repeated_task_has_the_files_of_the_first(serve, tmp_path, setup, names):
    (tmp_path / "given.txt").write_text("given")
    (tmp_path / "agents.txt").write_text("the agent's")
    server = await serve(agent={"files": [str(tmp_path / "agents.txt")]})
    journal = SqlJournal(str(tmp_path / "journal.db"))
    recorded = {"task": doing("print(1)"), "setup": {"folder": str(tmp_path), **setup}}
    await journal.append(TaskStarted(task_id="task_1", seq=1, at=1.0, **recorded))
    end = {"status": True, "text": "", "duration_ms": 1.0}
    await journal.append(TaskFinished(task_id="task_1", seq=2, at=2.0, **end))
    again = await server.client.post("/tasks/task_1/again", json={"wait": 20})
    first_event = (await journal.read(again.json()["task_id"]))[0]
    await journal.aclose()
    paths = None if names is None else [str(tmp_path / name) for name in names]
    assert first_event.setup.get("input_files") == paths


@pytest.mark.parametrize("other", [{}, {"task": doing("print(item['id'])")}])
async def test_repeated_task_keeps_variables_and_trust(serve, tmp_path, other):
    server = await serve()
    journal = SqlJournal(str(tmp_path / "journal.db"))
    setup = {"variables": {"item": {"id": 7}}, "trust": "outside"}
    recorded = {"task": doing("print(item['id'])"), "setup": setup}
    await journal.append(TaskStarted(task_id="task_1", seq=1, at=1.0, **recorded))
    end = {"status": True, "text": "7", "duration_ms": 1.0}
    await journal.append(TaskFinished(task_id="task_1", seq=2, at=2.0, **end))
    again = (await server.client.post("/tasks/task_1/again", json={"wait": 20, **other})).json()
    first_event = (await journal.read(again["task_id"]))[0]
    await journal.aclose()
    assert (again["state"], again["result"]) == ("done", "7"), again
    assert {name: first_event.setup.get(name) for name in setup} == setup


async def test_task_can_be_repeated_with_another_text(serve):
    server = await serve()
    order = {"task": doing("print(1)"), "files": [{"id": await sent_in(server)}], "wait": 20}
    first = (await server.client.post("/run", json=order)).json()
    body = {"task": doing(CODE), "wait": 20}
    second = (await server.client.post(f"/tasks/{first['task_id']}/again", json=body)).json()
    assert second["result"] == "hello"


async def test_repeated_task_keeps_its_output_schema(serve):
    server = await serve()
    order = {"task": doing("await answer({'words': 'a'})"), "output": SCHEMA, "wait": 20}
    first = (await server.client.post("/run", json=order)).json()
    assert first["value"] == {"words": "a"}, first
    second = await server.client.post(f"/tasks/{first['task_id']}/again", json={"wait": 20})
    assert second.json().get("value") == {"words": "a"}, second.text


async def test_conversation_of_another_person_cannot_be_continued(serve):
    server = await serve(agent=CHAT)
    await add(server, person("ada", scope="all"), person("ben", scope="all"))
    order = {"task": doing("print(1)"), "wait": 20}
    ada, ben = bearer("ada-key"), bearer("ben-key")
    first = (await server.client.post("/run", json=order, headers=ada)).json()
    path = f"/tasks/{first['task_id']}/again"
    second = (await server.client.post(path, json={"wait": 20}, headers=ben)).json()
    assert second["state"] == "done"
    assert second["conversation_id"] not in (None, first["conversation_id"])
    assert second["asked_by"] == "ben"


async def test_files_of_another_person_are_not_used_for_other_words(serve):
    server = await serve()
    await add(server, person("ada", scope="all"), person("ben", scope="all"))
    ada, ben = bearer("ada-key"), bearer("ben-key")
    sent = await server.client.post("/files?name=note.txt", content=b"hello", headers=ada)
    order = {"task": doing("print(1)"), "files": [{"id": sent.json()["id"]}], "wait": 20}
    first = (await server.client.post("/run", json=order, headers=ada)).json()
    path = f"/tasks/{first['task_id']}/again"
    other = {"task": doing(CODE), "wait": 20}
    refused = await server.client.post(path, json=other, headers=ben)
    assert (refused.status_code, refused.json()["param"]) == (403, "task")
    assert (await server.client.post(path, json=other, headers=ada)).json()["result"] == "hello"
    same = await server.client.post(path, json={"wait": 20}, headers=ben)
    assert same.json()["result"] == "1"
    # A repetition that belongs to Ben still has Ada's file, and a script says more than words.
    again = f"/tasks/{same.json()['task_id']}/again"
    refused = await server.client.post(again, json=other, headers=ben)
    assert (refused.status_code, refused.json()["param"]) == (403, "task")
    for task in (first, same.json()):
        fork = f"/tasks/{task['task_id']}/fork"
        refused = await server.client.post(fork, json={"script": CODE}, headers=ben)
        assert (refused.status_code, refused.json()["param"]) == (403, "script")
    forked = await server.client.post(fork, json={}, headers=ben)
    fork = f"/tasks/{forked.json()['task_id']}/fork"
    refused = await server.client.post(fork, json={"script": CODE}, headers=ben)
    assert refused.status_code == 403
    own = f"/tasks/{first['task_id']}/fork"
    assert (await server.client.post(own, json={"script": CODE}, headers=ada)).status_code == 202


async def test_repeating_a_task_names_its_deleted_file(serve):
    server = await serve()
    order = {"task": doing(CODE), "files": [{"id": await sent_in(server)}], "wait": 20}
    first = (await server.client.post("/run", json=order)).json()
    await server.client.delete(f"/files/{order['files'][0]['id']}")
    answer = await server.client.post(f"/tasks/{first['task_id']}/again", json={})
    assert answer.status_code == 409
    assert "note.txt" in answer.json()["detail"]


async def test_repeating_another_persons_task_answers_not_found(serve):
    server = await serve()
    await add(server, person("ada"), person("ben"))
    order = {"task": doing("print(1)"), "wait": 20}
    first = await server.client.post("/run", json=order, headers=bearer("ada-key"))
    path = f"/tasks/{first.json()['task_id']}/again"
    answer = await server.client.post(path, json={}, headers=bearer("ben-key"))
    assert answer.status_code == 404


# -- money ------------------------------------------------------------------------------------


async def test_replayed_answers_cost_nothing_and_are_marked(serve):
    server = await serve(agent={"cost_usd": 0.5})
    first = await server.run("print(await look(1))\nawait send('ada')", wait=20)
    asked = await server.question(first["task_id"])
    await server.client.post(f"/approvals/{asked['request_id']}", json={"decision": "reject"})
    first = await server.until(first["task_id"], "done", "failed")
    events = await server.events(first["task_id"])
    at = next(e["seq"] for e in events if e["type"] == "CallFinished")
    fork = await server.client.post(f"/tasks/{first['task_id']}/fork", json={"at": at})
    name = fork.json()["task_id"]
    asked = await server.question(name)
    await server.client.post(f"/approvals/{asked['request_id']}", json={"decision": "approve"})
    second = await server.until(name, "done")
    assert first["cost_usd"] > 0
    assert second["cost_usd"] == 0
    warned = [str(e) for e in await server.events(name) if e["type"] == "Warned"]
    assert any("cost nothing" in message for message in warned), warned
    prompts = (await server.client.get(f"/tasks/{name}/prompts")).json()["prompts"]
    assert [one["replayed"] for one in prompts] == [True]
    figures = (await server.client.get("/figures?by=person")).json()["figures"]
    assert sum(one["cost_usd"] for one in figures) == pytest.approx(first["cost_usd"])


PAID = {"cost_usd": 0.5, "allow_unpriced": True}


async def spend(server, who: str) -> dict:
    order = {"task": doing("print(1)"), "wait": 20}
    answer = await server.client.post("/run", json=order, headers=bearer(f"{who}-key"))
    return {"status": answer.status_code, **answer.json()}


async def budgets_of(server, who: str) -> list[tuple[str, float, float]]:
    known = (await server.client.get("/session", headers=bearer(f"{who}-key"))).json()
    return [(one["name"], one["cost_usd"], one["left_usd"]) for one in known["budgets"]]


async def test_person_cannot_exceed_their_budget(serve):
    server = await serve(agent=PAID, budgets={"ada": 1.0, "*": 0.5})
    await add(server, person("ada"), person("ben"))
    assert await budgets_of(server, "ada") == [("ada", 0, 1.0)]
    assert [(await spend(server, "ada"))["state"] for _ in range(2)] == ["done", "done"]
    assert await budgets_of(server, "ada") == [("ada", 1.0, 0)]
    refused = await spend(server, "ada")
    assert refused["status"] == 402
    assert "budget of ada" in refused["detail"]
    assert (await spend(server, "ben"))["state"] == "done"
    assert (await spend(server, "ben"))["status"] == 402, "the budget of each who is not named"


async def test_merging_of_scripts_for_a_routine_is_charged_to_its_person(serve):
    server = await serve(agent=PAID, budgets={"ada": 9.0})
    await add(server, person("ada"))
    # The model of these tests writes what the last block of its prompt says.
    code = "found = 7\nfence = '`' * 3\nrerun(fence + 'run\\nprint(found)\\n' + fence, 'go on')"
    order = {"task": doing(code), "wait": 20}
    task = (await server.client.post("/run", json=order, headers=bearer("ada-key"))).json()
    assert task["result"] == "7"
    assert await budgets_of(server, "ada") == [("ada", 1.0, 8.0)]
    order = {"task_id": task["task_id"], "name": "seven"}
    saved = await server.client.post("/routines", json=order, headers=bearer("ada-key"))
    assert "could not be written as one" in saved.json()["detail"]
    ((_, cost, _),) = await budgets_of(server, "ada")
    assert cost > 1.0


async def test_budget_of_a_team_is_shared(serve):
    server = await serve(agent=PAID, budgets={"finance": 1.0})
    ada, ben = (person(name, teams=("finance",)) for name in ("ada", "ben"))
    await add(server, ada, ben, person("cy"))
    assert (await spend(server, "ada"))["state"] == "done"
    assert await budgets_of(server, "ben") == [("finance", 0.5, 0.5)]
    assert (await spend(server, "ben"))["state"] == "done"
    assert (await spend(server, "ada"))["status"] == 402
    assert (await spend(server, "cy"))["state"] == "done"


async def test_budget_of_a_team_counts_who_joins_the_team_later(serve):
    server = await serve(agent=PAID, budgets={"finance": 1.0})
    await add(server, person("ada", teams=("finance",)), cy := person("cy"))
    assert (await spend(server, "ada"))["state"] == "done"
    assert (await spend(server, "cy"))["state"] == "done"
    await change(server, cy, replace(cy, teams=("finance",)))
    assert await budgets_of(server, "ada") == [("finance", 1.0, 0)]


async def test_budget_of_a_month_counts_no_task_of_the_next_month(serve):
    """A task that runs past the end of its month looks at the budget of that month."""
    server = await serve(agent=PAID, budgets={"ada": 1.0})
    await add(server, ada := person("ada"))
    assert (await spend(server, "ada"))["state"] == "done"
    next_month = time.time() + 31 * 86_400
    common = {"task_id": "next", "at": next_month}
    events = [
        TaskStarted(**common, seq=1, task="Pay", origin="serve", user=ada.user),
        ModelReplied(
            **common,
            seq=2,
            model="m",
            purpose="generate",
            text="",
            usage=Usage(),
            cost_usd=0.5,
            duration_ms=1.0,
        ),
    ]
    for event in events:
        await server.app.tasks.journal.append(event)
    assert await budgets_of(server, "ada") == [("ada", 0.5, 0.5)]


async def test_team_and_key_of_one_name_have_a_budget_each(serve):
    budgets = {"finance": 0.5}
    server = await serve("finance-key", agent=PAID, api_key="finance:finance-key", budgets=budgets)
    await add(server, person("ada", teams=("finance",)))
    assert (await spend(server, "finance"))["state"] == "done"
    assert await budgets_of(server, "ada") == [("finance", 0, 0.5)]
    assert (await spend(server, "ada"))["state"] == "done"
    assert await budgets_of(server, "finance") == [("finance", 0.5, 0)]


async def test_budget_of_a_team_without_members_counts_no_tasks(serve):
    server = await serve(agent=PAID, budgets={"finance": 1.0})
    await add(server, person("ada"))
    assert (await spend(server, "ada"))["state"] == "done"
    former_member = Caller(
        "ben", frozenset(), digest=b"", uid="no longer known", teams=frozenset({"finance"})
    )
    shown = await server.app.tasks.budgets.shown(former_member)
    assert [budget.cost_usd for budget in shown] == [0]


async def test_running_task_stops_at_the_budget_of_its_person(serve):
    """The third model call of the task exceeds the budget."""
    server = await serve(agent={**PAID, "retry_count": 5}, budgets={"ada": 1.0})
    await add(server, person("ada"))
    order = {"task": doing("1 / 0"), "wait": 20}
    answer = await server.client.post("/run", json=order, headers=bearer("ada-key"))
    task = answer.json()
    assert task["state"] == "failed"
    assert "budget" in task["error"]
    assert task["cost_usd"] == 1.0


async def test_budget_is_shared_across_servers(serve):
    one = await serve(agent=PAID, budgets={"ada": 1.0})
    await add(one, person("ada"))
    other = await serve(agent=PAID, budgets={"ada": 1.0})
    assert [(await spend(server, "ada"))["state"] for server in (one, other)] == ["done", "done"]
    assert (await spend(one, "ada"))["status"] == 402
    assert (await spend(other, "ada"))["status"] == 402


async def test_running_task_stops_at_a_budget_that_servers_share(serve, monkeypatch):
    monkeypatch.setattr(budgets_module, "REFRESH_SECONDS", 0.0)
    one = await serve("ada-key", agent={**PAID, "retry_count": 5}, budgets={"ada": 1.0})
    await add(one, person("ada"))
    other = await serve(agent=PAID, budgets={"ada": 1.0})
    order = {"task": doing("await hold()\n1 / 0")}
    held = (await one.client.post("/run", json=order, headers=bearer("ada-key"))).json()["task_id"]
    await one.events(held, until="CallStarted")
    assert (await spend(other, "ada"))["state"] == "done"
    one.box.gate.set()
    ended = await one.until(held, "done", "failed")
    assert (ended["state"], ended["cost_usd"]) == ("failed", 0.5)
    assert "budget" in ended["error"]


async def test_key_from_the_settings_has_its_own_budget(serve):
    keys = "ci:ci-key,ada:ada-key"
    server = await serve("ci-key", agent=PAID, api_key=keys, budgets={"ci": 0.5})
    assert (await spend(server, "ci"))["state"] == "done"
    assert (await spend(server, "ci"))["status"] == 402
    assert (await spend(server, "ada"))["state"] == "done"
