"""Tests that a task abandoned at any event repeats nothing when it is resumed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, AlreadyDone, Approved, Chat, Connection, action, tool
from delf import events as ev
from delf.errors import AgentStateError
from delf.protocols.connection import Allowed, NeedsApproval
from delf.specs import JournalSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.journal.in_process import InProcessJournal
from delf_journal_sql import SqlJournal
from support.cut_journal import CutJournal
from support.forks import kill_guests

SCRIPT = """
import asyncio
print("begin")
print(await write("a"))
print(await write_in_thread("b"))
print(await asyncio.gather(write("c"), write_in_thread("d"), bank.pay("e")))
print(await send("f"))
print("end")
"""
ALL = Counter("abcdef")
TURNS = 400
"""Turns of the event loop in which a sandbox comes to its next call."""


class HeldJournal(InProcessJournal):
    """A journal that takes some turns of the loop to store each event, and reports each event."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self._before = before
        self.at: Callable[[int], None] = lambda _: None
        self.count = 0

    async def append(self, event: ev.Event) -> None:
        self.count += 1
        self.at(self.count)
        if self._before:
            await self._hold()
        await super().append(event)
        if not self._before:
            await self._hold()

    async def _hold(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)


class World:
    """Records what was really done, and which task asked for it."""

    def __init__(self, host: TestHost, model: ScriptedModel, journal: InProcessJournal) -> None:
        self.check_begun, self.may_pass = asyncio.Event(), asyncio.Event()
        self.may_pass.set()
        self.done: Counter[str] = Counter()
        self.asked_again: list[str] = []
        self._host = host
        model.default = f"```python\n{SCRIPT}\n```"
        self._journal = journal
        self.options: dict[str, Any] = {}

    def agent(self) -> Agent:
        done, check_begun, may_pass = self.done, self.check_begun, self.may_pass

        @tool(effect="write", confirm=False)
        async def write(text: str) -> str:
            """Write."""
            done[text] += 1
            for _ in range(TURNS):
                await asyncio.sleep(0)
            return text

        @tool(effect="write", confirm=False)
        def write_in_thread(text: str) -> str:
            """Write."""
            done[text] += 1
            return text

        @tool(effect="irreversible", confirm=True)
        async def send(text: str) -> str:
            """Send."""
            done[text] += 1
            return text

        class Bank(Connection):
            """A bank that takes a moment to check a payment."""

            @action(effect="irreversible")
            async def pay(self, text: str) -> str:
                """Pay."""
                done[text] += 1
                return text

            async def check(self, call: Any) -> Allowed | NeedsApproval:
                check_begun.set()
                await may_pass.wait()
                return Allowed()

        journal = self._journal
        spec = JournalSpec(name="held", factory="x:y", summary="x")
        self._host.provide(spec, lambda: journal)
        return Agent(
            tools=[write, write_in_thread, send, Bank(confirm=False)],
            llm="scripted",
            sandbox="local",
            host=self._host,
            journal="held",
            on_confirm=self._decide,
            **self.options,
        )

    async def _decide(self, request: Any) -> Any:
        await asyncio.sleep(0)
        if not request.outcome_unknown:
            return True
        text = request.arguments["text"]
        self.asked_again.append(text)
        return AlreadyDone(result=text) if self.done[text] else Approved()


class HeldPrints(InProcessJournal):
    """A journal that stores the output of scripts only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.go = asyncio.Event(), asyncio.Event()

    async def append(self, event: ev.Event) -> None:
        if isinstance(event, ev.Printed):
            self.held.set()
            await self.go.wait()
        await super().append(event)


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def test_call_checked_while_its_task_is_abandoned_is_not_made(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    """The call's record would follow the last record of this process."""
    journal = HeldPrints()
    world = World(delf_host, scripted_model, journal)
    scripted_model.default = "```python\nprint('begin')\nprint(await bank.pay('e'))\n```"
    agent = world.agent()
    await agent.astart()
    world.may_pass.clear()
    work = asyncio.ensure_future(agent.arun("Pay."))
    await journal.held.wait()
    await world.check_begun.wait()
    stopping = asyncio.ensure_future(agent.astop(keep_resumable=True))
    await turns()
    world.may_pass.set()
    await turns()
    journal.go.set()
    await stopping
    await asyncio.gather(work, return_exceptions=True)
    assert not world.done
    (record,) = await journal.find()
    async with world.agent() as second:
        response = (await second.aresume(record.task_id)).raise_for_status()
    assert response.text == "begin\ne"
    assert world.done == {"e": 1}
    assert world.asked_again == []


@pytest.mark.parametrize("how", ["it is left", "its sandbox dies"])
async def test_call_of_an_earlier_process_keeps_its_unknown_outcome(
    delf_host: TestHost, scripted_model: ScriptedModel, how: str
) -> None:
    """That a later process did not repeat the call says nothing about the first attempt."""
    journal = CutJournal()
    world = World(delf_host, scripted_model, journal)
    scripted_model.default = "```python\nprint(await bank.pay('e'))\n```"
    async with world.agent() as agent:
        task_id = (await agent.arun("Pay.")).trace.task_id
    await journal.ended_with(task_id, ev.CallStarted)
    world.check_begun.clear()
    world.may_pass.clear()
    agent = world.agent()
    await agent.astart()
    work = asyncio.ensure_future(agent.aresume(task_id))
    await world.check_begun.wait()
    if how == "it is left":
        await agent.astop(keep_resumable=True)
        await asyncio.gather(work, return_exceptions=True)
        world.may_pass.set()
        async with world.agent() as last:
            response = await last.aresume(task_id)
    else:
        kill_guests()
        world.check_begun.clear()
        await world.check_begun.wait()
        world.may_pass.set()
        response = await work
        await agent.astop()
    assert response.raise_for_status().text == "e"
    assert world.done == {"e": 1}
    assert world.asked_again == ["e"]


async def live(world: World, journal: HeldJournal, task_id: str, last: int) -> str:
    """Work on the task until a number of further events are being stored; return its id."""
    agent = world.agent()
    await agent.astart()
    leave = asyncio.Event()
    journal.count = 0
    journal.at = lambda count: leave.set() if count == last else None
    work = asyncio.ensure_future(agent.aresume(task_id) if task_id else agent.arun("Do it."))
    left = asyncio.ensure_future(leave.wait())
    await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
    await agent.astop(keep_resumable=True)
    await asyncio.gather(work, return_exceptions=True)
    left.cancel()
    (record,) = await journal.find()
    return record.task_id


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False], ids=["before it is kept", "after"])
async def test_task_abandoned_at_any_event_repeats_nothing(
    delf_host: TestHost, scripted_model: ScriptedModel, before: bool
) -> None:
    """The task is abandoned twice: at each of its events, and soon after it is resumed."""
    for place in range(1, 100, 3):
        journal = HeldJournal(before)
        world = World(delf_host, scripted_model, journal)
        task_id = await live(world, journal, "", place)
        if (await journal.find())[0].state == "done":
            break
        await live(world, journal, task_id, 4)
        await live(world, journal, task_id, 0)
        assert world.done == ALL, place
        events = await journal.read(task_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1)), place
        assert events[-1].text == "begin\na\nb\n['c', 'd', 'e']\nf\nend", place
        begun = {e.arguments["text"] for e in events if isinstance(e, ev.CallStarted)}
        assert begun == set(ALL), place
    assert place > 10


@pytest.mark.slow
async def test_fork_of_an_abandoned_task_repeats_nothing_without_asking(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> None:
    """The fork continues from the last stored event, beside the abandoned task."""
    for place in range(4, 100, 6):
        journal = HeldJournal(before=True)
        world = World(delf_host, scripted_model, journal)
        task_id = await live(world, journal, "", place)
        if (await journal.find())[0].state == "done":
            break
        kept = await journal.read(task_id)
        async with world.agent() as agent:
            other = await agent.afork(task_id, kept[-1].seq)
            response = await agent.aresume(other)
        assert response.raise_for_status().text.endswith("f\nend"), place
        assert world.done == ALL, place
        assert await journal.read(task_id) == kept, "the other task is as it was"
    assert place > 10


class Learns:
    """A memory that takes some turns of the loop to save a fact."""

    def __init__(self) -> None:
        self.facts: list[str] = []

    async def search(self, query: str, top_k: int = 5, threshold: float = 0.3) -> Any:
        return ()

    async def save(self, facts: Any) -> None:
        await turns()
        self.facts += [fact for fact in facts if fact not in self.facts]
        await turns()

    async def all(self, *_: Any, **__: Any) -> Any:
        return ()

    async def delete(self, *_: Any) -> int:
        return 0

    async def clear(self) -> int:
        return 0

    async def aclose(self) -> None: ...


@pytest.mark.slow
async def test_conversation_turn_abandoned_at_any_event_is_kept_once(
    delf_host: TestHost, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    """The task is abandoned while it works, while it learns, and while its turn is stored."""
    for place in range(1, 100, 6):
        journal = HeldJournal(before=True)
        world = World(delf_host, scripted_model, journal)
        script = "print(await write('a'))\nprint(await bank.pay('e'))"
        scripted_model.default = lambda request, script=script: (
            '["x is done"]' if request.purpose == "learn" else f"```python\n{script}\n```"
        )

        def turn(made: World = world, at: int = place) -> None:
            chat = Chat(persist=True, path=str(tmp_path / f"chat-{at}.db"))
            made.options = {"chat": chat, "memory": Learns(), "learn": True}

        turn()
        task_id = await live(world, journal, "", place)
        is_done = (await journal.find())[0].state == "done"
        if not is_done:
            turn()
            await live(world, journal, task_id, 0)
        assert world.done == Counter("ae"), place
        kept = Chat(persist=True, path=str(tmp_path / f"chat-{place}.db"))
        words = [(message.role, message.content) for message in (await kept.astate()).messages]
        await kept.aclose()
        assert words == [("user", "Do it."), ("assistant", "a\ne")], place
        events = await journal.read(task_id)
        assert len([e for e in events if isinstance(e, ev.FactsLearned)]) == 1, place
        if is_done:
            break
    assert place > 10


class HeldReads(SqlJournal):
    """A journal that reads a task only when the test lets it."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.comes, self.goes_on = asyncio.Event(), asyncio.Event()

    async def read(self, task_id: str, after: int = 0) -> Any:
        self.comes.set()
        await self.goes_on.wait()
        return await super().read(task_id, after)


async def test_task_resumed_during_agent_stop_can_be_claimed_again(
    delf_host: TestHost, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    scripted_model.default = "```python\nprint(await write())\n```"
    is_first, begun = True, asyncio.Event()

    @tool(effect="read", confirm=False)
    async def write() -> str:
        """Write."""
        begun.set()
        if is_first:
            await asyncio.Event().wait()
        return "written"

    def agent(journal: SqlJournal) -> Agent:
        spec = JournalSpec(name="shared", factory="x:y", summary="x", durable=True)
        delf_host.provide(spec, lambda: journal)
        return Agent(
            tools=[write], llm="scripted", host=delf_host, sandbox="local", journal="shared"
        )

    ids: list[str] = []
    first = agent(SqlJournal(url))
    work = asyncio.create_task(first.arun("Do it.", listeners=[lambda e: ids.append(e.task_id)]))
    await begun.wait()
    await first.astop(keep_resumable=True)
    await asyncio.gather(work, return_exceptions=True)

    journal = HeldReads(url)
    second = agent(journal)
    await second.astart()
    work = asyncio.create_task(second.aresume(ids[0]))
    await journal.comes.wait()
    stopping = asyncio.create_task(second.astop(keep_resumable=True))
    for _ in range(TURNS):
        await asyncio.sleep(0)
    journal.goes_on.set()
    await stopping
    with pytest.raises(AgentStateError, match="the agent was stopped"):
        await work

    is_first = False
    async with agent(SqlJournal(url)) as third:
        assert (await third.aresume(ids[0])).raise_for_status().text == "written"
