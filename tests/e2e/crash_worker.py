"""Processes that do a task, or resume one, and may be killed on their way.

Each line of the standard input is the start of one process, as JSON::

    {"url": …, "task": TASK_ID or "new", "plan": KILLS, "output": FILE, "files": FOLDER}

``KILLS`` is ``-`` or a list ``EVENTS:MICROSECONDS:host|guest|template,…``: that long after so many
further events, the process, its sandboxes or what these are forked from are killed. The last line of its output is the answer; its
exit status is printed here. It is forked from this one, which has imported all that it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import psycopg

from delf import Agent, AlreadyDone, Approved
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script
from delf_sql import SQL

FIRST = """
from datetime import datetime
stamp = datetime.now().isoformat()
async def step(n):
    seen = await sql.query("SELECT :n * 2 AS twice", {"n": n})
    done = await sql.write("INSERT INTO steps VALUES (:n, :v)", {"n": n, "v": seen[0]["twice"]})
    return done["rowcount"]
for n in range(6):
    print("step", n, await step(n))
await ledger.write("INSERT INTO steps VALUES (:n, :v)", {"n": 100, "v": 1}, desc="the ledger")
print(await asyncio.gather(*(step(n) for n in range(6, 11))))
add_to_output_files("half.csv", [{"n": n, "v": 2 * n} for n in range(11)])
rerun(context="half is done", remaining="the other half")
"""
FAILING = """
print("rows", (await sql.query("SELECT COUNT(*) AS n FROM steps"))[0]["n"])
print("step", 11, await step(11))
print(1 / 0)
"""
REST = """
import random
order = random.sample(range(12, 19), 7)
print(sum(await asyncio.gather(*(step(n) for n in order))))
add_to_output_files("whole.json", {"rows": 20, "stamp": len(stamp)})
print(len(stamp))
"""


def answer(request: Any) -> str:
    """The model's answer, which depends on the prompt and not on the number of requests."""
    shown = [message.text for message in request.messages]
    if "half is done" in shown[-1]:
        return script(FAILING)
    return script(REST if "ZeroDivisionError" in shown[-1] else FIRST)


def decide(url: str) -> Any:
    """The person who is asked: looks into the database before a call is made again."""

    def on_confirm(request: Any) -> Any:
        if not request.outcome_unknown:
            return True
        if not is_written(url, request.arguments["params"]["n"]):
            return Approved()
        return AlreadyDone(result={"rowcount": 1, "rows": [], "committed": True})

    return on_confirm


def is_written(url: str, number: int) -> bool:
    """True if a step is in the database."""
    if url.startswith("sqlite:///"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.execute("BEGIN IMMEDIATE")  # whoever still writes is through after this
            return file.execute("SELECT 1 FROM steps WHERE n = ?", [number]).fetchone() is not None
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT 1 FROM steps WHERE n = %s", [number]).fetchone()
        return found is not None


def victims(whom: str) -> list[int]:
    """The processes to kill: the host, the template process, or what that has forked."""
    if whom == "host":
        return [os.getpid()]
    above: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "stat").read_text()
        except OSError:
            continue
        above[int(folder.name)] = int(line.rpartition(")")[2].split()[1])
    forked = [pid for pid, parent in above.items() if above.get(parent) == os.getpid()]
    return forked if whom == "guest" else sorted({above[pid] for pid in forked})


class Killer:
    """Kills at a point of the task."""

    def __init__(self, plan: str) -> None:
        self._plan = [] if plan == "-" else [point.split(":") for point in plan.split(",")]
        self._seen = 0

    def __call__(self, event: Any) -> None:
        """Take an event."""
        print(f"task {event.task_id}", flush=True)
        self._seen += 1
        if self._plan and self._seen == int(self._plan[0][0]):
            self._seen = 0
            _, microseconds, whom = self._plan.pop(0)
            print("death", flush=True)
            kill = threading.Thread(target=self._kill, args=(int(microseconds) / 1e6, whom))
            kill.daemon = True
            kill.start()

    def _kill(self, seconds: float, whom: str) -> None:
        time.sleep(seconds)
        for pid in victims(whom):
            with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(pid, signal.SIGKILL)


async def main(url: str, task: str, plan: str, files: str) -> None:
    host = TestHost.discover(environ=os.environ)
    model = ScriptedModel(default=answer)
    host.provide(model.spec, model.factory)
    agent = Agent(
        tools=[SQL(url=url, confirm=False), SQL(name="ledger", url=url)],
        llm="scripted",
        host=host,
        sandbox="local",
        journal="sql",
        on_confirm=decide(url),
        output_dir=files,
        timeout=120,
    )
    listeners = [Killer(plan)]
    async with agent:
        if task == "new":
            response = await agent.arun("Do all steps.", listeners=listeners)
        else:
            response = await agent.aresume(task, listeners=listeners)
        response.raise_for_status()
    print(json.dumps([response.text, len(response.trace.tool_calls)]), flush=True)


def fork(order: dict[str, str]) -> int:
    """Start a process, wait for it, and return its exit status, negative for a signal."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    status = 1
    try:
        asyncio.run(main(order["url"], order["task"], order["plan"], order["files"]))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    for line in sys.stdin:
        print(fork(json.loads(line)), flush=True)
