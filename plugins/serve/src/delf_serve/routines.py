"""Routines over HTTP: their runs, and tasks saved as routines after review."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from delf import Agent
from delf.errors import DelfError, OptionalDependencyError, UnknownTaskError
from delf.protocols.journal import TaskRecord
from delf.types import TaskState
from delf_cli.routines import ROUTINES, AgentRoutines, DraftRoutine
from delf_serve import schemas as s
from delf_serve.budgets import Budgets
from delf_serve.keys import Caller
from delf_serve.problems import SERVICE_ERRORS, ProblemError
from delf_serve.tasks.views import TaskViews

_MAX_SHOWN_RUNS: Final = 5
# The maximum number of recent runs that count for the savings of a routine.
_MAX_COUNTED_RUNS: Final = 200
_MAX_DRAFTS: Final = 20

_DraftKey = tuple[str | None, str, str, str]
"""The caller's user, the task id, the name of the routine, and the preview's digest."""


class Routines:
    """The routines of an agent's project.

    Args:
        agent: The agent.
        views: Finds the runs of the routines.
        budgets: The budgets of the people, which pay for drafts.
    """

    def __init__(self, agent: Agent, views: TaskViews, budgets: Budgets) -> None:
        self._agent = agent
        self._views = views
        self._budgets = budgets
        # The drafts of previews; the oldest come first, and are dropped first.
        self._drafts: OrderedDict[_DraftKey, DraftRoutine] = OrderedDict()

    def of_agent(self) -> AgentRoutines:
        """Return the agent's routines.

        Raises:
            OptionalDependencyError: If no plugin with routines is installed.
        """
        return self._agent.plugins.service(ROUTINES)(self._agent)

    async def list(self, caller: Caller) -> s.RoutineList:
        """Return the routines, each with its most recent runs.

        Args:
            caller: The caller. Only tasks that the caller may see are included.
        """
        try:
            routines = self.of_agent()
            routine_list = await asyncio.to_thread(routines.all)
        except OptionalDependencyError:  # no plugin with routines is installed
            return s.RoutineList(routines=[])
        return s.RoutineList(
            routines=[await self._view(bound.routine, caller) for bound in routine_list],
        )

    async def _view(self, routine: Any, caller: Caller) -> s.RoutineView:
        """Return a routine with its most recent runs and the costs that the runs avoided."""
        task_start = f"{routine.name}("  # the text of a run's task begins so: NAME(ARGUMENTS)
        runs, _ = await self._views.find(text=task_start, limit=_MAX_COUNTED_RUNS, caller=caller)
        # find() also returns tasks that have the text in another place.
        runs = [run for run in runs if run.task.startswith(task_start)]
        finished_count = sum(run.state is TaskState.DONE for run in runs)
        original_task = await self._original_task(routine, caller)
        # A run avoids the costs of the task from which the routine was made.
        avoided_cost = None if original_task is None else original_task.cost_usd
        may_be_hidden = _may_be_hidden(original_task, caller)
        shown_routine = _without_task(routine) if may_be_hidden else routine
        parameters = [s.RoutineParameter.of(item) for item in routine.parameters.values()]
        return s.RoutineView(
            name=routine.name,
            title=shown_routine.title or None,
            parameters=parameters,
            text=shown_routine.text(),
            done=finished_count,
            saved_usd=None if avoided_cost is None else avoided_cost * finished_count,
            runs=runs[:_MAX_SHOWN_RUNS],
        )

    async def _original_task(self, routine: Any, caller: Caller) -> TaskRecord | None:
        """Return the task from which a routine was saved.

        None if the file of the routine names no task, if the task was deleted, or if the caller may
        not see the task.
        """
        task_id = routine.saved_from
        if task_id is None:
            return None
        try:
            record = await self._views.record(task_id, caller)
        except UnknownTaskError:
            return None
        # A routine's file may have been written by hand, with only a prefix of a task id. Another
        # task may match that prefix later.
        return record if record.task_id == task_id else None

    async def _check_may_replace(self, routine: Any, caller: Caller) -> None:
        """Check that a person may replace a saved routine.

        Other people, schedules and hooks run the routine by its name. The new version would run
        with their remembered approvals. A routine belongs to the user of its original task. If that
        user is unknown, the routine counts as somebody else's.

        Raises:
            ProblemError: If the routine is somebody else's. A person with the right ``people`` may
                replace it anyway if its original task is not hidden from the person.
        """
        original_task = await self._original_task(routine, caller)
        is_own = original_task is not None and original_task.user == caller.user
        may_be_hidden = _may_be_hidden(original_task, caller)
        may_replace_routines_of_others = "people" in caller.rights and not may_be_hidden
        if not is_own and not may_replace_routines_of_others:
            raise ProblemError(
                403,
                f"the routine {routine.name!r} is not known to be yours, so you cannot replace it",
                "save under another name, or ask a person with the right `people` and the scope "
                "`all` to replace it",
                param="name",
            )

    async def _make_draft(
        self, task_id: str, given: s.RoutineSaveRequest, caller: Caller
    ) -> DraftRoutine:
        """Make a draft of a routine from a task, at the cost of the caller.

        Raises:
            ProblemError: If the task cannot become a routine.
        """
        # Only a draft of several scripts calls a model. With an exhausted budget, this call fails,
        # so do not check the budget here.
        ledger = await self._budgets.ledger(caller, self._agent.ledger, checked=False)
        with _errors_as_conflicts():
            return await self.of_agent().adraft(
                task_id, given.name, fixed=given.fixed, ledger=ledger
            )

    async def save(self, given: s.RoutineSaveRequest, caller: Caller) -> s.RoutineDraft:
        """Preview a task as a routine, and save the routine if the caller has seen the preview.

        The first request returns a preview with a digest. A second request, with this digest as
        ``given.seen``, saves the routine if a trial run did the same as the task.

        Args:
            given: The task, the name, and the digest of the preview.
            caller: The authenticated caller.

        Raises:
            ProblemError: If the task cannot become a routine, or if the name is that of somebody
                else's routine.
        """
        task_id = (await self._views.record(given.task_id, caller)).task_id
        # With the digest in the key, only the draft that the caller has seen is found.
        draft = self._drafts.get((caller.user, task_id, given.name, given.seen or ""))
        if draft is None:
            draft = await self._make_draft(task_id, given, caller)
        if draft.before is not None:
            await self._check_may_replace(draft.before, caller)
        digest = _digest_of_draft(draft, task_id, given.name)
        key = (caller.user, task_id, given.name, digest)
        has_seen_preview = given.seen == digest
        is_saved = has_seen_preview and not draft.differences
        if is_saved:
            with _errors_as_conflicts():
                await asyncio.to_thread(draft.keep)
            self._drafts.pop(key, None)
        else:
            self._keep_draft(draft, key)
        return s.RoutineDraft(
            name=given.name,
            change=draft.change,
            parameters=sorted(draft.routine.parameters),
            differences=[*draft.differences],
            warnings=[*draft.warnings],
            cost_usd=draft.cost_usd,
            digest=digest,
            saved=is_saved,
        )

    def _keep_draft(self, draft: DraftRoutine, key: _DraftKey) -> None:
        """Keep a draft until the caller saves it, or until too many newer drafts are kept."""
        self._drafts[key] = draft
        while len(self._drafts) > _MAX_DRAFTS:
            self._drafts.popitem(last=False)


@contextmanager
def _errors_as_conflicts() -> Generator[None]:
    """Convert errors of the block to error responses with the status 409."""
    try:
        yield
    except SERVICE_ERRORS:
        raise  # not as a 409: these messages may name the machine, and are only logged
    except DelfError as error:
        raise ProblemError(409, error.message) from None


def _may_be_hidden(original_task: TaskRecord | None, caller: Caller) -> bool:
    """Return True if a routine's original task may be hidden from the caller.

    ``original_task`` is None for a hidden task, but also for an unknown or deleted task.
    """
    sees_all_tasks = caller.visible_users is None
    return original_task is None and not sees_all_tasks


def _digest_of_draft(draft: DraftRoutine, task_id: str, name: str) -> str:
    """Return a digest of all that a person sees in the preview of a draft."""
    parts = [task_id, name, draft.routine.text(), draft.change]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _without_task(routine: Any) -> Any:
    """Return a routine without the text and the id of its original task.

    The title is removed, too, if it is the beginning of the task's text, as in a new routine. A
    title that a person wrote stays.
    """
    words_of_task = " ".join(routine.task.split())
    is_title_copied = words_of_task.startswith(routine.title.removesuffix("…"))
    title = "" if is_title_copied else routine.title
    return replace(routine, title=title, task="", saved_from=None)
