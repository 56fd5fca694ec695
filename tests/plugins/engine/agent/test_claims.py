"""Tests that only one agent at a time resumes a task, even in one process with one journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from delf import Agent, tool
from delf import events as ev
from delf.errors import (
    ConfigurationError,
    DelfError,
    JournalUnavailableError,
    TaskTimeoutError,
)
from delf.protocols.journal import Journal
from delf.specs import JournalSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_journal_sql import SqlJournal

Open = Callable[[], Journal]
Make = Callable[..., Agent]


@pytest.fixture(params=["shared", "one each"])
async def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that opens the journal for an agent."""
    made: list[Any] = []

    def opened() -> Any:
        if request.param == "one each" or not made:
            made.append(SqlJournal(f"sqlite:///{tmp_path}/j.db"))
        return made[-1]

    yield opened
    for journal in made:
        await journal.aclose()


@pytest.fixture
def make(delf_host: TestHost, scripted_model: ScriptedModel, journals: Open) -> Make:
    delf_host.provide(JournalSpec(name="test", factory="x:y", summary="x"), journals)
    scripted_model.writes("print(await look(1))")
    options: dict[str, Any] = {"llm": "scripted", "sandbox": "local", "journal": "test"}
    return lambda *tools: Agent(tools=tools, host=delf_host, **options)


SCRIPT = "print(await look(1))"


class Desk:
    """A tool that records its calls, and returns when the test lets it."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.calls: list[int] = []

        @tool(effect="read", confirm=False)
        async def look(n: int) -> int:
            """Look."""
            self.calls.append(n)
            self.begun.set()
            await self.go_on.wait()
            return n

        self.look = look


async def interrupted(journal: Any, *more: ev.Event) -> str:
    """Put a task into the journal on which no process works."""
    started = ev.TaskStarted(task_id="task_1", seq=1, at=1.0, task="Look.", seed="a")
    script = ev.ScriptGenerated(task_id="task_1", seq=2, at=1.0, code=SCRIPT, attempt=1)
    for place, event in enumerate((started, script, *more), 1):
        await journal.append(replace(event, seq=place))
    await journal.release("task_1")
    return "task_1"


async def test_second_agent_cannot_resume_a_claimed_task(make: Make, journals: Open) -> None:
    desk = Desk()
    task = await interrupted(journals())
    async with make(desk.look) as one, make(desk.look) as other:
        resuming = [asyncio.ensure_future(agent.aresume(task)) for agent in (one, other)]
        await desk.begun.wait()
        (late,) = (await asyncio.wait(resuming, return_when=asyncio.FIRST_COMPLETED))[0]
        assert isinstance(late.exception(), DelfError)
        assert "is being worked on by another agent" in str(late.exception())
        desk.go_on.set()
        (first,) = [work for work in resuming if work is not late]
        assert (await first).raise_for_status().text == "1"
        assert (await other.aresume(task)).text == "1", "what is over is answered"
    assert desk.calls == [1]


async def test_running_task_can_only_be_awaited_by_another_agent(
    make: Make, journals: Open
) -> None:
    desk = Desk()
    async with make(desk.look) as one, make(desk.look) as other:
        first = asyncio.ensure_future(one.arun("Look."))
        await desk.begun.wait()
        (task,) = await journals().find()
        with pytest.raises(DelfError, match="is being worked on by another agent"):
            await other.aresume(task.task_id)
        with pytest.raises(TimeoutError, match=f"{task.task_id} has not ended within 0.01 s"):
            await other.await_task(task.task_id, 0.01)
        desk.go_on.set()
        assert (await first).raise_for_status().text == "1"
        assert (await other.aresume(task.task_id)).text == "1"
    assert desk.calls == [1]


async def test_task_whose_timeout_is_not_recorded_can_be_resumed_elsewhere(
    make: Make, journals: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    append = SqlJournal.append

    async def append_without_end(self: SqlJournal, event: ev.Event) -> None:
        if isinstance(event, ev.TaskFinished) and not desk.go_on.is_set():
            raise JournalUnavailableError("the database does not answer")
        await append(self, event)

    monkeypatch.setattr(SqlJournal, "append", append_without_end)
    async with make(desk.look) as one, make(desk.look) as other:
        late = await one.arun("Look.", timeout=0.5)
        assert isinstance(late.exception, TaskTimeoutError)
        desk.go_on.set()
        resumed = await other.aresume(late.trace.task_id)
    assert resumed.raise_for_status().text == "1"


class ClosedChat:
    """A chat that finds no conversation."""

    @classmethod
    def of(cls, _value: Any) -> ClosedChat:
        return cls()

    def attach(self, context: Any) -> None:
        pass

    def conversation_for(self, conversation_id: str | None = None) -> Any:
        raise ConfigurationError(f"there is no conversation {conversation_id}")

    def in_memory(self) -> ClosedChat:
        return self

    async def aclose(self) -> None:
        pass


async def test_task_is_free_after_a_resume_that_cannot_begin(make: Make, journals: Open) -> None:
    desk = Desk()
    desk.go_on.set()
    task = await interrupted(journals())
    async with make(desk.look) as one, make(desk.look) as other:
        with pytest.raises(ConfigurationError, match="timeout"):
            await one.aresume(task, timeout=0)
        one.chat = cast("Any", ClosedChat())
        with pytest.raises(ConfigurationError, match="no conversation"):
            await one.aresume(task)
        assert (await other.aresume(task)).raise_for_status().text == "1"
