"""A year of a busy server: size, memory and times while old tasks are removed.

python benchmarks/bench_year.py [TASKS]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from delf.events import (
    CallFinished,
    CallStarted,
    Event,
    ModelCalled,
    ScriptGenerated,
    TaskFinished,
    TaskQueued,
    TaskStarted,
)
from delf_journal_sql import SqlJournal
from delf_journal_sql.sqlite import SqliteDatabase

DAY = 86_400.0
_MONTHS = 12
_AT_ONCE = 200
_TRIES = 30
_TIMES = ("append ms", "list ms", "last page ms", "show ms", "count ms")


def _events(number: int, at: float) -> list[Event]:
    """A task with a prompt, a script and a call."""
    common: dict[str, Any] = {"task_id": f"task_{number:016x}", "at": at}
    words = f"Send the reminders of customer {number % 977}"
    made: list[Event] = [
        TaskQueued(**common, seq=1, task=words),
        TaskStarted(**common, seq=2, task=words),
        ModelCalled(
            **common, seq=3, model="m", purpose="generate", number=1, prompt=f"{number} " * 800
        ),
        ScriptGenerated(**common, seq=4, attempt=1, code="print(await crm.find())\n" * 20),
    ]
    named: dict[str, Any] = {"call_id": 1, "action": "crm.find"}
    made += [
        CallStarted(**common, seq=5, arguments={"id": number}, effect="read", digest="d", **named),
        CallFinished(**common, seq=6, status="ok", duration_ms=5.0, result=["x" * 300], **named),
    ]
    status = number % 20 != 0
    made.append(TaskFinished(**common, seq=7, status=status, text="done", duration_ms=900.0))
    return made


async def _keep(journal: SqlJournal, numbers: range, at: float, waits: list[float]) -> None:
    async def work(number: int) -> None:
        for event in _events(number, at):
            begun = time.perf_counter()
            await journal.append(event)
            waits.append(time.perf_counter() - begun)

    await asyncio.gather(*map(work, numbers))


async def _median(look: Any) -> float:
    """Return the median milliseconds of a read."""
    times: list[float] = []
    for _ in range(_TRIES):
        begun = time.perf_counter()
        await look()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


def _size(folder: Path) -> float:
    """Return the size of a folder's files in MB."""
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def _memory() -> float:
    """Return the memory of this process in MB."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    return 0.0


async def _run(tasks: int, folder: Path) -> None:
    clock = 1_700_000_000.0
    SqliteDatabase.now = lambda _self, _connection: clock  # type: ignore[method-assign]
    place = folder / "journal.db"
    journal = SqlJournal(str(place), keep={"done": "30 days", "failed": "90 days"})
    columns = ("month", "tasks so far", "kept", "file MB", "memory MB", *_TIMES, "longest prune s")
    print("|", " | ".join(columns), "|")
    print("|---" * len(columns) + "|")
    created, days = 0, 365
    for month in range(_MONTHS):
        waits: list[float] = []
        pruned = 0.0
        for day in range(days * month // _MONTHS, days * (month + 1) // _MONTHS):
            end = tasks * (day + 1) // days
            while created < end:
                batch = range(created, min(end, created + _AT_ONCE))
                await _keep(journal, batch, clock, waits)
                created = batch.stop
            clock += DAY
            started = time.perf_counter()
            await journal.prune(journal.keep)
            pruned = max(pruned, time.perf_counter() - started)
        counts = await journal.count()
        newest = f"task_{created - 1:016x}"
        last = clock - 29 * DAY, ""
        values = [
            statistics.median(waits) * 1000,
            await _median(lambda: journal.find(20)),
            await _median(lambda last=last: journal.find(20, after=last)),
            await _median(lambda newest=newest: journal.read(newest)),
            await _median(journal.count),
        ]
        size = _size(folder)
        cells = " | ".join(f"{value:.1f}" for value in values)
        print(f"| {month + 1} | {created:,} | {sum(counts.values()):,} | {size:.0f} | "
              f"{_memory():.0f} | {cells} | {pruned:.1f} |", flush=True)  # fmt: skip
    await journal.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(_run(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000, Path(made)))
