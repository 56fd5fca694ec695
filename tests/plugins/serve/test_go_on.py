"""A task that ended at its timeout goes on over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from delf import tool
from delf.errors import ConnectionUnavailableError
from support.serving import Outbox, doing, make_agent

SCRIPT = "await send('ada')\nimport asyncio\nawait asyncio.sleep(7)\nprint('done')"


@pytest.mark.slow
async def test_task_can_be_resumed_after_its_timeout(serve):
    server = await serve(agent={"approval_mode": "approve_all"})
    order = {"task": doing(SCRIPT), "wait": 20, "timeout": 4}
    failed = (await server.client.post("/run", json=order)).json()
    assert failed["state"] == "failed", failed
    path = f"/tasks/{failed['task_id']}"
    answer = await server.client.post(f"{path}/resume", json={"timeout": 60})
    assert answer.status_code == 202, answer.text
    task = await server.until(failed["task_id"], "done")
    assert "done" in str(task)
    assert server.box.sent == [("ada", 1)]
    assert (await server.client.post(f"{path}/resume")).status_code == 409


@pytest.mark.slow
async def test_task_can_be_resumed_after_a_resume_that_failed(serve, monkeypatch):
    agent = {"approval_mode": "approve_all", "cost_usd": 0.1, "allow_unpriced": True}
    server = await serve("ci-key", agent=agent, api_key="ci:ci-key", budgets={"ci": 5.0})
    script = "import asyncio\nawait asyncio.sleep(3)\nprint('done')"
    order = {"task": doing(script), "wait": 20, "timeout": 2}
    failed = (await server.client.post("/run", json=order)).json()
    assert failed["state"] == "failed", failed
    journal = server.app.tasks.journal
    figures = journal.figures
    calls = []

    async def fail_once(*arguments):
        """Fail for the ledger of the resumed task, after the check of the caller's budget."""
        calls.append(arguments)
        if len(calls) == 2:
            raise ConnectionUnavailableError("the journal does not respond")
        return await figures(*arguments)

    monkeypatch.setattr(journal, "figures", fail_once)
    path = f"/tasks/{failed['task_id']}/resume"
    assert (await server.client.post(path, json={"timeout": 60})).is_error
    assert (await server.client.post(path, json={"timeout": 60})).status_code == 202
    await server.until(failed["task_id"], "done")


async def test_task_with_stricter_options_of_its_own_is_not_resumed(serve, tmp_path):
    """The test of a schedule may only read; the agent of the server makes changes."""
    made = []

    @tool(effect="write", confirm=False)
    async def enter(name: str) -> None:
        """Enter a name."""
        made.append(name)

    setup = {"folder": str(Path.cwd()), "flags": {"approval_mode": "read_only"}, "overrides": []}
    options = {"approval_mode": "read_only", "connections": (enter,), "timeout": 1}
    async with make_agent(str(tmp_path), Outbox(), **options) as agent:
        script = "import asyncio\nawait asyncio.sleep(3)\nawait enter('ada')"
        failed = await agent.arun(doing(script), setup=setup)
        assert "Timeout" in str(failed.error)
    server = await serve(agent={"connections": (enter,)})
    path = f"/tasks/{failed.trace.task_id}/resume"
    answer = await server.client.post(path, json={"timeout": 60})
    assert (answer.status_code, made) == (409, [])
    assert "options of its own" in answer.json()["detail"]
