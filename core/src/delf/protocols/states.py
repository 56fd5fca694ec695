"""The state of a task, from its events or from a journal's record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    TaskPostponed,
    TaskQueued,
    end_event,
)
from delf.protocols.journal import TaskRecord
from delf.types import TaskState


def state_of(
    task: TaskRecord | Sequence[Event],
    *,
    interrupted: bool = False,
    waiting: Collection[str] = (),
) -> TaskState:
    """Return the state of a task, as all code shows and compares it.

    Args:
        task: All events of the task, or its record in a journal. With a record, pass ``waiting``,
            because records do not show whether a task waits for a person.
        interrupted: Whether the task's process died; ignored for a record, whose ``state`` says so.
        waiting: The ids of tasks with pending requests.
    """
    if isinstance(task, TaskRecord):
        return _state_of_record(task, waiting)
    if (end := end_event(task)) is not None:
        return end.state
    if interrupted:
        return TaskState.INTERRUPTED
    if not task or isinstance(task[-1], (TaskQueued, TaskPostponed)):
        return TaskState.QUEUED
    requests = (event for event in task if isinstance(event, ApprovalRequested))
    open_requests = {event.request_id for event in requests if not event.by_policy}
    open_requests -= {event.request_id for event in task if isinstance(event, ApprovalDecided)}
    return TaskState.WAITING if open_requests else TaskState.RUNNING


def _state_of_record(record: TaskRecord, waiting: Collection[str]) -> TaskState:
    if record.state is not TaskState.RUNNING:
        return record.state
    if record.task_id in waiting:
        return TaskState.WAITING
    # A task with one event has only been submitted: it waits for a place in its process.
    return TaskState.QUEUED if record.events <= 1 else TaskState.RUNNING


def stored_states(state: TaskState) -> tuple[TaskState, ...]:
    """Return the states under which a journal may store tasks that are in a given state.

    A journal stores a task as running while it waits for a person or for its turn in a process. A
    search for a state therefore reads these records and checks each with :func:`state_of`.
    """
    match state:
        case TaskState.QUEUED:
            return TaskState.QUEUED, TaskState.RUNNING
        case TaskState.WAITING:
            return (TaskState.RUNNING,)
        case _:
            return (state,)


STORED_STATES: Final = tuple(state for state in TaskState if state in stored_states(state))
"""The states that a journal stores, so that it can count the tasks in them."""
