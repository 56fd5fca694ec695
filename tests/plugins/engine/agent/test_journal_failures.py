"""Tests that a task with a failing journal does nothing that a resumed task would not know."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from delf import Agent, AlreadyDone, Approved, UnrecordedCallError, UnrecordedEventError, tool
from delf import events as ev
from delf.errors import OutcomeUnknownError, TaskStoppedError
from delf.protocols.approval import DecidedBy, Decider
from delf.specs import ApprovalSpec, JournalSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.journal.in_process import InProcessJournal
from support.until import until

STUBBORN = """
for text in ("a", "b"):
    try:
        print(await write(text))
    except BaseException as error:
        print("failed:", error)
print("end")
"""


WRITTEN = "wrote a\nwrote b\nend"


class FullJournal(InProcessJournal):
    """A journal that fails to store some events."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Callable[[ev.Event], bool] = lambda _: False

    async def append(self, event: ev.Event) -> None:
        if self.refuses(event):
            raise OSError("the disk is full")
        await super().append(event)


class Bench:
    """An agent with a tool that writes, and with a journal that fails."""

    def __init__(self, host: TestHost, model: ScriptedModel) -> None:
        self.host, self.model = host, model
        self.journal = FullJournal()
        self.asked: list[Any] = []
        self.written: list[str] = []
        host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: self.journal)

    def agent(self, more: Sequence[Any] = (), **options: Any) -> Agent:
        @tool(effect="write", confirm=False)
        async def write(text: str) -> str:
            """Write."""
            self.written.append(text)
            return f"wrote {text}"

        def on_confirm(request: Any) -> Any:
            self.asked.append(request)
            return AlreadyDone(result="looked up")

        return Agent(
            tools=[write, *more],
            llm="scripted",
            sandbox="local",
            host=self.host,
            journal="test",
            **{"on_confirm": on_confirm, **options},
        )


@pytest.fixture
def bench(delf_host: TestHost, scripted_model: ScriptedModel) -> Bench:
    return Bench(delf_host, scripted_model)


def is_end_of_call(event: ev.Event) -> bool:
    return isinstance(event, ev.CallFinished)


async def test_task_stops_if_a_call_end_cannot_be_journalled(bench: Bench) -> None:
    """The script does nothing more, and a person is asked about the call on resume."""
    bench.model.writes(STUBBORN)
    bench.journal.refuses = is_end_of_call
    async with bench.agent() as agent:
        stopped = await agent.arun("Write.")
        assert isinstance(stopped.exception, UnrecordedCallError)
        assert "write (call 1)" in (stopped.error or "")
        assert "the disk is full" in (stopped.error or "")
        assert bench.written == ["a"]
        task = stopped.trace.task_id
        events = await bench.journal.read(task)
        assert not any(isinstance(e, (ev.Printed, ev.TaskFinished)) for e in events)
        bench.journal.refuses = lambda _: False
        response = (await agent.aresume(task)).raise_for_status()
    assert response.text == "looked up\nwrote b\nend"
    assert [(r.action, r.outcome_unknown) for r in bench.asked] == [("write", True)]
    assert bench.written == ["a", "b"]


@pytest.mark.parametrize(
    "kind",
    [
        ev.StepStarted,
        ev.ModelReplied,
        ev.ScriptGenerated,
        ev.CallStarted,
        ev.ScriptFinished,
        ev.StepFinished,
    ],
)
async def test_task_that_lost_an_event_is_resumed_without_repeating_a_call(
    bench: Bench, kind: type[ev.Event]
) -> None:
    """The journal fails once, and works again before the task stops."""
    bench.model.writes(STUBBORN)
    lost = list[ev.Event]()

    def refuses_first(event: ev.Event) -> bool:
        if isinstance(event, kind) and not lost:
            lost.append(event)
            return True
        return False

    bench.journal.refuses = refuses_first
    async with bench.agent() as agent:
        stopped = await agent.arun("Write.")
        assert isinstance(stopped.exception, UnrecordedEventError)
        assert f"did not store {kind.__name__}: " in (stopped.error or "")
        if not bench.model.replies:
            bench.model.writes(STUBBORN)  # for a reply that the journal does not have
        response = (await agent.aresume(stopped.trace.task_id)).raise_for_status()
    assert response.text == WRITTEN
    assert bench.written == ["a", "b"]
    assert bench.asked == []


async def test_answer_of_a_task_whose_end_is_not_journalled_is_returned(bench: Bench) -> None:
    bench.model.writes(STUBBORN)
    bench.journal.refuses = lambda event: isinstance(event, ev.TaskFinished)
    async with bench.agent() as agent:
        ended = await agent.arun("Write.")
        assert (type(ended.exception), ended.text) == (UnrecordedEventError, WRITTEN)
        bench.journal.refuses = lambda _: False
        response = (await agent.aresume(ended.trace.task_id)).raise_for_status()
    assert (response.text, bench.written) == (WRITTEN, ["a", "b"])


async def test_resumed_task_knows_an_outcome_missing_from_the_journal(bench: Bench) -> None:
    bench.model.writes(STUBBORN)
    bench.journal.refuses = is_end_of_call
    async with bench.agent() as agent:
        task = (await agent.arun("Write.")).trace.task_id
        again = await agent.aresume(task)
        assert isinstance(again.exception, UnrecordedCallError)
        assert bench.written == ["a"]
        bench.journal.refuses = lambda _: False
        response = (await agent.aresume(task)).raise_for_status()
    assert response.text == "looked up\nwrote b\nend"
    assert len(bench.asked) == 1, "the answer is in the journal"


LOST = """
for turn in (1, 2):
    try:
        print(await pay(10))
    except ToolError as error:
        print("failed:", error)
    if turn == 1:
        print(await write("a"))
"""


async def test_call_with_a_lost_answer_requires_approval_after_resume(bench: Bench) -> None:
    """The first process recorded the lost answer; the second one makes the same call again."""
    paid: list[int] = []

    @tool(effect="write", confirm=False)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        raise OutcomeUnknownError("no answer, so it may have been done")

    bench.model.writes(LOST)
    bench.journal.refuses = lambda event: is_end_of_call(event) and bool(bench.written)
    async with bench.agent([pay]) as agent:
        stopped = await agent.arun("Pay.")
        assert isinstance(stopped.exception, UnrecordedCallError)
        bench.journal.refuses = lambda _: False
        response = (await agent.aresume(stopped.trace.task_id)).raise_for_status()
    assert [(r.action, r.outcome_unknown) for r in bench.asked] == [("write", True), ("pay", True)]
    assert paid == [10]
    assert response.text == "failed: no answer, so it may have been done\nlooked up\nlooked up"


async def test_task_ends_although_its_journal_cannot_be_written(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The task ends anyway; its error is the call whose end was not recorded."""
    bench.model.writes(STUBBORN)
    full = False

    def refuses(event: ev.Event) -> bool:
        nonlocal full
        full = full or is_end_of_call(event)
        return full

    bench.journal.refuses = refuses
    async with bench.agent() as agent:
        stopped = await agent.arun("Write.")
    assert isinstance(stopped.exception, UnrecordedCallError)
    assert bench.written == ["a"]
    assert "its journal cannot be written" in caplog.text


async def test_stopped_task_ends_although_its_end_cannot_be_journalled(bench: Bench) -> None:
    """The program that waits gets an end, and the task can be forked."""
    begun = asyncio.Event()

    @tool(effect="read", confirm=False)
    async def wait() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    bench.model.writes("await wait()")
    async with bench.agent([wait]) as agent:
        running = asyncio.create_task(agent.arun("Wait."))
        await begun.wait()
        (record,) = await bench.journal.find()
        bench.journal.refuses = lambda event: isinstance(event, ev.TaskFinished)
        assert await agent.acancel(record.task_id, by="ann")
        response = await running
        assert isinstance(response.exception, TaskStoppedError)
        assert "its end is not in the journal" in (response.error or "")
        assert not any(isinstance(e, ev.TaskFinished) for e in response.events)
        assert await agent.afork(record.task_id)


async def test_vote_that_could_not_be_journalled_can_be_repeated(bench: Bench) -> None:
    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    refused: list[ev.Event] = []
    voted: list[ev.Event] = []

    def refuses_first_vote(event: ev.Event) -> bool:
        if not isinstance(event, ev.ApprovalVoted):
            return False
        (voted if refused else refused).append(event)
        return not voted

    bench.journal.refuses = refuses_first_vote
    # Ann approves in vain, then Bo, and at last Ann again.
    turns = (("ann", [0]), ("bo", refused), ("ann", voted))
    for number, (name, earlier) in enumerate(turns):
        spec = ApprovalSpec(name=f"turn{number}", summary="A turn.", factory="x:y")
        bench.host.provide(spec, functools.partial(Voter, name, earlier))
    bench.model.writes("print(await pay())")
    options = {
        "approvals": ["turn0", "turn1", "turn2"],
        "approval_rules": {"pay": {"two_of": ["ann", "bo"]}},
        "on_confirm": None,
    }
    async with bench.agent([pay], **options) as agent:
        response = (await agent.arun("Pay.")).raise_for_status()
    assert response.text == "paid"
    (decided,) = [e for e in response.events if isinstance(e, ev.ApprovalDecided)]
    assert (decided.by, decided.others) == ("ann", ("bo",))


class SlowJournal(FullJournal):
    """A journal that stores votes after the requests have expired."""

    async def append(self, event: ev.Event) -> None:
        if isinstance(event, ev.ApprovalVoted):
            expired_at = time.monotonic() + 0.4
            await until(lambda: time.monotonic() > expired_at)
        await super().append(event)


async def test_votes_before_the_timeout_count_although_the_journal_is_slow(bench: Bench) -> None:
    @tool(effect="write")
    async def pay() -> str:
        """Pay."""
        return "paid"

    bench.journal = SlowJournal()
    for name in ("ann", "bo"):
        spec = ApprovalSpec(name=name, summary="A person.", factory="x:y")
        bench.host.provide(spec, functools.partial(Voter, name, [0]))
    bench.model.writes("print(await pay())")
    options = {
        "approvals": ["ann", "bo"],
        "approval_rules": {"pay": {"two_of": ["ann", "bo"]}},
        "approval_timeout": 0.2,
        "on_confirm": None,
    }
    async with bench.agent([pay], **options) as agent:
        response = (await agent.arun("Pay.")).raise_for_status()
    assert response.text == "paid"


class Voter:
    """A channel of a person who approves after an earlier vote."""

    def __init__(self, name: str, earlier: Sequence[Any]) -> None:
        self.name, self.earlier = name, earlier

    async def decide(self, _: Any) -> DecidedBy:
        await until(lambda: bool(self.earlier))
        return DecidedBy(decision=Approved(), who=Decider(name=self.name, user=self.name))


GIVES_UP = """
try:
    said = await asyncio.wait_for(wait(), 0.1)
except TimeoutError:
    said = "late"
await write(said)
print("end", said)
"""


async def test_submitted_task_whose_end_is_not_journalled_is_interrupted(bench: Bench) -> None:
    bench.model.writes(STUBBORN)
    bench.journal.refuses = is_end_of_call
    async with bench.agent() as agent:
        task = await agent.asubmit("Write.")
        assert isinstance((await agent.await_task(task)).exception, UnrecordedCallError)
        assert (await agent.apoll(task)).state == "interrupted"
        bench.journal.refuses = lambda _: False
        response = (await agent.aresume(task)).raise_for_status()
        assert (await agent.apoll(task)).state == "done"
        assert (await agent.await_task(task)).text == response.text
