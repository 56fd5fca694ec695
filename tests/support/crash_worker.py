"""Processes that do a task, or resume one, and may be killed on their way.

Each line of the standard input is the start of one process, as JSON::

    {"url": DATABASE_URL, "task": TASK_ID or "new", "plan": KILLS, "output": FILE}

``KILLS`` is ``-`` or a list ``EVENTS:MICROSECONDS:host|guest,…``: that long after so many further
events, the process or its sandboxes are killed. The last line of its output is the answer; its
exit status is printed here. It is forked from this one, which has imported all that it needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import psycopg

from delf import Agent, Approved, Settled
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
rerun(context="half is done", remaining="the other half")
"""
SECOND = """
import random
order = random.sample(range(11, 19), 8)
print("rows", (await sql.query("SELECT COUNT(*) AS n FROM steps"))[0]["n"])
print(sum(await asyncio.gather(*(step(n) for n in order))))
print(len(stamp))
"""


def answer(request: Any) -> str:
    """What the model writes: by what it was told, not by how often it was asked."""
    return script(SECOND if "half is done" in request.messages[-1].text else FIRST)


def decide(url: str) -> Any:
    """The person who is asked: looks into the database before a call is made again."""

    def on_confirm(request: Any) -> Any:
        if not request.unsettled:
            return True
        number = request.arguments["params"]["n"]
        with psycopg.connect(url) as connection:
            found = connection.execute("SELECT 1 FROM steps WHERE n = %s", [number]).fetchone()
        if found is None:
            return Approved()
        return Settled(result={"rowcount": 1, "rows": [], "committed": True})

    return on_confirm


def guests() -> list[int]:
    """The processes that the template process has forked."""
    above: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "stat").read_text()
        except OSError:
            continue
        above[int(folder.name)] = int(line.rpartition(")")[2].split()[1])
    return [pid for pid, parent in above.items() if above.get(parent) == os.getpid()]


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
        for pid in guests() if whom == "guest" else [os.getpid()]:
            os.kill(pid, signal.SIGKILL)


async def main(url: str, task: str, plan: str) -> None:
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
        asyncio.run(main(order["url"], order["task"], order["plan"]))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    for line in sys.stdin:
        print(fork(json.loads(line)), flush=True)
