"""Settings that code does not give: from the package that reads delf.toml, or from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, OptionalDependencyError, tool
from delf.config import AgentConfig
from delf.projects import connector_of, project_at


@tool(confirm=False)
def price(item: str) -> int:
    """What an item costs."""
    return len(item)


@dataclass
class Table:
    """A project whose settings are in no file."""

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


def test_an_agent_takes_its_settings_from_any_project(tmp_path, delf_host, scripted_model):
    scripted_model.writes("print(await price('lamp'), 'hunter2-of-the-table')")
    table = Table(tmp_path, AgentConfig(llm="scripted", retry_count=3))
    with Agent.from_project(table, host=delf_host) as agent:
        assert agent.retry_count == 3
        response = agent.run("What does a lamp cost?")
    assert response.text.startswith("4 ")
    assert "hunter2" not in response.text


@pytest.fixture
def bare(monkeypatch):
    """An environment in which the package is not installed."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "delf_project"]:
        monkeypatch.delitem(sys.modules, name)

    class Missing:
        def find_spec(self, name: str, *_: Any) -> None:
            if name.partition(".")[0] == "delf_project":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])


def test_without_the_package_the_error_names_it(bare, tmp_path, delf_host):
    connect = connector_of(None, delf_host, {}, tmp_path)
    for do in (lambda: project_at(tmp_path), lambda: connect("shop"), Agent.from_project):
        with pytest.raises(OptionalDependencyError, match=r"delf\.toml") as caught:
            do()
        assert "delf-project" in (caught.value.hint or "")


def test_an_agent_made_in_code_does_without_the_package(bare, delf_host, scripted_model):
    scripted_model.writes("print(await price('lamp'))")
    with Agent(llm="scripted", tools=[price], host=delf_host) as agent:
        assert agent.run("What does a lamp cost?").text == "4"


def test_the_core_imports_no_project_by_itself():
    code = "import sys, delf.agent, delf.engine.runtime; print('delf_project' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
