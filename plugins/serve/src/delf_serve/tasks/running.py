"""Tasks that run in this process, and the limit of open tasks for each user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Container
from dataclasses import dataclass, field
from typing import Any, Final

from delf.errors import (
    DelfError,
    JournalFailedError,
    JournalUnavailableError,
)
from delf.events import Event, TaskFinished
from delf.protocols.people import check_may_run
from delf.protocols.shared_journal import SharedJournal
from delf_serve.channel import EndNotices
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError

# The maximum number of recent tasks of this process whose users are cached.
_MAX_USERS: Final = 10_000
# The maximum seconds to wait for the first event of a resumed task.
_FIRST_EVENT_SECONDS: Final = 5.0


@dataclass(eq=False)
class Run:
    """A run of a task in this process, from its submission or resumption until its end.

    Args:
        task_id: The id of the task.
        user: The user of the task; None for the local user.
        recorded: Set when the task is in the journal, or its start has failed.
        started: Set at the first new event of the run, or when the run has ended.
        start_error: The error that ended a resumed task before its first new event.
        over: Set when the run has ended.
        work: The asyncio task that waits for the end of the work; None before the task is recorded.
    """

    task_id: str
    user: str | None
    recorded: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    start_error: DelfError | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    # The event loop refers to its tasks only weakly, so the run keeps this one alive.
    work: asyncio.Task[Any] | None = None

    async def wait_for_first_event(self) -> None:
        """Wait for the first new event of a resumed task, but at most a few seconds.

        Raises:
            DelfError: If the task ends with this error before its first new event.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_EVENT_SECONDS):
                await self.started.wait()
        if self.start_error is not None:
            raise self.start_error

    def end(self) -> None:
        """Wake up all who wait for the run. Idempotent."""
        self.recorded.set()
        self.started.set()
        self.over.set()


class RunningTasks:
    """The tasks that run in this process, whether submitted or resumed.

    Args:
        max_open_tasks: The maximum number of open tasks for each user.
        end_notices: Notifies people when their tasks end.
    """

    def __init__(self, max_open_tasks: int, end_notices: EndNotices) -> None:
        self._max_open_tasks = max_open_tasks
        self._end_notices = end_notices
        self._runs: dict[str, Run] = {}
        # The users of recent tasks of this process, also of ended ones; the oldest come first.
        self._users_by_task_id: dict[str, str | None] = {}

    @property
    def count(self) -> int:
        """The number of tasks running in this process."""
        return len(self._runs)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._runs

    async def wait_until_recorded(self, task_id: str) -> bool:
        """Wait until the journal has a task, or its start has failed.

        Return False at once if the task does not run in this process.
        """
        run = self._runs.get(task_id)
        if run is None:
            return False
        await run.recorded.wait()
        return True

    def sees_task_of_this_process(self, caller: Caller, task_id: str) -> bool:
        """Return True if a task was submitted to this process and a caller may see the task."""
        users = self._users_by_task_id
        return task_id in users and caller.sees(users[task_id])

    # -- from the start of a run to its end -----------------------------------------------

    def raise_if_too_many_are_open(self, caller: Caller) -> None:
        """Raise ``ProblemError`` if the caller has the most open tasks that the settings allow."""
        max_tasks = self._max_open_tasks
        open_runs = [run for run in self._runs.values() if run.user == caller.user]
        if len(open_runs) >= max_tasks:
            raise ProblemError(429, f"{max_tasks:,} of your tasks are open")

    def add(self, task_id: str, user: str | None) -> Run:
        """Count a task as running.

        Call this before the first await of the task's start. Concurrent requests then count the
        task against the user's limit, and a repeated request finds the task.
        """
        run = self._runs[task_id] = Run(task_id, user)
        return run

    def set_recorded(self, run: Run, work: Awaitable[object]) -> None:
        """Note that the journal has a task, and count the task as running until ``work`` ends.

        Args:
            run: The run of the task.
            work: An awaitable that is done when the agent has finished the run.
        """
        self._remember_user(run)
        run.work = asyncio.create_task(self._discard_after(run, work))
        run.recorded.set()

    async def _discard_after(self, run: Run, work: Awaitable[object]) -> None:
        """Stop counting a task as open when its work ends, even if no event reports the end."""
        try:
            with contextlib.suppress(DelfError):  # the journal has the reason, or cannot be written
                await work
        finally:
            self.discard(run)

    def listen(self, run: Run, event: Event) -> None:
        """Listen to the events of a run for its start and its end."""
        if isinstance(event, TaskFinished):
            # Stop counting the task now, before its work is done: a client that reads this event
            # may submit its next task at once.
            self.discard(run)
            self._end_notices.tell(event)
        run.started.set()

    def discard(self, run: Run) -> None:
        """Stop counting a run among its user's open tasks. Idempotent."""
        # A task that ended at its budget may have been resumed since, as a run of its own.
        if self._runs.get(run.task_id) is run:
            del self._runs[run.task_id]
        run.end()

    def _remember_user(self, run: Run) -> None:
        """Remember the user of a recorded task beyond the task's end."""
        users = self._users_by_task_id
        users.pop(run.task_id, None)  # move to the end: the oldest are dropped
        users[run.task_id] = run.user
        if len(users) > _MAX_USERS:
            del users[next(iter(users))]

    async def wait_for_ends(self, seconds: float, waiting_task_ids: Container[str]) -> None:
        """Wait until the tasks have ended, except tasks that wait for a person.

        Args:
            seconds: The maximum time to wait.
            waiting_task_ids: The tasks that wait for a person, which may take days.
        """
        ends = [
            asyncio.ensure_future(run.over.wait())
            for run in self._runs.values()
            if run.task_id not in waiting_task_ids
        ]
        if ends:
            await asyncio.wait(ends, timeout=seconds)


async def check_user(journal: SharedJournal, user: str | None) -> None:
    """Check that the user of a task may still run tasks.

    Called when the task starts, because a task may wait for long after its submission.

    Raises:
        ConfigurationError: If the user was removed, or lost the right to run tasks.
        JournalFailedError: If the people cannot be read from the journal.
    """
    if user is None:
        return
    try:
        people = await journal.people()
    except JournalUnavailableError as error:
        # JournalUnavailableError is a ConfigurationError, so callers would take the outage for a
        # user without rights.
        raise JournalFailedError(error.message, hint=error.hint) from error
    check_may_run(user, people)
