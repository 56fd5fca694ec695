"""State and end of tasks in a journal, whichever process runs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Unpack

from delf.errors import AgentStateError, TaskStoppedError
from delf.events import Event, TaskFinished, end_event
from delf.protocols.journal import Journal, TaskRecord
from delf.protocols.search import Found, FoundTask, TaskFilter
from delf.protocols.shared_journal import Conditions, SharedJournal
from delf.protocols.states import state_of, stored_states
from delf.types import TaskState
from delf_engine.task import TaskOutcome
from delf_engine.views.snapshot import snapshot

if TYPE_CHECKING:
    from delf_engine.views.snapshot import StreamSnapshot

MAX_REQUESTS: Final = 100_000
"""The maximum number of requests that are read for the states of tasks, and for lists."""

ReadWaitingIds = Callable[[], Awaitable[Collection[str]]]
"""Returns the ids of the tasks that wait for a person."""


async def snapshot_of(journal: Journal, task_id: str) -> StreamSnapshot:
    """Return a snapshot of a task; raise ``UnknownTaskError`` if there is none."""
    events = await journal.read(task_id)
    record = await journal.task(task_id) if isinstance(journal, SharedJournal) else None
    is_interrupted = record is not None and record.state is TaskState.INTERRUPTED
    return snapshot(events, interrupted=is_interrupted)


async def waiting_tasks(journal: SharedJournal) -> Collection[str]:
    """Return the ids of tasks with pending requests."""
    records = await journal.find_requests(waiting=True, limit=MAX_REQUESTS)
    return {record.task.task_id for record in records}


async def find_tasks(
    journal: SharedJournal,
    limit: int,
    *,
    read_waiting_ids: ReadWaitingIds | None = None,
    **conditions: Unpack[Conditions],
) -> list[TaskRecord]:
    """Return the newest tasks, each with its exact state.

    A journal stores a task that waits for a person as running. The pending requests show which
    tasks wait.

    Args:
        journal: The journal with the tasks.
        limit: The maximum number of tasks to return.
        read_waiting_ids: Returns the ids of the tasks that wait for a person; None to ask the
            journal.
        conditions: The conditions for tasks.
    """
    states = _States(journal, read_waiting_ids)
    tasks: list[TaskRecord] = []
    for stored_state in _stored_state_filters(conditions.get("state")):
        tasks += await _tasks_with_stored_state(journal, stored_state, limit, conditions, states)
    tasks.sort(key=attrgetter("started_at"), reverse=True)
    return tasks[:limit]


async def _tasks_with_stored_state(
    journal: SharedJournal,
    stored_state: TaskState | None,
    limit: int,
    conditions: Conditions,
    states: _States,
) -> list[TaskRecord]:
    """Return the newest tasks that are stored with one state, each with its exact state.

    Args:
        journal: The journal with the tasks.
        stored_state: The stored state; None for any.
        limit: The number of tasks that are enough; more may be returned.
        conditions: The conditions for tasks. The state in the conditions is the exact state.
        states: Determines the exact states.
    """
    wanted_state = conditions.get("state")
    is_any_wanted = wanted_state is None
    page_conditions = Conditions(**conditions)
    page_conditions["state"] = stored_state
    tasks: list[TaskRecord] = []
    has_more = True
    # Read further pages if too few tasks of a page have the wanted exact state: a page of stored
    # running tasks may have few waiting tasks.
    while has_more and len(tasks) < limit:
        page = await journal.find(limit, **page_conditions)
        exact_page = await states.with_exact_states(page)
        tasks += [task for task in exact_page if is_any_wanted or task.state == wanted_state]
        has_more = len(page) == limit
        if page:
            page_conditions["after"] = page[-1].place
    return tasks


async def search_tasks(
    journal: SharedJournal,
    conditions: TaskFilter,
    limit: int,
    before: str | None = None,
    read_waiting_ids: ReadWaitingIds | None = None,
) -> Found:
    """Search tasks as ``SharedJournal.search`` does, and return each with its exact state.

    A journal stores a task that waits for a person as running.

    Args:
        journal: The journal with the tasks.
        conditions: The conditions.
        limit: The maximum number of tasks to return.
        before: Only tasks older than the task with this id.
        read_waiting_ids: Returns the ids of the tasks that wait for a person; None to ask the
            journal.

    Raises:
        ConfigurationError: If the journal has no search.
    """
    states = _States(journal, read_waiting_ids)
    found: list[FoundTask] = []
    unindexed_count = 0  # of tasks that are not yet in the search index
    # One task more than the limit, to know whether there are more.
    wanted_count = limit + 1
    for stored_state in _stored_state_filters(conditions.state):
        with_stored_state = await _found_with_stored_state(
            journal, stored_state, wanted_count, conditions, before, states
        )
        found += with_stored_state.tasks
        unindexed_count = with_stored_state.behind  # the same number for all stored states
    found.sort(key=attrgetter("task.started_at"), reverse=True)
    return Found(tasks=found[:limit], more=len(found) > limit, behind=unindexed_count)


async def _found_with_stored_state(
    journal: SharedJournal,
    stored_state: TaskState | None,
    limit: int,
    conditions: TaskFilter,
    before: str | None,
    states: _States,
) -> Found:
    """Search the tasks that are stored with one state, and return each with its exact state.

    Args:
        journal: The journal with the tasks.
        stored_state: The stored state; None for any.
        limit: The number of tasks that are enough; more may be returned.
        conditions: The conditions. The state in the conditions is the exact state.
        before: Only tasks older than the task with this id.
        states: Determines the exact states.
    """
    page_conditions = replace(conditions, state=stored_state)
    found: list[FoundTask] = []
    cursor = before
    # Read further pages if too few tasks of a page have the wanted exact state.
    while True:
        page = await journal.search(page_conditions, limit, cursor)
        tasks = await states.with_exact_states([match.task for match in page.tasks])
        for match, task in zip(page.tasks, tasks, strict=True):
            if conditions.state is None or task.state == conditions.state:
                found.append(replace(match, task=task))
        has_next_page = page.more and bool(page.tasks)
        if not has_next_page or len(found) >= limit:
            return Found(tasks=found, more=page.more, behind=page.behind)
        cursor = page.tasks[-1].task.task_id


def _stored_state_filters(state: TaskState | None) -> Sequence[TaskState | None]:
    """Return the stored states to query a journal for, in order to find all tasks in a state.

    A query for the state None finds the tasks in all states.
    """
    return (None,) if state is None else tuple(stored_states(state))


class _States:
    """Computes the states of tasks, and tells waiting tasks from running tasks.

    Reads the pending requests, which show the waiting tasks, at most once.
    """

    def __init__(self, journal: SharedJournal, read_waiting_ids: ReadWaitingIds | None) -> None:
        self._read_waiting_ids = read_waiting_ids or partial(waiting_tasks, journal)
        # The ids of the waiting tasks; None before they are read.
        self._waiting_ids: Collection[str] | None = None

    async def with_exact_states(self, tasks: Sequence[TaskRecord]) -> list[TaskRecord]:
        """Return the tasks, with the state ``waiting`` for running tasks that wait for a person."""
        has_running_task = any(task.state is TaskState.RUNNING for task in tasks)
        if self._waiting_ids is None and has_running_task:
            self._waiting_ids = await self._read_waiting_ids()
        waiting_ids = self._waiting_ids or ()
        return [replace(task, state=state_of(task, waiting=waiting_ids)) for task in tasks]


async def wait_for_end(journal: Journal, task_id: str) -> tuple[Sequence[Event], TaskFinished]:
    """Wait until a task has ended; return the task's events, and the event of the end.

    Raises:
        UnknownTaskError: If the journal does not have the task.
        AgentStateError: If the journal is closed before the task ends.
    """
    # Subscribe before reading the events, so that an end between the two is not missed.
    new_events = journal.subscribe(task_id)
    events = await journal.read(task_id)
    end = end_event(events)
    if end is not None:
        return events, end
    async for event in new_events:
        if isinstance(event, TaskFinished):
            return await journal.read(task_id), event
    raise AgentStateError("the agent was stopped before the task ended")


async def outcome_of(journal: Journal, task_id: str) -> TaskOutcome:
    """Wait until a task has ended, and return its outcome.

    Any failure is a ``TaskStoppedError`` with the recorded message: callers use this function only
    for tasks that were stopped or refused.
    """
    events, end = await wait_for_end(journal, task_id)
    has_succeeded: bool = end.status  # the event's field ``status`` is True or False
    error = None if has_succeeded else TaskStoppedError(end.error or "the task was stopped")
    return TaskOutcome(
        text=end.text,
        error=error,
        duration_ms=end.duration_ms,
        events=events,
        files=dict(end.files),
    )
