"""The agents of a runner: one for each configuration of submitted tasks."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from delf import Agent
from delf.errors import ConfigurationError
from delf_cli.session import Options, Setup, restore_options
from delf_cli.state import State
from delf_runner_dbos.queue import is_here

_KEPT: Final = 8
_NOTHING_GIVEN: Final[Mapping[str, Any]] = dict.fromkeys(
    ["journal", "output_dir", "record", "files"]
)
_OPTIONS: Final = ("folder", "config", "flags", "connections", "tool_files", "overrides")
"""The data of a task that describes its agent; the rest describes the task."""


class Agents:
    """Creates agents on demand and keeps up to eight recent ones.

    Args:
        state: The program's flags.
        more: Parameters of every agent.
        defaults: Default parameters of the agents, which the project's own settings override.
        former: Former folders of the project, whose tasks are accepted, too.
    """

    def __init__(
        self,
        state: State,
        more: Mapping[str, Any],
        former: Collection[str] = (),
        defaults: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._state = state
        self._more = more
        self._defaults = defaults
        self._former = frozenset(former)
        self._agents: OrderedDict[str, Agent] = OrderedDict()
        self._lock = asyncio.Lock()
        self._busy: dict[str, int] = {}

    async def lend(self, setup: Mapping[str, Any]) -> tuple[Agent, Callable[[], None]]:
        """Return an agent for a task's options, and its release function.

        Args:
            setup: The options of ``delf run``; the project's agent when empty.

        Raises:
            ConfigurationError: If the task belongs to another folder.
            DelfError: If the agent cannot be created.
        """
        setup = {name: setup[name] for name in _OPTIONS if name in setup}
        key = json.dumps(setup, sort_keys=True, default=str)
        async with self._lock:
            agent = self._agents.get(key)
            if agent is None:
                agent = self._make(setup)
                await agent.astart()
                self._agents[key] = agent
            self._agents.move_to_end(key)
            self._busy[key] = self._busy.get(key, 0) + 1
            await self._let_go()
        return agent, lambda: self._give_back(key)

    def _give_back(self, key: str) -> None:
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]

    async def _let_go(self) -> None:
        idle = [key for key in self._agents if key not in self._busy]
        for key in idle[: max(0, len(self._agents) - _KEPT)]:
            await self._agents.pop(key).astop()

    def _make(self, setup: Mapping[str, Any]) -> Agent:
        state, options = replace(self._state), Options(flags=_NOTHING_GIVEN)
        if setup:
            folder, working_folder = setup.get("folder", ""), Path.cwd()
            if not is_here(setup, self._former):
                raise ConfigurationError(
                    f"the task is of the folder {folder}, and this runner is in {working_folder}",
                    hint=f"start a runner in {folder}; if the project was moved here, name that "
                    "folder in former_folders under [plugins.runner-dbos]",
                )
            options = restore_options(state, options, {**setup, "folder": str(working_folder)})
        project_setup = Setup.of(state, options)
        chosen = project_setup.project.agent.model_fields_set
        defaults = {name: value for name, value in self._defaults.items() if name not in chosen}
        return project_setup.agent(**{**defaults, **self._more})

    async def aclose(self) -> None:
        """Stop all agents; interrupted tasks are free for other runners."""
        agents, self._agents = list(self._agents.values()), OrderedDict()
        await asyncio.gather(*(agent.astop(leave=True) for agent in agents))
