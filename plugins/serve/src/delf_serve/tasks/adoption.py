"""Adoption: this server resumes the tasks of dead servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from delf.errors import (
    ConfigurationError,
    DelfError,
    UnknownTaskError,
    UnreadableEventError,
)
from delf.events import Event, TaskFinished, TaskResumed, make_end_event, start_event
from delf.network.outages import Outage
from delf.protocols.journal import ListPlace, TaskRecord
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf_serve.channel import EndNotices
from delf_serve.tasks.request_data import is_of_server
from delf_serve.tasks.resuming import Resumer
from delf_serve.tasks.running import RunningTasks, check_user
from delf_serve.tasks.views import TaskViews

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""The seconds between two looks for interrupted tasks."""
PAGE: Final = 1000
"""The number of interrupted tasks that are read from the journal at a time."""
_MAX_RESUMES: Final = 5
# The period in seconds for counting a task's resumes.
#
# A task that is resumed too often in this period may kill its process. The server leaves such a
# task interrupted until a person resumes it.
_RESUMES_SECONDS: Final = 600.0


class Adoption:
    """Finds interrupted tasks of servers of this project, and resumes each in this process.

    All servers of a journal look for such tasks. The journal lets only one of them claim a task.

    Args:
        journal: Returns the journal.
        views: Distinguishes the tasks of this project from those of other projects.
        running: The tasks that run in this process.
        resumer: Continues the tasks.
        end_notices: Notifies people when their tasks end.
    """

    def __init__(
        self,
        journal: Callable[[], SharedJournal],
        views: TaskViews,
        running: RunningTasks,
        resumer: Resumer,
        end_notices: EndNotices,
    ) -> None:
        self._journal = journal
        self._views = views
        self._running = running
        self._resumer = resumer
        self._end_notices = end_notices
        # Interrupted tasks that this server leaves alone, because they are not tasks of a server,
        # were resumed too often, or cannot be read. Kept to read each of them only once.
        self._tasks_not_to_resume: set[str] = set()

    async def keep_adopting(self) -> None:
        """Periodically resume tasks of dead servers."""
        outage = Outage(_log, "tasks of dead servers are not resumed", self._journal().place)
        while True:
            with outage.track(DelfError):
                async for record in self._interrupted_tasks():
                    # Only this server's project: the tools of another project may have the same
                    # names, but work on other data.
                    if self._views.foreign_project(record) is None:
                        await self._adopt(record.task_id)
            await asyncio.sleep(LOOK_SECONDS)

    async def _interrupted_tasks(self) -> AsyncIterator[TaskRecord]:
        """Yield the interrupted tasks of all projects, read from the journal in pages."""
        journal = self._journal()
        place: ListPlace | None = None
        while records := await journal.find(PAGE, state=TaskState.INTERRUPTED, after=place):
            for record in records:
                yield record
            place = records[-1].place

    async def _adopt(self, task_id: str) -> None:
        """Resume a task of a dead server, unless it was resumed too often or cannot be read."""
        if task_id in self._tasks_not_to_resume or task_id in self._running:
            return
        try:
            events = await self._journal().read(task_id)
        except UnknownTaskError:
            return  # removed since the list was read
        except UnreadableEventError as error:
            _log.warning("a task of a dead server is not resumed: %s", error.message)
            self._tasks_not_to_resume.add(task_id)
            return
        first_event = start_event(events)
        # A task of a command or program is resumed where it was started.
        if first_event is None or not is_of_server(first_event) or _is_resumed_too_often(events):
            self._tasks_not_to_resume.add(task_id)
            return
        await self._resume_or_fail(task_id, first_event.user)

    async def _resume_or_fail(self, task_id: str, user: str | None) -> None:
        """Resume a task, or record it as failed if its user may not run tasks any more."""
        try:
            # The start of the task also checks the user, but leaves a refused task interrupted. The
            # server would then try the task again every few seconds.
            await check_user(self._journal(), user)
        except ConfigurationError as error:
            await self._fail(task_id, error)
            return
        try:
            await self._resumer.resume(task_id, user)
        except DelfError:
            return  # another process was quicker, or the next look tries again

    async def _fail(self, task_id: str, error: DelfError) -> None:
        """Record an interrupted task as failed. Does nothing if another process is quicker."""
        journal = self._journal()
        try:
            await journal.claim(task_id)
        except DelfError:
            return
        # Read only now: another process may have ended the task before this one got the claim.
        events = await journal.read(task_id)
        if isinstance(events[-1], TaskFinished):
            return
        end = make_end_event(events, error)
        await journal.append(end)
        self._end_notices.tell(end)


def _is_resumed_too_often(events: Sequence[Event]) -> bool:
    times = [event.at for event in events if isinstance(event, TaskResumed)]
    if len(times) < _MAX_RESUMES:
        return False
    recent = times[-_MAX_RESUMES:]
    return recent[-1] - recent[0] < _RESUMES_SECONDS
