"""Tests of the course of a task: its changes, read from its events."""

from __future__ import annotations

from typing import Any

from delf.events import CallFinished, CallStarted, Event, RetryScheduled, ScriptGenerated
from delf_engine.changes import Course, changes_of


class Counted(list[Event]):
    """A list that counts the items that are read."""

    read = 0

    def __getitem__(self, index: Any) -> Any:
        items: Any = super().__getitem__(index)
        self.read += len(items)
        return items


def events_of_calls(count: int) -> list[Event]:
    """Return the events of two scripts, the second of which makes calls that change something."""
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (ScriptGenerated, {"attempt": 1, "code": "x"}),
        (RetryScheduled, {"attempt": 2, "error": "it failed"}),
        (ScriptGenerated, {"attempt": 2, "code": "x"}),
    ]
    for number in range(1, count + 1):
        call = {"call_id": number, "action": "pay"}
        start = {"arguments": {"n": number}, "effect": "write", "digest": str(number % 3)}
        kinds.append((CallStarted, {**call, **start}))
        status = "error" if number % 5 == 0 else "ok"
        kinds.append((CallFinished, {**call, "status": status, "duration_ms": 1.0}))
    return [
        kind(task_id="t", seq=seq, at=1.0, **fields) for seq, (kind, fields) in enumerate(kinds, 1)
    ]


def test_course_reads_each_event_once() -> None:
    """A script may make thousands of calls that need approval."""
    events = events_of_calls(40)
    growing, course = Counted(), Course()
    for event in events:
        growing.append(event)
        course.follow(growing)
        whole = Course()
        whole.follow(list(growing))
        assert course.situation("1", 7) == whole.situation("1", 7)
        assert list(course.changes) == changes_of(growing)
    assert growing.read == len(events)
    last = course.situation("1", 41)
    assert (last.script, last.made_before, len(last.changes), last.changes_before) == (
        2,
        37,
        20,
        12,
    )
