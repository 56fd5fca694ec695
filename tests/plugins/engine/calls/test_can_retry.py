"""Tests that a failure which no other script can avoid asks no model again."""

import pytest

from delf import Agent, ToolExecutionError, tool
from delf.errors import (
    ApprovalRejectedError,
    ConfigurationError,
    ConnectionUnavailableError,
    EnvironmentKeyError,
    LLMExecutionError,
    ToolException,
    ToolRefusedError,
)


@pytest.fixture
def agent_with(delf_host, scripted_model):
    def make(error, **options):
        @tool(effect="read", confirm=False)
        async def bid() -> str:
            """Ask a service."""
            raise error

        @tool
        async def pay() -> str:
            """Pay."""
            return "paid"

        return Agent(tools=[bid, pay], llm="scripted", host=delf_host, retry_count=2, **options)

    return make


FINAL = [
    ConnectionUnavailableError("the service does not answer"),
    EnvironmentKeyError("no key", variable="KEY"),
    ToolExecutionError("403: not your file", can_retry=False),
]
OTHERS = [
    ToolExecutionError("404: no such file"),
    ToolException("sold out"),
    ValueError("bad"),
]


@pytest.mark.parametrize("error", FINAL, ids=lambda e: type(e).__name__)
async def test_non_retryable_failure_ends_the_task(agent_with, scripted_model, error):
    scripted_model.writes("print('before')\nawait bid()")
    async with agent_with(error) as agent:
        response = await agent.arun("x")
    assert not response.status
    assert str(error) in response.error
    assert response.text.strip() == "before"
    assert len(scripted_model.requests) == 1


async def test_non_retryable_refusal_is_the_answer_at_once(agent_with, scripted_model):
    scripted_model.writes("print('before')\nawait bid()")
    async with agent_with(ToolException("not for you", can_retry=False)) as agent:
        response = await agent.arun("x")
    assert response.text == "before\nbid was refused: not for you"
    assert len(scripted_model.requests) == 1


async def test_refusal_is_the_answer_when_no_retry_is_left(agent_with, scripted_model):
    scripted_model.writes("await bid()", "print('Hm.')\nawait bid()", "await bid()\nprint('Sold!')")
    async with agent_with(ToolException("sold out")) as agent:
        response = await agent.arun("x")
    assert (response.text, response.state) == ("bid was refused: sold out", "done")
    assert len(scripted_model.requests) == 3


@pytest.mark.parametrize("error", OTHERS, ids=lambda e: type(e).__name__)
async def test_retryable_error_returns_to_the_model(agent_with, scripted_model, error):
    scripted_model.writes("await bid()", "print('mended')")
    async with agent_with(error) as agent:
        response = await agent.arun("x")
    assert (response.text, len(scripted_model.requests)) == ("mended", 2)


async def test_script_may_catch_a_final_failure_and_continue(agent_with, scripted_model):
    scripted_model.writes(
        "try:\n    await bid()\nexcept ToolError:\n    pass\n1 / 0", "print('mended')"
    )
    async with agent_with(FINAL[0]) as agent:
        response = await agent.arun("x")
    assert (response.text, len(scripted_model.requests)) == ("mended", 2)


async def test_failure_imitating_a_tool_error_returns_to_the_model(agent_with, scripted_model):
    scripted_model.writes(
        "try:\n    await bid()\nexcept ToolError:\n    pass\n"
        "raise ValueError('broken down by month')",
        "print('mended')",
    )
    async with agent_with(ToolExecutionError("down", can_retry=False)) as agent:
        response = await agent.arun("x")
    assert (response.text, len(scripted_model.requests)) == ("mended", 2)


@pytest.mark.parametrize(
    "script",
    [
        "try:\n    await bid()\nexcept ToolError as error:\n    raise ValueError('no') from error",
        "import asyncio\nasync with asyncio.TaskGroup() as group:\n    group.create_task(bid())",
    ],
    ids=["raised from it", "in a group"],
)
async def test_failure_caused_by_a_final_tool_error_ends_the_task(
    agent_with, scripted_model, script
):
    scripted_model.writes(script)
    raised = FINAL[0]
    async with agent_with(raised) as agent:
        response = await agent.arun("x")
    assert response.exception.__cause__ is raised
    assert len(scripted_model.requests) == 1


async def test_failed_task_has_the_last_tool_error_as_cause(agent_with, scripted_model):
    scripted_model.writes(*["await bid()"] * 3)
    raised = ValueError("bad")
    async with agent_with(raised) as agent:
        response = await agent.arun("x")
    assert response.exception.__cause__ is raised


async def test_unreachable_approver_ends_the_task_without_a_retry(agent_with, scripted_model):
    scripted_model.writes("await pay()")
    async with agent_with(ValueError()) as agent:
        response = await agent.arun("x")
    assert isinstance(response.exception, ApprovalRejectedError)
    assert "nobody could be asked" in response.error
    assert len(scripted_model.requests) == 1


@pytest.mark.parametrize(
    ("kind", "can_retry"),
    [
        (ToolExecutionError, True),
        (ToolRefusedError, True),
        (ConnectionUnavailableError, False),
        (ConfigurationError, False),
        (LLMExecutionError, False),
    ],
)
def test_error_classes_declare_retryability(kind, can_retry):
    assert kind("x").can_retry is can_retry
