"""Routines over HTTP: their runs, and tasks saved as routines after review."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import Any, Final

from delf import Agent
from delf.errors import DelfError, OptionalDependencyError, UnknownTaskError
from delf.types import TaskState
from delf_cli.routines import ROUTINES, AgentRoutines, DraftRoutine
from delf_serve import schemas as s
from delf_serve.keys import Key
from delf_serve.problems import ProblemError
from delf_serve.tasks import Tasks

_LAST: Final = 5
_COUNTED: Final = 200
"""The number of recent runs by which a routine's savings are computed."""
_MAX_DRAFTS: Final = 20


class Routines:
    """The routines of an agent's project.

    Args:
        agent: The agent.
        tasks: The tasks.
    """

    def __init__(self, agent: Agent, tasks: Tasks) -> None:
        self._agent = agent
        self._tasks = tasks
        self._drafts: OrderedDict[tuple[str | None, str], DraftRoutine] = OrderedDict()

    def of_agent(self) -> AgentRoutines:
        """Return the agent's routines.

        Raises:
            OptionalDependencyError: If no plugin with routines is installed.
        """
        return self._agent.plugins.service(ROUTINES)(self._agent)

    async def list(self, key: Key) -> s.RoutineList:
        """Return the routines with their runs.

        Args:
            key: The caller; only visible runs are included.
        """
        try:
            routines = self.of_agent()
            routine_list = await asyncio.to_thread(routines.all)
        except OptionalDependencyError:  # no plugin brings them
            return s.RoutineList(routines=[])
        return s.RoutineList(
            routines=[await self._view(bound.routine, key) for bound in routine_list],
        )

    async def _view(self, routine: Any, key: Key) -> s.RoutineView:
        """Return a routine with the latest tasks that ran it and the cost that they have saved."""
        task_start = f"{routine.name}("  # the text of a run's task
        runs, _ = await self._tasks.find(text=task_start, limit=_COUNTED, key=key)
        runs = [run for run in runs if run.task.startswith(task_start)]
        finished_count = sum(run.state is TaskState.DONE for run in runs)
        cost = await self._cost_of(routine.saved_from, key)
        parameters = [
            s.RoutineParameter(
                name=item.name, type=item.type, default=item.default, pattern=item.pattern
            )
            for item in routine.parameters.values()
        ]
        return s.RoutineView(
            name=routine.name,
            title=routine.title,
            parameters=parameters,
            text=routine.text(),
            done=finished_count,
            saved_usd=None if cost is None else cost * finished_count,
            runs=runs[:_LAST],
        )

    async def _cost_of(self, task_id: str | None, key: Key) -> float | None:
        """Return the cost of the task that a routine was made from; None if unknown."""
        if task_id is None:
            return None
        try:
            return (await self._tasks.record(task_id, key)).cost_usd
        except UnknownTaskError:
            return None

    async def save(self, given: s.RoutineSaveRequest, key: Key) -> s.RoutineDraft:
        """Preview a task as a routine; save it if the caller confirms the previewed version.

        Args:
            given: The task, the name, and the previewed version.
            key: The caller.

        Raises:
            ProblemError: If the task cannot become a routine.
        """
        record = await self._tasks.record(given.task_id, key)
        draft = None if given.seen is None else self._drafts.get((key.holder, given.seen))
        try:
            if draft is None:
                routines = self.of_agent()
                draft = await routines.adraft(record.task_id, given.name, fixed=given.fixed)
        except DelfError as error:
            raise ProblemError(409, error.message) from None
        parts = [record.task_id, given.name, draft.routine.text(), draft.change]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        self._drafts[key.holder, digest] = draft
        while len(self._drafts) > _MAX_DRAFTS:
            self._drafts.popitem(last=False)
        saves = given.seen == digest and not draft.differences
        if saves:
            try:
                await asyncio.to_thread(draft.keep)
            except DelfError as error:
                raise ProblemError(409, error.message) from None
            del self._drafts[key.holder, digest]
        return s.RoutineDraft(
            name=given.name,
            change=draft.change,
            parameters=sorted(draft.routine.parameters),
            differences=[*draft.differences],
            cost_usd=draft.cost_usd,
            digest=digest,
            saved=saves,
        )
