"""Runners of one queue as processes that can be killed or stopped, and the truth of what they did."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

from delf.errors import ConnectionUnavailableError
from delf.protocols.approval import AlreadyDone, Approved, Decider
from delf.protocols.journal import TaskRecord
from delf.types import TaskState
from delf_engine.approvals.inbox import ANSWER_KIND, answer_data
from delf_journal_sql import SqlJournal
from delf_runner_dbos.queue import DbosQueue
from support.openai_server import OpenAIServer, Reply
from support.program import DELF, start
from support.until import until

OVER = frozenset({"done", "failed", "stopped"})
SCRIPT = """```python
name = {name!r}
for step in range({steps}):
    print(step)
    await mark(name, step)
print(await noted(name))
```"""

TOOLS = '''
import asyncio, os, sqlite3
from delf import tool
from delf.errors import ConnectionUnavailableError

def truth():
    connection = sqlite3.connect({truth!r}, timeout=60, isolation_level=None)
    return connection

@tool(effect="irreversible", confirm=False)
async def mark(name: str, step: int) -> None:
    """Write a step down."""
    with truth() as connection:
        begun = (name, step, os.getpid())
        row = connection.execute("INSERT INTO begun VALUES (?, ?, ?)", begun).lastrowid
    try:
        await asyncio.sleep({pause})
        with truth() as connection:
            connection.execute("INSERT INTO marks VALUES (?, ?)", (name, step))
    finally:
        with truth() as connection:
            connection.execute("DELETE FROM begun WHERE rowid = ?", (row,))

@tool(effect="read", confirm=False)
def noted(name: str) -> int:
    """How many steps are written down."""
    with truth() as connection:
        if connection.execute("SELECT COUNT(*) FROM away WHERE name = ?", (name,)).fetchone()[0] < {away}:
            connection.execute("INSERT INTO away VALUES (?)", (name,))
            connection.commit()
            raise ConnectionUnavailableError("the truth does not answer")
        return connection.execute("SELECT COUNT(*) FROM marks WHERE name = ?", (name,)).fetchone()[0]
'''


class Fleet:
    """A project whose tasks each record some steps, with its model and its runners.

    Args:
        folder: The project's folder.
        journal: The journal's URL.
        database: The URL of DBOS's database; a file in the folder by default.
        steps: The number of steps of a task.
        pause: Seconds that a step takes.
        lease: Seconds of silence after which a runner counts as dead.
        more: Further lines of the queues' settings.
        away: How often the last call of each task fails because its service does not answer.
        answer: The model's answer; the script of the steps by default.
    """

    def __init__(
        self,
        folder: Path,
        journal: str,
        database: str | None = None,
        *,
        steps: int = 4,
        pause: float = 0.02,
        lease: float = 1.5,
        more: str = "",
        away: int = 0,
        answer: Callable[[Any], Reply] | None = None,
    ) -> None:
        self.folder, self.steps, self.lease = folder, steps, lease
        self.database = database or f"sqlite:///{folder}/dbos.sqlite"
        self._truth = folder / "truth.db"
        with contextlib.closing(sqlite3.connect(self._truth)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE marks (name TEXT, step INTEGER)")
            connection.execute("CREATE TABLE away (name TEXT)")
            connection.execute("CREATE TABLE begun (name TEXT, step INTEGER, pid INTEGER)")
            connection.commit()
        self.model = OpenAIServer(answer or self._answer).__enter__()
        self.runners: list[subprocess.Popen[bytes]] = []
        self.journal = SqlJournal(journal)
        (folder / "tools.py").write_text(
            TOOLS.format(truth=str(self._truth), pause=pause, away=away)
        )
        (folder / "delf.toml").write_text(
            f'[agent]\nllm = {{ model = "gpt-4o-mini", base_url = "{self.model.base_url}" }}\n'
            f'providers = {{ openai = "test-key" }}\nsandbox = "local"\njournal = "sql"\n'
            f'[plugins.journal-sql]\nurl = "{journal}"\n[plugins.runner-dbos]\n'
            f'lease = {lease}\ndatabase = "{self.database}"\n'
            f"{more}\n"
        )

    def _answer(self, request: Any) -> Reply:
        words = request.json["messages"][-1]["content"]
        name = next(word for word in words.split() if word.startswith("job-"))
        return Reply(text=SCRIPT.format(name=name.strip('".'), steps=self.steps))

    async def submit(
        self,
        names: Sequence[str],
        *,
        task: str = "Do {} .",
        strategy: str | None = None,
        **handing: Any,
    ) -> list[str]:
        """Submit tasks; return their ids."""
        from delf import Agent

        how: Any = {"queue": "default", **handing}

        setup: dict[str, Any] = {
            "folder": str(self.folder), "config": None, "connections": [],
            "flags": {} if strategy is None else {"strategy": strategy},
            "tool_files": ["tools.py"], "overrides": [],
        }  # fmt: skip
        async with Agent.from_project(self.folder) as agent:
            return [await agent.asubmit(task.format(name), **how, setup=setup) for name in names]

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one more runner."""
        with (self.folder / f"runner-{len(self.runners)}.log").open("wb") as log:
            runner = start(
                [DELF, "runner", *options],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.runners.append(runner)
        return runner

    async def states(self) -> Counter[str]:
        """Return the number of tasks in each state."""
        return Counter(record.state for record in await self._tasks())

    async def _tasks(self) -> Sequence[TaskRecord]:
        return await self.journal.find(100_000)

    async def all_over(self, seconds: float) -> None:
        """Wait until every task is over; answer questions about interrupted calls truthfully."""
        async with asyncio.timeout(seconds):
            while set(await self.states()) - OVER:
                await self.answer()
                await asyncio.sleep(0.2)

    async def answer(self) -> None:
        """Answer whether interrupted calls happened.

        A call that a living process may still make is waited for, as by a careful person.
        """
        for record in await self.journal.find_requests(waiting=True):
            asked = record.requested
            call = (asked.arguments["name"], asked.arguments["step"])
            marked = self.marks()[call]
            if not marked and self._may_still_happen(*call):
                continue
            decision = AlreadyDone(result=None) if marked else Approved()
            data = answer_data(asked.request_id, asked.digest, decision, Decider(name="the test"))
            await self.journal.post(asked.task_id, ANSWER_KIND, data)

    def _may_still_happen(self, name: str, step: int) -> bool:
        living = {runner.pid for runner in self.runners if runner.poll() is None}
        with contextlib.closing(sqlite3.connect(self._truth, timeout=60)) as connection:
            rows = connection.execute(
                "SELECT pid FROM begun WHERE name = ? AND step = ?", (name, step)
            ).fetchall()
        return any(pid in living for (pid,) in rows)

    async def tasks_of(self, runner: subprocess.Popen[bytes]) -> list[str]:
        """Return the ids of the tasks that a runner works on."""
        mine = f"pid {runner.pid} on "
        running = await self.journal.find(1000, state=TaskState.RUNNING)
        return [record.task_id for record in running if (record.owner or "").startswith(mine)]

    def marks(self) -> Counter[tuple[str, int]]:
        """Return how often each step of each task was recorded."""
        with contextlib.closing(sqlite3.connect(self._truth, timeout=60)) as connection:
            return Counter(connection.execute("SELECT name, step FROM marks").fetchall())

    def logs(self) -> str:
        """Return the output of the runners."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("runner-*.log")))

    def end(self) -> None:
        """Kill the running processes."""
        for runner in self.runners:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()


async def triggered(queue: DbosQueue) -> Any:
    """Let the only schedule fire as soon as a runner is ready; return DBOS's handle."""
    found: list[Any] = []

    def trigger(client: Any) -> Any:
        (row,) = client.list_schedules()
        return client.trigger_schedule(row["schedule_name"])

    async def fires() -> bool:
        try:
            found.append(await queue.call(trigger))
        except ConnectionUnavailableError:
            return False
        return True

    await until(fires, 60)
    return found[0]


@contextlib.asynccontextmanager
async def fleet(*arguments: Any, **options: Any) -> AsyncGenerator[Fleet]:
    """Make a fleet with its model; end all of its processes afterwards."""
    one = Fleet(*arguments, **options)
    try:
        yield one
    finally:
        one.end()
        one.model.__exit__(None, None, None)
        sys.stderr.write(one.logs())
        await one.journal.aclose()
