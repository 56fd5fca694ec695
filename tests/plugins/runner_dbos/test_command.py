"""`delf runner` closes what it has opened, however it ends."""

from __future__ import annotations

from typing import Any

import pytest

from delf_runner_dbos.agents import Agents
from delf_runner_dbos.engine import Workflows
from delf_runner_dbos.queue import DbosQueue
from delf_runner_dbos.runner import Runner
from support.cli_fixtures import *  # noqa: F403 - here, run


@pytest.mark.parametrize("failing", [None, Agents, DbosQueue])
def test_runner_that_fails_closes_everything(
    here: Any, run: Any, monkeypatch: pytest.MonkeyPatch, failing: Any
):
    monkeypatch.setenv("DELF_RUNNER_DBOS_DATABASE", f"sqlite:///{here}/dbos.sqlite")
    (here / "delf.toml").write_text('[plugins.journal-sql]\nurl = "sqlite:///journal.db"\n')
    made: list[object] = []
    closed: list[object] = []

    def watch(kind: Any, close: str) -> None:
        init = kind.__init__

        def noted_init(self: object, *args: Any, **options: Any) -> None:
            made.append(self)
            init(self, *args, **options)

        async def noted_close(self: object, *_: Any) -> None:
            closed.append(self)
            if kind is failing:
                raise OSError("it does not close")

        monkeypatch.setattr(kind, "__init__", noted_init)
        monkeypatch.setattr(kind, close, noted_close)

    watch(Agents, "aclose")
    watch(Workflows, "stop")
    watch(DbosQueue, "aclose")

    async def fail(*_: object) -> None:
        raise OSError("no more threads")

    monkeypatch.setattr(Runner, "run", fail)
    assert run("--trust", str(here), "runner").exit_code == 1
    assert len(made) == 4  # the agents of tasks, the agents that only read, DBOS, and its queue
    assert {id(item) for item in made} == {id(item) for item in closed}
