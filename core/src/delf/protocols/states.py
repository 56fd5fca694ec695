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
    """Return the state of a task, for every place that shows or compares it.

    Args:
        task: The events of the task from its first, or its record in a journal. A record does
            not tell whether the task waits for a person, which ``waiting`` has to say.
        interrupted: Whether the task's process is gone. A record tells it by itself.
        waiting: The ids of the tasks with a request that waits for a person.
    """
    if isinstance(task, TaskRecord):
        return _of_record(task, waiting)
    if (end := end_event(task)) is not None:
        return end.state
    if interrupted:
        return TaskState.INTERRUPTED
    if not task or isinstance(task[-1], (TaskQueued, TaskPostponed)):
        return TaskState.QUEUED
    requests = (event for event in task if isinstance(event, ApprovalRequested))
    asked = {event.request_id for event in requests if not event.by_policy}
    asked -= {event.request_id for event in task if isinstance(event, ApprovalDecided)}
    return TaskState.WAITING if asked else TaskState.RUNNING


def _of_record(record: TaskRecord, waiting: Collection[str]) -> TaskState:
    if record.state is not TaskState.RUNNING:
        return record.state
    if record.task_id in waiting:
        return TaskState.WAITING
    # A task with one event has only been submitted: it waits for a place in its process.
    return TaskState.QUEUED if record.events <= 1 else TaskState.RUNNING


def stored_states(state: TaskState) -> tuple[TaskState, ...]:
    """Return the stored states of records that may have a state.

    A journal stores tasks that wait for a person, or for a place in their process, as running. A
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
"""The states that a journal can count by itself."""
