"""Tests that a task's state has one definition, for its events and for its record."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from delf import events as ev
from delf.errors import TaskStoppedError
from delf.protocols.journal import TaskRecord
from delf.protocols.states import STORED_STATES, state_of, stored_states
from delf.types import STATE_WORDS, TaskState
from delf_devkit.testing.events import every_event


def _event(kind: str, **changed: object) -> ev.Event:
    sample = next(event for event in every_event() if type(event).__name__ == kind)
    fields = {name: getattr(sample, name) for name in sample.__dataclass_fields__}
    return type(sample)(**{**fields, **changed})


QUEUED = _event("TaskQueued")
STARTED = _event("TaskStarted")
RESUMED = _event("TaskResumed")
POSTPONED = _event("TaskPostponed")
ASKED = _event("ApprovalRequested", request_id="a")
ALSO_ASKED = _event("ApprovalRequested", request_id="b")
DECIDED = _event("ApprovalDecided", request_id="a")
DONE = _event("TaskFinished", status=True)
FAILED = _event("TaskFinished", status=False, code="ERR-1")
STOPPED = _event("TaskFinished", status=False, code=TaskStoppedError.code)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([QUEUED], TaskState.QUEUED),
        ([QUEUED, STARTED], TaskState.RUNNING),
        ([QUEUED, STARTED, POSTPONED], TaskState.QUEUED),
        ([STARTED, ASKED], TaskState.WAITING),
        ([STARTED, ASKED, DECIDED], TaskState.RUNNING),
        ([STARTED, ASKED, ALSO_ASKED, DECIDED], TaskState.WAITING),
        ([STARTED, ASKED, RESUMED], TaskState.WAITING),
        ([STARTED, ASKED, DONE], TaskState.DONE),
        ([STARTED, FAILED], TaskState.FAILED),
        ([STARTED, STOPPED], TaskState.STOPPED),
        ([STARTED, FAILED, RESUMED], TaskState.RUNNING),
    ],
)
def test_state_of_derives_the_state_from_events(
    events: Sequence[ev.Event], state: TaskState
) -> None:
    assert state_of(events) is state


@pytest.mark.parametrize("events", [[QUEUED], [STARTED], [STARTED, ASKED]])
def test_task_without_a_live_process_is_interrupted(events: Sequence[ev.Event]) -> None:
    assert state_of(events, interrupted=True) is TaskState.INTERRUPTED
    assert state_of([*events, DONE], interrupted=True) is TaskState.DONE


def _record(state: TaskState, events: int = 5) -> TaskRecord:
    return TaskRecord(task_id="t", task="x", started_at=1.0, state=state, events=events)


def test_running_record_with_pending_request_is_waiting() -> None:
    running = _record(TaskState.RUNNING)
    assert state_of(running) is TaskState.RUNNING
    assert state_of(running, waiting=["t"]) is TaskState.WAITING
    assert state_of(running, waiting=["other"]) is TaskState.RUNNING
    assert state_of(_record(TaskState.RUNNING, events=1)) is TaskState.QUEUED


@pytest.mark.parametrize("state", sorted(set(TaskState) - {TaskState.RUNNING}))
def test_state_of_keeps_states_it_does_not_translate(state: TaskState) -> None:
    for events in (1, 5):
        assert state_of(_record(state, events), waiting=["t"]) is state


def test_stored_states_cover_every_task_state() -> None:
    for state in TaskState:
        for stored in stored_states(state):
            assert stored in STORED_STATES
    for stored in STORED_STATES:
        for waiting in ((), ("t",)):
            for events in (1, 5):
                state = state_of(_record(stored, events), waiting=waiting)
                assert stored in stored_states(state)


def test_each_state_has_words_and_serialises_as_its_name() -> None:
    assert set(STATE_WORDS) == set(TaskState)
    assert STATE_WORDS[TaskState.WAITING].text == "waiting for you"
    assert len({words.mark for words in STATE_WORDS.values()}) == len(TaskState)
    for state in TaskState:
        assert json.dumps(state) == f'"{state}"' == f'"{state.value}"'


def test_each_state_is_terminal_or_at_work_or_interrupted() -> None:
    for state in TaskState:
        rests = state is TaskState.INTERRUPTED
        assert [state.is_terminal, state.is_at_work, rests].count(True) == 1
