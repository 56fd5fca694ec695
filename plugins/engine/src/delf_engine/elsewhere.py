"""Tasks of a journal, whoever works on them: how they stand, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delf.errors import TaskStoppedError
from delf.events import Event, TaskFinished, end_event
from delf.protocols.journal import Journal, SharedJournal
from delf_engine.task import TaskOutcome
from delf_engine.views.snapshot import snapshot

if TYPE_CHECKING:
    from delf_engine.views.snapshot import StreamSnapshot


async def snapshot_of(journal: Journal, task_id: str) -> StreamSnapshot:
    """Return the state of a task, or raise ``UnknownTaskError``."""
    events = await journal.read(task_id)
    state = (await journal.task(task_id)).state if isinstance(journal, SharedJournal) else ""
    return snapshot(events, interrupted=state == "interrupted")


async def wait_for_end(journal: Journal, task_id: str) -> Sequence[Event]:
    """The events of a task once it is over, or ``UnknownTaskError``."""
    coming = journal.subscribe(task_id)
    events = await journal.read(task_id)
    if end_event(events) is None:
        await anext(event async for event in coming if isinstance(event, TaskFinished))
        events = await journal.read(task_id)
    return events


async def outcome_of(journal: Journal, task_id: str) -> TaskOutcome:
    """Return the outcome of a task that was stopped, or was ending already."""
    events = await wait_for_end(journal, task_id)
    end = next(event for event in reversed(events) if isinstance(event, TaskFinished))
    error = None if end.status else TaskStoppedError(end.error or "the task was stopped")
    return TaskOutcome(
        text=end.text,
        error=error,
        duration_ms=end.duration_ms,
        events=events,
        files=dict(end.files),
    )
