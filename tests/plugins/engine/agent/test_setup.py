"""Tests of set-up: what a model does once for a connection, and its cost."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from delf.errors import LLMExecutionError
from delf.messages import ModelReply, ModelRequest, Usage, user
from delf.protocols.connection import SetupAsk, SupportsSetup
from delf.tools.action import Action, action_from_function
from delf.tools.connection import Connection
from delf_devkit.testing.models import ScriptedModel

USAGE = Usage(input_tokens=10, output_tokens=5)


def priced(text: str, cost: float | None = 0.25) -> ModelReply:
    return ModelReply(text=text, model="scripted", usage=USAGE, cost_usd=cost)


class Shop(Connection):
    """A shop with one action, whose name and description come from a model."""

    summary = "A shop."
    needs_setup = True

    def __init__(self, *, llm: str | None = None, name: str = "shop", **options: Any) -> None:
        super().__init__(name=name, **options)
        self.found = "find"
        self.done = 0
        self._llm = llm

    async def actions(self) -> Sequence[Action]:
        def find() -> int:
            """Look something up."""
            return 7

        return [action_from_function(find, name=self.found, effect="read")]

    async def setup(self, ask: SetupAsk) -> bool:
        self.found = (await ask([user("What is it called?")], self._llm)).text
        self.done += 1
        return True


def test_setup_runs_once_before_the_first_task(
    make_agent: Any, scripted_model: ScriptedModel
) -> None:
    shop = Shop()
    assert isinstance(shop, SupportsSetup)
    scripted_model.says(priced("look_up"))
    scripted_model.writes("print(await shop.look_up())", "print(await shop.look_up())")
    agent = make_agent(shop, system_prompt="Talk like a pirate.")
    first, second = agent.run("Look."), agent.run("Look again.")
    assert (first.text, second.text, shop.done) == ("7", "7", 1)
    assert [r.purpose for r in scripted_model.requests] == ["setup", "generate", "generate"]
    assert "pirate" in scripted_model.prompts[0]  # it is added to every model call
    assert "async def look_up(" in scripted_model.prompts[1]
    assert "async def find(" not in scripted_model.prompts[1]


def test_setup_cost_belongs_to_the_agent(make_agent: Any, scripted_model: ScriptedModel) -> None:
    scripted_model.says(priced("look_up", 0.25), priced("```python\nprint(1)\n```", 0.5))
    scripted_model.says(priced("```python\nprint(2)\n```", 0.5))
    agent = make_agent(Shop())
    first, second = agent.run("One."), agent.run("Two.")
    setup = first.trace.api_enrichment
    assert (setup.cost_usd, setup.calls, setup.usage, setup.cached) == (0.25, 1, USAGE, False)
    assert (first.cost_usd, first.trace.total_cost_usd, first.trace.usage) == (0.5, 0.5, USAGE)
    assert second.trace.api_enrichment is None
    assert agent.total_cost_usd == 1.25
    assert "set-up    $0.250000" in first.trace.summary()
    assert first.trace.to_dict()["api_enrichment"]["cost_usd"] == 0.25
    assert [call.purpose for call in first.trace.model_calls] == ["setup", "generate"]


def test_setup_uses_the_model_of_its_connection(
    make_agent: Any, scripted_model: ScriptedModel
) -> None:
    scripted_model.says("look_up", "search").writes("print(1)")
    tools = Shop(), Shop(name="other", llm="scripted:own")
    agent = make_agent(*tools, llm=None, light_llm="scripted:light", heavy_llm="scripted:heavy")
    trace = agent.run("One.").trace
    asked = [call.model for call in trace.model_calls]
    assert asked == ["scripted:light", "scripted:own", "scripted:heavy"]


@pytest.mark.parametrize(
    "failure", [LLMExecutionError("the model is down"), ValueError("inside the plugin")]
)
def test_failing_setup_is_a_warning(
    failure: Exception,
    make_agent: Any,
    scripted_model: ScriptedModel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(request: ModelRequest) -> Any:
        raise failure

    class Broken(Shop):
        async def setup(self, ask: SetupAsk) -> bool:
            if isinstance(failure, ValueError):
                raise failure
            return await super().setup(ask)

    if isinstance(failure, LLMExecutionError):
        scripted_model.says(fail)
    scripted_model.writes("print(await shop.find())")
    response = make_agent(Broken()).run("Look.")
    assert (response.status, response.text) == (True, "7")
    (warning,) = response.trace.warnings
    assert warning.startswith("shop is not wholly set up: ")
    assert "inside the plugin" not in warning


class Leaving(Shop):
    """A shop that ends the process when it learns from a task."""

    needs_setup = False

    async def learn(self, _: Any) -> None:
        sys.exit(4)


async def test_exit_of_a_learning_connection_is_logged(
    make_agent: Any, scripted_model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    scripted_model.writes("print(await shop.find())")
    async with make_agent(Leaving()) as agent:
        assert (await agent.arun("x")).text == "7"
    assert "shop has learned nothing" in caplog.text


def test_setup_stops_at_the_budget(make_agent: Any, scripted_model: ScriptedModel) -> None:
    class Greedy(Shop):
        async def setup(self, ask: SetupAsk) -> bool:
            for _ in range(10):
                await ask([user("more")], None)
            return True

    scripted_model.says(*[priced("x", 0.4)] * 5)
    agent = make_agent(Greedy(), budget_usd=1.0)
    response = agent.run("Look.")
    assert len(scripted_model.requests) == 3
    assert agent.total_cost_usd == pytest.approx(1.2)
    assert "budget" in response.trace.warnings[0]
    assert not response.status
    assert "budget" in response.error


async def test_tasks_wait_until_setup_is_done(
    make_agent: Any, scripted_model: ScriptedModel
) -> None:
    going = asyncio.Event()

    async def slowly(request: ModelRequest) -> str:
        going.set()
        await asyncio.sleep(0)
        return "look_up"

    shop = Shop()
    scripted_model.says(slowly).writes(*["print(await shop.look_up())"] * 3)
    async with make_agent(shop) as agent:
        responses = await asyncio.gather(*(agent.arun(f"Task {n}.") for n in range(3)))
    assert [r.text for r in responses] == ["7", "7", "7"]
    assert shop.done == 1
    assert sum(r.trace.api_enrichment is not None for r in responses) == 1
    assert going.is_set()
