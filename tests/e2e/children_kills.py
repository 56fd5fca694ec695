"""Kills a parent with ten children, and goes on with it, again and again.

children_kills.py FOLDER KILLS SEED VICTIMS

A host or the oldest sandbox, as VICTIMS says, dies before or after a write. Each life of a host is forked from
this process, so that it begins at once. Writes a line of JSON: what was killed, and what was found.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from delf import Agent, AlreadyDone, CallContext, tool
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.forks import kill_oldest_guest

CHILDREN, WRITES = 10, 3
PARENT = (
    "import asyncio\n"
    f"print(sum(await asyncio.gather(*(hand_over(str(n)) for n in range({CHILDREN})))))"
)
CHILD = f"print(sum([await write(10 * NUMBER + k) for k in range({WRITES})]))"
ALL = sorted(10 * n + k for n in range(CHILDREN) for k in range(WRITES))
STARTS = 20

Kill = tuple[int, str, str]
"""At which write, of whom (``host`` or ``sandbox``), and whether ``before`` or ``after`` it."""


def written(done: Path) -> list[int]:
    """The numbers that were written, in order."""
    return [int(line) for line in done.read_text().split()] if done.exists() else []


def live(folder: Path, task_id: str | None, kills: list[Kill], message: Path) -> None:
    """Work on the task in this process until it is done, or the process dies."""
    done = folder / "done"

    def die(when: str) -> None:
        for kill in [*kills]:
            at, whom, point = kill
            if point != when or len(written(done)) < at:
                continue
            if whom == "sandbox" and kill_oldest_guest() is None:
                continue  # all are dead already: at the next write, then
            kills.remove(kill)
            with message.open("a") as file:
                file.write(f"{whom}\n")
            if whom == "host":
                os.kill(os.getpid(), signal.SIGKILL)

    @tool(effect="write", confirm=False)
    async def write(n: int) -> int:
        """Write."""
        die("before")
        with done.open("a") as file:
            file.write(f"{n}\n")
        die("after")
        await asyncio.sleep(0)
        return n

    @tool(effect="write", confirm=False)
    async def hand_over(task: str, context: CallContext) -> int:
        """Let a child do it."""
        return int((await context.delegate(f"the child {task}")).text)

    def answer(request: Any) -> str:
        _, is_child, number = request.messages[-1].text.partition("the child ")
        return script(CHILD.replace("NUMBER", number.split()[0]) if is_child else PARENT)

    def person(request: Any) -> Any:
        n = request.arguments.get("n")
        assert request.outcome_unknown
        return AlreadyDone(result=n) if n in written(done) else True

    def note(event: Any) -> None:
        if event.seq == 1 and not (folder / "task").exists():
            (folder / "task").write_text(event.task_id)

    async def work() -> None:
        host = TestHost.discover(environ=dict(os.environ))
        model = ScriptedModel(default=answer)
        host.provide(model.spec, lambda *_: model)
        options: dict[str, Any] = {"llm": "scripted", "host": host, "journal": "sql"}
        options["retry_count"] = 0  # no script fails here, so that a failure is reported
        async with Agent(
            tools=[write, hand_over], sandbox="local", on_confirm=person, **options
        ) as agent:
            if task_id is None:
                response = await agent.arun("the parent", listeners=[note])
            else:
                response = await agent.aresume(task_id)
        (folder / "end").write_text(f"{response.text} {response.error}")

    asyncio.run(work())


def trial(folder: Path, chance: random.Random, victims: list[str]) -> tuple[Counter[str], str]:
    """A task from its begin to its end, with kills on the way; what was killed, what is wrong."""
    os.environ["DELF_JOURNAL_SQL_URL"] = f"sqlite:///{folder / 'journal.db'}"
    kills: list[Kill] = sorted(
        (
            chance.randint(0, len(ALL) - 1),
            chance.choice(victims),
            chance.choice(("before", "after")),
        )
        for _ in range(3)
    )
    message, task = folder / "told", folder / "task"
    for _ in range(STARTS):
        left = [*kills]
        for whom in message.read_text().split() if message.exists() else ():
            left.remove(next(kill for kill in left if kill[1] == whom))
        if (pid := os.fork()) == 0:
            try:
                live(folder, task.read_text() if task.exists() else None, left, message)
            except BaseException as error:
                (folder / "error").write_text(repr(error))
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status == 0:
            break
        if (folder / "error").exists():
            return Counter(), (folder / "error").read_text()
    dead = Counter(message.read_text().split() if message.exists() else ())
    end = (folder / "end").read_text() if (folder / "end").exists() else "it has no end"
    if end != f"{sum(ALL)} None" or sorted(written(folder / "done")) != ALL:
        return dead, f"kills {kills}: {end}, written {sorted(written(folder / 'done'))}"
    return dead, ""


def main(place: str, most: int, seed: int, victims: list[str]) -> None:
    """Kill so many times, and tell."""
    dead: Counter[str] = Counter()
    wrong: list[str] = []
    trials = 0
    while dead.total() < most and len(wrong) < 5:
        with tempfile.TemporaryDirectory(dir=place) as made:
            killed, fault = trial(Path(made), random.Random(f"{seed}/{trials}"), victims)
        trials += 1
        dead += killed
        wrong += [f"trial {trials} of seed {seed}: {fault}"] if fault else []
        print(json.dumps({"trials": trials, "kills": dead, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].split(","))
