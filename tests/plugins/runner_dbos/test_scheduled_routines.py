"""Routines are done by runners once each: by a schedule, through kills, and through new versions."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from delf_runner_dbos.queue import DbosQueue
from support.program import delf
from support.until import until

from .fleet import Fleet, fleet, triggered

pytestmark = [pytest.mark.timeout(240), pytest.mark.chaos]

ROUTINE = """\
# /// routine
# title = "Mark a job"
# task = "Do job-0 ."
#
# [parameters.name]
# type = "text"
# default = "job-0"
#
# [actions."mark"]
# effect = "irreversible"
# parameters = ["name: str", "step: int"]
# returns = "None"
# ///
for step in range({first}, {first} + 4):
    mark(name, step)
print(name)
"""


def save(one: Fleet, first: int = 0) -> None:
    """Write the routine, or another version of it that records other steps."""
    folder = one.folder / "routines"
    folder.mkdir(exist_ok=True)
    (folder / "report.py").write_text(ROUTINE.format(first=first))


async def begun(one: Fleet, count: int = 1) -> None:
    """Wait until a number of steps are recorded."""
    await until(lambda: one.marks().total() >= count, 60)


async def fire(one: Fleet) -> None:
    """Let the schedule fire as soon as a runner is ready."""
    queue = DbosQueue(one.database)
    await triggered(queue)
    await queue.aclose()


async def killed(one: Fleet) -> None:
    """Kill the runner of the task that began first."""

    async def busy() -> Any:
        for runner in one.runners:
            if await one.tasks_of(runner):
                return runner
        return None

    os.killpg((await until(busy, 60)).pid, signal.SIGKILL)


async def test_scheduled_routine_runs_once_despite_a_killed_runner(tmp_path: Path) -> None:
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", pause=0.3) as one:
        save(one)
        add = ("add", "yearly", "0 0 1 1 *", 'report(name="job-0")', "--strategy", "routine")
        added = await asyncio.to_thread(delf, "schedule", *add, "--tools", "tools.py", cwd=tmp_path)
        assert added.returncode == 0, added.stderr
        for _ in range(2):
            one.start()
        await fire(one)
        await begun(one)
        await killed(one)
        await one.all_over(90)
        (task,) = await one.journal.find()
        assert (task.state, task.losses) == ("done", 1)
        assert one.marks() == {("job-0", step): 1 for step in range(4)}
        assert one.model.requests == []


async def test_running_routine_keeps_its_version(
    tmp_path: Path,
) -> None:
    async with fleet(tmp_path, f"sqlite:///{tmp_path}/journal.db", pause=0.3) as one:
        save(one)
        how = {"task": 'report(name="{}")', "strategy": "routine"}
        await one.submit(["job-0"], **how)
        one.start("--concurrency", "1")
        await begun(one)
        save(one, first=10)
        one.start("--concurrency", "1")
        await one.submit(["job-1"], **how)
        await until(lambda: any(name == "job-1" for name, _ in one.marks()), 60)
        await killed(one)
        await one.all_over(90)
        wanted = {("job-0", step): 1 for step in range(4)}
        wanted |= {("job-1", step): 1 for step in range(10, 14)}
        assert one.marks() == Counter(wanted)
        assert set(await one.states()) == {"done"}
