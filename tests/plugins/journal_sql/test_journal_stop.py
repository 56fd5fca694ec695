"""A task is stopped from anywhere that sees its journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from delf import Agent, tool
from delf.errors import DelfError, UnknownTaskError
from delf.events import StoppedBy, TaskFinished, TaskQueued, TaskStarted
from delf_journal_sql import stopping
from delf_journal_sql.inbox import STOP

Made = Callable[..., Agent]


class Waiting:
    """An action that says when it is called, and waits to be cancelled."""

    def __init__(self) -> None:
        self.called = asyncio.Event()
        self.cancelled = asyncio.Event()

    def tool(self) -> Any:
        @tool(effect="write", confirm=False)
        async def wait() -> None:
            """Wait."""
            self.called.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()

        return wait


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


@pytest.fixture
def make_agent(
    delf_host: Any, scripted_model: Any, monkeypatch: pytest.MonkeyPatch, journal_url: str
) -> Made:
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", journal_url)

    def make(*tools: Any, **options: Any) -> Agent:
        given: Any = {"llm": "scripted", "sandbox": "local", "host": delf_host, "journal": "sql"}
        return Agent(tools=list(tools), **given, **options)

    return make


async def test_stop_reaches_a_task_of_another_agent(
    make_agent: Made, scripted_model: Any, open_journal: Any, journal_url: str, waiting: Waiting
) -> None:
    scripted_model.writes("await wait()")
    journal = open_journal(journal_url)
    async with make_agent(waiting.tool()) as agent:
        work = asyncio.create_task(agent.arun("wait"))
        await waiting.called.wait()
        (record,) = await journal.find()
        assert await journal.stop(record.task_id, "a test")
        await waiting.cancelled.wait()
        response = await work
    assert (response.state, response.error) == ("stopped", "the task was stopped")
    assert (await journal.task(record.task_id)).state == "stopped"
    assert not await journal.stop(record.task_id, "a test")


async def test_stop_ends_a_task_waiting_for_a_permit(
    make_agent: Made, scripted_model: Any, open_journal: Any, journal_url: str, waiting: Waiting
) -> None:
    scripted_model.writes("await wait()")
    journal = open_journal(journal_url)
    async with make_agent(waiting.tool(), max_tasks=1) as agent:
        first = asyncio.create_task(agent.arun("first"))
        await waiting.called.wait()
        second = await agent.asubmit("second")
        assert await journal.stop(second, "a test")
        assert [type(event).__name__ for event in await journal.read(second)] == [
            "TaskQueued",
            "TaskFinished",
        ]
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_stopped_task_of_a_dead_process_is_not_resumed(
    make_agent: Made, scripted_model: Any, open_journal: Any, journal_url: str, waiting: Waiting
) -> None:
    scripted_model.writes("await wait()")
    journal = open_journal(journal_url)
    agent = await make_agent(waiting.tool()).astart()
    work = asyncio.create_task(agent.arun("wait"))
    await waiting.called.wait()
    (record,) = await journal.find()
    await agent.astop(keep_resumable=True)
    await asyncio.wait({work})
    assert isinstance(work.exception(), DelfError)
    assert (await journal.task(record.task_id)).state == "interrupted"
    assert await journal.stop(record.task_id, "a test")
    async with make_agent(waiting.tool()) as other:
        assert (await other.aresume(record.task_id)).state == "stopped"
    events = await journal.read(record.task_id)
    assert isinstance(events[-1], TaskFinished)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_stop_error_names_the_unresponsive_process(
    open_journal: Any, journal_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = open_journal(journal_url), open_journal(journal_url)
    await owner.append(TaskStarted(task_id="t", seq=1, at=1.0, task="Do it."))
    monkeypatch.setattr(stopping, "STOP_SECONDS", 0.0)
    with pytest.raises(DelfError, match=r"pid \d+ on .* has not stopped it yet"):
        await other.stop("t", "a test")
    assert await other.asked_to_stop(["t", "u"]) == {"t": StoppedBy("a test")}


async def test_stop_requests_are_found_before_and_after_a_task_is_watched(
    open_journal: Any, journal_url: str
) -> None:
    owner, other = open_journal(journal_url), open_journal(journal_url)
    for name in ("t", "u", "v"):
        await owner.append(TaskStarted(task_id=name, seq=1, at=1.0, task="Do it."))
    assert await owner.asked_to_stop(["t"]) == {}
    for name, person in (("t", "ada"), ("u", "ben"), ("t", "cy")):
        await other.post(name, STOP, {"by": person, "via": "page"})
    for _ in range(2):
        assert await owner.asked_to_stop(["t", "u", "v"]) == {
            "t": StoppedBy("ada", "page"),
            "u": StoppedBy("ben", "page"),
        }
    await other.post("v", STOP, {"by": "dee"})
    assert await owner.asked_to_stop(["v"]) == {"v": StoppedBy("dee")}
    assert await owner.asked_to_stop(["u"]) == {"u": StoppedBy("ben", "page")}


async def test_stop_ends_a_queued_task_at_once(
    make_agent: Made, open_journal: Any, journal_url: str
) -> None:
    journal, name = open_journal(journal_url), "t"
    queued = TaskQueued(task_id=name, seq=1, at=1.0, task="later", queue="night")
    await journal.append(queued)
    async with make_agent() as agent:
        assert await asyncio.to_thread(agent.cancel, name)
        assert not await asyncio.to_thread(agent.cancel, name)
        response = await asyncio.to_thread(agent.wait, name)
        assert response.state == "stopped"
        with pytest.raises(UnknownTaskError):
            await asyncio.to_thread(agent.cancel, "task_of_nobody")
    assert (await journal.task(name)).state == "stopped"
