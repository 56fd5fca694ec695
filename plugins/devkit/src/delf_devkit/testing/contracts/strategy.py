"""What every strategy must do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from delf.errors import LLMExecutionError
from delf.response import Response
from delf.specs import SandboxSpec, StrategySpec
from delf.tools.function import Tool, tool
from delf_devkit.testing.contracts.base import Contract, missing
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import Answer, ScriptedModel


@tool(effect="read", confirm=False)
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


@tool(effect="write", confirm=True)
def forget(name: str) -> str:
    """Forget a name.

    Args:
        name: Which.
    """
    return f"forgot {name}"


class StrategyContract(Contract):
    """Give a fixture ``strategy``: what the spec's factory is; the class, usually.

    The suite runs an agent with the tools ``add(a, b)`` and ``forget(name)``. ``replies`` are
    the model's answers with which the strategy calls ``add(1, 2)`` and answers with a text
    that holds 3; ``unapproved`` those with which it tries ``forget("Ann")``.
    """

    replies: ClassVar[Sequence[Answer]] = ()
    unapproved: ClassVar[Sequence[Answer]] = ()

    @pytest.fixture
    def strategy(self) -> Any:
        """The factory of the strategy under test."""
        missing(self, "a fixture `strategy`")

    async def test_answers_with_what_the_tools_gave(self, strategy: Any) -> None:
        response = await self._solve(strategy, self.replies)
        response.raise_for_status()
        assert "3" in response.text
        assert [(call.name, call.status) for call in response.trace.tool_calls] == [("add", "ok")]
        assert response.trace.usage.total_tokens > 0

    async def test_calls_pass_the_gate(self, strategy: Any) -> None:
        response = await self._solve(strategy, self.unapproved)
        statuses = [call.status for call in response.trace.tool_calls if call.name == "forget"]
        assert statuses
        assert set(statuses) == {"rejected"}

    async def test_a_failing_model_fails_the_task(self, strategy: Any) -> None:
        response = await self._solve(strategy, [LLMExecutionError("the model is down")])
        assert not response.status
        assert response.error is not None
        assert "the model is down" in response.error

    async def test_a_task_can_time_out(self, strategy: Any) -> None:
        async def never(_request: object) -> str:
            return await asyncio.get_running_loop().create_future()

        response = await self._solve(strategy, [never], timeout=0.2)
        assert not response.status
        assert response.error is not None
        assert "Timeout" in response.error

    async def _solve(
        self, strategy: Any, replies: Sequence[Answer], timeout: float = 20.0
    ) -> Response:
        from delf import Agent

        host = TestHost.discover(environ={})
        if not host.specs(SandboxSpec):
            pytest.skip("needs a sandbox: pip install delf-plugin-sandbox-local")
        model = ScriptedModel().says(*(replies or missing(self, "`replies` and `unapproved`")))
        host.provide(model.spec, model.factory)
        spec = StrategySpec(name="under-test", summary="The one under test.", factory="x:y")
        host.provide(spec, strategy)
        tools: list[Tool[..., Any]] = [add, forget]
        async with Agent(
            tools=tools,
            llm="scripted",
            host=host,
            strategy="under-test",
            approval_mode="strict",
            retry_count=0,
        ) as agent:
            return await self.within(agent.arun("Add 1 and 2.", timeout))
