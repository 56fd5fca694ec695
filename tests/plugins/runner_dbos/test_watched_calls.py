"""Schedules that watch a call: each new item starts its task once, through kills and failures."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from delf_cli.schedules import Firing
from delf_runner_dbos.queue import DbosQueue
from delf_runner_dbos.schedules import DbosSchedules
from support.openai_server import Reply
from support.program import delf
from support.until import until

from .fleet import Fleet, fleet, triggered

pytestmark = [pytest.mark.timeout(240), pytest.mark.chaos]

INBOX = '''

@tool(effect="read", confirm=False)
def inbox() -> list[dict]:
    """The jobs, the newest first."""
    import json
    with open("inbox.json") as file:
        return json.load(file)
'''
SCRIPT = """```python
for step in range(3):
    await mark(item["id"], step)
print(item["words"])
```"""


def put(one: Fleet, *names: str) -> None:
    """Write the inbox, the newest first."""
    items = [{"id": name, "words": f"the words of {name}"} for name in names]
    (one.folder / "inbox.json").write_text(json.dumps(items))


async def ran(one: Fleet, *words: str, status: int = 0) -> Any:
    """Run ``delf schedule`` and return its JSON output."""
    done = await asyncio.to_thread(delf, "schedule", *words, "--json", cwd=one.folder)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


async def look(schedules: DbosSchedules, queue: DbosQueue) -> Firing:
    """Let the schedule check for new items; return the result once a runner has done so."""
    before = [*await schedules.history("jobs")]
    handle = await triggered(queue)
    await asyncio.to_thread(handle.get_result)
    found = [*await schedules.history("jobs")]
    for firing in before:
        found.remove(firing)
    (firing,) = found
    return firing


async def over(schedules: DbosSchedules) -> Firing:
    """Wait for the end of the schedule's test; on a busy machine its command may end before."""

    async def ended() -> list[Firing]:
        return [
            one for one in await schedules.history("jobs") if one.test and one.state.is_terminal
        ]

    (firing,) = await until(ended, 60)
    return firing


async def test_each_new_item_starts_one_task_despite_kills(
    tmp_path: Path,
) -> None:
    journal = f"sqlite:///{tmp_path}/journal.db"

    def answer(_: Any) -> Reply:
        return Reply(text=SCRIPT)

    async with fleet(tmp_path, journal, pause=0.2, answer=answer) as one:
        with (tmp_path / "tools.py").open("a") as tools:
            tools.write(INBOX)
        queue = DbosQueue(one.database)
        schedules = DbosSchedules(queue, tmp_path)
        put(one, "job-0")
        add = ("jobs", "0 0 1 1 *", "Do the job `item`.", "--each", "inbox()")
        assert (await ran(one, "add", *add, "--tools", "tools.py"))["each"] == "inbox()"
        for _ in range(2):
            one.start()

        first = await look(schedules, queue)
        assert (first.task_ids, first.note) == ((), "1 item known from now on")

        put(one, "job-2", "job-1", "job-0")
        second = await look(schedules, queue)
        assert len(second.task_ids) == 2
        await until(lambda: one.marks().total() >= 1, 60)
        for runner in one.runners:
            os.killpg(runner.pid, signal.SIGKILL)
        for _ in range(2):
            one.start()
        assert (await look(schedules, queue)).task_ids == ()
        await one.all_over(90)
        assert one.marks() == {(f"job-{n}", step): 1 for n in (1, 2) for step in range(3)}

        (tmp_path / "inbox.json").write_text("broken")
        failed = await look(schedules, queue)
        assert (failed.state, failed.task_ids) == ("failed", ())
        put(one, "job-3", "job-2", "job-1", "job-0")
        assert len((await look(schedules, queue)).task_ids) == 1
        await one.all_over(90)
        assert one.marks()[("job-3", 2)] == 1

        before = one.marks()
        assert (await ran(one, "test", "jobs"))["test"] is True
        tested = await over(schedules)
        assert tested.note == "with the first of 4 items"
        await one.all_over(90)
        assert one.marks() == before
        record = await one.journal.task(tested.task_ids[0])
        assert "this task may only read" in (record.error or "")
        assert any(firing["test"] for firing in await ran(one, "history", "jobs"))

        assert (await ran(one, "pause", "jobs"))["paused"] is True
        assert [one["paused"] for one in await ran(one, "list")] == [True]
        assert (await ran(one, "resume", "jobs"))["paused"] is False
        await ran(one, "remove", "jobs")
        assert await ran(one, "list") == []
        await queue.aclose()
