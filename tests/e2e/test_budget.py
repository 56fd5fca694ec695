"""A budget with a real model server that counts what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, BudgetExceededError, LLMConfig, Response, load_project
from support.model_fixtures import LITELLM_WARNING
from support.openai_server import OpenAIServer, Reply, Request

pytestmark = [pytest.mark.services, pytest.mark.filterwarnings(LITELLM_WARNING)]

StartServer = Callable[..., OpenAIServer]
MakeAgent = Callable[..., Agent]

PRICED = Reply(text="```python\nprint('done')\n```", usage=(1000, 200))
"""With the prices below: $0.001 + $0.002."""


@pytest.fixture
def make_agent(
    openai_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> MakeAgent:
    monkeypatch.chdir(tmp_path)
    prices = {"priced-*": {"input": 1.0, "cached_input": 0.1, "output": 10.0}}
    (tmp_path / "pricing.json").write_text(json.dumps(prices))

    def make(server: OpenAIServer, model: str = "priced-1", **options: Any) -> Agent:
        settings = options.pop("settings", {})
        llm = LLMConfig(model, base_url=server.base_url, api_key="k", settings=settings)
        return Agent(llm=llm, sandbox="local", project=load_project(), **options)

    return make


def always(_: Request) -> Reply:
    return PRICED


def test_call_over_the_budget_is_not_made(
    openai_server: StartServer, make_agent: MakeAgent
) -> None:
    server = openai_server(always)
    with make_agent(server, budget_usd=0.01) as agent:
        responses = [agent.run("go") for _ in range(3)]
        for _ in range(2):
            with pytest.raises(BudgetExceededError, match=r"only \$0\.001000 are left") as caught:
                agent.run("go")
            assert caught.value.code == "AGT-006"
        status = agent.status()["budget"]
        assert all(responses)
        assert [response.cost_usd for response in responses] == pytest.approx([0.003] * 3)
        assert len(server.requests) == 3
        assert agent.total_cost_usd == pytest.approx(0.009)
        assert status["remaining_usd"] == pytest.approx(0.001)
        assert not status["is_exhausted"]
        agent.reset_budget()
        assert agent.run("go").status
        agent.reset_budget(0.002)
        with pytest.raises(BudgetExceededError):
            agent.run("go")
        assert agent.status()["budget"]["limit_usd"] == 0.002
    assert len(server.requests) == 4


@pytest.mark.timeout(120)
def test_concurrent_tasks_share_the_budget(
    openai_server: StartServer, make_agent: MakeAgent
) -> None:
    server = openai_server(always)

    async def main() -> tuple[list[bool], Agent]:
        async with make_agent(server, budget_usd=0.01) as agent:
            first = await agent.arun("go")
            rest = await asyncio.gather(
                *(agent.arun("go") for _ in range(20)), return_exceptions=True
            )
            return [first.status, *(isinstance(one, Response) for one in rest)], agent

    statuses, agent = asyncio.run(main())
    assert statuses.count(True) == len(server.requests) == 3
    assert agent.total_cost_usd == pytest.approx(0.009)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("settings", [{}, {"max_tokens": 10}], ids=["unknown", "passed"])
def test_unbounded_replies_exceed_the_budget_by_at_most_one_call(
    openai_server: StartServer, make_agent: MakeAgent, settings: dict[str, int]
) -> None:
    """Neither many first calls at once nor a server that returns more than it was asked for."""
    server = openai_server(always)

    async def main() -> Agent:
        async with make_agent(server, budget_usd=0.01, settings=settings) as agent:
            tasks = (agent.arun("go") for _ in range(20))
            await asyncio.gather(*tasks, return_exceptions=True)
            return agent

    agent = asyncio.run(main())
    assert len(server.requests) <= 4
    assert 0.009 <= agent.total_cost_usd <= 0.01 + 0.003


@pytest.mark.parametrize(
    "usage", [None, (0, 0), (1000, 0), (0, 1000)], ids=["none", "zero", "no output", "no input"]
)
@pytest.mark.parametrize("plugin", ["", "litellm/"], ids=["http", "litellm"])
def test_unreported_tokens_are_estimated_and_priced(
    plugin: str, usage: tuple[int, int] | None, openai_server: StartServer, monkeypatch: Any
) -> None:
    """The second task is not refused for a price that is known."""
    text = f"```python\nprint('done')\n{'#' * 3000}\n```"
    server = openai_server(lambda _: Reply(text=text, usage=usage))
    llm = LLMConfig(f"{plugin}openai/gpt-4o-mini", api_key="k")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    with Agent(llm=llm, sandbox="local", budget_usd=1.0) as agent:
        first, second = agent.run("go"), agent.run("go")
        assert (first.status, second.status) == (True, True)
        assert 0.0004 < (first.cost_usd or 0) < 0.002
        assert agent.status()["unpriced_calls"] == 0


def test_budget_reserves_max_tokens_before_the_first_call(
    openai_server: StartServer, make_agent: MakeAgent
) -> None:
    server = openai_server(always)
    agent = make_agent(server, budget_usd=0.01, settings={"max_tokens": 2000})
    with agent, pytest.raises(BudgetExceededError, match=r"would cost about \$0\.02"):
        agent.run("go")
    assert server.requests == []


def test_model_calls_of_scripts_count_against_the_budget(
    openai_server: StartServer, make_agent: MakeAgent
) -> None:
    code = """
for number in range(10):
    try:
        await llm.call("x")
    except ToolError as error:
        print(f"stopped after {number}: {error}")
        raise
"""

    def answer(request: Request) -> Reply:
        text = f"```python\n{code}\n```" if "Task:" in request.prompt else "y"
        return Reply(text=text, usage=(1000, 200))

    server = openai_server(answer)
    with make_agent(server, budget_usd=0.01) as agent:
        response = agent.run("go")
    assert isinstance(response.exception, BudgetExceededError)
    assert response.text.startswith("stopped after 2: the next model call would cost")
    assert len(server.requests) == 3
    assert response.trace.usage_by_step["execute"].calls == 2


@pytest.mark.parametrize("stream", [False, True])
def test_unknown_price_is_refused_before_any_request(
    openai_server: StartServer, make_agent: MakeAgent, stream: bool
) -> None:
    server = openai_server(always)
    unknown = "the price of the model 'unheard-of' is not known"
    agent = make_agent(server, "unheard-of", budget_usd=1.0, stream=stream)
    with agent, pytest.raises(BudgetExceededError, match=unknown) as caught:
        agent.run("go")
    assert "pricing.json" in (caught.value.hint or "")
    assert server.requests == []
    with make_agent(server, "unheard-of", budget_usd=1.0, allow_unpriced=True) as agent:
        response = agent.run("go")
        assert (response.status, response.cost_usd) == (True, None)
        assert agent.status()["unpriced_calls"] == 1


def test_litellm_prices_are_the_default_prices(
    openai_server: StartServer, make_agent: MakeAgent
) -> None:
    server = openai_server([Reply(text=PRICED.text, usage=(1000, 200, 400))])
    with make_agent(server, "gpt-4o", budget_usd=1.0) as agent:
        response = agent.run("go").raise_for_status()
    assert response.cost_usd == pytest.approx((600 * 2.5 + 400 * 1.25 + 200 * 10) / 1e6)
    assert response.trace.usage.cached_tokens == 400
