"""A limit of a task ends the next call, and not those that run; the prompt tells it."""

from __future__ import annotations

import asyncio

from delf import CallContext, tool
from delf.events import CallFinished, ChildFinished
from delf.messages import ModelReply


@tool(effect="write", confirm=False)
async def delegate(number: int, context: CallContext) -> str:
    """Have it done by a child task."""
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


def test_children_that_run_end_before_the_script_sees_the_limit(make_agent, scripted_model):
    scripted_model.says(*[reply] * 20)
    response = make_agent(delegate, max_children=5, retry_count=0).run("do eight", timeout=50)
    assert "can have no more" in response.error
    children = [e for e in response.events if isinstance(e, ChildFinished)]
    assert [child.status for child in children] == [True] * 5
    ends = [e.status for e in response.events if isinstance(e, CallFinished)]
    assert sorted(ends) == ["error"] * 3 + ["ok"] * 5
    assert ends[:5] == ["ok"] * 5, "those that ran ended first"


def test_a_script_can_take_what_was_done(make_agent, scripted_model):
    gathered = ALL.replace("range(8))", "range(8)), return_exceptions=True")
    scripted_model.says(lambda r: reply(r).replace(ALL, gathered), *[reply] * 20)
    response = make_agent(delegate, max_children=5, retry_count=0).run("do eight", timeout=50)
    assert response.status, response.error
    assert response.text.count("'read'") == 5


def test_the_limit_is_told_in_the_prompt(make_agent, scripted_model):
    scripted_model.writes("print(1)", "print(1)")
    make_agent(delegate, max_children=5).run("x")
    told = "at most 5 child tasks"
    assert told in scripted_model.requests[0].messages[-1].text
    make_agent(slow, max_children=5).run("x")
    assert told not in scripted_model.requests[1].messages[-1].text


def test_a_budget_ends_the_next_call_and_not_those_that_run(make_agent, scripted_model):
    def paid(request):
        return ModelReply(text=reply(request), model="scripted", cost_usd=0.01)

    scripted_model.says(*[paid] * 20)
    agent = make_agent(delegate, budget_usd=0.035, retry_count=0)
    response = agent.run("do eight", timeout=50)
    assert not response.status
    children = [e for e in response.events if isinstance(e, ChildFinished)]
    assert all(child.error != "the task was cancelled" for child in children)
