"""Tasks of the journal as a caller may see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delf.protocols.journal import ListPlace, TaskRecord
from delf.protocols.people import name_of_user
from delf.protocols.shared_journal import SharedJournal
from delf.protocols.states import state_of
from delf.types import TaskState
from delf_engine.elsewhere import find_tasks
from delf_engine.views.prompts import prompts_of
from delf_engine.views.snapshot import snapshot
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError
from delf_serve.schemas import Prompt, PromptList, Task, TaskDetail
from delf_serve.tasks.details import task_detail
from delf_serve.tasks.pending_requests import PendingRequests, Waiting, may_decide

if TYPE_CHECKING:
    from delf import Agent

_CANDIDATES_PER_PAGE: Final = 50
_MAX_CANDIDATE_PAGES: Final = 40
# The number of characters of a task's text, from its start, that the journal searches for.
_SEARCH_CHARACTERS: Final = 200


class TaskViews:
    """The tasks of all processes, each as the API shows the task to a caller.

    Args:
        agent: The agent, whose project determines which tasks this server can resume.
        journal: Returns the journal.
        pending_requests: The requests for which tasks wait.
    """

    def __init__(
        self,
        agent: Agent,
        journal: Callable[[], SharedJournal],
        pending_requests: PendingRequests,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._pending_requests = pending_requests

    # -- lists ----------------------------------------------------------------------------

    async def find(
        self,
        *,
        state: TaskState | None = None,
        text: str | None = None,
        since: float | None = None,
        limit: int = 100,
        after: str | None = None,
        caller: Caller,
    ) -> tuple[list[Task], str | None]:
        """Return a page of the tasks that a caller may see, newest first.

        Returns:
            The tasks, and the cursor of the next page. The cursor is None on the last page.
        """
        records = await find_tasks(
            self._journal(),
            limit + 1,  # one more than the page, to know whether there is a next page
            state=state,
            text=text or None,
            since=since,
            users=caller.visible_users,
            after=None if after is None else _decode_cursor(after),
            read_waiting_ids=self._pending_requests.by_task,
        )
        pending_requests = await self._pending_requests.by_task()
        page = records[:limit]
        views = [self.view_of(record, pending_requests, caller) for record in page]
        has_more = len(records) > limit
        next_cursor = _encode_cursor(page[-1]) if has_more else None
        return views, next_cursor

    async def newest(self, words: str, caller: Caller, since: float | None = None) -> str | None:
        """Return the id of the caller's newest task with a given text; None if none is found.

        Only the newest tasks that contain the text are searched, up to a number of pages.

        Args:
            words: The whole text of the task.
            caller: The authenticated caller.
            since: The Unix time after which the task started.
        """
        journal = self._journal()
        users = None if caller.user is None else frozenset({caller.user})
        text = words[:_SEARCH_CHARACTERS]
        place: ListPlace | None = None
        # The journal finds all tasks that contain the text. The first page may have only tasks with
        # a longer text.
        for _ in range(_MAX_CANDIDATE_PAGES):
            records = await find_tasks(
                journal, _CANDIDATES_PER_PAGE, text=text, since=since, users=users, after=place
            )
            for record in records:
                if record.task == words:
                    return record.task_id
            is_last_page = len(records) < _CANDIDATES_PER_PAGE
            if is_last_page:
                return None
            place = records[-1].place
        return None

    # -- one task -------------------------------------------------------------------------

    async def record(self, id_or_prefix: str, caller: Caller) -> TaskRecord:
        """Return the record of a task that the caller may see.

        Args:
            id_or_prefix: The id of the task, or a prefix of only one id.
            caller: The authenticated caller.

        Raises:
            UnknownTaskError: If the caller may see no such task.
        """
        journal = self._journal()
        return await journal.task(await journal.resolve(id_or_prefix, caller.visible_users))

    async def record_by_full_id(self, task_id: str, caller: Caller) -> TaskRecord:
        """Return the record of a task by its full id, as changes of a task require.

        Raises:
            UnknownTaskError: If the caller may see no such task.
            ProblemError: If the id is only a prefix.
        """
        record = await self.record(task_id, caller)
        # A prefix that names one task now may name another task by the time of the change.
        if record.task_id != task_id:
            raise ProblemError(404, f"no task {task_id[:60]!r} is known", "give the whole task_id")
        return record

    async def view(self, id_or_prefix: str, caller: Caller) -> Task:
        """Return a task as the list of the caller's tasks shows it.

        Args:
            id_or_prefix: The id of the task, or a prefix.
            caller: The authenticated caller.
        """
        record = await self.record(id_or_prefix, caller)
        return self.view_of(record, await self._pending_requests.by_task(), caller)

    def view_of(self, record: TaskRecord, pending_requests: Waiting, caller: Caller) -> Task:
        """Convert a task's record to the API's model of a list entry, for a caller.

        ``pending_requests`` has the pending requests of all tasks, by task id.
        """
        requests = pending_requests.get(record.task_id, ())
        state = state_of(record, waiting=pending_requests)
        return Task.of(
            record,
            state=state,
            asked_by=name_of_user(record.user),
            project=self.foreign_project(record),
            waits_for_you=any(may_decide(request, caller) for request in requests),
            is_terminal=state.is_terminal,
        )

    def foreign_project(self, record: TaskRecord) -> str | None:
        """Return the name of a task's project; None if this server serves the project."""
        # The server may have been started in a folder below the project's root.
        own_folders = {str(Path.cwd()), *self._agent.config.former_folders}
        if self._agent.project is not None:
            own_folders.add(str(self._agent.project.root))
        return None if record.folder in own_folders else record.project

    async def detail(self, id_or_prefix: str, caller: Caller) -> TaskDetail:
        """Return a task with its result, its decisions and its files."""
        record = await self.record(id_or_prefix, caller)
        events = await self._journal().read(record.task_id)
        pending_requests = await self._pending_requests.by_task()
        view = self.view_of(record, pending_requests, caller)
        requests = pending_requests.get(record.task_id, ())
        request_ids = [request.requested.request_id for request in requests]
        return await asyncio.to_thread(task_detail, view, events, request_ids, caller)

    async def prompts(
        self, id_or_prefix: str, caller: Caller, limit: int, offset: int
    ) -> PromptList:
        """Return a page of a task's model calls, with prompts and answers.

        Raises:
            UnknownTaskError: If the caller may see no such task.
        """
        record = await self.record(id_or_prefix, caller)
        events = await self._journal().read(record.task_id)
        all_prompts = await asyncio.to_thread(prompts_of, events)
        prompts = [Prompt(**asdict(item)) for item in all_prompts[offset : offset + limit]]
        return PromptList(prompts=prompts, more=len(all_prompts) > offset + limit)

    async def output_files(self, id_or_prefix: str, caller: Caller) -> dict[str, str]:
        """Return a task's output files, as a mapping from name to path.

        Args:
            id_or_prefix: The id of the task, or a prefix.
            caller: The authenticated caller.
        """
        record = await self.record(id_or_prefix, caller)
        return snapshot(await self._journal().read(record.task_id)).files


# A cursor names the last task of a page by its start and its id. Unlike an offset, the cursor stays
# right when new tasks are submitted between two pages.


def _encode_cursor(record: TaskRecord) -> str:
    """Encode a task's position in the task list as a cursor."""
    return f"{record.started_at:.9f}~{record.task_id}"


def _decode_cursor(cursor: str) -> ListPlace:
    """Decode a cursor to a position in the task list."""
    started, _, task_id = cursor.partition("~")
    return float(started), task_id
