"""Tasks on journals that end where a test wants, and checks of their resumption."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from delf import (
    Agent,
    ToolException,
    tool,
)
from delf import events as ev
from delf.specs import JournalSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from support.cut_journal import CutJournal

FIRST = """
import random, uuid, asyncio
from datetime import datetime
stamp = datetime.now().isoformat()
name = f"{uuid.uuid4()}/{random.random()}/{stamp}"
rows = await look(1)
print("looked", rows)
await write(name)
try:
    await fail()
except ToolException as error:
    print("failed:", error)
try:
    nothing()
except Exception as error:
    print(type(error).__name__)
a, b = await asyncio.gather(look(2), write("b"))
add_to_output_files("a.txt", name)
print(a, b)
rerun(context="half", remaining="the rest")
"""


SECOND = """
import time
async def pair(n):
    seen = await look(n)
    return await write(f"{n}/{seen}")
print(await asyncio.gather(pair(3), pair(4), pair(5)))
await send(f"{name} {int(time.time())}")
print("all done")
"""


class World:
    """The values that the tools change."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.looks = 0

    def tools(self) -> Sequence[Any]:
        @tool(effect="read")
        async def look(n: int) -> int:
            """Look at something."""
            self.looks += 1
            return n * 10

        @tool(effect="write", confirm=False)
        async def write(text: str) -> int:
            """Write something."""
            self.writes.append(text)
            return len(text)

        @tool(effect="irreversible")
        async def send(text: str) -> str:
            """Send something."""
            self.writes.append(f"sent {text}")
            return "ok"

        @tool(effect="read")
        async def fail() -> None:
            """Fail."""
            raise ToolException("as ever")

        return look, write, send, fail


class Bench:
    """Runs and resumes tasks on journals that end where a test wants."""

    def __init__(self, host: TestHost, model: ScriptedModel) -> None:
        self.host, self.model = host, model
        self.journal = CutJournal()
        self.asked: list[Any] = []
        host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: self.journal)

    def agent(
        self, world: World, decide: Any = None, more: Sequence[Any] = (), **options: Any
    ) -> Agent:
        def on_confirm(request: Any) -> Any:
            self.asked.append(request)
            return True if decide is None else decide(request)

        return Agent(
            tools=[*world.tools(), *more],
            llm="scripted",
            sandbox="local",
            host=self.host,
            journal="test",
            on_confirm=on_confirm,
            **options,
        )


def calls_of(events: Sequence[ev.Event]) -> list[Any]:
    return [e for e in events if isinstance(e, ev.CallFinished)]


def prints_of(events: Sequence[ev.Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, ev.Printed))


def untimed(writes: Sequence[str]) -> list[str]:
    """The written text, without the times, which are new if none was recorded."""
    moment = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+|\b\d{10}$")
    return sorted(moment.sub("…", text) for text in writes)


def replayed(model: ScriptedModel, events: Sequence[ev.Event]) -> None:
    """Script the model with the answers that these events do not contain."""
    message = sum(isinstance(e, ev.ModelReplied) for e in events)
    model.replies.clear()
    model.writes(*[FIRST, SECOND][message:])


async def recorded(bench: Bench, agent: Agent) -> Sequence[ev.Event]:
    """The journal of a task that was done."""
    done = (await agent.arun("x")).raise_for_status()
    return await bench.journal.read(done.trace.task_id)
