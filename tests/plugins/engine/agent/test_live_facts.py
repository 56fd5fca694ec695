"""``context()`` of a connection that fails, hangs, or has too much to say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from delf import Agent
from delf.errors import ConnectionUnavailableError, DelfError
from delf.tools.action import action
from delf.tools.connection import Connection
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine import live_facts as facts


class Desk(Connection):
    """A connection with facts."""

    def __init__(self, facts: Callable[[], Any]) -> None:
        super().__init__(name="desk")
        self.facts = facts

    @action(effect="read")
    async def find(self) -> list[str]:
        """Tickets."""
        return []

    async def context(self, task: str) -> str | None:
        found = self.facts()
        return await found if asyncio.isfuture(found) else found


def never() -> Any:
    return asyncio.get_running_loop().create_future()


def fails() -> None:
    raise KeyError("tickets")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (never, "did not answer context() within 0.05 s"),
        (fails, "failed in context(): KeyError: 'tickets'"),
        (lambda: ["a"], "returned a list in context(), not a text or None"),
    ],
)
@pytest.mark.parametrize("way", ["task", "check"])
async def test_connection_failing_to_give_context_is_named(
    delf_host: TestHost,
    scripted_model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    source: Callable[[], Any],
    problem: str,
    way: str,
) -> None:
    monkeypatch.setattr(facts, "CONTEXT_SECONDS", 0.05)
    scripted_model.default = "```python\nprint(1)\n```"
    async with Agent([Desk(source)], llm="scripted", host=delf_host) as agent:
        if way == "task":
            error: BaseException | None = (await agent.arun("x")).exception
        else:
            with pytest.raises(DelfError) as raised:
                await agent.acheck()
            error = raised.value
    assert isinstance(error, ConnectionUnavailableError)
    assert error.message == f"the connection 'desk' {problem}"


async def test_long_connection_context_is_cut(
    delf_host: TestHost, scripted_model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_model.default = "```python\nprint(1)\n```"
    async with Agent([Desk(lambda: "x" * 1_000_000)], llm="scripted", host=delf_host) as agent:
        assert (await agent.arun("x")).text == "1"
    assert len(scripted_model.prompts[0]) < facts.MAX_CONTEXT_SIZE + 20_000
    assert "950000 more characters" in scripted_model.prompts[0]
    assert "facts about desk have 1000000 characters" in caplog.text
