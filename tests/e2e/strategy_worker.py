"""Kills a task of one strategy after every so many events and resumes it in another process.

    python strategy_worker.py call|execute|codegen FOLDER

Prints for each kill, as JSON: after how many events, the answer, and what was written in the end.
Each process is forked from this one, which has imported all that it needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from delf import Agent, AlreadyDone, Approved, tool
from delf.messages import user
from delf.specs import StrategySpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script

STEP = 5
CODE = "print(await note('a'))\nprint(await asyncio.gather(note('b'), note('c')))"


class ByCall:
    """Calls tools itself, one alone and two together."""

    async def solve(self, host: Any) -> str:
        await host.ask(host.begin("Say anything."))
        first = await host.call("note", {"text": "a"})
        both = await asyncio.gather(
            host.call("note", {"text": "b"}), host.call("note", {"text": "c"})
        )
        host.say(f"{first.value} {[answer.value for answer in both]}")
        await host.ask([user("Anything else?")])
        host.say((await host.call("note", {"text": "d"})).value)
        return host.said


class ByExecute:
    """Runs a script of its own, then calls a tool."""

    async def solve(self, host: Any) -> str:
        await host.ask(host.begin("Say anything."))
        await host.execute(CODE)
        return f"{host.said}{(await host.call('note', {'text': 'd'})).value}"


STRATEGIES = {"call": ByCall, "execute": ByExecute}


async def work(kind: str, folder: Path, task: str | None, most: int) -> None:
    """Do the task, or go on with it; dies after so many events."""
    notes, seen = folder / "notes", 0

    @tool(effect="write", confirm=False)
    async def note(text: str) -> str:
        """Write something down."""
        with notes.open("a") as file:
            file.write(f"{text}\n")
        return f"noted {text}"

    def decide(request: Any) -> Any:
        text = request.arguments["text"]
        is_done = text in notes.read_text().split() if notes.exists() else False
        return AlreadyDone(result=f"noted {text}") if is_done else Approved()

    def listen(event: Any) -> None:
        nonlocal seen
        (folder / "task").write_text(event.task_id)
        seen += 1
        if seen == most:
            os.kill(os.getpid(), signal.SIGKILL)

    environ = {"DELF_JOURNAL_SQL_URL": f"sqlite:///{folder / 'journal.db'}"}
    host = TestHost.discover(environ=environ)
    model = ScriptedModel(default=lambda request: script(CODE))
    host.provide(model.spec, model.factory)
    if kind in STRATEGIES:
        spec = StrategySpec(name=kind, summary="x", factory="x:y")
        host.provide(spec, STRATEGIES[kind])
    async with Agent(
        tools=[note],
        llm="scripted",
        host=host,
        sandbox="local",
        journal="sql",
        strategy=kind,
        on_confirm=decide,
    ) as agent:
        if task is None:
            response = await agent.arun("Note.", listeners=[listen])
        else:
            response = await agent.aresume(task, listeners=[listen])
        response.raise_for_status()
    (folder / "answer").write_text(response.text)


def fork(kind: str, folder: Path, task: str | None, most: int) -> int:
    """The exit status of a process that did it, negative for a signal."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        os.environ["DELF_JOURNAL_SQL_URL"] = f"sqlite:///{folder / 'journal.db'}"
        asyncio.run(work(kind, folder, task, most))
        status = 0
    finally:
        os._exit(status)


def main(kind: str, root: Path) -> None:
    """Kill after 0 (never), 5, 10 … events, until the task is done before."""
    TestHost.discover(environ={}).records()  # forks know them
    most = 0
    while True:
        folder = root / str(most)
        folder.mkdir()
        status = fork(kind, folder, None, most)
        is_killed = status == -signal.SIGKILL
        if is_killed:
            status = fork(kind, folder, (folder / "task").read_text(), 0)
        answer = (folder / "answer").read_text() if status == 0 else f"status {status}"
        written = sorted((folder / "notes").read_text().split())
        print(json.dumps([most, answer, written]), flush=True)
        if most and not is_killed:
            return
        most += STEP


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
