"""Cancelling, resuming and deleting tasks, as people ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from delf.errors import ConfigurationError
from delf.events import Event, end_event, start_event
from delf.protocols.journal import TaskRecord
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf_engine.retention import remove
from delf_serve.budgets import Budgets
from delf_serve.files import Uploads
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError
from delf_serve.tasks.request_data import is_of_server
from delf_serve.tasks.resuming import Resumer
from delf_serve.tasks.running import RunningTasks, check_user
from delf_serve.tasks.views import TaskViews

if TYPE_CHECKING:
    from delf import Agent


class TaskControl:
    """Cancels, resumes and deletes tasks that a caller may see.

    Args:
        agent: The agent, which cancels tasks of this process.
        journal: Returns the journal.
        uploads: The uploaded files, which are removed with the last task that needs them.
        budgets: The budgets of the people.
        views: Finds the tasks.
        running: The tasks that run in this process.
        resumer: Continues tasks.
    """

    def __init__(
        self,
        agent: Agent,
        journal: Callable[[], SharedJournal],
        uploads: Uploads,
        budgets: Budgets,
        views: TaskViews,
        running: RunningTasks,
        resumer: Resumer,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._uploads = uploads
        self._budgets = budgets
        self._views = views
        self._running = running
        self._resumer = resumer

    async def cancel(self, task_id: str, caller: Caller, via: str) -> tuple[str, bool]:
        """Stop a task in any process.

        Returns:
            The id of the task, and whether the task was stopped. False if the task had already
            ended.

        Raises:
            DelfError: If the owning process does not stop the task in time.
        """
        if (await self._views.record_by_full_id(task_id, caller)).state.is_terminal:
            return task_id, False
        # Only a task whose start is in the journal can be stopped.
        await self._running.wait_until_recorded(task_id)
        journal = self._journal()
        # acancel() returns before a task of this process has ended, so stop() waits for the end.
        await self._agent.acancel(task_id, by=caller.name, via=via)
        await journal.stop(task_id, caller.name, via)
        return task_id, (await journal.task(task_id)).state is TaskState.STOPPED

    async def remove(self, task_id: str, caller: Caller) -> None:
        """Remove a task that is not running, with its data and its files in temporary folders.

        An output folder that the user configured keeps its files.

        Raises:
            ProblemError: If the task is running or queued.
        """
        record = await self._views.record_by_full_id(task_id, caller)
        removed = await remove(self._journal(), [task_id])
        if not removed.tasks:
            raise ProblemError(409, f"the task is not over: it is {record.state}", "cancel it")
        await self._uploads.forget(removed.inputs)

    async def resume(self, task_id: str, caller: Caller, timeout: float | None = None) -> str:
        """Resume a task that was interrupted, or that ended at its timeout or budget.

        Raises:
            ProblemError: If this server cannot resume the task, for example because the task is
                running or has ended for another reason; or if a budget of the caller is exhausted.
        """
        record = await self._views.record_by_full_id(task_id, caller)
        events = await self._journal().read(record.task_id)
        self._raise_if_not_resumable(record, events)
        try:
            await check_user(self._journal(), record.user)
        except ConfigurationError as error:
            raise ProblemError(409, error.message) from None
        # The costs are charged to the task's user. Even so, a caller with an exhausted budget must
        # not cause costs for another person.
        await self._budgets.raise_if_exhausted(caller)
        await self._resumer.resume(record.task_id, record.user, timeout, continue_past_limit=True)
        return record.task_id

    def _raise_if_not_resumable(self, record: TaskRecord, events: Sequence[Event]) -> None:
        """Raise ``ProblemError`` if this server cannot resume a task of this kind or state."""
        end = end_event(events)
        at_limit = end is not None and end.at_limit
        if record.state is not TaskState.INTERRUPTED and not at_limit:
            reason = "it is over" if record.state.is_terminal else f"it is {record.state}"
            raise ProblemError(409, f"the task cannot be resumed: {reason}")
        if (project := self._views.foreign_project(record)) is not None:
            raise ProblemError(
                409,
                f"the task belongs to the project {project}, whose tools this server does not have",
                "a server of that project can resume it; if the project was moved here, name its "
                "old folder in former_folders under [agent]",
            )
        if _has_own_options(events):
            raise ProblemError(
                409,
                "the task was started with options of its own, such as what it may change, which "
                "this server does not have",
                "resume it where it was started",
            )


def _has_own_options(events: Sequence[Event]) -> bool:
    """Return True if a task has options of its own, which differ from those of the server's agent.

    A command or the test of a schedule may start such a task. Its options may be stricter, for
    example refuse all calls that change something. A task that a server started has none.
    """
    start = start_event(events)
    if start is None or is_of_server(start):
        return False
    return bool(start.setup.get("flags") or start.setup.get("overrides"))
