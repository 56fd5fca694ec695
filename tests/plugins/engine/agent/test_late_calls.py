"""Tests that calls which outlive their script or sandbox are awaited, and recorded once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from delf import Agent, AlreadyDone, Edited, tool
from delf import events as ev
from delf.errors import (
    SandboxUnavailableError,
    TaskStoppedError,
    TaskTimeoutError,
)
from delf.protocols.sandbox import Outcome, SandboxSession, ScriptHost, SessionSpec
from delf.specs import JournalSpec, SandboxSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.journal.in_process import InProcessJournal
from delf_engine.past_calls import past_calls
from delf_sandbox_local.backend import LocalBackend
from support.forks import kill_guests


class Bench:
    """An agent with tools that outlive their script."""

    def __init__(self, host: TestHost, model: ScriptedModel) -> None:
        self.host, self.model = host, model
        self.journal = InProcessJournal()
        self.asked: list[Any] = []
        self.answer: Any = True
        host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: self.journal)

    def agent(self, *tools: Any, **options: Any) -> Agent:
        def on_confirm(request: Any) -> Any:
            self.asked.append(request)
            return self.answer

        return Agent(
            tools=tools,
            llm="scripted",
            sandbox="local",
            host=self.host,
            journal="test",
            on_confirm=on_confirm,
            **options,
        )

    async def ends_of(self, task_id: str, action: str) -> Sequence[tuple[str, str | None]]:
        """Return how the calls of an action ended, according to the journal."""
        events = await self.journal.read(task_id)
        return [
            (e.status, e.cancellation)
            for e in events
            if isinstance(e, ev.CallFinished) and e.action == action
        ]


@pytest.fixture
def bench(delf_host: TestHost, scripted_model: ScriptedModel) -> Bench:
    return Bench(delf_host, scripted_model)


class Death:
    """Kills the sandbox once while another call runs, and records when its own call is cancelled."""

    SCRIPT = "print(await asyncio.gather(pay(5), die()))"

    def __init__(self) -> None:
        self.starts = 0
        self.loop = asyncio.get_running_loop()
        self.begun = asyncio.Event()
        self.message = threading.Event()

        @tool(effect="read", confirm=False)
        async def die() -> str:
            """Kill the sandbox once the other call has begun; return in the second life."""
            self.starts += 1
            if self.starts == 1:
                await self.begun.wait()
                kill_guests()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.message.set()
            return "back"

        self.die = die

    def begin(self) -> None:
        """Tell that the other call has begun; thread-safe."""
        self.loop.call_soon_threadsafe(self.begun.set)


async def test_task_stopped_after_its_own_timeout_does_not_blame_a_parent(bench: Bench) -> None:
    is_ending = asyncio.Event()

    @tool(effect="read", confirm=False)
    async def hold() -> None:
        """Take a while to end after a cancellation."""
        try:
            await asyncio.Event().wait()
        finally:
            is_ending.set()
            await asyncio.sleep(0.5)

    bench.model.writes("await hold()")
    async with bench.agent(hold, timeout=1) as agent:
        handle = await agent.asubmit("x")
        await is_ending.wait()
        await handle.acancel()
        with pytest.raises(TaskStoppedError):
            await handle
    events = await bench.journal.read(str(handle))
    (end,) = [e for e in events if isinstance(e, ev.TaskFinished)]
    assert "did not end within 1 s" in (end.error or "")


async def test_running_function_is_awaited_after_its_sandbox_died(bench: Bench) -> None:
    """The function's thread continues; its result is journalled before the script runs again."""
    death = Death()
    paid: list[int] = []

    @tool(effect="write", confirm=False)
    def pay(amount: int) -> str:
        """Pay."""
        death.begin()
        assert death.message.wait(50)
        paid.append(amount)
        return "receipt"

    bench.model.writes(death.SCRIPT)
    async with bench.agent(pay, death.die) as agent:
        response = (await agent.arun("Pay.")).raise_for_status()
    assert response.text == "['receipt', 'back']"
    assert paid == [5]
    assert bench.asked == []
    assert await bench.ends_of(response.trace.task_id, "pay") == [("ok", None)]


async def test_request_for_an_unfinished_call_names_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request says that the call may continue, because the journal has no end of it."""
    monkeypatch.setattr("delf_engine.scripts.LATE_SECONDS", 0.1)
    death = Death()
    go_on, ended = asyncio.Event(), asyncio.Event()

    @tool(effect="write", confirm=False)
    async def pay(amount: int) -> str:
        """Pay, whoever cancels it."""
        death.begin()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "late"

    bench.model.writes(death.SCRIPT)
    bench.answer = AlreadyDone(result="looked up")
    async with bench.agent(pay, death.die) as agent:
        response = (await agent.arun("Pay.")).raise_for_status()
        go_on.set()
        await ended.wait()
    assert response.text == "['looked up', 'back']"
    assert [(r.action, r.outcome_unknown) for r in bench.asked] == [("pay", True)]
    ends = await bench.ends_of(response.trace.task_id, "pay")
    assert ends == [("cancelled", "cut_off"), ("ok", None)]


class Abandoned:
    """A call that its script abandons, and that ends when the test lets it."""

    SCRIPT = (
        "given = asyncio.ensure_future(slow())\nawait under_way()\ngiven.cancel()\n"
        "await noticed()\nprint('end')"
    )

    def __init__(self, *, ends_at_once: bool = False) -> None:
        self.begun, self.abandoned, self.go_on, self.ended = (asyncio.Event() for _ in range(4))
        self.cleaned = False

        @tool(effect="write", confirm=False)
        async def slow() -> None:
            """Write, and clean up after having been cancelled."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.abandoned.set()
                try:
                    await self.go_on.wait()
                    self.cleaned = True
                finally:
                    self.ended.set()

        @tool(effect="read", confirm=False)
        async def under_way() -> None:
            """Wait until the other call has begun."""
            await self.begun.wait()

        @tool(effect="read", confirm=False)
        async def noticed() -> None:
            """Wait until the other call was cancelled."""
            await self.abandoned.wait()
            if ends_at_once:
                self.go_on.set()

        self.slow = slow
        self.tools = (slow, under_way, noticed)


@pytest.mark.parametrize("quick", [True, False])
async def test_call_finishing_after_the_task_is_not_recorded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    """An abandoned call may react late to its cancellation; the task waits only a short time."""
    monkeypatch.setattr("delf_engine.loop.pipeline.GRACE_SECONDS", 20 if quick else 0.05)
    call = Abandoned(ends_at_once=quick)
    bench.model.writes(call.SCRIPT)
    async with bench.agent(*call.tools) as agent:
        response = (await agent.arun("Write.")).raise_for_status()
        call.go_on.set()
        await call.ended.wait()
    assert response.text == "end"
    events = await bench.journal.read(response.trace.task_id)
    assert isinstance(events[-1], ev.TaskFinished)
    ends = await bench.ends_of(response.trace.task_id, "slow")
    assert [status for status, _ in ends] == ["cancelled"]


class Slow(InProcessJournal):
    """A journal that stores the first start of a task, but never returns from it."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = asyncio.Event()

    async def append(self, event: ev.Event) -> None:
        await super().append(event)
        if isinstance(event, ev.TaskStarted | ev.TaskResumed) and not self.kept.is_set():
            self.kept.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize("resumed", [False, True])
async def test_task_cancelled_at_its_start_records_its_end(bench: Bench, resumed: bool) -> None:
    bench.journal = journal = Slow()
    if resumed:
        begun = ev.TaskStarted(task_id="task_1", seq=1, at=1.0, task="Look.")
        await InProcessJournal.append(journal, begun)
    async with bench.agent() as agent:
        doing = agent.aresume("task_1") if resumed else agent.arun("Look.")
        work = asyncio.ensure_future(doing)
        await journal.kept.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    (task,) = await journal.find()
    assert task.state == "stopped"
    assert (await journal.read(task.task_id))[-1].error == "the task was stopped"


async def test_pending_request_is_asked_again_after_the_sandbox_died(bench: Bench) -> None:
    """The request keeps its id, so that answers from other processes still count."""
    death = Death()

    @tool(effect="write")
    async def pay(amount: int) -> str:
        """Pay."""
        return "receipt"

    def look(event: ev.Event) -> None:
        if isinstance(event, ev.ApprovalRequested):
            death.begin()
            requests.append(event.request_id)
            if len(requests) == 2:
                death.loop.call_soon(agent.approve, requests[0])

    requests: list[str] = []
    bench.model.writes(death.SCRIPT)
    bench.answer = None
    async with bench.agent(pay, death.die, wait_approvals=True) as agent:
        response = (await agent.arun("Pay.", listeners=[look])).raise_for_status()
    assert response.text == "['receipt', 'back']"
    events = await bench.journal.read(response.trace.task_id)
    story = [
        (e.request_id, e.decision if isinstance(e, ev.ApprovalDecided) else "")
        for e in events
        if isinstance(e, ev.ApprovalRequested | ev.ApprovalDecided)
    ]
    (name,) = {name for name, _ in story}
    assert story == [(name, ""), (name, "expired"), (name, ""), (name, "approved")]


async def test_decision_is_kept_if_the_sandbox_dies_before_the_call(
    bench: Bench,
) -> None:
    """The call's start was being recorded, so the call was not made, and nobody is asked again."""
    made: list[str] = []

    @tool(effect="write")
    async def write(text: str) -> str:
        """Write."""
        made.append(text)
        return f"wrote {text}"

    dying = True

    async def die(event: ev.Event, append: Any = bench.journal.append) -> None:
        nonlocal dying
        await append(event)
        if isinstance(event, ev.CallStarted) and dying:
            dying = False
            kill_guests()
            await asyncio.Event().wait()

    bench.journal.append = die
    bench.answer = Edited(arguments={"text": "b"})
    bench.model.writes("print(await write('a'))")
    async with bench.agent(write) as agent:
        response = (await agent.arun("Write.")).raise_for_status()
    assert response.text == "wrote b"
    assert made == ["b"]
    assert len(bench.asked) == 1
    ends = await bench.ends_of(response.trace.task_id, "write")
    assert ends == [("cancelled", "not_started"), ("ok", None)]
    assert [call.result for call in past_calls(response.events)] == ["wrote b"]


class StuckSession:
    """A session that raises an error of its service when it is closed."""

    def __init__(self, session: SandboxSession) -> None:
        self._session = session

    @property
    def alive(self) -> bool:
        return self._session.alive

    async def execute(self, code: str, host: ScriptHost) -> Outcome:
        return await self._session.execute(code, host)

    async def aclose(self) -> None:
        await self._session.aclose()
        raise SandboxUnavailableError("the service does not answer")


class StuckBackend(LocalBackend):
    """A backend whose sessions raise an error when they are closed."""

    async def open(self, spec: SessionSpec) -> Any:
        return StuckSession(await super().open(spec))


async def test_sandbox_that_fails_to_close_does_not_block_the_task_end(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(effect="read", confirm=False)
    async def wait() -> None:
        """Wait for good."""
        await asyncio.Event().wait()

    spec = SandboxSpec(name="stuck", summary="x", factory="x:y", isolation="process")
    bench.host.provide(spec, StuckBackend)
    bench.model.writes("await wait()")
    async with Agent(
        tools=[wait], llm="scripted", sandbox="stuck", host=bench.host, journal="test"
    ) as agent:
        response = await agent.arun("Wait.", timeout=2)
    assert isinstance(response.exception, TaskTimeoutError)
    events = await bench.journal.read(response.trace.task_id)
    assert isinstance(events[-1], ev.TaskFinished)
    assert "could not be closed" in caplog.text
    assert "the service does not answer" in caplog.text
