"""Queued tasks of many users, each of whom a program keeps in a ContextVar."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from delf.events import TaskQueued
from delf_journal_sql import SqlJournal
from delf_runner_dbos.queue import Ticket
from delf_runner_dbos.runner import Runner, RunnerOptions
from delf_runner_dbos.settings import QueueSettings
from support.users import *  # noqa: F403 - the fixture office
from support.users import Office, User, all_at_once, user

from .test_runner import NotedQueue


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_runner_uses_its_own_context(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users submit tasks; a runner that somebody else started runs them concurrently."""
    database = str(tmp_path / "journal.db")
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", f"sqlite:///{database}")
    journal, waiting = SqlJournal(database), list[str]()

    async def hand_in(name: str) -> None:
        event: dict[str, Any] = {"seq": 1, "at": 1.0, "queue": "q", "task": f"Pay {name}."}
        await journal.append(TaskQueued(task_id=name, **event))
        waiting.append(name)

    await all_at_once(hand_in, 20)
    async with office.open(journal="sql") as agent:

        class Agents:
            def lend(self, setup: Any) -> Any:
                return nullcontext(agent)

        queue = NotedQueue()
        options = RunnerOptions(queues={"q": QueueSettings()}, concurrency=30, lease=30.0, grace=0)
        runner = Runner(journal, queue, Agents(), Agents(), options)  # pyright: ignore[reportArgumentType]
        user.set(User("the runner"))
        tickets = [Ticket(task_id=task, queue="q", user=None, requeues=0) for task in waiting]
        ended = await asyncio.gather(*(runner.work(t.task_id, t) for t in tickets))
        assert ended == ["done"] * len(tickets)
        await journal.aclose()
    seen = {name for _, _, name in office.sightings.all}
    assert seen == {"the runner"}
    assert {"plain action", "async action", "approved action"} <= office.sightings.parts
