"""The agents of a runner: one for each configuration of submitted tasks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from delf import Agent
from delf.errors import ConfigurationError
from delf_cli.session import Options, Setup, restore_options
from delf_cli.state import State
from delf_engine.closing import all_ended
from delf_runner_dbos.queue import belongs_to_project, folder_of

_log = logging.getLogger(__name__)
_MAX_AGENTS: Final = 8
_NO_FLAGS: Final[Mapping[str, Any]] = dict.fromkeys(["journal", "output_dir", "record", "files"])
# The setup fields of a task that determine its agent; the others belong to the task itself.
_AGENT_FIELDS: Final = ("folder", "config", "flags", "connections", "tool_files", "overrides")


class Agents:
    """Creates agents for tasks and caches the eight most recently used agents.

    Args:
        state: The command-line flags of the program.
        fixed_options: Parameters that every agent gets, whatever the project's settings are.
        defaults: Default parameters of the agents. The project's settings override them.
        former_folders: Earlier paths of the project's folder, whose tasks are accepted, too.
    """

    def __init__(
        self,
        state: State,
        fixed_options: Mapping[str, Any],
        former_folders: Collection[str] = (),
        defaults: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._state = state
        # The parameters of an agent: the project's settings override the defaults, and the fixed
        # options override the settings.
        self._defaults = defaults
        self._fixed_options = fixed_options
        self._former_folders = frozenset(former_folders)
        self._agents: OrderedDict[str, Agent] = OrderedDict()
        self._lock = asyncio.Lock()
        # For each agent in use, by its key in _agents, the number of tasks that use the agent.
        self._use_counts: dict[str, int] = {}

    @asynccontextmanager
    async def lend(self, setup: Mapping[str, Any]) -> AsyncGenerator[Agent]:
        """Yield an agent for a task; the agent is not stopped before the ``with`` block ends.

        Args:
            setup: The task's setup: the options of ``delf run`` with which the task was submitted.
                An empty setup gets the project's own agent.

        Raises:
            ConfigurationError: If the task was submitted in the folder of another project.
            DelfError: If the agent cannot be created.
        """
        if not belongs_to_project(setup, self._former_folders):
            raise ConfigurationError(
                f"the task belongs to the folder {folder_of(setup)}, not to {Path.cwd()}",
                hint=f"start a runner in {folder_of(setup)}; if the project was moved here, name "
                "that folder in former_folders under [agent]",
            )
        # Tasks that differ only in the other fields share an agent.
        agent_setup = {name: setup[name] for name in _AGENT_FIELDS if name in setup}
        key = json.dumps(agent_setup, sort_keys=True, default=str)
        async with self._lock:
            agent = self._agents.get(key)
            if agent is None:
                agent = self._create_agent(agent_setup)
                await agent.astart()
                self._agents[key] = agent
            self._agents.move_to_end(key)
            self._use_counts[key] = self._use_counts.get(key, 0) + 1
        try:
            # This is within ``try``, so that the use also ends if the caller is cancelled here.
            async with self._lock:
                await self._stop_idle_agents()
            yield agent
        finally:
            self._use_counts[key] -= 1
            if not self._use_counts[key]:
                del self._use_counts[key]

    async def _stop_idle_agents(self) -> None:
        """Stop agents that no task uses, while there are more agents than the cache may have."""
        excess_count = max(0, len(self._agents) - _MAX_AGENTS)
        # The least recently used agents come first.
        idle = [key for key in self._agents if key not in self._use_counts]
        for key in idle[:excess_count]:
            try:
                await self._agents.pop(key).astop()
            except Exception as error:  # the task that needs another agent must not fail
                _log.warning("an idle agent failed to stop: %s: %s", type(error).__name__, error)

    def _create_agent(self, task_setup: Mapping[str, Any]) -> Agent:
        """Create an agent for tasks with the same setup.

        Args:
            task_setup: The fields that a task recorded when it was queued, such as its folder and
                flags. Empty for the project's own settings.
        """
        state = replace(self._state)  # a copy, which restore_options() changes
        options = Options(flags=_NO_FLAGS)
        if task_setup:
            # The project may have been moved here since the task was submitted.
            setup_here = {**task_setup, "folder": str(Path.cwd())}
            options = restore_options(state, options, setup_here)
        session = Setup.of(state, options)
        fields_in_project = session.project.agent.model_fields_set
        parameters = {
            name: value for name, value in self._defaults.items() if name not in fields_in_project
        }
        parameters.update(self._fixed_options)
        return session.agent(**parameters)

    async def aclose(self) -> None:
        """Stop all agents. Other runners can resume the interrupted tasks."""
        agents, self._agents = list(self._agents.values()), OrderedDict()
        await all_ended(agent.astop(keep_resumable=True) for agent in agents)
