"""Writes to a journal until it is killed; prints each number once its event is kept.

worker.py URL TASK_ID TASKS
"""

from __future__ import annotations

import asyncio
import sys

from delf.events import Printed, TaskStarted
from delf_journal_sql import SqlJournal


async def write(journal, task_id):
    seq = 1
    await journal.append(TaskStarted(task_id=task_id, seq=1, at=1.0, task="do it", origin="w"))
    while True:
        print(task_id, seq, flush=True)
        seq += 1
        text = f"{seq} " * (30_000 if seq % 7 == 0 else 5)
        await journal.append(Printed(task_id=task_id, seq=seq, at=float(seq), text=text))


async def main(url, name, tasks):
    journal = SqlJournal(url)
    await asyncio.gather(*(write(journal, f"{name}{number}") for number in range(tasks)))


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
