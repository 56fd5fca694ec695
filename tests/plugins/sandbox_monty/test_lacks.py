"""The prompt names what Monty does not support, and ``auto`` does not choose it for packages."""

import pytest

from delf import Agent, tool
from delf.errors import SandboxUnavailableError
from delf.testing import ScriptedModel, TestHost
from delf_engine.config import make_config
from delf_engine.sandboxes.starting import choose_sandbox
from delf_sandbox_monty.words import STANDARD_MODULES


@tool(effect="read", confirm=False)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.parametrize(("sandbox", "shown"), [("monty", True), ("local", False)])
def test_unsupported_modules_are_listed_in_the_prompt(sandbox, shown):
    host, model = TestHost.discover(), ScriptedModel().writes("print(add(1, 2))")
    host.provide(model.spec, model.factory)
    with Agent(
        tools=[add], llm="scripted", host=host, sandbox=sandbox, allow_unpriced=True, journal="none"
    ) as agent:
        assert agent.run("Add.").text == "3"
    assert ("It lacks yield in functions whose tool calls change data" in model.prompts[0]) is shown
    named = [name for name in ("asyncio", "statistics") if f" {name}," in model.prompts[0]]
    assert (named == ["asyncio", "statistics"]) is shown
    assert {"asyncio", "statistics"} <= STANDARD_MODULES


async def test_allowed_packages_exclude_monty():
    host = TestHost.discover()
    values = {"llm": "m", "min_isolation": "interpreter", "allowed_libs": ["pandas"]}
    answer_text, chosen = "", None
    try:
        chosen = await choose_sandbox(host, make_config(values), {})
    except SandboxUnavailableError as error:
        answer_text = error.message
    if chosen is not None:  # where there is Docker
        assert chosen.spec.name != "monty"
        await chosen.backend.aclose()
    else:
        assert "monty cannot import pandas" in answer_text
