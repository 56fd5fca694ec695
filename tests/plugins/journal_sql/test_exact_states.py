"""Tasks are found by their exact state, also those that wait for a person."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from delf.events import Event
from delf.protocols.search import TaskFilter
from delf.protocols.states import state_of
from delf.types import TaskState
from delf_devkit.testing.events import every_event
from delf_engine.elsewhere import find_tasks, search_tasks
from delf_journal_sql import SqlJournal, owners

_KINDS = {type(event).__name__: event for event in every_event()}
TASKS: dict[str, tuple[TaskState, tuple[str, ...]]] = {
    "asks": (TaskState.WAITING, ("TaskQueued", "TaskStarted", "ApprovalRequested")),
    "is-new": (TaskState.QUEUED, ("TaskQueued",)),
    "runs": (TaskState.RUNNING, ("TaskQueued", "TaskStarted")),
    "runs-too": (TaskState.RUNNING, ("TaskQueued", "TaskStarted")),
    "ended": (TaskState.DONE, ("TaskQueued", "TaskStarted", "TaskFinished")),
}


def _events(name: str) -> list[Event]:
    _, kinds = TASKS[name]
    place = [*TASKS].index(name)
    events: list[Event] = []
    for number, kind in enumerate(kinds, 1):
        changed = {"queue": None, "not_before": None} if kind == "TaskQueued" else {}
        changed |= {"status": True, "code": None} if kind == "TaskFinished" else {}
        event = replace(_KINDS[kind], **changed)
        events.append(replace(event, task_id=name, seq=number, at=1e9 + place))
    return events


@pytest.fixture
async def journal(journal_url: str, open_journal: Callable[..., SqlJournal]) -> SqlJournal:
    made = open_journal(journal_url)
    for name in TASKS:
        for event in _events(name):
            await made.append(event)
    return made


def _named(state: TaskState) -> list[str]:
    return [name for name, (found, _) in reversed(TASKS.items()) if found is state]


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("state", TaskState)
async def test_tasks_are_found_by_exact_state(
    journal: SqlJournal, state: TaskState, limit: int
) -> None:
    found = await find_tasks(journal, limit, state=state)
    assert [task.task_id for task in found] == _named(state)[:limit]
    assert {task.state for task in found} <= {state}


async def test_any_number_of_tasks_waits_for_people(
    sqlite_place: str, open_journal: Callable[..., SqlJournal]
) -> None:
    journal = open_journal(sqlite_place)
    count = 1001
    for event in _events("asks"):
        requests = [
            {"request_id": f"req_{number}"} if hasattr(event, "request_id") else {}
            for number in range(count)
        ]
        await asyncio.gather(
            *(
                journal.append(replace(event, task_id=f"asks-{number}", **request))
                for number, request in enumerate(requests)
            )
        )
    found = await find_tasks(journal, 2 * count, state=TaskState.WAITING)
    assert len(found) == count


async def test_death_of_a_process_during_a_query_hides_no_task(
    sqlite_place: str, open_journal: Callable[..., SqlJournal], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(sqlite_place)
    for name in TASKS:
        for event in _events(name):
            await journal.append(event)
    births = [owners.birth_of(os.getpid())]  # the process is alive for one look
    monkeypatch.setattr(owners, "birth_of", lambda _: births.pop() if births else None)
    found = await journal.find(2, state=TaskState.RUNNING)
    assert [task.task_id for task in found] == ["runs-too", "runs"]
    assert {task.state for task in found} == {TaskState.RUNNING}


async def test_search_finds_tasks_by_exact_state(journal: SqlJournal) -> None:
    await journal.index(10.0)
    for state in TaskState:
        found = await search_tasks(journal, TaskFilter(state=state), 1)
        assert [one.task.task_id for one in found.tasks] == _named(state)[:1]
        assert found.more is (len(_named(state)) > 1)


async def test_record_and_events_have_the_same_state(journal: SqlJournal) -> None:
    found = await find_tasks(journal, 100)
    assert len(found) == len(TASKS)
    for task in found:
        events = await journal.read(task.task_id)
        assert task.state is state_of(events) is TASKS[task.task_id][0]
