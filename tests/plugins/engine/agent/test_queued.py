"""Tests that a submitted task is journalled before ``submit`` returns, and is not lost."""

import asyncio
import os
import signal
import textwrap

import pytest

from delf import Agent, ConfigurationError, UnknownTaskError, tool
from delf import events as ev
from delf.errors import UnknownKeywordError
from delf.specs import JournalSpec, ObserverSpec
from delf_engine.agent import keep_cancelled_tasks_resumable
from delf_engine.journal.in_process import InProcessJournal
from support.program import run
from support.until import until


@tool(confirm=False)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.fixture
def journal(delf_host):
    journal = InProcessJournal()
    delf_host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: journal)
    return journal


@pytest.fixture
def make(delf_host, journal):
    def agent(**options):
        return Agent(tools=[add], llm="scripted", host=delf_host, journal="test", **options)

    return agent


def of(journal, task_id):
    return list(asyncio.run(journal.read(task_id)))


def test_queued_task_is_journalled_before_submit_returns(make, journal, scripted_model):
    scripted_model.writes("print(await add(1, 2))")
    with make(max_tasks=1) as agent:
        task = agent.submit("add them", 12)
        first = of(journal, task)[0]
        assert isinstance(first, ev.TaskQueued)
        assert (first.task, first.timeout, first.interactive) == ("add them", 12, False)
        response = agent.wait(task, 20)
    assert response.text == "3"
    kinds = [type(event) for event in of(journal, task)]
    assert kinds[:2] == [ev.TaskQueued, ev.TaskStarted]
    assert ev.TaskResumed not in kinds
    assert [event.seq for event in of(journal, task)] == list(range(1, len(kinds) + 1))


async def test_submitted_task_that_cannot_start_has_failed(
    delf_host, journal, scripted_model, tmp_path
):
    file_is_gone = asyncio.Event()

    @tool(confirm=False)
    async def wait() -> None:
        await file_is_gone.wait()

    paper = tmp_path / "a.csv"
    paper.write_text("x")
    scripted_model.writes("await wait()")
    options = {"tools": [wait], "llm": "scripted", "host": delf_host, "journal": "test"}
    async with Agent(max_tasks=1, **options) as agent:
        first = await agent.asubmit("wait")
        second = await agent.asubmit("read it", files=[str(paper)])
        paper.unlink()
        file_is_gone.set()
        assert (await first).status
        with pytest.raises(ConfigurationError, match="does not exist"):
            await second
    (end,) = [event for event in await journal.read(second) if isinstance(event, ev.TaskFinished)]
    assert not end.status
    assert "does not exist" in end.error


async def test_failing_listener_does_not_keep_a_task_from_its_queue(make, scripted_model, caplog):
    def fail(event):
        raise KeyError(type(event).__name__)

    scripted_model.writes("print(await add(1, 2))")
    async with make() as agent:
        task = await agent.asubmit("add them", listeners=[fail])
        assert (await task).text == "3"
    assert "a listener failed on TaskQueued" in caplog.text


async def test_failing_setup_of_an_observer_does_not_stop_a_task(
    delf_host, make, scripted_model, caplog
):
    class Silent:
        async def observe(self, event):
            pass

        async def aclose(self):
            pass

    # json.loads() raises a TypeError, because it is called without an argument.
    spec = ObserverSpec(name="silent", summary="x", factory="x:y", setup="json:loads")
    delf_host.provide(spec, Silent)
    scripted_model.writes("print(await add(1, 2))")
    async with make() as agent:
        assert (await agent.arun("add them")).text == "3"
    assert "an observer has no setup data" in caplog.text


@pytest.mark.parametrize("method", ["run", "submit", "arun", "asubmit", "aresume"])
async def test_unknown_method_keyword_is_named(make, method):
    with pytest.raises(TypeError, match=rf"{method}\(\) has no keyword 'file'") as caught:
        await getattr(make(), method)("add them", file=["a.txt"])
    assert isinstance(caught.value, UnknownKeywordError)
    assert ("files" if method != "aresume" else "settle") in caught.value.hint


def test_queue_options_without_a_queue_are_refused(make):
    with pytest.raises(ConfigurationError, match="takes priority only with a queue"):
        make().submit("add them", priority=3)


async def test_waiting_task_can_be_resumed_like_a_running_task(delf_host, journal, scripted_model):
    begun = asyncio.Event()

    @tool(confirm=False)
    async def hang() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    scripted_model.writes("await hang()")
    await journal.append(ev.TaskQueued(task_id="task_2", seq=1, at=1.0, task="add", origin="x"))
    options = {"llm": "scripted", "host": delf_host, "journal": "test", "max_tasks": 1}
    async with Agent(tools=[hang], **options) as agent:
        works = [asyncio.ensure_future(agent.arun("hang"))]
        await begun.wait()
        works.append(asyncio.ensure_future(agent.aresume("task_2")))
        await until(lambda: agent.status()["tasks"]["queued"])
        for _ in range(50):  # turns of the loop, in which it comes to its place
            await asyncio.sleep(0)
        keep_cancelled_tasks_resumable(agent)
        for work in works:
            work.cancel()
        await asyncio.wait(works)
    names = [record.task_id for record in await journal.find()]
    assert len(names) == 2
    events = [event for name in names for event in await journal.read(name)]
    assert not any(isinstance(event, ev.TaskFinished) for event in events)


async def test_queued_task_is_claimed_by_another_agent(make, journal, scripted_model):
    queued = ev.TaskQueued(task_id="task_q", seq=1, at=1.0, task="add them", timeout=30)
    await journal.append(queued)
    scripted_model.writes("print(await add(1, 2))")
    async with make() as agent:
        seen = await agent.apoll("task_q")
        assert (seen.state, seen.task, seen.is_terminal) == ("queued", "add them", False)
        response = await agent.aresume("task_q")
        assert response.text == "3"
        assert (await agent.apoll("task_q")).state == "done"
        assert (await agent.apoll("task_q")).result == "3"
        with pytest.raises(UnknownTaskError):
            await agent.apoll("task_nope")


WORKER = """
import os, signal, sys
from delf import Agent, tool
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script

@tool(effect="write", confirm=False)
def write(n: int) -> int:
    "Write."
    with open(sys.argv[1], "a") as file:
        file.write(f"{n} ")
    return n

host = TestHost.discover(environ=dict(os.environ))
model = ScriptedModel(default=script("print(await write(7))"))
host.provide(model.spec, lambda *_: model)
agent = Agent(tools=[write], llm="scripted", host=host, journal="sql")
if len(sys.argv) > 2:
    look = agent.poll(sys.argv[2])
    print(look.state, look.task)
    print(agent.resume(sys.argv[2]).text, agent.poll(sys.argv[2]).state)
    agent.stop()
else:
    task = agent.submit("write seven")
    os.write(1, task.encode())
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_process_killed_at_once_loses_no_queued_task(tmp_path):
    pytest.importorskip("delf_journal_sql")
    worker, done = tmp_path / "worker.py", tmp_path / "done"
    worker.write_text(textwrap.dedent(WORKER))
    environ = {**os.environ, "DELF_JOURNAL_SQL_URL": f"sqlite:///{tmp_path / 'journal.db'}"}

    def work(*arguments):
        command = [worker, done, *arguments]
        return run(command, env=environ, text=True)

    killed = work()
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = work(killed.stdout.strip())
    assert resumed.stdout.split("\n")[:2] == ["interrupted write seven", "7 done"], resumed.stderr
    assert done.read_text().split() == ["7"]
