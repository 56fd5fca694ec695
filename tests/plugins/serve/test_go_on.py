"""A task that ended at its timeout goes on over HTTP."""

from __future__ import annotations

from support.serving import doing

SCRIPT = "await send('ada')\nimport asyncio\nawait asyncio.sleep(7)\nprint('done')"


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
