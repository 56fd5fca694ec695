"""The server with a journal that has only what a shared journal must have."""

from __future__ import annotations

import re
from typing import Any

import pytest

from delf.specs import JournalSpec
from delf.testing import TestHost
from delf_serve.operations import OPERATIONS
from support.small_journal import SmallJournal


def small(journal_url: str) -> dict[str, Any]:
    """The settings of an agent with a partial journal."""
    host = TestHost.discover(environ={})
    spec = JournalSpec(
        name="small", summary="A small journal.", factory="small:Small", durable=True, shared=True
    )
    host.provide(spec, lambda: SmallJournal(journal_url))
    return {"journal": "small", "host": host, "approvals": ["web"]}


@pytest.fixture
async def server(serve: Any, journal_url: str) -> Any:
    return await serve(agent=small(journal_url))


async def test_task_of_a_partial_journal_is_approved_and_done(server):
    accepted = await server.run("print(await send('bob'))")
    asked = await server.question(accepted["task_id"])
    place = f"/approvals/{asked['request_id']}"
    answer = await server.client.post(place, json={"decision": "approve"})
    assert answer.is_success, answer.text
    assert (await server.until(accepted["task_id"], "done"))["result"] == "sent 1 to bob"


async def test_partial_journal_answers_or_refuses_every_read(server):
    task_id = (await server.run("print(1)", wait=20))["task_id"]
    ids = {"task_id": task_id, "other_id": task_id}
    failures = {}
    for path in {each.path for each in OPERATIONS if each.method == "GET"}:
        url = re.sub(r"\{(\w+)\}", lambda match: ids.get(match[1], "unknown"), path)
        async with server.client.stream("GET", url) as answer:
            if answer.status_code >= 500 and answer.status_code != 501:
                failures[path] = await answer.aread()
    assert failures == {}


async def test_partial_journal_refuses_people_with_a_reason(server):
    answer = await server.client.post("/people", json={"name": "ada", "key": "laptop"})
    assert answer.status_code == 409
    assert "cannot keep people" in answer.json()["detail"]


async def test_budgets_need_a_journal_with_figures(serve, journal_url):
    server = await serve(agent=small(journal_url), budgets={"*": 5.0})
    answer = await server.client.post("/run", json={"task": "print(1)"})
    assert answer.status_code == 501
    assert answer.json()["detail"] == "budgets need a journal with figures"
