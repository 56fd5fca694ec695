"""The cache of agents that a runner lends to tasks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delf.errors import ConfigurationError
from delf.events import PROJECT_FOLDER
from delf_cli.state import State
from delf_runner_dbos import agents as module
from delf_runner_dbos.agents import Agents


class UnstoppableAgent:
    """Fails to stop.

    Args:
        stopped: The agents that were stopped, to which this one is added.
    """

    def __init__(self, stopped: list[Any]) -> None:
        self.stopped = stopped

    async def astart(self) -> None:
        """Nothing is started."""

    async def astop(self, **_: Any) -> None:
        self.stopped.append(self)
        raise ConnectionError("the service is gone")


@pytest.mark.parametrize("key", ["folder", PROJECT_FOLDER])
async def test_task_of_another_project_gets_no_agent(key: str, tmp_path: Path) -> None:
    """The task of a command, or of a program whose agent belongs to a project."""
    with pytest.raises(ConfigurationError, match="belongs to the folder"):
        async with Agents(State(), {}).lend({key: str(tmp_path)}):
            pytest.fail("the task would have the tools of this folder")


async def test_failing_stop_of_an_idle_agent_does_not_fail_another_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopped: list[Any] = []
    project = SimpleNamespace(agent=SimpleNamespace(model_fields_set=()))
    setup = SimpleNamespace(project=project, agent=lambda: UnstoppableAgent(stopped))
    monkeypatch.setattr(module.Setup, "of", lambda *_: setup)
    monkeypatch.setattr(module, "restore_options", lambda state, options, setup: options)
    agents = Agents(State(), {})
    lent: list[Any] = []
    for number in range(11):
        async with agents.lend({"folder": str(Path.cwd()), "config": number}) as agent:
            lent.append(agent)
    assert stopped == lent[:3], "eight are kept; each other one is stopped, although a stop failed"
    assert caplog.text.count("the service is gone") == 3
