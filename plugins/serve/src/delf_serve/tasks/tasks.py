"""The parts of a server that deal with tasks, created together, started and stopped in order."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from delf.errors import DelfError
from delf.machine.contexts import shared_task
from delf.protocols.shared_journal import SharedJournal
from delf_serve.budgets import Budgets
from delf_serve.channel import EndNotices
from delf_serve.files import Uploads
from delf_serve.journal import ServerJournal
from delf_serve.keys import Keys
from delf_serve.settings import ServeSettings
from delf_serve.tasks.adoption import Adoption
from delf_serve.tasks.control import TaskControl
from delf_serve.tasks.pending_requests import PendingRequests, Waiting
from delf_serve.tasks.repeats import Repeats
from delf_serve.tasks.resuming import Resumer
from delf_serve.tasks.retention import keep_forgetting
from delf_serve.tasks.running import RunningTasks
from delf_serve.tasks.submissions import Submissions
from delf_serve.tasks.views import TaskViews
from delf_serve.tasks.waits import Waits

if TYPE_CHECKING:
    from delf import Agent

_log = logging.getLogger(__name__)


class Tasks:
    """The parts of a server that deal with tasks, and their background loops.

    Args:
        agent: The agent that runs the tasks.
        get_journal: Returns the agent's journal.
        settings: The limits.
        uploads: The uploaded files.
        keys: The people who may use the server, and their API keys.
    """

    def __init__(
        self,
        agent: Agent,
        get_journal: ServerJournal,
        settings: ServeSettings,
        uploads: Uploads,
        keys: Keys,
    ) -> None:
        self._agent = agent
        self._get_journal = get_journal
        self._uploads = uploads
        end_notices = EndNotices(settings, keys, get_journal)
        self.budgets = Budgets(settings.budgets, keys, get_journal)
        """The budgets of people and teams."""
        self.pending_requests = PendingRequests(get_journal)
        """The requests for which tasks wait."""
        self.views = TaskViews(agent, get_journal, self.pending_requests)
        """The tasks as a caller may see them."""
        self.waits = Waits(get_journal, self.pending_requests)
        """The clients that wait for a task."""
        self.running = RunningTasks(settings.open_tasks, end_notices)
        """The tasks that run in this process."""
        resumer = Resumer(agent, get_journal, keys, self.budgets, self.running)
        self.submissions = Submissions(
            agent, get_journal, settings, uploads, self.budgets, self.running
        )
        """Submits new tasks."""
        self.repeats = Repeats(
            agent,
            get_journal,
            self.budgets,
            self.views,
            self.running,
            self.submissions,
            resumer,
        )
        """Starts new tasks from earlier ones."""
        self.control = TaskControl(
            agent, get_journal, uploads, self.budgets, self.views, self.running, resumer
        )
        """Cancels, resumes and deletes tasks."""
        self._adoption = Adoption(get_journal, self.views, self.running, resumer, end_notices)
        self._background_tasks: set[asyncio.Task[None]] = set()

    @property
    def journal(self) -> SharedJournal:
        """The agent's journal."""
        return self._get_journal()

    def start(self) -> None:
        """Start resuming tasks of dead processes, and removing old tasks."""
        self.waits.start()
        self._background_tasks.add(shared_task(self._adoption.keep_adopting()))
        retention_times = self.journal.keep
        if retention_times:
            forgetting = keep_forgetting(
                self.journal, retention_times, self._uploads, self._agent.chat
            )
            self._background_tasks.add(shared_task(forgetting))

    async def stop(self, seconds: float) -> None:
        """End the background loops, then wait until running tasks end.

        Tasks that wait for a person are not waited for, because the person may take days.
        Unfinished tasks are not stopped here. The journal has their events, so that another process
        can resume them.

        Args:
            seconds: The maximum time to wait.
        """
        # End the loops first: a task that a loop resumed now would be interrupted again.
        for background_task in self._background_tasks:
            background_task.cancel()
        pending_requests: Waiting = {}
        try:
            pending_requests = await self.pending_requests.by_task()
        except DelfError as error:
            _log.warning("tasks that wait for people are not known: %s", error.message)
        await self.running.wait_for_ends(seconds, pending_requests)
