"""Types of answers as a type checker sees them; a test checks this file, and nothing runs it."""

from typing import Any, TypedDict, assert_type

from pydantic import BaseModel

from delf import Agent, Response


class Invoice(BaseModel):
    total: float


class Row(TypedDict):
    id: int


def one_task(agent: Agent) -> None:
    response = agent.run("x", output=Invoice)
    assert_type(response, Response[Invoice])
    assert_type(response.value.total, float)
    assert_type(agent.run("x", output=Row), Response[Row])
    assert_type(agent.run("x", output=list[Invoice]), Response[list[Invoice]])
    assert_type(agent.run("x", output={"type": "object"}), Response[Any])
    assert_type(agent.run("x", files=["a.csv"]), Response[Any])


def every_task() -> None:
    agent = Agent(llm="x", output=Invoice)
    assert_type(agent, Agent[Invoice])
    assert_type(agent.run("x"), Response[Invoice])
    assert_type(agent.run("x").raise_for_status().value, Invoice)
    assert_type(agent.run("x", output=Row), Response[Row])


async def awaited() -> None:
    async with Agent(llm="x", output=Row) as agent:
        assert_type(await agent.arun("x", files=["a"]), Response[Row])
        assert_type(await agent.arun("x", output=Invoice), Response[Invoice])
