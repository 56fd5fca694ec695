"""A task of a queue that failed because a service was away is tried again, and repeats nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from delf import Agent, tool
from delf.errors import ConnectionUnavailableError, ToolExecutionError
from delf.events import CallStarted, Event, ModelReplied, TaskFinished, TaskPostponed, TaskQueued
from delf.types import TaskState
from delf_journal_sql import SqlJournal

Open = Callable[..., SqlJournal]
AND_ON = "try:\n    await stock()\nexcept ToolError:\n    await note(1)\n    raise"
BESIDE = "import asyncio\nawait asyncio.gather(late(), stock())"


class Shop:
    """A service that does not answer at first, with a record of its orders."""

    def __init__(self, away: int, error: type[Exception] = ConnectionUnavailableError) -> None:
        self.away, self.error = away, error
        self.wrote: list[int] = []

    def tools(self) -> list[Any]:
        @tool(effect="write", confirm=False)
        async def note(number: int) -> int:
            """Write a number down."""
            self.wrote.append(number)
            return number

        @tool(effect="write", confirm=False)
        async def order(number: int) -> int:
            """Order something."""
            self._answer()
            return number

        @tool(effect="read", confirm=False)
        async def stock() -> int:
            """The number of rows."""
            self._answer()
            return 7

        @tool(effect="write", confirm=False)
        async def late() -> None:
            """Order something, and never come to an end."""
            await asyncio.Event().wait()

        return [note, order, stock, late]

    def _answer(self) -> None:
        if self.away:
            self.away -= 1
            raise self.error("the shop does not answer")


@pytest.fixture
def make_agent(
    delf_host: Any, scripted_model: Any, monkeypatch: pytest.MonkeyPatch, journal_url: str
) -> Callable[[Shop], Agent]:
    monkeypatch.setenv("DELF_JOURNAL_SQL_URL", journal_url)

    def make(shop: Shop, **more: Any) -> Agent:
        given: Any = {"llm": "scripted", "sandbox": "local", "host": delf_host, "journal": "sql"}
        return Agent(tools=shop.tools(), **given, **more)

    return make


async def queued(journal: SqlJournal) -> str:
    """Return a task that waits for a runner."""
    event = TaskQueued(task_id="t", seq=1, at=time.time(), task="Do it.", queue="q")
    await journal.append(event)
    return "t"


async def attempts(agent: Agent, name: str, retries: int, after: float = 0.001) -> str:
    """Run one attempt of a task, and return the task's state after it."""
    await agent.aresume(name, retries=retries, retry_after=after)
    return (await agent.apoll(name)).state


def counted(events: Sequence[Event], kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in events)


async def test_retry_continues_after_the_last_failure_without_repeating_writes(
    make_agent: Any, scripted_model: Any, open_journal: Open, journal_url: str
) -> None:
    script = "await note(1)\nprint('first')\nn = await stock()\nawait note(n)\nprint(n)"
    scripted_model.writes(script)
    shop, journal = Shop(away=2), open_journal(journal_url)
    async with make_agent(shop) as agent:
        name = await queued(journal)
        for number in (1, 2):
            assert await attempts(agent, name, retries=3) == "queued"
            record = await journal.task(name)
            assert (record.state, record.tries, record.queue) == ("queued", number, "q")
            assert "the shop does not answer" in (record.error or "")
            assert shop.wrote == [1]
        assert await attempts(agent, name, retries=3) == "done"
        response = await asyncio.to_thread(agent.wait, name)
    assert shop.wrote == [1, 7]
    assert response.text == "first\n7"
    events = await journal.read(name)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert counted(events, TaskPostponed) == 2
    assert counted(events, TaskFinished) == counted(events, ModelReplied) == 1
    assert [e.action for e in events if isinstance(e, CallStarted)] == ["note", "stock", "note"]
    assert (await journal.task(name)).error is None


async def test_retries_are_limited_with_growing_delays(
    make_agent: Any, scripted_model: Any, open_journal: Open, journal_url: str
) -> None:
    scripted_model.writes("print(await stock())")
    journal = open_journal(journal_url)
    async with make_agent(Shop(away=9)) as agent:
        name = await queued(journal)
        assert await attempts(agent, name, retries=2, after=100) == "queued"
        assert await attempts(agent, name, retries=2, after=100) == "queued"
        assert await attempts(agent, name, retries=2, after=100) == "failed"
    events = await journal.read(name)
    waits = [e.not_before - e.at for e in events if isinstance(e, TaskPostponed)]
    assert [e.tries for e in events if isinstance(e, TaskPostponed)] == [1, 2]
    end = events[-1]
    assert isinstance(end, TaskFinished)
    assert end.hint
    assert {e.hint for e in events if isinstance(e, TaskPostponed)} == {end.hint}
    assert waits == [pytest.approx(100, abs=30), pytest.approx(200, abs=30)]
    assert (await journal.task(name)).state == "failed"


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("await order(1)", ConnectionUnavailableError),  # it may have come there
        (AND_ON, ConnectionUnavailableError),  # with another answer it would do something else
        (BESIDE, ConnectionUnavailableError),  # nobody knows whether the other call was done
        ("await stock()", ToolExecutionError),  # an answer, if none that one likes
        ("await late()", ConnectionUnavailableError),  # its time is over
        ("raise ValueError('no')", ConnectionUnavailableError),
    ],
)
async def test_non_retryable_failure_is_final(
    make_agent: Any,
    scripted_model: Any,
    open_journal: Open,
    journal_url: str,
    script: str,
    error: type[Exception],
) -> None:
    scripted_model.writes(script)
    journal = open_journal(journal_url)
    async with make_agent(Shop(away=1, error=error), retry_count=0) as agent:
        name = await queued(journal)
        await agent.aresume(name, 1.0 if "late" in script else 60.0, retries=3, retry_after=0.001)
        assert (await agent.apoll(name)).state is TaskState.FAILED
    assert counted(await journal.read(name), TaskPostponed) == 0


async def test_task_waiting_for_a_retry_can_be_stopped(
    make_agent: Any, scripted_model: Any, open_journal: Open, journal_url: str
) -> None:
    scripted_model.writes("print(await stock())")
    journal = open_journal(journal_url)
    async with make_agent(Shop(away=1)) as agent:
        name = await queued(journal)
        assert await attempts(agent, name, retries=2) == "queued"
        assert await asyncio.to_thread(agent.cancel, name)
    assert (await journal.task(name)).state == "stopped"
