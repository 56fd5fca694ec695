"""The state of a task at one moment, folded from its events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

from delf import events as ev
from delf.records import dataclass
from delf.values.encoding import to_jsonable
from delf_engine.views.records import StreamEvent
from delf_engine.views.trace import Trace


@dataclass(frozen=True, kw_only=True)
class StreamSnapshot:
    """A point-in-time view of a task.

    Args:
        task_id: The task.
        state: ``queued``, ``running``, ``done``, ``error``, ``stopped`` (somebody cancelled it),
            or ``interrupted``: its process died, and it can be resumed.
        task: What was asked.
        elapsed_ms: Since it was submitted, without the time in which it was interrupted.
        events: The timeline so far.
        output_so_far: What scripts have printed.
        result: The answer, once done.
        value: The same as plain data, where the task wanted data.
        error: What went wrong, once failed.
        cost_usd: What it cost, once over.
        tokens_used: All tokens, once over.
        files: Output files by label.
        trace: The whole trace, once over.
    """

    task_id: str
    state: str
    task: str
    elapsed_ms: int
    events: list[StreamEvent] = field(default_factory=list[StreamEvent])
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
        return self.state in ("done", "error", "stopped")

    def to_dict(self) -> dict[str, Any]:
        """The snapshot as JSON-ready data with ``is_terminal``, without the trace."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "trace"}
        return to_jsonable({**plain, "is_terminal": self.is_terminal})


def snapshot(events: Sequence[ev.Event], *, interrupted: bool = False) -> StreamSnapshot:
    """Compute the state of a task after some events.

    Args:
        events: The task's events from its first; at least one.
        interrupted: Whether its process died, as far as the journal knows.
    """
    trace = Trace(events)
    first = events[0]
    last = ev.end_event(events)
    output = "".join(event.text for event in events if isinstance(event, ev.Printed))
    files = {e.label: e.path for e in events if isinstance(e, ev.FileWritten)}
    common: dict[str, Any] = {
        "task_id": first.task_id,
        "task": trace.task,
        "events": trace.timeline,
        "output_so_far": output,
        "files": files,
    }
    if last is None:
        goes_on = 0.0 if interrupted else time.time() - events[-1].at
        elapsed = int((_seconds(events) + goes_on) * 1000)
        waits = isinstance(events[-1], (ev.TaskQueued, ev.TaskPostponed))
        state = "queued" if waits else "running"
        state = "interrupted" if interrupted else state
        return StreamSnapshot(state=state, elapsed_ms=elapsed, **common)
    return StreamSnapshot(
        state="error" if last.state == "failed" else last.state,
        elapsed_ms=int(_seconds([event for event in events if event.seq <= last.seq]) * 1000),
        result=last.text if last.status else None,
        value=last.value,
        error=last.error,
        cost_usd=last.cost_usd,
        tokens_used=trace.usage.total_tokens,
        trace=trace,
        **common,
    )


def _seconds(events: Sequence[ev.Event]) -> float:
    """The time between the first and the last event, but for what passed before it was resumed."""
    steps = pairwise(events)
    return sum(b.at - a.at for a, b in steps if not isinstance(b, ev.TaskResumed))
