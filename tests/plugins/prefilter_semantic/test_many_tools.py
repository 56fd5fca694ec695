"""The prompt stays small however many tools there are, and what was left out is found."""

from __future__ import annotations

from typing import Any

import pytest

from delf import Agent, Connection
from delf.testing import ScriptedModel, TestHost
from delf.tools.action import Action, action_from_function

_TOKENS = 5_500
_CHARACTERS = 4
"""Of a token, as models count English and Python."""
_NOUNS = ("order", "invoice", "ticket", "contract", "shipment", "refund", "customer", "lamp")
_VERBS = ("list", "update", "archive", "compare", "export", "approve", "assign", "translate")


class Shop(Connection):
    """A shop with a chosen number of actions."""

    def __init__(self, count: int) -> None:
        super().__init__(name="shop")
        self._count = count

    async def actions(self) -> list[Action]:
        return [_action(number) for number in range(self._count)]


def _action(number: int) -> Action:
    noun, verb = _NOUNS[number % 8], _VERBS[number // 8 % 8]

    async def act(reference: str, reason: str | None = None, limit: int = 100) -> list[str]:
        return [f"{noun} {reference}"]

    act.__doc__ = f"""{verb.capitalize()} each {noun} of the department {number}, as it is kept there.

    Args:
        reference: The {noun}'s number, as it stands on paper.
        reason: Why it is done, for the records of the department.
        limit: How many of them at most.
    """
    return action_from_function(act, name=f"{verb}_{noun}_{number}", effect="read")


def agent_with(count: int, model: ScriptedModel) -> Agent:
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    return Agent(tools=[Shop(count)], llm="scripted", host=host, sandbox="local")


def tools_part(request: Any) -> str:
    text = str(request.messages[0].text)
    return text.rpartition("Tools:\n")[2]


@pytest.mark.parametrize("count", [1, 10, 50, 200, 1500])
@pytest.mark.slow
def test_tools_are_a_small_part_of_the_prompt(count: int) -> None:
    model = ScriptedModel().says("```python\nprint('done')\n```")
    with agent_with(count, model) as agent:
        agent.run("Approve the refund of order 17 and translate the ticket").raise_for_status()
    part = tools_part(model.requests[0])
    assert len(part) / _CHARACTERS <= _TOKENS
    assert "(reference: str, reason: str | None = None, limit: int = 100) -> list[str]" in part
    assert ("find_tools" in part) == (count > 50)


@pytest.mark.slow
def test_script_can_find_a_hidden_tool() -> None:
    words = "archive the contract of department 1491"
    look = f"rerun(await find_tools('{words}'), 'archive it')"
    call = "print((await shop.archive_contract_19('C-7'))[0])"
    model = ScriptedModel().says(f"```python\n{look}\n```").says(f"```python\n{call}\n```")
    with agent_with(1500, model) as agent:
        response = agent.run("Compare lamps")
    assert response.raise_for_status().text.strip() == "contract C-7"
    assert "def archive_contract_19(" not in tools_part(model.requests[0])
    assert "def archive_contract_" in str(model.requests[1].messages[-1].text)
