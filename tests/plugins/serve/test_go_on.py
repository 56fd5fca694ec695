"""A task that ended at its timeout goes on over HTTP."""

from __future__ import annotations

import pytest

from delf.errors import ConnectionUnavailableError
from support.serving import doing

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
