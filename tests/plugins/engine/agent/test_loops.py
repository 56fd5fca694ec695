"""Tests of ending event loops and forking processes, which must leave nothing behind or hang."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from delf import Agent, AgentStateError, DelfError, tool
from delf.specs import JournalSpec
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.handle import TaskHandle
from delf_engine.journal.in_process import InProcessJournal
from support.until import until_now

MakeAgent = Callable[..., Agent]

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture(autouse=True)
def quick_templates() -> None:
    """Start template processes as for users, because these tests count all child processes."""


def children() -> set[int]:
    own = Path(f"/proc/{os.getpid()}/task")
    return {int(pid) for task in own.glob("*/children") for pid in task.read_text().split()}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@needs_proc
class TestClosedLoops:
    def test_ended_event_loop_leaves_no_process_or_descriptor(
        self, make_agent: MakeAgent, scripted_model: ScriptedModel
    ) -> None:
        scripted_model.default = "```python\nprint(1)\n```"
        before = children()
        agent = make_agent()
        assert asyncio.run(agent.arun("x")).text == "1"
        assert children() == before
        open_files = descriptors()
        for _ in range(3):
            assert asyncio.run(agent.arun("x")).text == "1"
        gc.collect()
        assert descriptors() <= open_files
        agent.stop()
        assert children() == before


FORKS = """
import asyncio, os, sqlite3, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from delf import Agent
from delf.testing import ScriptedModel, TestHost
from delf_filesystem import Filesystem
from delf_sql import SQL

database = sqlite3.connect("shop.db")
database.execute("CREATE TABLE lamps AS SELECT 4 AS number")
database.commit()
database.close()
model = ScriptedModel()
model.default = '''```python
rows = await sql.query("SELECT number FROM lamps")
text = await filesystem.read_document("here/note.html")
print(rows[0]["number"], text)
```'''
host = TestHost.discover()
host.provide(model.spec, model.factory)
tools = [SQL("sqlite:///shop.db"), Filesystem(roots={"here": "."})]
agent = Agent(llm="scripted", sandbox="local", host=host, tools=tools)

def check(who):
    response = agent.run("x", timeout=30)
    print(who, response.text or response.error, flush=True)

def stop_plainly():
    assert not agent.started
    agent.stop()

def stop():
    asyncio.run(agent.astop())

def work():
    check("child")
    agent.stop()

check("parent")
for do in (stop_plainly, stop, work):
    child = os.fork()
    if child == 0:
        do()
        sys.exit(0)  # runs the functions that are registered for the exit
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
check("parent")
agent.stop()
"""


@pytest.mark.slow
def test_forked_process_gets_its_own_runtime(tmp_path: Path) -> None:
    (tmp_path / "note.html").write_text("<p>hello</p>")
    (tmp_path / "program.py").write_text(FORKS)
    result = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    answers = ["parent 4 hello", "child 4 hello", "parent 4 hello", ""]
    assert (result.stdout.split("\n"), result.stderr) == (answers, "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, pytest.fail.Exception])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_tool_that_raises_a_base_exception_fails_only_its_call(
    make_agent: MakeAgent,
    scripted_model: ScriptedModel,
    kind: type[BaseException],
    is_async: bool,
) -> None:
    @tool(confirm=False)
    def plain() -> None:
        """Press Ctrl-C."""
        raise kind

    @tool(name="plain", confirm=False)
    async def waiting() -> None:
        """Press Ctrl-C."""
        raise kind

    scripted_model.writes("try:\n    await plain()\nexcept ToolError as e:\n    print(e)")
    agent = make_agent(waiting if is_async else plain, timeout=10)
    assert agent.run("x").text.startswith(kind.__name__)


TWINS: dict[str, tuple[str, Callable[[Agent, str], object]]] = {
    "run": ("arun", lambda agent, _: agent.run("x")),
    "resume": ("aresume", lambda agent, task: agent.resume(task)),
    "fork": ("afork", lambda agent, task: agent.fork(task)),
    "submit": ("asubmit", lambda agent, _: agent.submit("x")),
    "poll": ("apoll", lambda agent, task: agent.poll(task)),
    "wait": ("await_task", lambda agent, task: agent.wait(task)),
    "cancel": ("acancel", lambda agent, task: agent.cancel(task)),
    "revoke": ("arevoke", lambda agent, _: agent.revoke("req_1")),
    "get_remembered_approvals": (
        "aget_remembered_approvals",
        lambda agent, _: agent.get_remembered_approvals(),
    ),
    "use_journal": ("ause_journal", lambda agent, task: agent.use_journal(lambda j: j.read(task))),
    "start": ("astart", lambda agent, _: agent.start()),
}
"""Each sync method that works on the agent's loop, and the async version that its error names."""


async def test_sync_methods_on_the_agents_loop_name_their_async_versions(
    make_agent: MakeAgent, scripted_model: ScriptedModel
) -> None:
    scripted_model.default = "```python\nprint(1)\n```"
    async with make_agent() as agent:
        handle = await agent.asubmit("x")
        assert (await handle).text == "1"
        unsubmitted = (await agent.arun("x")).trace.task_id
        for task in (handle, unsubmitted):
            for name, (twin, call) in TWINS.items():
                assert callable(getattr(agent, twin))
                with pytest.raises(AgentStateError, match=rf"^{name}\(\) was called from") as error:
                    call(agent, task)
                assert f"agent.{twin}(" in str(error.value.hint)


class OneLoopJournal(InProcessJournal):
    """A journal whose client belongs to one event loop, as Redis clients do."""

    def __getattribute__(self, name: str) -> object:
        if not name.startswith("_"):
            loops = object.__getattribute__(self, "__dict__").setdefault("loops", set())
            loops.add(asyncio.get_running_loop())
            assert len(loops) == 1, f"{name} is used on a second event loop"
        return super().__getattribute__(name)


@pytest.mark.parametrize("style", ["sync", "async", "sync in a coroutine"])
def test_journal_is_only_used_on_one_event_loop(
    delf_host: TestHost, make_agent: MakeAgent, scripted_model: ScriptedModel, style: str
) -> None:
    delf_host.provide(
        JournalSpec(name="one-loop", summary="x", factory="x:x"), lambda **_: OneLoopJournal()
    )
    scripted_model.default = "```python\nprint(1)\n```"

    def follow() -> None:
        with make_agent(journal="one-loop") as agent:
            handle = agent.submit("x")
            assert handle.result(50).text == handle.snapshot().result == "1"
            assert handle.cancel() is False
            task = agent.run("x").trace.task_id
            assert agent.poll(task).state == agent.poll(handle).state == "done"
            assert agent.wait(task, 20).text == "1"
            assert agent.get_remembered_approvals() == []
            assert agent.resume(agent.fork(task)).text == "1"

    async def afollow() -> None:
        async with make_agent(journal="one-loop") as agent:
            handle = await agent.asubmit("x")
            assert (await handle).text == (await handle.asnapshot()).result == "1"
            assert await handle.acancel() is False
            task = (await agent.arun("x")).trace.task_id
            assert (await agent.apoll(task)).state == "done"
            assert (await agent.await_task(task, 20)).text == "1"
            assert await agent.aget_remembered_approvals() == []
            assert (await agent.aresume(await agent.afork(task))).text == "1"

    async def inside() -> None:
        follow()

    if style == "sync":
        follow()
    else:
        asyncio.run(afollow() if style == "async" else inside())


async def test_task_handle_equals_its_task_id(
    make_agent: MakeAgent, scripted_model: ScriptedModel
) -> None:
    scripted_model.default = "```python\nprint(1)\n```"
    async with make_agent() as agent:
        handle = await agent.asubmit("x")
        assert isinstance(handle, TaskHandle)
        task = (await handle).trace.task_id
        assert (handle, hash(handle), json.dumps(handle)) == (task, hash(task), json.dumps(task))
        assert type(copy.deepcopy(handle)) is str
        assert handle.approvals == []


async def test_cancelled_wait_leaves_the_task_running(
    make_agent: MakeAgent, scripted_model: ScriptedModel
) -> None:
    go_on = asyncio.Event()

    @tool(confirm=False)
    async def hold() -> int:
        """Wait for the test."""
        await go_on.wait()
        return 1

    scripted_model.writes("print(await hold())")
    async with make_agent(hold) as agent:
        handle = await agent.asubmit("x")
        for wait_for in (agent.await_task, partial(asyncio.to_thread, agent.wait)):
            with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s; it continues"):
                await wait_for(handle, 0.01)
        wait = asyncio.ensure_future(handle)
        await asyncio.sleep(0)
        wait.cancel()
        go_on.set()
        assert (await handle).text == "1"


def test_program_that_runs_its_own_loop_can_use_sync_methods(
    make_agent: MakeAgent, scripted_model: ScriptedModel
) -> None:
    scripted_model.default = "```python\nprint(1)\n```"
    with asyncio.Runner() as runner:
        agent = make_agent()
        runner.run(agent.astart())
        assert agent.run("x").text == "1"
        agent.stop()


def test_work_on_an_idle_loop_raises_in_another_loop(
    make_agent: MakeAgent, scripted_model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delf_engine.sync.SLOW_SECONDS", 0.1)
    scripted_model.default = "```python\nprint(1)\n```"
    agent = make_agent()
    with asyncio.Runner() as runner, asyncio.Runner() as other:
        assert runner.run(agent.arun("x")).text == "1"
        for method in (agent.arun("x"), agent.astop()):
            with pytest.raises(AgentStateError, match="an event loop that no thread runs"):
                other.run(method)


@pytest.mark.parametrize("is_async", [True, False])
def test_end_of_another_callers_loop_is_an_error_with_a_hint(
    make_agent: MakeAgent, scripted_model: ScriptedModel, is_async: bool
) -> None:
    called = threading.Event()

    @tool(effect="read", confirm=False)
    async def wait() -> None:
        """Wait for the end of the loop."""
        called.set()
        await asyncio.Event().wait()

    scripted_model.writes("await wait()")
    agent = make_agent(wait)
    with ThreadPoolExecutor(1) as pool:

        async def start_work() -> Future[object]:
            await agent.astart()
            # While this loop runs, so that the other thread does not run the idle loop itself.
            work = pool.submit(lambda: asyncio.run(agent.arun("x")) if is_async else agent.run("x"))
            await asyncio.to_thread(called.wait)
            return work

        work = asyncio.run(start_work())
        with pytest.raises(
            AgentStateError, match="the event loop that the agent works on has ended"
        ) as caught:
            work.result()
    assert "agent.start() before the first `await`" in str(caught.value.hint)


def test_threads_take_turns_to_run_an_idle_loop(
    make_agent: MakeAgent, scripted_model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delf_engine.sync.SLOW_SECONDS", 0.1)
    scripted_model.default = "```python\nprint(1)\n```"
    agent = make_agent()
    with asyncio.Runner() as runner, ThreadPoolExecutor(4) as pool:
        runner.run(agent.astart())
        assert [response.text for response in pool.map(agent.run, "xxxx")] == ["1"] * 4
        agent.stop()


def test_run_during_a_stop_of_another_thread_ends_or_raises(
    make_agent: MakeAgent, scripted_model: ScriptedModel
) -> None:
    scripted_model.default = "```python\nprint(1)\n```"
    agent = make_agent()

    def run(_: int) -> str:
        try:
            return agent.run("x").text
        except AgentStateError as error:
            return str(error)

    with ThreadPoolExecutor(16) as pool:
        work = [pool.submit(run, n) if n % 3 else pool.submit(agent.stop) for n in range(60)]
        outcomes = {future.result() for future in work}
    agent.stop()
    assert outcomes <= {"1", "the agent was stopped", None}


class JobTimeoutError(Exception):
    """The exception that a queue such as Celery raises in a job, by a signal, at its time limit."""


def test_time_limit_of_a_job_cancels_its_task(
    make_agent: MakeAgent, scripted_model: ScriptedModel
) -> None:
    scripted_model.default = "```python\nawait hold()\n```"
    cancelled = list[bool]()

    @tool(confirm=False)
    async def hold() -> None:
        """Let the job's time be over."""
        os.kill(os.getpid(), signal.SIGUSR1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    def end_job(*_: object) -> None:
        raise JobTimeoutError

    before = signal.signal(signal.SIGUSR1, end_job)
    try:
        with make_agent(hold) as agent:
            with pytest.raises(JobTimeoutError):
                agent.run("x")
            assert cancelled == [True]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_deleted_agent_ends_its_thread(delf_host: TestHost, scripted_model: ScriptedModel) -> None:
    scripted_model.default = "```python\nprint(1)\n```"

    def name_of_thread() -> str:
        agent = Agent(llm="scripted", sandbox="local", host=delf_host)
        assert agent.run("x").text == "1"
        return f"delf-{agent.agent_id}"

    name = name_of_thread()

    def has_ended() -> bool:
        gc.collect()  # once the work after the answer has ended, nothing refers to the agent
        return name not in {thread.name for thread in threading.enumerate()}

    until_now(has_ended)


async def test_agent_names_the_cause_of_each_failed_start(make_agent: MakeAgent) -> None:
    agent = make_agent(llm="unknown")
    for _ in range(2):
        with pytest.raises(DelfError, match="no provider is known for the model 'unknown'"):
            await agent.astart()
        gc.collect()
        await asyncio.sleep(0)
    await agent.astop()
