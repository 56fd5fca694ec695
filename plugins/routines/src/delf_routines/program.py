"""``Routines``: the routines of an agent's project, for programs, commands and servers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from delf import Agent
from delf.protocols.journal import Journal
from delf.trust.decisions import Trust
from delf.trust.folders import working_folder
from delf_cli.routines import call_text
from delf_engine.models.money import Ledger
from delf_engine.project.any_project import trust_of
from delf_routines.bound import BoundRoutine
from delf_routines.drafting import BoundDraft
from delf_routines.store import RoutineStore

_log = logging.getLogger(__name__)


class Routines:
    """The routines of an agent's project.

    Args:
        agent: The agent that runs the routines.
    """

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent = agent
        project = agent.project
        self._root = working_folder() if project is None else project.root
        self._trust = trust_of(project)

    def find(self, name: str) -> BoundRoutine:
        """Return a callable routine by name.

        ``Routines(agent).find("revenue")(month="2026-11")`` runs the routine and returns a
        response, like ``agent.run``. Async code uses ``.arun(month="2026-11")``.

        Raises:
            ConfigurationError: If there is no such routine.
            FolderNotTrustedError: If the routine's file is not trusted.
        """
        return BoundRoutine(self._agent, RoutineStore(self._root, self._trust).find(name))

    def all(self) -> list[BoundRoutine]:
        """Return all routines whose files are valid and trusted.

        `delf routines check` reports the other files.
        """
        routines = RoutineStore(self._root, self._trust).readable()
        return [BoundRoutine(self._agent, routine) for routine in routines]

    def save(self, task_id: str, name: str, *, fixed: Sequence[str] = ()) -> BoundRoutine:
        """Save a successful task as a routine of the project.

        The routine is first run with the recorded results, and must make the same calls and give
        the same answer. If the last of several scripts does not do the whole task, a model first
        merges the scripts into one.

        Args:
            task_id: The id of the task in the agent's journal.
            name: The name of the routine. An existing routine is replaced.
            fixed: The names of proposed parameters that become constants of the script.

        Raises:
            DelfError: If the task cannot become a routine.
        """
        draft = self._agent.use_journal(lambda j: self._make_draft(j, task_id, name, fixed))
        for warning in draft.warnings:
            _log.warning("routine %s: %s", name, warning)
        return draft.keep()

    async def adraft(
        self,
        task_id: str,
        name: str,
        *,
        fixed: Sequence[str] = (),
        ledger: Ledger | None = None,
    ) -> BoundDraft:
        """Create a routine from a task, for review before it is saved.

        Args:
            task_id: The id of the task in the agent's journal.
            name: The name of the routine.
            fixed: The names of proposed parameters that become constants of the script.
            ledger: Charged with the cost of a model; the agent's ledger when omitted.

        Raises:
            DelfError: If the task cannot become a routine.
        """
        return await self._agent.ause_journal(
            lambda j: self._make_draft(j, task_id, name, fixed, ledger)
        )

    async def _make_draft(
        self,
        journal: Journal,
        task_id: str,
        name: str,
        fixed: Sequence[str],
        ledger: Ledger | None = None,
    ) -> BoundDraft:
        """Make an unsaved routine from the events of a task.

        Args:
            journal: The journal with the task.
            task_id: The id of the task.
            name: The name of the routine.
            fixed: The names of proposed parameters that become constants of the script.
            ledger: As for :meth:`adraft`.
        """
        events = await journal.read(task_id)
        return await BoundDraft.of(
            self._agent, task_id, name, events, self._root, self._trust, fixed=fixed, ledger=ledger
        )

    @staticmethod
    def task_of(root: Path, trust: Trust, name: str, values: Mapping[str, object]) -> str:
        """Return the text of a task that runs a routine, after validating the values.

        Args:
            root: The project's folder.
            trust: The trust decisions for the folder.
            name: The name of the routine.
            values: The values of parameters, as text or data.

        Raises:
            ConfigurationError: If there is no such routine, or a value is invalid.
            FolderNotTrustedError: If the routine's file is not trusted.
        """
        return call_text(name, RoutineStore(root, trust).find(name).values(values))
