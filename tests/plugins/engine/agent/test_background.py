"""Tests of background tasks, and of approvals from other threads and callers."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, Response, StreamEvent, UnknownRequestError, UnknownTaskError, tool
from delf.errors import AgentStateError, TaskLimitError, TaskStoppedError
from delf.events import ApprovalRequest, CallFinished, Event, TaskFinished, TaskStarted
from delf.messages import ModelDelta
from delf.specs import JournalSpec
from delf.types import TaskState
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script
from delf_engine.background import BackgroundTask
from delf_engine.calls.children import MAX_LEVELS
from delf_engine.elsewhere import wait_for_end
from delf_engine.journal.in_process import InProcessJournal
from support.until import until_now


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@tool(confirm=False)
async def nap(n: int) -> int:
    """Wait a moment."""
    await asyncio.sleep(0.01)
    return n


@pytest.fixture
def make_agent(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(**options: Any) -> Agent:
        options = {"tools": [pay, nap], "llm": "scripted", "sandbox": "local", **options}
        made.append(Agent(host=delf_host, **options))
        return made[-1]

    yield make
    for agent in made:
        agent.stop()


def first_request(agent: Agent) -> ApprovalRequest:
    """Wait for the first pending request, and return it."""
    return until_now(agent.get_pending_approvals)[0]


class TestSubmit:
    def test_concurrent_tasks_keep_separate_output_and_trace(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        def answer(request: Any) -> str:
            number = request.messages[-1].text.split("number ")[1]
            return f"```python\nprint(await nap({number}))\n```"

        scripted_model.default = answer
        agent = make_agent()
        ids = [agent.submit(f"number {n}") for n in range(20)]
        responses = [agent.wait(task_id, 30) for task_id in ids]
        assert [r.text for r in responses] == [str(n) for n in range(20)]
        assert [r.trace.tool_calls[0].result for r in responses] == list(range(20))
        snapshots = [agent.poll(task_id) for task_id in ids]
        assert {s.state for s in snapshots} == {"done"}
        assert all(
            s.is_terminal and s.result == r.text for s, r in zip(snapshots, responses, strict=True)
        )

    def test_unknown_task_id_raises(self, make_agent: Callable[..., Agent]) -> None:
        agent = make_agent()
        for ask in (agent.poll, agent.wait, agent.cancel):
            with pytest.raises(UnknownTaskError, match="task_nope"):
                ask("task_nope")
        with pytest.raises(UnknownTaskError, match="task_nope"):
            asyncio.run(agent.acancel("task_nope"))

    def test_unstarted_agent_finds_the_task_of_another_agent(
        self,
        delf_host: TestHost,
        make_agent: Callable[..., Agent],
        scripted_model: ScriptedModel,
    ) -> None:
        journal = InProcessJournal()
        spec = JournalSpec(name="shared", summary="x", factory="x:x")
        delf_host.provide(spec, lambda: journal)
        scripted_model.writes("print(1)")
        task_id = make_agent(journal="shared").run("x").trace.task_id
        assert make_agent(journal="shared").cancel(task_id) is False

    def test_failed_task_reports_failure(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("1 / 0")
        agent = make_agent(retry_count=0)
        task_id = agent.submit("x")
        assert not agent.wait(task_id, 30).status
        snapshot = agent.poll(task_id)
        assert (snapshot.state, snapshot.result) == (TaskState.FAILED, None)
        assert "ZeroDivisionError" in (snapshot.error or "")
        assert snapshot.to_dict()["state"] == "error"

    def test_cancel_stops_a_task_and_returns_whether_it_ran(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        began = threading.Event()

        @tool(confirm=False)
        def begin() -> None:
            """Begin."""
            began.set()

        scripted_model.writes("await begin()\nwhile True: pass", "print('next')")
        agent = make_agent(tools=[begin])
        task_id = agent.submit("x")
        assert began.wait(50)
        assert agent.poll(task_id).state == "running"
        assert agent.cancel(task_id) is True
        assert agent.cancel(task_id) is False
        with pytest.raises(TaskStoppedError, match=task_id):
            agent.wait(task_id)
        assert agent.run("y").text == "next"
        stopped = agent.poll(task_id)
        assert (stopped.state, stopped.is_terminal) == ("stopped", True)

    async def test_output_of_a_cancelled_task_is_kept(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        began = asyncio.Event()

        @tool(confirm=False)
        async def begin() -> None:
            """Begin."""
            began.set()

        scripted_model.writes(
            "print('of the first pass')\nrerun('a', 'b')",
            "print('of a failed script')\n1 / 0",
            "print('of the last')\nawait begin()\nwhile True: pass",
        )
        seen: list[Any] = []
        async with make_agent(tools=[begin]) as agent:
            task = asyncio.ensure_future(agent.arun("x", listeners=[seen.append]))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert seen[-1].text == "of the first pass\nof the last\n"

    def test_finished_tasks_are_evicted_in_order(
        self,
        make_agent: Callable[..., Agent],
        scripted_model: ScriptedModel,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("delf_engine.background.MAX_FINISHED_TASKS", 2)
        scripted_model.default = "```python\nprint(1)\n```"
        agent = make_agent()
        ids: list[str] = []
        for _ in range(4):
            ids.append(agent.submit("x"))
            agent.wait(ids[-1], 30)
        assert agent.cancel(ids[0]) is False
        assert agent.poll(ids[-1]).state == "done"
        assert agent.poll(ids[0]).state == "done"  # by the journal
        assert agent.wait(ids[0]).text == "1"

    def test_tasks_over_the_limit_are_queued(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.default = "```python\nprint(await nap(1))\n```"
        agent = make_agent(max_tasks=2)
        ids = [agent.submit("x") for _ in range(8)]
        assert [agent.wait(task_id, 30).text for task_id in ids] == ["1"] * 8


class TestTasksOfTools:
    """A tool runs a task of its own agent, and waits for the answer."""

    @pytest.fixture
    def make(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> Callable[..., Agent]:
        def answer(request: Any) -> str:
            is_inner = "inner" in request.messages[-1].text
            return script("print(nap_in_thread(7))" if is_inner else "print(await ask_agent())")

        def nap_in_thread(n: int) -> int:
            return n

        scripted_model.default = answer

        def make(ask: Callable[[Agent], Any], **options: Any) -> Agent:
            def ask_in_thread() -> str:
                return ask(agent)

            async def ask_on_loop() -> str:
                return await ask(agent)

            is_async = inspect.iscoroutinefunction(ask)
            ask_tool = tool(name="ask_agent", confirm=False)(
                ask_on_loop if is_async else ask_in_thread
            )
            inner_tool = tool(name="nap_in_thread", confirm=False)(nap_in_thread)
            agent = make_agent(tools=[ask_tool, inner_tool], **options)
            return agent

        return make

    @pytest.mark.parametrize("way", ["arun", "run", "stream", "asubmit", "submit"])
    def test_waiting_tool_lends_its_permit(self, make: Callable[..., Agent], way: str) -> None:
        async def arun(agent: Agent) -> str:
            parts = await asyncio.gather(agent.arun("inner"), agent.arun("inner"))
            return " ".join(part.text for part in parts)

        def run(agent: Agent) -> str:
            return agent.run("inner").text

        async def stream(agent: Agent) -> str:
            events = [event async for event in agent.stream("inner")]
            return next(event.text for event in events if isinstance(event, TaskFinished))

        async def asubmit(agent: Agent) -> str:
            return (await (await agent.asubmit("inner"))).text

        def submit(agent: Agent) -> str:
            return agent.submit("inner").result().text

        ways = {each.__name__: each for each in (arun, run, stream, asubmit, submit)}
        agent = make(ways[way], max_tasks=1)
        answers = [agent.submit("outer").result(50).text for _ in range(2)]
        assert answers == ["7 7" if way == "arun" else "7"] * 2

    @pytest.mark.parametrize("is_async", [True, False])
    def test_agents_that_run_tasks_of_each_other_lend_their_permits(
        self,
        make_agent: Callable[..., Agent],
        scripted_model: ScriptedModel,
        is_async: bool,
    ) -> None:
        calls: list[str] = []

        def make(name: str, other_name: str) -> Agent:
            async def on_loop() -> str:
                calls.append(name)
                return "end" if len(calls) > 3 else (await agents[other_name].arun("x")).text

            def in_thread() -> str:
                calls.append(name)
                return "end" if len(calls) > 3 else agents[other_name].run("x").text

            relay = tool(name="relay", confirm=False)(on_loop if is_async else in_thread)
            return make_agent(tools=[relay], max_tasks=1)

        scripted_model.default = script("print(await relay())")
        agents = {"one": make("one", "other"), "other": make("other", "one")}
        assert agents["one"].run("x", timeout=20).text == "end"
        assert calls == ["one", "other"] * 2

    @pytest.mark.parametrize("is_async", [True, False])
    def test_tasks_of_tools_nest_five_levels_deep(
        self,
        make_agent: Callable[..., Agent],
        scripted_model: ScriptedModel,
        is_async: bool,
    ) -> None:
        ends: list[str] = []

        async def on_loop() -> str:
            return end(await agent.arun("x"))

        def in_thread() -> str:
            return end(agent.run("x"))

        def end(response: Response) -> str:
            ends.append(str(response.error))
            return response.text

        relay = tool(name="relay", confirm=False)(on_loop if is_async else in_thread)
        scripted_model.default = script("print(await relay())")
        agent = make_agent(tools=[relay], retry_count=0)
        agent.run("x", timeout=20)
        assert len(ends) == 5
        assert "the task is 5 tasks deep" in ends[0]

    async def test_tasks_that_follow_each_other_do_not_nest(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        async def run_after(earlier: asyncio.Task[Response]) -> Response:
            await earlier
            return await agent.arun("x")

        @tool(confirm=False)
        async def follow() -> None:
            if len(tasks) < 8:
                tasks.append(asyncio.create_task(run_after(tasks[-1])))

        scripted_model.default = script("await follow()")
        agent = make_agent(tools=[follow])
        tasks = [asyncio.create_task(agent.arun("x"))]
        for task in tasks:  # each task adds another one before its end
            (await task).raise_for_status()
        assert len(tasks) == 8
        await agent.astop()

    async def test_task_resumed_too_many_levels_deep_can_be_resumed_later(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        runs = 0
        errors: list[str] = []

        @tool(confirm=False)
        async def relay() -> None:
            nonlocal runs
            runs += 1
            if runs <= MAX_LEVELS:
                await agent.arun("x")
            elif not errors:
                with pytest.raises(TaskLimitError) as raised:
                    await agent.aresume(stopped, timeout=20)
                errors.append(raised.value.message)

        scripted_model.default = script("await relay()")
        agent = make_agent(tools=[relay])
        stopped = (await agent.arun("x", timeout=0.0001)).trace.task_id
        (await agent.arun("x")).raise_for_status()
        assert len(errors) == 1
        (await agent.aresume(stopped, timeout=20)).raise_for_status()
        await agent.astop()

    def test_submitted_task_that_nobody_waits_for_respects_the_limit(
        self, make: Callable[..., Agent]
    ) -> None:
        async def submit(agent: Agent) -> str:
            return await agent.asubmit("inner")

        agent = make(submit, max_tasks=1)
        outer = agent.run("outer")
        assert agent.wait(outer.text, 20).text == "7"
        events = agent.use_journal(lambda journal: journal.read(outer.text))
        inner_start = next(event for event in events if isinstance(event, TaskStarted))
        assert outer.events[-1].at <= inner_start.at


PROGRAM_THAT_ENDS = """
import asyncio, atexit, sys, threading
from delf import Agent, tool
from delf.testing import ScriptedModel, TestHost

begun = threading.Event()

@tool(confirm=False, effect="read")
async def wait() -> None:
    begun.set()
    await asyncio.Event().wait()

host = TestHost.discover(environ={"DELF_JOURNAL_SQL_URL": sys.argv[1]})
model = ScriptedModel(default="```python\\nawait wait()\\n```")
host.provide(model.spec, model.factory)
agent = Agent(tools=[wait], llm="scripted", host=host, journal="sql", sandbox="local")
agent.submit("x")
assert begun.wait(30)
# Python has refused new threads by then; the journal is polled once a second.
atexit.register(lambda: threading.Event().wait(1.5))
"""


def test_program_that_ends_with_a_running_task_writes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM_THAT_ENDS, f"sqlite:///{tmp_path}/j.db"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


class ClosedJournal(InProcessJournal):
    """A journal that is closed during a subscription."""

    async def subscribe(self, task_id: str | None = None) -> AsyncGenerator[Event]:
        started = next(iter(await self.read(str(task_id))))
        yield started


async def test_wait_for_a_task_ends_with_the_journal() -> None:
    journal = ClosedJournal()
    await journal.append(TaskStarted(task_id="task_1", seq=1, at=1.0, task="x"))
    with pytest.raises(AgentStateError, match="stopped before the task ended"):
        await wait_for_end(journal, "task_1")


class TestApprovals:
    def test_pending_request_waits_for_approval(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(await pay(5, desc='for the lamp'))")
        agent = make_agent()
        task_id = agent.submit("pay")
        request = first_request(agent)
        assert request.action == "pay"
        assert request.arguments == {"amount": 5}
        assert request.description == "for the lamp"
        assert request.task_id == task_id
        agent.approve(request.request_id, "fine")
        assert agent.wait(task_id, 30).text == "paid 5"
        assert agent.get_pending_approvals() == []

    def test_request_can_be_answered_only_once(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(await pay(5))")
        agent = make_agent()
        task_id = agent.submit("pay")
        request = first_request(agent)
        agent.approve(request.request_id)
        with pytest.raises(UnknownRequestError, match="is not pending any more"):
            agent.reject(request.request_id)
        with pytest.raises(UnknownRequestError, match="'req_no'"):
            agent.approve("req_no")
        assert agent.wait(task_id, 30).text == "paid 5"

    def test_rejection_reason_reaches_the_model(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("await pay(5)", "print('I will not pay.')")
        agent = make_agent()
        task_id = agent.submit("pay")
        agent.reject(first_request(agent).request_id, "too dear")
        assert agent.wait(task_id, 30).text == "I will not pay."
        assert "too dear" in scripted_model.prompts[1]

    def test_expired_request_refuses_a_late_answer(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("await pay(5)")
        agent = make_agent(retry_count=0, approval_timeout=1)
        task_id = agent.submit("pay")
        request = first_request(agent)
        assert "nobody answered" in (agent.wait(task_id, 30).error or "")
        with pytest.raises(UnknownRequestError, match="any more: expired"):
            agent.approve(request.request_id)

    def test_pending_requests_release_their_permits(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        def answer(request: Any) -> str:
            call = "pay(1)" if "pay" in request.messages[-1].text else "nap(7)"
            return f"```python\nprint(await {call})\n```"

        scripted_model.default = answer
        agent = make_agent(max_tasks=2)
        waiting = [agent.submit("pay") for _ in range(10)]
        until_now(lambda: len(agent.get_pending_approvals()) >= len(waiting))
        quick = [agent.submit("nap") for _ in range(10)]
        assert [agent.wait(task_id, 30).text for task_id in quick] == ["7"] * 10
        for request in agent.get_pending_approvals():
            agent.approve(request.request_id)
        assert [agent.wait(task_id, 30).text for task_id in waiting] == ["paid 1"] * 10

    def test_script_after_a_wait_timeout_respects_the_task_limit(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        busy: list[int] = []
        most: list[int] = []

        @tool(effect="read", confirm=False)
        async def work() -> None:
            """Do something."""
            busy.append(1)
            most.append(len(busy))
            await asyncio.sleep(0.05)
            busy.pop()

        scripted_model.default = (
            "```python\nimport asyncio\n"
            "try:\n    await asyncio.wait_for(pay(1), 0.05)\n"
            "except TimeoutError:\n    await work()\n    print('late')\n```"
        )
        agent = make_agent(tools=[pay, work], max_tasks=1)
        tasks = [agent.submit("pay") for _ in range(4)]
        assert [agent.wait(task_id, 30).text for task_id in tasks] == ["late"] * 4
        assert most == [1] * 4

    def test_concurrent_calls_of_a_task_wait_together(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(await asyncio.gather(*(pay(n) for n in range(5))))")
        agent = make_agent(max_tasks=1)
        task_id = agent.submit("pay")
        until_now(lambda: len(agent.get_pending_approvals()) >= 5)
        for request in agent.get_pending_approvals():
            agent.approve(request.request_id)
        assert agent.wait(task_id, 30).text == str([f"paid {n}" for n in range(5)])
        scripted_model.writes("print('the place is free again')")
        assert agent.wait(agent.submit("next"), 30).status


class TestStream:
    def collect(self, agent: Agent, **options: Any) -> list[StreamEvent]:
        async def read() -> list[StreamEvent]:
            async with agent:
                return [item async for item in agent.stream("x", **options)]

        return asyncio.run(read())

    def test_stream_yields_events_from_first_to_last(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(await nap(1))")
        seen = self.collect(make_agent())
        assert all(isinstance(item, StreamEvent) for item in seen)
        assert isinstance(seen[0], TaskStarted)
        assert isinstance(seen[-1], TaskFinished)
        assert sum(isinstance(item, CallFinished) for item in seen) == 1
        assert not any(isinstance(item, ModelDelta) for item in seen)

    def test_stream_yields_model_tokens_on_request(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("print(await nap(1))")
        seen = self.collect(make_agent(), granularity="token")
        text = "".join(item.text for item in seen if isinstance(item, ModelDelta))
        assert "print(await nap(1))" in text

    def test_leaving_the_stream_cancels_the_task(
        self, make_agent: Callable[..., Agent], scripted_model: ScriptedModel
    ) -> None:
        scripted_model.writes("await nap(1)\nwhile True: pass")

        async def read() -> Response:
            async with make_agent() as agent:
                stream = agent.stream("x")
                async for item in stream:
                    if isinstance(item, CallFinished):
                        break
                await stream.aclose()
                scripted_model.writes("print('next')")
                return await agent.arun("y")

        assert asyncio.run(read()).text == "next"


def test_task_that_ends_with_the_wait_gives_its_response() -> None:
    class Late(Future[Any]):
        """A future whose result comes just after the time of the wait."""

        def result(self, timeout: float | None = None) -> Any:
            return self._at_end(super().result, timeout)

        def exception(self, timeout: float | None = None) -> Any:
            return self._at_end(super().exception, timeout)

        def _at_end(self, get: Any, timeout: float | None) -> Any:
            try:
                return get(timeout)
            except TimeoutError:
                self.set_result("the response")
                raise

    assert BackgroundTask("task_1", [], Late()).wait(0.01) == "the response"
