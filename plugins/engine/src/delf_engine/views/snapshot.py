"""A snapshot of a task, computed from its events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, Final

from delf import events as ev
from delf.protocols.states import state_of
from delf.records import dataclass
from delf.types import TaskState
from delf.values.encoding import to_jsonable
from delf_engine.views.records import TimelineEntry
from delf_engine.views.trace import Trace

# The names of states in the snapshot format that differ from delf's names of states.
_LEGACY_STATES: Final = {TaskState.FAILED: "error", TaskState.WAITING: "running"}


@dataclass(frozen=True, kw_only=True)
class StreamSnapshot:
    """A point-in-time view of a task.

    Args:
        task_id: The task.
        state: The state; :meth:`to_dict` names some states differently.
        task: The task.
        elapsed_ms: Milliseconds since submission, without interruptions.
        events: The timeline so far.
        output_so_far: The output of scripts so far.
        result: The answer, once done.
        value: The answer as plain data, if an output type was declared.
        error: The error message of a failed task.
        cost_usd: The cost of a finished task.
        tokens_used: The total tokens of a finished task.
        files: The paths of the output files, by name.
        trace: The full trace of a finished task.
    """

    task_id: str
    state: TaskState
    task: str
    elapsed_ms: int
    events: list[TimelineEntry] = field(default_factory=list[TimelineEntry])
    output_so_far: str = ""
    result: str | None = None
    error: str | None = None
    cost_usd: float | None = None
    tokens_used: int | None = None
    files: dict[str, str] = field(default_factory=dict[str, str])
    value: Any = None
    trace: Trace | None = None

    @property
    def is_terminal(self) -> bool:
        """True if the task is over."""
        return self.state.is_terminal

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as JSON-ready data with ``is_terminal``, without the trace.

        The format of delf's predecessor is kept: a failed task is ``error``, and a task that waits
        for a person is ``running``.
        """
        values = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "trace"
        }
        state = _LEGACY_STATES.get(self.state, self.state.value)
        return to_jsonable({**values, "state": state, "is_terminal": self.is_terminal})


def snapshot(events: Sequence[ev.Event], *, interrupted: bool = False) -> StreamSnapshot:
    """Compute the snapshot of a task from its events.

    Args:
        events: The task's events from its first; at least one.
        interrupted: Whether the journal shows that the task's process died.
    """
    trace = Trace(events)
    first = events[0]
    end = ev.end_event(events)
    output = "".join(event.text for event in events if isinstance(event, ev.Printed))
    writes = [event for event in events if isinstance(event, ev.FileWritten)]
    files = {write.label: write.path for write in writes}
    common: dict[str, Any] = {
        "task_id": first.task_id,
        "state": state_of(events, interrupted=interrupted),
        "task": trace.task,
        "events": trace.timeline,
        "output_so_far": output,
        "files": files,
    }
    if end is None:
        since_last_event = 0.0 if interrupted else time.time() - events[-1].at
        elapsed = int((_seconds(events) + since_last_event) * 1000)
        return StreamSnapshot(elapsed_ms=elapsed, **common)
    events_to_end = [event for event in events if event.seq <= end.seq]
    has_succeeded: bool = end.status  # otherwise the task failed or was stopped, and has an error
    return StreamSnapshot(
        elapsed_ms=int(_seconds(events_to_end) * 1000),
        result=end.text if has_succeeded else None,
        value=end.value,
        error=end.error,
        cost_usd=end.cost_usd,
        tokens_used=trace.usage.total_tokens,
        trace=trace,
        **common,
    )


def _seconds(events: Sequence[ev.Event]) -> float:
    """Return the duration of a task in seconds, without the time before each resumption."""
    seconds = 0.0
    for earlier, later in pairwise(events):
        is_interruption = isinstance(later, ev.TaskResumed)
        if not is_interruption:
            seconds += later.at - earlier.at
    return seconds
