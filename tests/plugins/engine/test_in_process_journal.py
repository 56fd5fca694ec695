"""Tests of eviction from the journal in memory; test_in_process_contract tests all else."""

from delf import events as ev
from delf_engine.journal.in_process import InProcessJournal


def started(task, seq=1, **fields):
    return ev.TaskStarted(task_id=task, seq=seq, at=1.0, task=f"do {task}", **fields)


def finished(task, seq=2, status=True):
    return ev.TaskFinished(task_id=task, seq=seq, at=2.0, status=status, text="", duration_ms=1.0)


async def test_in_process_journal_evicts_the_oldest_finished_tasks():
    journal = InProcessJournal(max_tasks=3)
    for n in range(10):
        await journal.append(started(f"t{n}"))
        if n not in (1, 2):
            await journal.append(finished(f"t{n}"))
    left = [r.task_id for r in await journal.find()]
    assert {"t1", "t2"} <= set(left)
    assert "t0" not in left
    assert len(left) <= 4


async def test_in_process_journal_evicts_large_finished_tasks():
    journal = InProcessJournal(max_bytes=1_100_000)
    for n in range(10):
        await journal.append(started(f"t{n}"))
        if n == 8:
            result = {"rows": [["x" * 1000] * 100]}
            common = {"task_id": "t8", "at": 1.0, "call_id": 1, "action": "a"}
            call = ev.CallFinished(seq=2, status="ok", duration_ms=1, result=result, **common)
            await journal.append(call)
        await journal.append(ev.Printed(task_id=f"t{n}", seq=2, at=1.0, text="x" * 300_000))
        await journal.append(finished(f"t{n}"))
    assert [r.task_id for r in await journal.find()] == ["t9", "t8", "t7"]
    await journal.append(ev.Printed(task_id="t9", seq=4, at=1.0, text="x" * 9_000_000))
    assert [r.task_id for r in await journal.find()] == ["t9"]
