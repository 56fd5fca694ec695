"""A worker: brings tasks from the journal into queues, and does those that it is given."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.errors import DelfError
from delf.events import Event, TaskQueued
from delf.protocols.journal import SupportsHistory, SupportsQueues, TaskRecord

if TYPE_CHECKING:
    from delf_runner_dbos.agents import Agents
    from delf_runner_dbos.engine import Workflows

_log = logging.getLogger(__name__)
_FEED_SECONDS: Final = 0.2
_AHEAD: Final = 32
"""Tasks that are brought into queues before somebody is free for them."""

_TRIES: Final = 6
_LONGEST_DELAY: Final = 300.0


class QueueJournal(SupportsHistory, SupportsQueues, Protocol):
    """A journal that workers can share."""


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How a worker works.

    Args:
        queues: The queues whose tasks it does.
        concurrency: How many at once.
        lease: Seconds of silence after which another one takes its tasks.
        grace: Seconds that begun tasks have when it is to end.
        at_once: How many tasks of a queue run at once on all machines.
        per_second: How many begin in a second.
    """

    queues: tuple[str, ...]
    concurrency: int
    lease: float
    grace: float
    at_once: int | None = None
    per_second: float | None = None


class Worker:
    """Does tasks until it is told to stop.

    Args:
        journal: Where tasks wait.
        agents: Who does them.
        options: How.
    """

    def __init__(self, journal: QueueJournal, agents: Agents, options: WorkerOptions) -> None:
        self._journal = journal
        self._agents = agents
        self._options = options
        self._known: dict[str, float] = {}
        self._in_hand: set[str] = set()
        self._given_up: set[str] = set()

    async def run(self, workflows: Workflows, stop: asyncio.Event) -> None:
        """Work until an event is set; then end in order.

        Args:
            workflows: Give tasks to workers.
            stop: Set when it is time.
        """
        options = self._options
        while not await workflows.is_reachable():
            await _wait(stop, 2.0)
            if stop.is_set():
                return
        await workflows.start(
            concurrency=options.concurrency,
            at_once=options.at_once,
            per_second=options.per_second,
        )
        sweep_at = 0.0
        while not stop.is_set():
            try:
                await self._feed(workflows)
                if time.monotonic() >= sweep_at:
                    await self._sweep(workflows)
                    sweep_at = time.monotonic() + options.lease / 4
            except Exception as error:  # the database may be away; its drivers differ
                _log.warning("the queues cannot be looked at now: %s", error)
                await _wait(stop, 2.0)
            await _wait(stop, _FEED_SECONDS)
        await workflows.stop(options.grace)

    # -- tasks come in ------------------------------------------------------------------

    async def _feed(self, workflows: Workflows) -> None:
        """Bring tasks that wait into the queues, as many as can soon be begun."""
        limit = _AHEAD + 4 * self._options.concurrency
        waiting = await self._journal.next_queued(self._options.queues, limit)
        names = {record.task_id for record in waiting}
        self._known = {name: at for name, at in self._known.items() if name in names}
        for record in waiting:
            if record.task_id not in self._known and record.queue is not None:
                await workflows.enqueue(f"{record.task_id}:1:1", record.queue, record.task_id)
                self._known[record.task_id] = time.monotonic()

    async def _sweep(self, workflows: Workflows) -> None:
        """Hand on the tasks of workers that are gone."""
        patience = time.monotonic() - self._options.lease
        stuck = [name for name, at in self._known.items() if at < patience]
        for record in await self._journal.find(1000, state="interrupted"):
            if record.queue in self._options.queues and record.task_id not in self._in_hand:
                await self._hand_on(workflows, record)
        for task_id in stuck:  # enqueued long ago, and nobody has begun it
            self._known[task_id] = time.monotonic()
            await self._hand_on(workflows, await self._journal.task(task_id))

    async def _hand_on(self, workflows: Workflows, record: TaskRecord) -> None:
        queue, prefix = record.queue or "", f"{record.task_id}:{record.events}:"
        if record.state not in ("interrupted", "queued"):
            return
        tries = await workflows.tries(prefix)
        for name, status, _ in tries:  # in no order that a clock which was set back would keep
            if status == "PENDING":  # who took it died, perhaps before it began the task
                await workflows.again(name, queue)
            if status in ("PENDING", "ENQUEUED", "DELAYED"):
                return
        failed = sum(result != "taken" for _, _, result in tries)
        if failed >= _TRIES:
            if prefix not in self._given_up:
                _log.warning("task %s was tried %d times; see to it", record.task_id, failed)
                self._given_up.add(prefix)
            return
        delay = min(2.0**failed, _LONGEST_DELAY) if tries else 0.0
        key = f"{prefix}{len(tries) + 1}"
        await workflows.enqueue(key, queue, record.task_id, delay)

    # -- and are done -------------------------------------------------------------------

    async def work(self, task_id: str) -> str:
        """Do a task, or go on with it.

        Returns:
            ``done``, ``failed``; ``taken`` where somebody else does it, and ``put back`` where it
            cannot be done here.
        """
        if task_id in self._in_hand:
            return "taken"
        self._in_hand.add(task_id)
        try:
            return await self._work(task_id)
        except DelfError as error:
            record = await self._journal.task(task_id)
            if record.state == "running":
                return "taken"
            _log.warning("task %s is put back: %s", task_id, error)
            return "put back"
        finally:
            self._in_hand.discard(task_id)

    async def _work(self, task_id: str) -> str:
        queued = _queued(await self._journal.read(task_id))
        agent, give_back = await self._agents.lend(queued.setup)
        try:
            response = await agent.aresume(task_id, queued.timeout)
        finally:
            give_back()
        return "done" if response.status else "failed"

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


def _queued(events: Sequence[Event]) -> TaskQueued:
    first = events[0]
    if not isinstance(first, TaskQueued):
        raise DelfError("the task was not handed in for a queue")
    return first


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
