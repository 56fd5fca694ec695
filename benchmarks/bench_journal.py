"""Events a second, and how long a task waits for its event to be kept.

python benchmarks/bench_journal.py [URL]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from delf.events import CallFinished, CallStarted, TaskStarted
from delf_journal_sql import SqlJournal


def _events(task_id, count):
    yield TaskStarted(task_id=task_id, seq=1, at=1.0, task="do it", origin="agent")
    for seq in range(2, count + 1):
        common = {"task_id": task_id, "seq": seq, "at": float(seq), "call_id": seq // 2}
        if seq % 2:
            yield CallFinished(
                **common, action="shop.query", status="ok", duration_ms=1.0, result=[{"id": seq}]
            )
        else:
            yield CallStarted(
                **common,
                action="shop.query",
                arguments={"sql": "SELECT id FROM orders WHERE id = :id", "id": seq},
                effect="read",
                digest="ab" * 32,
            )


async def _write(journal, tasks, events, waits):
    async def work(name):
        for event in _events(name, events):
            started = time.perf_counter()
            await journal.append(event)
            waits.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(work(f"task_{tasks}_{number}") for number in range(tasks)))
    return time.perf_counter() - started


async def _run(url):
    for tasks, events in ((1, 2000), (20, 200), (200, 50), (1000, 20)):
        journal = SqlJournal(url)
        await journal.find()
        waits = []
        took = await _write(journal, tasks, events, waits)
        waits.sort()
        print(
            f"{tasks:5d} tasks  {len(waits) / took:8.0f} events/s  wait: "
            f"median {statistics.median(waits) * 1000:6.2f} ms  "
            f"99 % {waits[int(len(waits) * 0.99)] * 1000:6.2f} ms"
        )
        await journal.aclose()


def main():
    if len(sys.argv) > 1:
        asyncio.run(_run(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.db")
        asyncio.run(_run(str(path)))
        size = path.stat().st_size
        print(f"{size / 36_000:.0f} bytes an event")


main()
