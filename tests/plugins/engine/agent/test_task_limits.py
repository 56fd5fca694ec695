"""Tests that a task's limit refuses the next call, not running ones, and is in the prompt."""

from __future__ import annotations

import asyncio

import pytest

from delf import Agent, Approved, CallContext, Connection, action, tool
from delf.errors import TaskLimitError
from delf.events import (
    CallFinished,
    ChildFinished,
    Noted,
    RerunRequested,
    ScriptGenerated,
    Warned,
)
from delf.messages import ModelReply
from delf_engine.models.money import Ledger
from support.resuming import Bench


@tool(effect="write", confirm=False)
async def delegate(number: int, context: CallContext) -> str:
    """Let a child task do the work."""
    result = await context.delegate(f"child {number}", tools=[slow])
    result.raise_for_status(f"child {number}")
    return result.text


@tool(effect="read", confirm=False)
async def slow() -> str:
    """Take a moment."""
    await asyncio.sleep(0.5)
    return "read"


ALL = """
import asyncio
print(await asyncio.gather(*(delegate(n) for n in range(8))))
"""
CHILD = "print(await slow())"


def reply(request):
    task = request.messages[-1].text
    return f"```python\n{CHILD if 'child ' in task.rpartition('Task:')[2] else ALL}\n```"


def test_running_children_finish_before_the_limit_error_ends_the_script(make_agent, scripted_model):
    scripted_model.says(*[reply] * 20)
    response = make_agent(delegate, max_children=5, retry_count=0).run("do eight", timeout=50)
    assert "can have no more" in response.error
    children = [e for e in response.events if isinstance(e, ChildFinished)]
    assert [child.status for child in children] == [True] * 5
    ends = [e.status for e in response.events if isinstance(e, CallFinished)]
    assert sorted(ends) == ["error"] * 3 + ["ok"] * 5
    assert ends[:5] == ["ok"] * 5, "those that ran ended first"


def test_script_can_keep_results_of_children_when_it_reaches_the_limit(make_agent, scripted_model):
    gathered = ALL.replace("range(8))", "range(8)), return_exceptions=True")
    scripted_model.says(lambda r: reply(r).replace(ALL, gathered), *[reply] * 20)
    response = make_agent(delegate, max_children=5, retry_count=0).run("do eight", timeout=50)
    assert response.status, response.error
    assert response.text.count("'read'") == 5


def test_limits_are_shown_in_the_prompt(make_agent, scripted_model):
    scripted_model.writes("print(1)", "print(1)")
    make_agent(delegate, max_children=5).run("x")
    shown = "at most 5 child tasks"
    assert shown in scripted_model.requests[0].messages[-1].text
    make_agent(slow, max_children=5).run("x")
    assert shown not in scripted_model.requests[1].messages[-1].text


@pytest.mark.parametrize(("own", "outer"), [(5.0, 1.0), (1.0, 5.0), (None, 1.0)])
async def test_prompt_shows_the_smallest_budget_of_all_ledgers(
    make_agent, scripted_model, own, outer
):
    scripted_model.writes("print(1)")
    agent = make_agent(delegate)
    await (await agent.asubmit("x", ledger=Ledger(own, outer_ledger=Ledger(outer))))
    assert "$1.00 for models" in scripted_model.requests[0].messages[-1].text


def test_script_limits_are_shown_only_for_script_strategies(make_agent, scripted_model):
    options = {"max_children": 5, "budget_usd": 0.5, "timeout": 90}
    scripted_model.writes("print(1)").says("done")
    make_agent(delegate, **options, sandbox_config={"calls": 7}).run("x")
    shown = scripted_model.requests[0].messages[-1].text
    for limit in (
        "90 s",
        "7 calls",
        "at most 5 child tasks",
        "$0.50",
        "10 MB printed",
        "1,000 files",
    ):
        assert limit in shown
    make_agent(delegate, **options, strategy="stream").run("x")
    shown = scripted_model.requests[1].messages[-1].text
    assert "90 s" in shown
    assert "at most 5 child tasks" in shown
    assert "printed" not in shown
    assert " calls" not in shown


def test_exhausted_budget_refuses_the_next_call_only(make_agent, scripted_model):
    def paid(request):
        return ModelReply(text=reply(request), model="scripted", cost_usd=0.01)

    scripted_model.says(*[paid] * 20)
    agent = make_agent(delegate, budget_usd=0.035, retry_count=0)
    response = agent.run("do eight", timeout=50)
    assert not response.status
    children = [e for e in response.events if isinstance(e, ChildFinished)]
    assert all(child.error != "the task was cancelled" for child in children)


# -- before a script runs ---------------------------------------------------------------------


class Desk(Connection):
    """Colleagues who each do a piece of the work in a child task."""

    @action("hand", effect="irreversible", resumes=True)
    async def hand(self, number: int, context: CallContext) -> str:
        """Have a document read by a colleague."""
        result = await context.delegate(f"child {number}", tools=[quick])
        result.raise_for_status("the colleague")
        return result.text

    @action("titles", effect="read")
    async def titles(self) -> list[int]:
        """List the documents."""
        return [*range(200)]


@tool(effect="read", confirm=False)
async def quick() -> str:
    """Read."""
    return "read"


def scripts(*codes):
    """Return a model that writes the parent's scripts in order, and reads for each child."""
    left = list(codes)

    def answer(request):
        task = request.messages[1].text.rpartition("Task:")[2]
        code = "print(await quick())" if "child " in task else left.pop(0)
        return f"```python\n{code}\n```"

    return answer


LOOP = "for n in range(200):\n    print(await desk.hand(n))"
GATHERED = "titles = await desk.titles()\nprint(await asyncio.gather(*map(desk.hand, titles)))"
BATCHES = "done = await asyncio.gather(*(desk.hand(n) for n in range(0, 200, 4)))\nprint(len(done))"


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["call", "plan"])
@pytest.mark.parametrize("first", [LOOP, GATHERED], ids=["written", "found"])
def test_oversized_documents_start_neither_child_nor_question(
    make_agent, scripted_model, first, mode
):
    """Neither a child nor a question is spent on a script that certainly exceeds a limit."""
    asked = []

    def person(request):
        asked.append(request.action)
        return Approved()

    scripted_model.default = scripts(first, BATCHES)
    agent = make_agent(Desk(), confirm_mode=mode, on_confirm=person, timeout=100)
    response = agent.run("read all")
    assert (response.error, response.text) == (None, "50")
    assert len([e for e in response.events if isinstance(e, ChildFinished)]) == 50
    is_plan = mode == "plan" and first is LOOP
    plans = 1 if is_plan else 2  # what only the run shows is refused after the plan was approved
    assert len(asked) == (50 if mode == "call" else plans)
    shown = next(
        m.text
        for m in scripted_model.requests[1].messages
        if "at least 200" in m.text or "200 calls" in m.text
    )
    assert "100 more" in shown


def test_script_certain_to_exceed_the_call_limit_is_not_run(make_agent, scripted_model):
    scripted_model.writes("for n in range(9):\n    await quick()", "print(await quick())")
    agent = make_agent(quick, sandbox_config={"calls": 5})
    assert agent.run("x").text == "read"
    assert (
        "at least 9 calls, and the task can make 5" in scripted_model.requests[1].messages[-1].text
    )


def test_task_fails_with_the_limit_that_its_last_script_exceeds(make_agent, scripted_model):
    scripted_model.writes("for n in range(9):\n    await quick()")
    agent = make_agent(quick, sandbox_config={"calls": 5}, retry_count=0)
    with pytest.raises(TaskLimitError, match="at least 9 calls"):
        agent.run("x").raise_for_status()


def test_calls_in_flight_finish_before_the_call_limit_ends_the_script(make_agent, scripted_model):
    scripted_model.writes(
        "numbers = await many()\nprint(await asyncio.gather(*(slow() for n in numbers)))"
    )

    @tool(effect="read", confirm=False)
    async def many() -> list[int]:
        """List numbers."""
        return [*range(9)]

    agent = make_agent(many, slow, sandbox_config={"calls": 4}, retry_count=0)
    response = agent.run("x")
    assert response.exception.limit == "calls"
    assert "4 calls" in scripted_model.requests[0].messages[-1].text
    ends = [e.status for e in response.events if isinstance(e, CallFinished)]
    assert ends == ["ok"] * 4


def test_task_warns_of_functions_that_may_start_too_many_children(make_agent, scripted_model):
    scripted_model.says(*[reply] * 20)
    response = make_agent(delegate, max_children=5, retry_count=0).run("do eight", timeout=50)
    warned = [e.message for e in response.events if isinstance(e, Warned)]
    assert any("at least 8 calls that may start a child" in message for message in warned)


@pytest.mark.parametrize(
    ("kind", "written"),
    [(RerunRequested, 2), (ScriptGenerated, 3), (ChildFinished, 2), (Noted, 1)],
)
async def test_child_limit_does_not_stop_recorded_scripts_on_resume(
    delf_host, scripted_model, kind, written
):
    """Children that started before the resume do not count again when their script is repeated."""
    bench = Bench(delf_host, scripted_model)
    loop = "for n in range({}):\n    await desk.hand(n)\n"
    codes = [loop.format(4), f"{loop.format(3)}rerun('done', 'say so')", "print('all done')"]
    options = {"approval_mode": "approve_all", "max_children": 3, "rerun_count": 3}
    agent = Agent(tools=[Desk()], llm="scripted", journal="test", host=bench.host, **options)
    async with agent:
        for kept in (0, written):
            scripted_model.default = scripts(*codes[kept:])
            if not kept:
                response = await agent.arun("hand out")
            else:
                await bench.journal.ended_with(response.trace.task_id, kind)
                response = await agent.aresume(response.trace.task_id)
            assert (response.error, response.text) == (None, "all done")
            assert len([e for e in response.events if isinstance(e, ChildFinished)]) == 3
            assert len([e for e in response.events if isinstance(e, Noted)]) == 1


async def test_limits_are_checked_for_new_scripts_of_a_resumed_task(delf_host, scripted_model):
    """A script that certainly exceeds a limit is not run, although earlier scripts are recorded."""
    bench = Bench(delf_host, scripted_model)
    options = {"approval_mode": "approve_all", "max_children": 3, "rerun_count": 3}
    first = "await desk.hand(0)\nrerun('one done', 'the others')"
    excessive = "for n in range(9):\n    await desk.hand(n)"
    agent = Agent(tools=[Desk()], llm="scripted", journal="test", host=bench.host, **options)
    async with agent:
        scripted_model.default = scripts(first, "print('all done')")
        response = await agent.arun("hand out")
        await bench.journal.ended_with(response.trace.task_id, RerunRequested)
        scripted_model.default = scripts(excessive, "print('refused')")
        response = await agent.aresume(response.trace.task_id)
    assert (response.error, response.text) == (None, "refused")
    assert len([e for e in response.events if isinstance(e, ChildFinished)]) == 1
    noted = [e.text for e in response.events if isinstance(e, Noted)]
    assert "at least 9 child tasks, and the task can have 2 more" in noted[0]
