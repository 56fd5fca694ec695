"""Recorded tasks, continued in this process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from delf.errors import DelfError
from delf.events import TaskQueued
from delf.protocols.shared_journal import SharedJournal
from delf_engine.models.money import SharedLedger
from delf_serve.budgets import Budgets
from delf_serve.keys import Keys
from delf_serve.tasks.running import Run, RunningTasks, check_user

if TYPE_CHECKING:
    from delf import Agent

_log = logging.getLogger(__name__)


class Resumer:
    """Continues recorded tasks in this process: interrupted, queued, forked or ended at a limit.

    Args:
        agent: The agent that runs the tasks.
        journal: Returns the journal.
        keys: The people, whose budgets pay for their tasks.
        budgets: The budgets of the people.
        running: The tasks that run in this process.
    """

    def __init__(
        self,
        agent: Agent,
        journal: Callable[[], SharedJournal],
        keys: Keys,
        budgets: Budgets,
        running: RunningTasks,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._keys = keys
        self._budgets = budgets
        self._running = running

    async def resume(
        self,
        task_id: str,
        user: str | None,
        timeout: float | None = None,
        *,
        continue_past_limit: bool = False,
    ) -> None:
        """Continue a task in this process, without waiting for the end of the task.

        Return after the first new event, but at the latest after a few seconds. Does nothing if the
        task already runs in this process.

        Args:
            task_id: The id of the task.
            user: The user of the task.
            timeout: The task's timeout in seconds; None for the timeout that a queued task
                was submitted with, or else the configured timeout.
            continue_past_limit: Whether to continue also a task that ended at its timeout or
                budget.

        Raises:
            DelfError: If the task fails before its first new event. Later errors are only logged.
        """
        if task_id in self._running:
            return
        run = self._running.add(task_id, user)
        try:
            first = (await self._journal().read(task_id))[0]
            ledger = await self._ledger_of_accepted_task(user)
        except BaseException:
            self._running.discard(run)
            raise
        if timeout is None and isinstance(first, TaskQueued):
            timeout = first.timeout
        resuming = self._agent.aresume(
            task_id,
            timeout,
            continue_past_limit=continue_past_limit,
            listeners=[partial(self._running.listen, run)],
            ledger=ledger,
            # Checked by the agent when the task leaves the queue, which may be much later.
            before_start=partial(check_user, self._journal(), user),
        )
        # The task is in the journal already: people may stop it from now on.
        self._running.set_recorded(run, _log_failure(run, resuming))
        await run.wait_for_first_event()

    async def _ledger_of_accepted_task(self, user: str | None) -> SharedLedger | None:
        """Return the ledger that charges a task to its user's budgets; None without budgets.

        No error is raised for an exhausted budget, because the task was accepted before.
        """
        caller = None if user is None else self._keys.caller_of(user)
        if caller is None:
            return None
        return await self._budgets.ledger(caller, self._agent.ledger, checked=False)


async def _log_failure(run: Run, resuming: Awaitable[object]) -> None:
    """Wait until a resumed task ends, and log an error that prevents the task from going on."""
    try:
        await resuming
    except DelfError as error:
        _log.warning("task %s is not continued: %s", run.task_id, error.message)
        # Before the first new event, wait_for_first_event() raises the error to the person who
        # resumes the task.
        if not run.started.is_set():
            run.start_error = error
