"""How a task stands at one moment, folded from its events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from delf import events as ev
from delf.protocols.trace import StreamSnapshot
from delf_traces.trace import Trace


def snapshot(events: Sequence[ev.Event], *, interrupted: bool = False) -> StreamSnapshot:
    """How a task stands after some events.

    Args:
        events: The task's events from its first; at least one.
        interrupted: Whether its process died, as far as the journal knows.
    """
    trace = Trace(events)
    first = events[0]
    last = next((e for e in reversed(events) if isinstance(e, ev.TaskFinished)), None)
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
        elapsed = int((time.time() - first.at) * 1000)
        waits = isinstance(events[-1], (ev.TaskQueued, ev.TaskPostponed))
        state = "queued" if waits else "running"
        state = "interrupted" if interrupted else state
        return StreamSnapshot(state=state, elapsed_ms=elapsed, **common)
    return StreamSnapshot(
        state="error" if last.state == "failed" else last.state,
        elapsed_ms=int(last.duration_ms),
        result=last.text if last.status else None,
        error=last.error,
        cost_usd=last.cost_usd,
        tokens_used=trace.usage.total_tokens,
        trace=trace,
        **common,
    )
