"""Tests of an action's view of its task, and of its child tasks."""

import asyncio
import os
import signal
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest

from delf import Agent, Approved, CallContext, Connection, ToolException, action, tool
from delf import events as ev
from delf.errors import UndecidedCallError
from delf.messages import ModelReply
from delf.specs import JournalSpec
from delf.testing import ScriptedModel
from delf.tools.context import ChildResult
from delf_devkit.testing.models import USAGE, script
from delf_engine.calls.children import ChildTasks
from delf_engine.journal.in_process import InProcessJournal
from support.forks import kill_oldest_guest
from support.program import run
from support.until import until

KEY = "sk-0123456789abcdefghijklmnopqrstuvwxyz"


def task_of(request: Any) -> str:
    """The task of a child."""
    return str(request.messages[-1].parts[-1].text).rpartition("Task:\n")[2].strip()


class Office(Connection):
    """An office."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seen: list[CallContext] = []
        self.results: list[ChildResult] = []
        self.extra: dict[str, Any] = {}

    @action(effect="read")
    async def look(self, what: str, context: CallContext) -> str:
        """Look at something."""
        self.seen.append(context)
        return what

    @action(effect="write")
    async def hand_over(
        self, task: str, *, context: CallContext, times: int = 1
    ) -> list[str | None]:
        """Let somebody else do it."""
        self.seen.append(context)
        work = (context.delegate(task, **self.extra) for _ in range(times))
        results = await asyncio.gather(*work)
        self.results += results
        return [result.text or result.error for result in results]

    @action(effect="read")
    def peek(self, context: CallContext) -> str:
        """Look at the task, in a thread."""
        return context.task_id


class Bench:
    def __init__(self, host: Any, model: Any) -> None:
        self.host, self.model = host, model
        self.journal = Recorded()
        self.office = Office(confirm=False)
        host.provide(JournalSpec(name="test", factory="x:y", summary="x"), lambda: self.journal)

    def agent(self, *tools: Any, **options: Any) -> Any:
        return Agent(
            tools=[self.office, *tools],
            llm="scripted",
            host=self.host,
            journal="test",
            retry_count=0,
            **options,
        )

    async def run(self, *scripts: Any, tools: Any = (), **options: Any) -> Any:
        self.model.writes(*scripts)
        async with self.agent(*tools, **options) as agent:
            return await agent.arun("the parent's task")


class Recorded(InProcessJournal):
    """Records the order in which the events of all tasks came."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[ev.Event] = []

    async def append(self, event: Any) -> None:
        await super().append(event)
        self.order.append(event)

    def of(self, task_id: str, kind: Any = object) -> list[Any]:
        return [e for e in self.order if e.task_id == task_id and isinstance(e, kind)]


@pytest.fixture
def bench(delf_host: Any, scripted_model: ScriptedModel) -> Bench:
    return Bench(delf_host, scripted_model)


async def test_refused_call_fails_the_child(bench: Bench) -> None:
    @tool(confirm=False)
    async def refund() -> str:
        """Refund."""
        raise ToolException("at most 100")

    await bench.run("await office.hand_over('refund')", "await refund()", tools=[refund])
    (child,) = bench.office.results
    assert not child.status
    assert "at most 100" in (child.error or "")


# -- the parameter ------------------------------------------------------------------------------


async def test_injected_parameter_is_hidden_from_model_and_script(bench: Bench) -> None:
    (look, hand_over, _) = await bench.office.actions()
    assert look.signature == "(what: str) -> str"
    assert hand_over.signature == "(task: str, times: int = 1) -> list[str | None]"
    assert look.schema is not None
    assert list(look.schema()["properties"]) == ["what"]
    response = await bench.run(
        "try:\n    await office.look('x', context=1)\nexcept ToolArgumentError as e:\n    print(e)"
    )
    assert "unknown argument 'context'" in response.text
    assert "context" not in bench.model.prompts[0].partition("office")[2].partition("\n\n")[0]


async def test_action_receives_the_context_of_its_task(
    bench: Bench, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    monkeypatch.chdir(tmp_path)
    response = await bench.run(
        "add_to_output_files('out.txt', 'x')\nprint(await office.look('x'), await office.peek())",
        files=[str(tmp_path / "notes.txt")],
        output_dir=str(tmp_path / "out"),
    )
    (context,) = bench.office.seen
    assert response.text == f"x {response.trace.task_id}"
    assert (context.task_id, context.task) == (response.trace.task_id, "the parent's task")
    assert (context.connection, context.call_id, context.depth) == ("office", 1, 0)
    assert context.folder == tmp_path
    assert context.input_files == {"notes.txt": tmp_path / "notes.txt"}
    assert {name: p.read_text() for name, p in context.output_files.items()} == {"out.txt": "x"}


# -- a child task ---------------------------------------------------------------------------------


PARENT = "print(await office.hand_over('the child'))"


async def test_child_task_is_part_of_the_parents_journal_and_trace(bench: Bench) -> None:
    response = await bench.run(PARENT, "print('child says hi', await office.look('deep'))")
    assert response.text == "['child says hi deep']"
    (result,) = bench.office.results
    assert (result.status, result.text, result.error) == (True, "child says hi deep", None)
    (call,) = response.trace.tool_calls
    assert call.children == [result.task_id]
    assert [line.label for line in response.trace.timeline if line.kind == "task"] == ["the child"]
    (started,) = bench.journal.of(result.task_id, ev.TaskStarted)
    assert (started.task, started.parent) == ("the child", response.trace.task_id)
    assert bench.office.seen[1].depth == 1


def costing(code: Any, cost: Any) -> Any:
    return ModelReply(text=script(code), model="scripted", usage=USAGE, cost_usd=cost)


async def test_child_cost_counts_against_the_parents_budget(bench: Bench) -> None:
    bench.model.says(costing(PARENT, 0.25), costing("print('hi')", 0.5))
    async with bench.agent(budget_usd=2.0) as agent:
        response = await agent.arun("x")
        assert agent.total_cost_usd == 0.75
    (end,) = bench.journal.of(response.trace.task_id, ev.ChildFinished)
    assert (end.status, end.cost_usd) == (True, 0.5)
    assert response.cost_usd == response.trace.total_cost_usd == 0.75
    (finished,) = bench.journal.of(response.trace.task_id, ev.TaskFinished)
    assert finished.cost_usd == 0.75


async def test_child_can_have_its_own_tools_model_files_and_instructions(
    bench: Bench, tmp_path: Any
) -> None:
    @tool(confirm=False)
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    (tmp_path / "own.txt").write_text("own file")
    bench.office.extra = {
        "tools": [add],
        "system_prompt": "Be brief.",
        "files": [tmp_path / "own.txt"],
    }
    response = await bench.run(PARENT, "print(await add(1, 2), open('own.txt').read())")
    assert response.text == "['3 own file']"
    assert "office" not in bench.model.prompts[1]
    assert any("Be brief." in message.text for message in bench.model.requests[1].messages)


async def test_child_requests_go_to_the_parents_channels(bench: Bench) -> None:
    @tool(effect="write")
    async def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    asked: list[tuple[str, str]] = []

    def person(request: Any) -> Any:
        asked.append((request.task, request.action))
        return Approved(remember="until_revoked")

    response = await bench.run(
        "print(await office.hand_over('one'), await pay(1))",
        "print(await pay(1))",
        tools=[pay],
        on_confirm=person,
    )
    assert response.text == "['paid 1'] paid 1"
    assert asked == [("one", "pay")]


async def test_child_depth_is_limited(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delf_engine.calls.children.MAX_LEVELS", 2)
    bench.model.default = f"```python\n{PARENT}\n```"
    response = await bench.run()
    assert "tasks deep" in response.text
    assert len({e.task_id for e in bench.journal.order}) == 3


async def test_child_uses_the_permit_of_its_parent(bench: Bench) -> None:
    response = await bench.run(
        "print(await office.hand_over('child', times=3))", *["print(1)"] * 3, max_tasks=1
    )
    assert response.text == "['1', '1', '1']"


async def test_child_is_cancelled_with_its_parent(bench: Bench) -> None:
    begun = asyncio.Event()

    @tool(effect="read", confirm=False)
    async def wait() -> None:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()

    bench.model.writes(PARENT, "await wait()")
    async with bench.agent(wait) as agent:
        work = asyncio.create_task(agent.arun("x"))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    (child,) = [e for e in bench.journal.order if isinstance(e, ev.ChildStarted)]
    (end,) = bench.journal.of(child.child_id, ev.TaskFinished)
    assert end.error == "the task was stopped"
    (shown,) = bench.journal.of(child.task_id, ev.ChildFinished)
    assert not shown.status


# -- resumed --------------------------------------------------------------------------------------

CHILD = "a = await write('one')\nb = await write('two')\nprint(a + b)"


def writer(written: Any) -> Any:
    @tool(effect="write", confirm=False)
    async def write(text: str) -> int:
        """Write."""
        written.append(text)
        return len(text)

    return write


async def test_killed_parent_resumes_with_its_child(bench: Bench) -> None:
    """Kill parent and child after every second event: the child continues, and repeats no write."""
    first = await bench.run(PARENT, CHILD, tools=[writer([])])
    assert first.text == "['6']"
    order, parent = list(bench.journal.order), first.trace.task_id
    for length in range(1, len(order), 2):
        kept = order[:length]
        if not any(e.task_id == parent for e in kept):
            continue
        ended = {e.call_id for e in kept if isinstance(e, ev.CallFinished) and e.action == "write"}
        begun = [e for e in kept if isinstance(e, ev.CallStarted) and e.action == "write"]
        written = [e.arguments["text"] for e in begun if e.call_id in ended]
        bench.journal = Recorded()
        for event in kept:
            await bench.journal.append(event)
        bench.office = Office(confirm=False)
        bench.model.replies.clear()
        words = sum(isinstance(e, ev.ModelReplied) for e in kept)
        bench.model.writes(*[PARENT, CHILD][words:])
        asked = []

        def person(request: Any, asked: Any = asked) -> Any:
            asked.append(request.action)
            return Approved()

        async with bench.agent(writer(written), on_confirm=person) as agent:
            response = await agent.aresume(parent)
        assert response.text == first.text, f"after {length} events: {response.error}"
        assert written == ["one", "two"]
        if any(isinstance(e, ev.ChildStarted) for e in kept):
            assert "office.hand_over" not in asked
        assert len({e.task_id for e in bench.journal.order}) <= 2


async def test_child_that_cannot_begin_has_an_end(bench: Bench) -> None:
    bench.office.extra = {"files": ["/nowhere/input.txt"]}
    response = await bench.run("await office.hand_over('the child')")
    parent = response.trace.task_id
    (end,) = bench.journal.of(parent, ev.ChildFinished)
    assert not end.status
    assert "does not exist" in str(end.error)
    states = {entry.label: entry.status for entry in response.trace.timeline}
    assert states["the child"] == "error"


class Clerk(Connection):
    """A clerk, whose tasks of others have a secret."""

    @action(effect="read", resumes=True)
    async def find(self, context: CallContext) -> str | None:
        """Let somebody else find it."""
        return (await context.delegate("the child")).text

    @action(effect="write")
    async def sign(self, context: CallContext) -> str | None:
        """Let somebody else sign it."""
        return (await context.delegate(f"the child with {KEY}")).text


@pytest.mark.parametrize("method", ["find", "sign"])
async def test_resumed_call_continues_its_child(bench: Bench, method: str) -> None:
    """It does at the limit on child tasks, too, and if the child's task has a secret."""
    tools = [Clerk(confirm=False), writer([])]
    options: dict[str, Any] = {"max_children": 1, "providers": {"openai": KEY}}
    first = await bench.run(
        f"print(await clerk.{method}())", "print(await write('one'))", tools=tools, **options
    )
    assert first.text == "3"
    order, parent = list(bench.journal.order), first.trace.task_id
    end = next(e for e in bench.journal.of(parent, ev.CallFinished) if e.action != "write")
    bench.journal = Recorded()
    for event in order[: order.index(end)]:
        await bench.journal.append(event)
    written: list[str] = []
    async with bench.agent(Clerk(confirm=False), writer(written), **options) as agent:
        response = await agent.aresume(parent)
    assert (response.text, response.error) == ("3", None)
    assert written == [], "it is not written again"


async def test_action_cannot_hide_an_unfinished_child(bench: Bench) -> None:
    """Nobody says whether the child's call was made, so child and parent wait to be resumed."""

    @tool(effect="write", confirm=False)
    async def careless(context: CallContext) -> str:
        """Take whatever comes."""
        try:
            return (await context.delegate("the child")).text
        except Exception:
            return "never mind"

    tools = [careless, writer([])]
    first = await bench.run("print(await careless())", "print(await write('one'))", tools=tools)
    assert first.text == "3"
    order, parent = list(bench.journal.order), first.trace.task_id
    kept = [e for e in order if isinstance(e, ev.CallStarted) and e.action == "write"]
    bench.journal = Recorded()
    for event in order[: order.index(kept[0]) + 1]:
        await bench.journal.append(event)
    async with bench.agent(*tools) as agent:
        response = await agent.aresume(parent)
    assert isinstance(response.exception, UndecidedCallError)
    assert not any(isinstance(e, ev.TaskFinished) for e in bench.journal.order)
    ends = [e.cancellation for e in bench.journal.order if isinstance(e, ev.CallFinished)]
    assert ends == ["cut_off"], "that is no end of it"


WORKER = """
import asyncio, os, signal, sys
from delf import Agent, CallContext, AlreadyDone, tool
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel, script

journal, done, kill_at = sys.argv[1], sys.argv[2], int(sys.argv[3])


@tool(effect="write", confirm=False)
async def write(n: int) -> int:
    "Write."
    with open(done, "a") as file:
        file.write(f"{n}\\\\n")
    lines = open(done).read().split()
    if len(lines) == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return n


@tool(effect="write", confirm=False)
async def hand_over(task: str, context: CallContext) -> str:
    "Let a child do it."
    result = await context.delegate(task)
    return result.text


def answer(request):
    if "the child" in request.messages[-1].text:
        return script("print(sum([await write(n) for n in range(5)]))")
    return script("await write(100)\\\\nprint(await hand_over('the child'), await write(200))")


def person(request):
    assert request.outcome_unknown
    n = request.arguments["n"]
    assert request.action == "write", request.action
    return AlreadyDone(result=n) if str(n) in open(done).read().split() else True


async def main():
    host = TestHost.discover(environ=dict(os.environ))
    model = ScriptedModel(default=answer)
    host.provide(model.spec, lambda *_: model)
    options = dict(llm="scripted", host=host, journal="sql", on_confirm=person)
    async with Agent(tools=[write, hand_over], **options) as agent:
        if len(sys.argv) > 4:
            response = await agent.aresume(sys.argv[4])
        else:
            response = await agent.arun("the parent", listeners=[
                lambda e: print(e.task_id, flush=True) if e.seq == 1 else None])
        print("END", response.text, response.error)

asyncio.run(main())
"""


@pytest.mark.parametrize("kill_at", [2, 4, 6])
@pytest.mark.slow
def test_killed_process_leaves_a_resumable_child(tmp_path: Any, kill_at: Any) -> None:
    pytest.importorskip("delf_journal_sql")
    worker, done = tmp_path / "worker.py", tmp_path / "done"
    worker.write_text(textwrap.dedent(WORKER).replace("\\\\n", "\\n"))
    environ = {**os.environ, "DELF_JOURNAL_SQL_URL": f"sqlite:///{tmp_path / 'journal.db'}"}

    def work(*arguments: Any) -> Any:
        command = [worker, "journal", str(done), *map(str, arguments)]
        return run(command, env=environ, text=True)

    killed = work(kill_at)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    task_id = killed.stdout.split()[0]
    resumed = work(-1, task_id)
    assert "END 10 200 None" in resumed.stdout, resumed.stdout + resumed.stderr
    assert sorted(map(int, done.read_text().split())) == [0, 1, 2, 3, 4, 100, 200]


STEPS = "for n in range(4):\n    print(await step(TASK, n))"


@pytest.mark.parametrize("dies_in", ["0", "1"])
@pytest.mark.parametrize("places", [1, 100])
async def test_children_continue_after_the_parents_sandbox_dies(
    bench: Bench, dies_in: Any, places: Any
) -> None:
    """Each child's call is made once, and the parent ends as if its sandbox had lived."""
    made: list[tuple[str, int]] = []
    deaths: list[int | None] = []

    @tool(confirm=False)
    async def step(task: str, n: int) -> str:
        """Do a step."""
        made.append((task, n))
        if not deaths and task == dies_in and n == 2:
            deaths.append(kill_oldest_guest())
            await until(lambda: any(isinstance(e, ev.Warned) for e in bench.journal.order))
        return f"{task}{n}"

    bench.model.writes(
        "import asyncio\nprint(await asyncio.gather(office.hand_over('0'), office.hand_over('1')))"
    )

    def steps(request: Any) -> str:
        return script(STEPS.replace("TASK", repr(task_of(request))))

    bench.model.says(steps, steps)
    async with bench.agent(step, sandbox="local", max_tasks=places) as agent:
        response = (await agent.arun("the parent's task")).raise_for_status()
    assert deaths
    assert all(deaths)
    assert response.text == "[['00\\n01\\n02\\n03'], ['10\\n11\\n12\\n13']]"
    assert sorted(made) == [(task, n) for task in "01" for n in range(4)]
    ends = [e for e in bench.journal.order if isinstance(e, ev.TaskFinished)]
    assert [e.status for e in ends] == [True] * 3
    assert sum(isinstance(e, ev.ChildStarted) for e in bench.journal.order) == 2


async def test_children_of_a_finished_script_are_cancelled(bench: Bench) -> None:
    """A script that exceeds a limit does not run again, so nobody fetches the results."""
    is_begun = asyncio.Event()

    @tool(confirm=False)
    async def forever() -> None:
        """Wait."""
        is_begun.set()
        await asyncio.Event().wait()

    @tool(confirm=False)
    async def begun() -> None:
        """Wait until the child has begun."""
        await is_begun.wait()

    code = "asyncio.ensure_future(office.hand_over('x'))\nawait begun()\nwhile True: pass"
    bench.model.writes(code, "await forever()")
    async with bench.agent(
        forever, begun, sandbox="local", sandbox_config={"cpu_seconds": 1}
    ) as agent:
        response = await agent.arun("the parent's task")
    assert not response.status
    (child,) = (e for e in bench.journal.order if isinstance(e, ev.ChildStarted))
    (end,) = bench.journal.of(child.child_id, ev.TaskFinished)
    assert end.state == "stopped"


async def test_cancelled_call_takes_no_place_from_calls_that_came_with_it() -> None:
    run: Any = SimpleNamespace(
        log=SimpleNamespace(events=[]), config=SimpleNamespace(max_children=1)
    )
    unused: Any = None
    children = ChildTasks(run, unused, unused, unused)
    calls: list[Any] = [SimpleNamespace(number=n, blocks_script=False) for n in (1, 2)]
    first, second = [asyncio.create_task(children.reserve(call)) for call in calls]
    await asyncio.sleep(0)  # both have joined the batch
    first.cancel()
    assert await second is None
