"""Processes that are killed, and processes that meet."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from delf.events import Printed, TaskFinished, TaskStarted
from delf_journal_sql import SqlJournal
from delf_journal_sql.errors import JournalConflictError
from support.program import start

WORKER = Path(__file__).with_name("worker.py")


@contextmanager
def worker(url, name, tasks=1):
    command = [WORKER, url, name, str(tasks)]
    process = start(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def kill_after(process, lines):
    """Kill a worker after some acknowledged events; return the highest number of each task."""
    acknowledged = {}
    for number, line in enumerate(process.stdout, 1):
        if not line.endswith("\n"):
            break  # it was killed while it wrote this
        name, seq = line.split()
        acknowledged[name] = int(seq)
        if number == lines:
            os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return acknowledged


POINTS = {"sqlite": (1, 2, 9, 40, 97, 300), "postgresql": (1, 9, 97)}


@pytest.mark.parametrize(
    ("journal_url", "lines"),
    [(kind, lines) for kind, points in POINTS.items() for lines in points],
    indirect=["journal_url"],
)
async def test_killed_process_leaves_no_gap_and_loses_nothing(journal_url, open_journal, lines):
    with worker(journal_url, "t", tasks=3) as process:
        acknowledged = kill_after(process, lines)
    journal = open_journal(journal_url)
    for name, seq in acknowledged.items():
        kept = [event.seq for event in await journal.read(name)]
        assert kept == list(range(1, len(kept) + 1))
        assert len(kept) >= seq
    states = {task.state for task in await journal.find()}
    assert states == {"interrupted"}


async def test_task_continues_in_another_process(journal_url, open_journal):
    journal = open_journal(journal_url)
    with worker(journal_url, "t") as process:
        for _ in range(20):
            process.stdout.readline()
        assert [task.state for task in await journal.find(state="running")] == ["running"]
        with pytest.raises(JournalConflictError, match=f"process {process.pid} on"):
            await journal.claim("t0")
        with pytest.raises(JournalConflictError):
            await journal.append(Printed(task_id="t0", seq=10_000_000, at=1.0, text=""))
        process.kill()
        process.wait()
    assert (await journal.task("t0")).state == "interrupted"
    await journal.claim("t0")
    assert (await journal.task("t0")).state == "running"
    last = (await journal.read("t0"))[-1].seq
    end = TaskFinished(task_id="t0", seq=last + 1, at=1.0, status=True, text="", duration_ms=1.0)
    await journal.append(end)
    assert [task.state for task in await journal.find(state="done")] == ["done"]


async def test_concurrent_processes_create_one_journal(journal_url, open_journal):
    with (
        worker(journal_url, "a") as a,
        worker(journal_url, "b") as b,
        worker(journal_url, "c") as c,
    ):
        for process in (a, b, c):
            assert len(process.stdout.readline().split()) == 2
    journal = open_journal(journal_url)
    assert {task.task_id for task in await journal.find()} == {"a0", "b0", "c0"}


def test_journal_can_be_used_by_successive_event_loops(journal_url):
    journal = SqlJournal(journal_url)
    for seq in range(1, 6):
        event = (
            TaskStarted(task_id="t", seq=1, at=1.0, task="x")
            if seq == 1
            else Printed(task_id="t", seq=seq, at=1.0, text="y")
        )
        asyncio.run(journal.append(event))
        assert len(asyncio.run(journal.read("t"))) == seq
    asyncio.run(journal.aclose())
