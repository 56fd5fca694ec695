"""Data of earlier versions in DBOS's database, which call the user of a task its key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from delf_runner_dbos.engine import Workflows
from delf_runner_dbos.queue import SCHEDULED, TASK, DbosQueue, Ticket
from delf_runner_dbos.schedules import DbosSchedules
from delf_runner_dbos.settings import QueueSettings, project_id

TICKET = {"task_id": "t", "queue": "q", "key": "ada:1", "priority": 0, "requeues": 0}


async def test_stored_tasks_and_schedules_of_a_user_go_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/dbos.sqlite"
    queue = DbosQueue(url)
    stored_name = f"{project_id(tmp_path)}:daily"
    schedule: dict[str, Any] = {"name": "daily", "task": "Do it.", "queue": "q", "setup": {}}
    schedule |= {"each": None, "id_field": None, "key": "ada:1", "stored_name": stored_name}

    def store(client: Any) -> None:
        client.enqueue(
            {
                "workflow_name": TASK,
                "workflow_id": "t",
                "queue_name": "q/keys",
                "queue_partition_key": "ada:1",
                "priority": 1,
            },
            TICKET,
        )
        client.create_schedule(
            schedule_name=stored_name,
            workflow_name=SCHEDULED,
            schedule="0 8 * * *",
            context=schedule,
            queue_name="q",
        )
        client.enqueue(
            {"workflow_name": SCHEDULED, "workflow_id": "s", "queue_name": "q"}, "now", schedule
        )

    await queue.register("q", QueueSettings(), concurrency=2)
    await queue.call(store)
    (listed,) = await DbosSchedules(queue, tmp_path).all()
    assert listed.user == "ada:1"
    begun = asyncio.Queue[Any]()

    async def work(_workflow_id: str, ticket: Ticket) -> str:
        begun.put_nowait(ticket.user)
        return "done"

    async def fire(_workflow_id: str, context: Any) -> dict[str, Any]:
        begun.put_nowait(context["user"])
        return {"tasks": []}

    workflows = Workflows(url, work, fire)
    await workflows.start(["q"])
    assert [await begun.get(), await begun.get()] == ["ada:1", "ada:1"]
    await workflows.stop(1)
    await queue.aclose()
