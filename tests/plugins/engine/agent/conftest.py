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
    """Makes agents with these tools, ``make_agent(tool, timeout=1)``, and stops them at the end."""
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
    """Tasks on a journal that a test cuts short, and resumes."""
    return Bench(delf_host, scripted_model)
