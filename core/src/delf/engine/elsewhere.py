"""Tasks of a journal, whoever works on them: how they stand, their end, and stopping them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delf.engine.journal.claims import is_over
from delf.engine.task import TaskOutcome
from delf.errors import DelfError, TaskStoppedError
from delf.events import ChildFinished, Event, ModelReplied, TaskFinished
from delf.protocols.journal import (
    Journal,
    SupportsClaims,
    SupportsHistory,
    SupportsInbox,
    SupportsLatestNotes,
    TaskRecord,
)

if TYPE_CHECKING:
    from delf.engine.views.snapshot import StreamSnapshot

_log = logging.getLogger(__name__)

STOP: Final = "cancel"
"""The kind of note that asks whoever works on a task to stop it."""
OVER: Final = frozenset({"done", "failed", "stopped"})
"""The states of tasks that have ended."""
_LOOK_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 20.0
_FREE: Final = frozenset({"queued", "interrupted"})


async def snapshot_of(journal: Journal, task_id: str) -> StreamSnapshot:
    """How a task stands.

    Raises:
        UnknownTaskError: When the journal does not have it.
    """
    from delf.engine.views.snapshot import snapshot

    events = await journal.read(task_id)
    state = (await journal.task(task_id)).state if isinstance(journal, SupportsHistory) else ""
    return snapshot(events, interrupted=state == "interrupted")


async def wait_for_end(journal: Journal, task_id: str) -> Sequence[Event]:
    """The events of a task, once it is over.

    Raises:
        UnknownTaskError: When the journal does not have it.
    """
    coming = journal.subscribe(task_id)
    events = await journal.read(task_id)
    if not is_over(events):
        await anext(event async for event in coming if isinstance(event, TaskFinished))
        events = await journal.read(task_id)
    return events


async def stop_task(journal: Journal, task_id: str, by: str) -> bool:
    """Stop a task: whoever works on it is asked to, and one that nobody has in hand is ended here.

    Args:
        journal: Where it is.
        task_id: The task.
        by: Who wants it, for the journal.

    Returns:
        Whether it was stopped; False when it ended otherwise, or was over already.

    Raises:
        UnknownTaskError: When the journal does not have it.
        DelfError: When the journal cannot reach who works on it, or that one does not stop it.
    """
    if is_over(await journal.read(task_id)):
        return False
    if not isinstance(journal, SupportsHistory) or not isinstance(journal, SupportsInbox):
        raise DelfError(
            f"task {task_id} cannot be stopped from here",
            hint="the process that works on it can, or a journal that processes share",
        )
    coming = journal.subscribe(task_id)
    deadline, asked = time.monotonic() + _STOP_SECONDS, False
    while (record := await journal.task(task_id)).state not in OVER:
        if record.state in _FREE:
            await _end(journal, record)
            continue
        if not asked:
            await journal.post(task_id, STOP, {"by": by})
            asked = True
        if time.monotonic() > deadline:
            raise DelfError(
                f"{record.owner or 'the process of the task'} has not stopped it yet",
                hint="it will as soon as it can; delf runs show tells",
            )
        try:
            await asyncio.wait_for(anext(coming), _LOOK_SECONDS)
        except TimeoutError:
            continue  # perhaps its process is gone, and nobody has it in hand any more
    return record.state == "stopped"


async def _end(journal: SupportsHistory, record: TaskRecord) -> None:
    """End a task that nobody works on; somebody else may be quicker."""
    if isinstance(journal, SupportsClaims):
        try:
            await journal.claim(record.task_id)
        except DelfError:
            if (await journal.task(record.task_id)).state in _FREE:
                raise
            return
    events = await journal.read(record.task_id)
    if not is_over(events):
        await journal.append(stopped_end(record.task_id, events))


def stopped_end(task_id: str, events: Sequence[Event]) -> TaskFinished:
    """The end of a task that is stopped while nobody works on it.

    Args:
        task_id: The task.
        events: What happened so far.
    """
    return TaskFinished(
        task_id=task_id,
        seq=events[-1].seq + 1,
        at=time.time(),
        status=False,
        text="",
        duration_ms=0.0,
        error="the task was stopped",
        code=TaskStoppedError.code,
        cost_usd=cost_of(events),
    )


def cost_of(events: Sequence[Event]) -> float | None:
    """What a task cost so far (USD); None where a price is not known."""
    paid = [e for e in events if isinstance(e, (ModelReplied, ChildFinished))]
    costs = [e.cost_usd for e in paid if isinstance(e, ChildFinished) or e.purpose != "setup"]
    return None if None in costs else sum((cost or 0.0 for cost in costs), 0.0)


@dataclass(eq=False)
class Stop:
    """Whether a task was asked to stop.

    Args:
        work: What is cancelled then.
        asked: Whether it was.
    """

    work: asyncio.Task[Any]
    asked: bool = False


class Stops:
    """The tasks of an agent, which others may ask to stop.

    It looks for that once a second, and not at all for tasks that end sooner.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, Stop] = {}
        self._next: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def heeded(self, journal: Journal, task_id: str, work: asyncio.Task[Any]) -> Generator[Stop]:
        """Cancel a task's work once somebody asks for it.

        Args:
            journal: Where that is asked.
            task_id: The task.
            work: What it does.
        """
        stop = self._tasks[task_id] = Stop(work)
        if self._next is None and isinstance(journal, SupportsLatestNotes):
            self._look_later(journal)
        try:
            yield stop
        finally:
            del self._tasks[task_id]
            if not self._tasks and self._next is not None:
                self._next.cancel()
                self._next = None

    def _look_later(self, journal: SupportsLatestNotes) -> None:
        def look() -> None:
            self._looking = asyncio.ensure_future(self._look(journal))

        self._next = asyncio.get_running_loop().call_later(_LOOK_SECONDS, look)

    async def _look(self, journal: SupportsLatestNotes) -> None:
        asked: Sequence[str] = ()
        try:
            asked = tuple(await journal.latest_notes(STOP, tuple(self._tasks)))
        except DelfError as error:
            _log.warning("whether tasks are to stop is not known now: %s", error.message)
        for task_id in asked:
            stop = self._tasks.get(task_id)
            if stop is not None and not stop.asked:
                stop.asked = True
                stop.work.cancel()
        self._next = None
        if self._tasks:
            self._look_later(journal)


def outcome_of(events: Sequence[Event]) -> TaskOutcome:
    """How a task ended, from its events.

    Args:
        events: All of them; the last is its end.
    """
    end = next(event for event in reversed(events) if isinstance(event, TaskFinished))
    return TaskOutcome(
        text=end.text,
        error=None if end.status else TaskStoppedError(end.error or "the task was stopped"),
        duration_ms=end.duration_ms,
        events=events,
        files=dict(end.files),
    )
