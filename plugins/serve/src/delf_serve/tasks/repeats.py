"""New tasks from earlier ones: the same task again, or a fork that repeats a part of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from delf.errors import UnknownTaskError
from delf.events import TaskQueued, TaskStarted, start_event
from delf.protocols.conversation import user_of
from delf.protocols.people import name_of_user
from delf.protocols.shared_journal import SharedJournal
from delf.values.encoding import to_jsonable
from delf.values.frozen import thaw
from delf_engine.changes import OTHER_AUTHORS_KEY
from delf_engine.inputs import recorded_files
from delf_engine.task import MODEL, TRUST, VARIABLES
from delf_serve.budgets import Budgets
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError
from delf_serve.schemas import AgainRequest, ForkRequest, RunRequest
from delf_serve.tasks.conversation_names import shown_name
from delf_serve.tasks.request_data import setup_of
from delf_serve.tasks.resuming import Resumer
from delf_serve.tasks.running import RunningTasks
from delf_serve.tasks.submissions import Submissions, Submitted
from delf_serve.tasks.views import TaskViews

if TYPE_CHECKING:
    from delf import Agent


class Repeats:
    """Starts new tasks from earlier tasks that a caller may see.

    Args:
        agent: The agent that runs the tasks.
        journal: Returns the journal.
        budgets: The budgets of the people.
        views: Finds the earlier tasks.
        running: The tasks that run in this process.
        submissions: Submits repeated tasks.
        resumer: Continues forks, which the agent only records.
    """

    def __init__(
        self,
        agent: Agent,
        journal: Callable[[], SharedJournal],
        budgets: Budgets,
        views: TaskViews,
        running: RunningTasks,
        submissions: Submissions,
        resumer: Resumer,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._budgets = budgets
        self._views = views
        self._running = running
        self._submissions = submissions
        self._resumer = resumer

    async def repeat(
        self, task_id: str, wanted: AgainRequest, caller: Caller, client: str | None = None
    ) -> Submitted:
        """Submit a task again, with its files, variables, type of answer and conversation.

        If the conversation belongs to another person, the new task starts a new conversation.

        Args:
            task_id: The id of the earlier task.
            wanted: The changes to the task.
            caller: The user of the new task.
            client: The client's address.

        Raises:
            ProblemError: If an input file is missing, if a task with a new text would get files of
                another person, or if the model is not available to the caller.
        """
        record = await self._views.record_by_full_id(task_id, caller)
        earlier = start_event(await self._journal().read(record.task_id))
        assert earlier is not None  # noqa: S101 - each task has this event
        paths = recorded_files(earlier.setup)
        if wanted.task is not None:
            _raise_if_files_are_foreign(earlier, caller, "task")
        missing_file = await asyncio.to_thread(_find_missing, paths or ())
        if missing_file is not None:
            raise ProblemError(
                409,
                f"the file {missing_file!r} of the task is no longer stored",
                "send it in again",
            )
        return await self._submissions.submit(
            _order_to_repeat(earlier, wanted, caller),
            caller,
            # A new text need not call the same routine or worker: use the agent's own strategy.
            strategy=None if wanted.task else earlier.setup.get("strategy"),
            client=client,
            paths=None if paths is None else [str(path) for path in paths],
            other_authors=_other_authors(earlier, caller),
            external_variables=thaw(earlier.setup.get(VARIABLES)),
            # Also with a new text, because the new text may repeat words from outside.
            trust=earlier.setup.get(TRUST, "own"),
        )

    async def fork(
        self, task_id: str, wanted: ForkRequest, caller: Caller, client: str | None = None
    ) -> str:
        """Start a new task from an event of another task, and return the new task's id.

        Raises:
            ProblemError: If there is no such event, if another script would get files of another
                person, if the model is not available to the caller, if too many tasks of the caller
                are open, or if a budget of the caller is used up.
        """
        self._submissions.check_model(wanted.llm)
        record = await self._views.record_by_full_id(task_id, caller)
        if wanted.script is not None:
            earlier = start_event(await self._journal().read(record.task_id))
            assert earlier is not None  # noqa: S101 - each task has this event
            _raise_if_files_are_foreign(earlier, caller, "script")
        self._running.raise_if_too_many_are_open(caller)
        await self._budgets.raise_if_exhausted(caller)
        try:
            new_task_id = await self._agent.afork(
                record.task_id,
                wanted.at,
                script=wanted.script,
                llm=wanted.llm,
                user=caller.user,
                setup=setup_of(caller, client),
            )
        except UnknownTaskError as error:  # the task exists, but has no event ``wanted.at``
            raise ProblemError(422, error.message, param="at") from None
        await self._resumer.resume(new_task_id, caller.user)
        return new_task_id


def _raise_if_files_are_foreign(
    earlier: TaskQueued | TaskStarted, caller: Caller, param: str
) -> None:
    """Check that a caller may use the files of an earlier task for another purpose.

    A task that repeats another person's task has that person's files, even if the caller
    submitted the repeated task.

    Args:
        earlier: The beginning of the earlier task.
        caller: The user of the new task.
        param: The field of the request that changes the purpose.

    Raises:
        ProblemError: If files of the task are another person's.
    """
    if recorded_files(earlier.setup) and _other_authors(earlier, caller):
        raise ProblemError(
            403,
            "the task has files of another person, which only a task with the same words and the "
            "model's own scripts gets",
            f"leave out `{param}`, or start a task with files of your own",
            param=param,
        )


def _order_to_repeat(
    earlier: TaskQueued | TaskStarted, wanted: AgainRequest, caller: Caller
) -> RunRequest:
    """Return the request of an earlier task, with the changes that the caller wants."""
    conversation = earlier.conversation
    conversation_id: str | None = None
    if conversation is not None and user_of(conversation) == caller.user:
        conversation_id = shown_name(conversation, caller)
    # Not validated: an earlier task of a command was never subject to the API's limits.
    return RunRequest.model_construct(
        task=wanted.task or earlier.task,
        timeout=wanted.timeout,
        conversation_id=conversation_id,
        llm=wanted.llm or earlier.setup.get(MODEL),
        output=to_jsonable(earlier.setup.get("output")),
    )


def _other_authors(earlier: TaskQueued | TaskStarted, caller: Caller) -> list[str]:
    """Return the other people whose words are in a repeated task: its earlier users."""
    other_authors = list(earlier.setup.get(OTHER_AUTHORS_KEY, ()))
    if earlier.user != caller.user:
        other_authors.append(name_of_user(earlier.user))
    return other_authors


def _find_missing(paths: Sequence[Path]) -> str | None:
    """Return the name of the first missing file; None if all files exist."""
    return next((path.name for path in paths if not path.is_file()), None)
