"""Stopping a task of any process: by a note to its owner, or directly if it has none."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from delf.errors import DelfError, TaskStoppedError
from delf.events import StoppedBy, TaskFinished, make_end_event
from delf.protocols.journal import TaskRecord
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf_journal_sql.inbox import STOP

_UNOWNED_STATES: Final = frozenset({TaskState.QUEUED, TaskState.INTERRUPTED})
_POLL_SECONDS: Final = 1.0
STOP_SECONDS: Final = 20.0


async def stop_task(journal: SharedJournal, task_id: str, by: StoppedBy) -> bool:
    """Stop a task of any process, and wait for its end.

    Args:
        journal: The journal.
        task_id: The id of the task.
        by: The person who stops the task.

    Returns:
        True if the task was stopped; False if it ended in another way.

    Raises:
        UnknownTaskError: If the journal does not have the task.
        DelfError: If the task's owner does not stop it within :data:`STOP_SECONDS`.
    """
    record = await journal.task(task_id)
    if record.state.is_terminal:
        return False
    # Subscribe before the state is read again, so that no later end of the task is missed.
    new_events = journal.subscribe(task_id)
    deadline = time.monotonic() + STOP_SECONDS
    is_requested = False
    while not (record := await journal.task(task_id)).state.is_terminal:
        if record.state in _UNOWNED_STATES:
            await end_task(journal, record, TaskStoppedError("the task was stopped"), by)
            continue
        if not is_requested:
            await journal.post(task_id, STOP, {"by": by.name, "via": by.via})
            is_requested = True
        if time.monotonic() > deadline:
            raise DelfError(
                f"{record.owner or 'the process of the task'} has not stopped it yet",
                hint=f"it will as soon as it can: delf runs show {task_id}",
            )
        try:
            async with asyncio.timeout(_POLL_SECONDS):
                await anext(new_events)
        except TimeoutError:
            continue  # check again, because the owner may have died
    return record.state is TaskState.STOPPED


async def end_task(
    journal: SharedJournal, record: TaskRecord, error: DelfError, by: StoppedBy
) -> None:
    """Record the end of a task that no process owns.

    Does nothing if another process claims or ends the task first.

    Args:
        journal: The journal.
        record: The record of the task.
        error: The error with which the task ends.
        by: The person who stops the task.
    """
    try:
        await journal.claim(record.task_id)
    except DelfError:
        current_state = (await journal.task(record.task_id)).state
        was_another_process_first = current_state not in _UNOWNED_STATES
        if was_another_process_first:
            return
        raise  # the claim failed for another reason
    # From the claim on, no other process appends to the task. But the task may have ended before.
    events = await journal.read(record.task_id)
    if not isinstance(events[-1], TaskFinished):
        await journal.append(make_end_event(events, error, by))
