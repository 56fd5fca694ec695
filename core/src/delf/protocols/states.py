"""The state of a task, from its events or from a journal's record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    TaskFinished,
    TaskPostponed,
    TaskQueued,
    TaskResumed,
)
from delf.protocols.journal import TaskRecord
from delf.types import TaskState


def state_of(
    task: TaskRecord | Sequence[Event],
    *,
    interrupted: bool = False,
    waiting: Collection[str] = (),
) -> TaskState:
    """Return the state of a task. All code that shows or compares states uses this function.

    Args:
        task: All events of the task, or its record in a journal. With a record, pass ``waiting``,
            because records do not show whether a task waits for a person.
        interrupted: Whether the task's process died; ignored for a record, which has the state.
        waiting: The ids of tasks with pending requests.
    """
    if isinstance(task, TaskRecord):
        return _state_of_record(task, waiting)
    tracker = StateTracker()
    for event in task:
        tracker.add(event)
    if interrupted and not tracker.state.is_terminal:
        return TaskState.INTERRUPTED
    return tracker.state


class StateTracker:
    """Follows the events of a task from the first one on, and knows the state after each."""

    def __init__(self) -> None:
        self.state = TaskState.QUEUED
        self._open_requests: set[str] = set()  # the ids of requests without a decision
        # The state in which the task ended; None before the end. Resuming the task sets the
        # attribute to None. Other events after the end do not change the state.
        self._end: TaskState | None = None

    def add(self, event: Event) -> None:
        """Update the state with the next event."""
        match event:
            case TaskFinished():
                self._end = event.state
            case TaskResumed():
                self._end = None
            case ApprovalRequested() if not event.by_policy:  # the task waits for a person
                self._open_requests.add(event.request_id)
            case ApprovalDecided():
                self._open_requests.discard(event.request_id)
            case _:
                pass
        if self._end is not None:
            self.state = self._end
        elif isinstance(event, (TaskQueued, TaskPostponed)):
            self.state = TaskState.QUEUED
        else:
            self.state = TaskState.WAITING if self._open_requests else TaskState.RUNNING


def _state_of_record(record: TaskRecord, waiting: Collection[str]) -> TaskState:
    if record.state is not TaskState.RUNNING:
        return record.state
    if record.task_id in waiting:
        return TaskState.WAITING
    # A task with one event has only been submitted: it waits for a place in its process.
    return TaskState.QUEUED if record.events <= 1 else TaskState.RUNNING


def stored_states(state: TaskState) -> tuple[TaskState, ...]:
    """Return the states under which a journal may store tasks that are in a given state.

    A task that waits for a person, or for a free place in its process, is stored as ``RUNNING``. A
    search for a state therefore reads all tasks stored under the returned states, and checks each
    task with :func:`state_of`.
    """
    match state:
        case TaskState.QUEUED:
            return TaskState.QUEUED, TaskState.RUNNING
        case TaskState.WAITING:
            return (TaskState.RUNNING,)
        case _:
            return (state,)


STORED_STATES: Final = tuple(state for state in TaskState if state in stored_states(state))
"""The states under which a journal stores tasks; the other states follow from the events."""
