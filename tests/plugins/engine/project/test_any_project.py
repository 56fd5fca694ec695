"""Tests of settings that come from elsewhere than delf.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delf import Agent, tool
from delf_engine.config import AgentConfig


@tool(confirm=False)
def price(item: str) -> int:
    """Return the price of an item."""
    return len(item)


@dataclass
class Table:
    """A project whose settings are not in a file."""

    root: Path
    agent: AgentConfig
    journal: str | None = "none"
    plugin_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    connections: tuple[str, ...] = ("price",)

    def connector(self, host: Any) -> Any:
        return lambda name, **_: {"price": price}[name]

    def secrets(self) -> tuple[str, ...]:
        return ("hunter2-of-the-table",)


def test_agent_takes_its_settings_from_any_project(tmp_path, delf_host, scripted_model):
    scripted_model.writes("print(await price('lamp'), 'hunter2-of-the-table')")
    table = Table(tmp_path, AgentConfig(llm="scripted", retry_count=3))
    with Agent.from_project(table, host=delf_host) as agent:
        assert agent.retry_count == 3
        response = agent.run("What does a lamp cost?")
    assert response.text.startswith("4 ")
    assert "hunter2" not in response.text
