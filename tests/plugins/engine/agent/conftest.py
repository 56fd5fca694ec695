"""Agents with a scripted model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delf import Agent
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from support.resuming import Bench


@pytest.fixture
def make_agent(
    delf_host: TestHost, scripted_model: ScriptedModel
) -> Iterator[Callable[..., Agent]]:
    """Yield a function that makes agents with some tools, and stop the agents after the test."""
    made: list[Agent] = []

    def make(*tools: Any, **options: Any) -> Agent:
        options = {"llm": "scripted", "sandbox": "local", "host": delf_host, **options}
        made.append(Agent(tools=tools, **options))
        return made[-1]

    yield make
    for agent in made:
        agent.stop()


@pytest.fixture
def bench(delf_host: TestHost, scripted_model: ScriptedModel) -> Bench:
    """Return a bench whose task a test interrupts at a point of its journal, and resumes."""
    return Bench(delf_host, scripted_model)
