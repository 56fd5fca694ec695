"""Tests of what an agent reports about itself and about its progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from delf import Agent, LLMConfig, tool
from delf.errors import BudgetExceededError
from delf.messages import ModelReply, Usage
from delf_devkit.testing.models import ScriptedModel, script

MakeAgent = Callable[..., Agent]


@tool(confirm=False)
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def test_agent_status_reports_state_and_budget(
    make_agent: MakeAgent, scripted_model: ScriptedModel
) -> None:
    agent = make_agent(add, budget_usd=2.0)
    before = agent.status()
    assert (before["state"], before["sandbox"]) == ("new", None)
    assert before["budget"] == {
        "limit_usd": 2.0,
        "cost_usd": 0.0,
        "reserved_usd": 0.0,
        "remaining_usd": 2.0,
        "is_exhausted": False,
        "by_task": {},
    }
    agent.start()
    usage = Usage(input_tokens=100, cached_tokens=30, output_tokens=20)
    text = script("print(await add(1))")
    scripted_model.says(ModelReply(text=text, model="scripted", usage=usage, cost_usd=2.5))
    agent.run("add").raise_for_status()
    after = agent.status()
    assert after["state"] == "running"
    assert after["sandbox"] == {"name": "local", "isolation": "process"}
    assert after["tasks"] == {"running": 0, "queued": 0, "kept": 0}
    assert after["usage"]["total_tokens"] == 120
    assert after["total_cost_usd"] == agent.total_cost_usd == 2.5
    assert (after["budget"]["remaining_usd"], after["budget"]["is_exhausted"]) == (0.0, True)
    with pytest.raises(BudgetExceededError):
        agent.run("add")
    assert len(scripted_model.requests) == 1
    agent.stop()
    assert agent.status()["state"] == "stopped"
    json.dumps(after)


async def _nothing(_: Any) -> None:
    return None


def test_agent_info_shows_settings_without_keys(make_agent: MakeAgent) -> None:
    heavy = LLMConfig(
        "big",
        base_url="https://user:planted-password@models.test/v1?key=planted-query",
        api_key="planted-key",
        headers={"X-Key": "planted-header"},
        settings={"temperature": 0},
    )
    agent = make_agent(
        add, llm=None, heavy_llm=heavy, light_llm="small", providers={"openai": "planted-provider"}
    )
    assert agent.get_llm_config_string() == (
        "heavy big at https://models.test/v1 (temperature=0), light small"
    )
    info = agent.info()
    assert (info["models"], info["tools"]) == ({"heavy": "big", "light": "small"}, ["add"])
    assert (info["agent_id"], info["state"], info["retry_count"]) == (agent.agent_id, "new", 1)
    assert "planted" not in json.dumps(info) + repr(agent) + repr(agent.config)


def test_verbose_agent_prints_each_step_and_a_summary(
    make_agent: MakeAgent, scripted_model: ScriptedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted_model.writes("print(await add(1, desc='sum\\x1b[2J'))", "nothing")
    agent = make_agent(add, verbose=True)
    agent.run("add it").raise_for_status()
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line.strip() for line in err.splitlines()]
    assert lines[0].endswith(": add it")
    message = [line for line in lines if line.startswith(("→", "←", "scripted (generate)"))]
    assert [line.split(",")[0] for line in message] == [
        "scripted (generate): 100 tokens in",
        "→ 1 add: sum\\x1b[2J",
        "← 1 ok",
    ]
    assert lines.index(message[-1]) < lines.index("calls     1 ok")
    assert "\x1b" not in err
