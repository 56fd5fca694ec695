"""Tests of the warning about actions that a script names but never calls."""

from __future__ import annotations

import pytest

from delf import Agent, tool
from delf.events import Warned


@pytest.mark.parametrize("sandbox", ["local", "monty"])
def test_task_warns_of_named_actions_that_were_not_called(make_agent, scripted_model, sandbox):
    @tool(effect="irreversible", confirm=False)
    def pay(n: int) -> int:
        """Pay."""
        return n

    code = "from functools import partial\njobs = [partial(pay, n) for n in range(3)]\n"
    agent: Agent = make_agent(pay, sandbox=sandbox)
    scripted_model.writes(f"{code}print(len(jobs), 'paid')")
    response = agent.run("pay three")
    warned = [event.message for event in response.events if isinstance(event, Warned)]
    assert "pay is named on line 2 of the script, and no call of it was made" in warned
    scripted_model.writes(f"{code}print([job() for job in jobs])")
    response = agent.run("pay three")
    assert response.text == "[0, 1, 2]"
    assert not [event for event in response.events if isinstance(event, Warned)]
