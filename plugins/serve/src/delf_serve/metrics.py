"""Metrics in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from delf.types import TaskState
from delf_serve.streams import Streams
from delf_serve.tasks.tasks import Tasks

if TYPE_CHECKING:
    from delf import Agent


async def metrics_text(agent: Agent, tasks: Tasks, streams: Streams) -> str:
    """Return the server's current metrics in Prometheus's text format."""
    waiting = await tasks.pending_requests.by_task()
    states = Counter(await tasks.journal.count())
    # The journal counts a task that waits for a person as running.
    states[TaskState.RUNNING] -= len(waiting)
    states[TaskState.WAITING] += len(waiting)
    states = +states  # only states with tasks
    lines = [
        "# HELP delf_tasks The tasks of the journal by their state.",
        "# TYPE delf_tasks gauge",
        *(f'delf_tasks{{state="{name}"}} {count}' for name, count in sorted(states.items())),
    ]
    for name, kind, text, value in (
        ("open_tasks", "gauge", "Tasks that this process works on.", tasks.running.count),
        ("waiting_tasks", "gauge", "Tasks that wait for a person.", len(waiting)),
        ("event_streams", "gauge", "Event streams that are open here.", streams.open_count),
        ("cost_usd_total", "counter", "What this process spent, as far as known.",
         agent.total_cost_usd),
        ("tokens_total", "counter", "Tokens that this process used.", agent.usage.total_tokens),
    ):  # fmt: skip
        lines += [
            f"# HELP delf_{name} {text}",
            f"# TYPE delf_{name} {kind}",
            f"delf_{name} {value}",
        ]
    return "\n".join(lines) + "\n"
