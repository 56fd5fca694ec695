"""A runner: takes tasks out of the journal's queues and does them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.errors import DelfError
from delf.events import Event, TaskQueued
from delf.protocols.journal import SharedJournal, SupportsUpkeep, TaskRecord
from delf.protocols.queues import SupportsQueues

if TYPE_CHECKING:
    from delf_runner_dbos.agents import Agents
    from delf_runner_dbos.engine import Workflows
    from delf_runner_dbos.settings import QueueSettings

_log = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 0.2
_AWAY_SECONDS: Final = 2.0
_LONGEST_REST: Final = 300.0
_FORGET_SECONDS: Final = 3600.0


class QueueJournal(SharedJournal, SupportsQueues, Protocol):
    """A journal that runners can share."""


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """How a runner works.

    Args:
        queues: The queues whose tasks it does, and what holds for them.
        concurrency: How many at once.
        lease: Seconds of silence after which another one takes its tasks.
        grace: Seconds that begun tasks have when it is to end.
    """

    queues: Mapping[str, QueueSettings]
    concurrency: int
    lease: float
    grace: float


class Runner:
    """Does tasks until it is told to stop.

    Args:
        journal: Where tasks wait.
        agents: Who does them.
        options: How.
    """

    def __init__(self, journal: QueueJournal, agents: Agents, options: RunnerOptions) -> None:
        self._journal = journal
        self._agents = agents
        self._options = options
        self._limits = {name: queue.limits for name, queue in options.queues.items()}
        self._in_hand: set[str] = set()
        self._unclaimed: set[str] = set()
        self._rests: dict[str, tuple[float, int]] = {}
        self._beginning: set[asyncio.Task[None]] = set()
        self._ending = False
        self._forgets_at = 0.0
        self._news = asyncio.Event()

    def end(self) -> None:
        """Let it take nothing more, and end in order."""
        self._ending = True
        self._news.set()

    async def run(self, workflows: Workflows) -> None:
        """Work until it is told to end.

        Args:
            workflows: Keep what became of each task that is begun.
        """
        while not await workflows.is_reachable():
            await self._wait(_AWAY_SECONDS)
            if self._ending:
                return
        await workflows.start()
        while not self._ending:
            try:
                taken = await self._take()
            except Exception as error:  # the database may be away; its drivers differ
                _log.warning("the queues cannot be looked at now: %s", error)
                await self._wait(_AWAY_SECONDS)
                continue
            await self._forget()
            for record in taken:
                self._in_hand.add(record.task_id)
                beginning = asyncio.ensure_future(self._begin(workflows, record))
                self._beginning.add(beginning)
                beginning.add_done_callback(self._beginning.discard)
            await self._wait(_LOOK_SECONDS if self._free else None)
        deadline = time.monotonic() + self._options.grace
        while self._in_hand and time.monotonic() < deadline:
            await self._wait(deadline - time.monotonic())

    @property
    def _free(self) -> int:
        return self._options.concurrency - len(self._in_hand)

    async def _wait(self, seconds: float | None) -> None:
        """Wait until a task is over, or for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return
        self._news.clear()

    async def _take(self) -> Sequence[TaskRecord]:
        if self._unclaimed:
            names = tuple(self._unclaimed)
            await self._journal.give_back(names)
            self._unclaimed.difference_update(names)
        if not self._free:
            return ()
        now = time.monotonic()
        resting = {name for name, (until, _) in self._rests.items() if until > now}
        without = resting | self._in_hand
        return await self._journal.take(self._limits, self._free, without=without)

    async def _begin(self, workflows: Workflows, record: TaskRecord) -> None:
        try:
            await workflows.begin(record.task_id)
        except Exception as error:  # the database may be away; its drivers differ
            _log.warning("task %s cannot be begun now: %s", record.task_id, error)
            self._put_back(record.task_id)
            self._let_go(record.task_id)

    def _put_back(self, task_id: str) -> None:
        """Leave a task to others, and to this one after a while that grows."""
        count = self._rests.get(task_id, (0.0, 0))[1] + 1
        self._rests[task_id] = time.monotonic() + min(2.0**count, _LONGEST_REST), count

    def _let_go(self, task_id: str) -> None:
        self._unclaimed.add(task_id)
        self._in_hand.discard(task_id)
        self._news.set()

    # -- and are done -------------------------------------------------------------------

    async def work(self, task_id: str) -> str:
        """Do a task, or go on with it.

        Returns:
            Its state then; ``taken`` where somebody else does it, and ``put back`` where it cannot
            be done here.
        """
        self._put_back(task_id)  # until it is known to be over, here or elsewhere
        try:
            state = await self._work(task_id)
        except DelfError as error:
            state = (await self._journal.task(task_id)).state
            if state != "running" and not self._ending:
                _log.warning("task %s is put back: %s", task_id, error)
            return "taken" if state == "running" else "put back"
        else:
            if state == "interrupted":
                return "put back"
            del self._rests[task_id]
            return state
        finally:
            self._let_go(task_id)

    async def _forget(self) -> None:
        """Remove what has been over for longer than the journal keeps it, from time to time."""
        journal: Any = self._journal
        seconds = journal.keep_seconds if isinstance(journal, SupportsUpkeep) else None
        if seconds is None or time.monotonic() < self._forgets_at:
            return
        self._forgets_at = time.monotonic() + _FORGET_SECONDS
        try:
            gone = await self._journal.prune(older_than=seconds)
        except DelfError as error:
            _log.warning("old tasks are not forgotten: %s", error.message)
        else:
            if gone.tasks:
                _log.info("%d tasks forgotten", len(gone.tasks))

    async def _work(self, task_id: str) -> str:
        queued = _queued(await self._journal.read(task_id))
        queue = self._options.queues[queued.queue or ""]
        record = await self._journal.task(task_id)
        if record.state == "interrupted" and record.losses >= queue.losses:
            await self._journal.give_up(task_id, _lost(record.losses + 1))
            return "failed"
        agent, give_back = await self._agents.lend(queued.setup)
        try:
            response = await agent.aresume(
                task_id,
                queued.timeout,
                retries=queue.retries if queued.retries is None else queued.retries,
                retry_after=queued.retry_after or queue.retry_after,
            )
        finally:
            give_back()
        return "done" if response.status else (await self._journal.task(task_id)).state

    async def hand_in(self, context: Mapping[str, Any]) -> str:
        """Hand in the task of a schedule.

        Args:
            context: What the schedule says: ``task``, ``queue``, ``setup``.

        Returns:
            The task's id.
        """
        setup: Mapping[str, Any] = context["setup"]
        agent, give_back = await self._agents.lend(setup)
        try:
            return agent.submit(str(context["task"]), queue=str(context["queue"]), setup=setup)
        finally:
            give_back()


def _lost(count: int) -> DelfError:
    return DelfError(
        f"{count} runners ended while they did this task",
        hint="perhaps it takes all of their memory; delf runs show tells what it did last",
    )


def _queued(events: Sequence[Event]) -> TaskQueued:
    first = events[0]
    if not isinstance(first, TaskQueued):
        raise DelfError("the task was not handed in for a queue")
    return first
