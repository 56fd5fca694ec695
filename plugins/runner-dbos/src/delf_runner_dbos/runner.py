"""A runner: runs the tasks of DBOS's queues."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from delf.errors import BudgetExceededError, ConfigurationError, DelfError, UnknownTaskError
from delf.events import Event, TaskFinished, TaskQueued, end_of
from delf.network.outages import Outage
from delf.protocols.journal import ListPlace, TaskRecord
from delf.protocols.people import name_of_holder
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf_cli.output import format_count
from delf_cli.schedules import ITEM, ROUTINE, RoutineCall
from delf_engine.retention import prune
from delf_engine.task import TRUST, VARIABLES
from delf_runner_dbos.queue import DbosQueue, Ticket, is_here, task_id_of
from delf_runner_dbos.schedules import forget_looks, last_seen
from delf_runner_dbos.times import is_repeated
from delf_runner_dbos.watching import items_of, look_at, truncate_item

if TYPE_CHECKING:
    from delf import Agent
    from delf_cli.people_tasks import PeopleTasks
    from delf_runner_dbos.agents import Agents
    from delf_runner_dbos.engine import Workflows
    from delf_runner_dbos.settings import QueueSettings

_log = logging.getLogger(__name__)
AWAY_SECONDS: Final = 2.0
_LONGEST_REST: Final = 300.0
PERMIT_SECONDS: Final = 1.0
_SELDOM_SECONDS: Final = 3600.0
_REMEMBER_SECONDS: Final = 86400.0
_AT_ONCE: Final = 1000
SOON: Final = (0.05,) * 10
"""Pauses until the journal has a task that was enqueued a moment ago."""
_FIRING: Final = "firing"
"""The key of a task's setup that names the firing of a schedule which submitted the task."""
_CLOCKS: Final = "nothing was started: clocks were set back, and this time came before, too"
_UNKNOWN_RESTS: Final = 6


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """The options of a runner.

    Args:
        queues: The queues to serve, with their settings.
        concurrency: The maximum number of concurrent tasks.
        lease: Seconds of silence after which another runner claims its tasks.
        grace: Seconds for running tasks to finish at shutdown.
        former: Folders that the project had before.
    """

    queues: Mapping[str, QueueSettings]
    concurrency: int
    lease: float
    grace: float
    former: Collection[str] = ()


@dataclass(frozen=True)
class _Seen:
    """A running workflow that a sweep has found.

    Args:
        begun: The start time of the workflow, as DBOS recorded it.
        since: The time of the first sweep that found the workflow with this start time.
    """

    begun: int | None
    since: float


class Runner:
    """Runs tasks until it is stopped.

    Args:
        journal: The journal with the tasks.
        queue: The queue.
        agents: The agents that run the tasks.
        watchers: Read-only agents that make the calls whose results schedules watch.
        options: The options.
        people: The budgets and notices of people, if a server's plugin is installed.
    """

    def __init__(
        self,
        journal: SharedJournal,
        queue: DbosQueue,
        agents: Agents,
        watchers: Agents,
        options: RunnerOptions,
        people: PeopleTasks | None = None,
    ) -> None:
        self._people = people
        self._watchers = watchers
        self._journal = journal
        self._queue = queue
        self._agents = agents
        self._options = options
        self._permits = asyncio.Semaphore(options.concurrency)
        self._working: dict[object, tuple[str, str]] = {}
        self._seen: dict[str, _Seen] = {}
        self._end = asyncio.Event()
        self._leaving = False
        self._away = Outage(_log, "tasks wait for their queue")

    def end(self) -> None:
        """Stop taking tasks, and shut down gracefully."""
        self._end.set()

    async def run(self, workflows: Workflows) -> None:
        """Work until the end is requested.

        Args:
            workflows: Receives the workflows of DBOS's queues.
        """
        if not await self._start(workflows):
            return
        background_work = [
            asyncio.ensure_future(work)
            for work in (
                self._repeat(self._options.lease / 3, self.sweep),
                self._repeat(_SELDOM_SECONDS, self.restore),
                self._repeat(_SELDOM_SECONDS, self._forget),
            )
        ]
        await self._end.wait()
        for work in background_work:
            work.cancel()
        await asyncio.wait(background_work)
        await workflows.stop(self._options.grace)
        unfinished = dict(self._working.values())  # handed on, to avoid a wait for the lease
        self._leaving = True
        await self._watchers.aclose()
        await self._agents.aclose()
        try:
            await self._queue.hand_on(unfinished)
        except DelfError as error:
            _log.warning("others go on with %d tasks after the lease: %s", len(unfinished), error)

    async def _start(self, workflows: Workflows) -> bool:
        """Start workflows once DBOS's database responds; return False at the end."""
        outage = Outage(_log, "a runner does not start yet")
        while not self._end.is_set():
            try:
                for name, settings in self._options.queues.items():
                    await self._queue.register(name, settings, self._options.concurrency)
                await workflows.start(self._options.queues)
            except Exception as error:  # the drivers of databases differ
                outage.record_failure(DelfError(str(error).partition("\n")[0]))
                await self._pause(AWAY_SECONDS)
            else:
                outage.record_success()
                return True
        return False

    async def _pause(self, seconds: float) -> None:
        """Sleep, or wake at the end."""
        try:
            async with asyncio.timeout(seconds):
                await self._end.wait()
        except TimeoutError:
            return

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat work until the end, sooner after a failure."""
        outage = Outage(_log, "a runner looks again later", self._journal.place)
        while not self._end.is_set():
            wait = seconds
            with outage.track(Exception):  # a database may be away; the drivers differ
                await work()
            if outage.failures:
                wait = min(seconds, AWAY_SECONDS)
            await self._pause(wait)

    # -- one workflow -------------------------------------------------------------------

    async def work(self, workflow_id: str, ticket: Ticket) -> str:
        """Run or resume a task.

        Returns:
            The state of the task, or ``rests`` if this or another runner starts it again later.
        """
        # Keyed by run: a workflow put back may begin again here before its first run has returned.
        run = object()
        self._working[run] = workflow_id, ticket.workflows
        try:
            async with self._permit() as free:
                if free:
                    return await self._do(ticket)
            # DBOS limits each queue, and the permits limit all queues together. A workflow without
            # a permit goes back to its queue.
            return await self._until_done(
                lambda: self._queue.hand_on({workflow_id: ticket.workflows})
            )
        finally:
            del self._working[run]

    @asynccontextmanager
    async def _permit(self) -> AsyncGenerator[bool]:
        """Acquire a permit for one of this runner's concurrent tasks, with a timeout."""
        try:
            async with asyncio.timeout(PERMIT_SECONDS):
                await self._permits.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            self._permits.release()

    async def _do(self, ticket: Ticket) -> str:
        """Run a ticket's task if due, or put the ticket back; return the state for DBOS."""
        try:
            record = await self._record(ticket)
            if record is None:
                return "unknown"
            if record.state is TaskState.INTERRUPTED or (
                record.state is TaskState.QUEUED and _is_due(record)
            ):
                record = await self._try(record)
        except Exception as error:  # a database may be away; the drivers differ
            return await self._requeue_failed(ticket, error)
        if record.state.is_terminal:
            return record.state.value
        if record.state is TaskState.INTERRUPTED:
            return await self._requeue_later(ticket.rested(), 0.0)
        wait = self._options.lease  # another process runs it, and may die
        if record.state is TaskState.QUEUED:
            wait = (record.not_before or 0.0) - time.time()
        return await self._requeue_later(replace(ticket, rests=0), wait)

    async def _record(self, ticket: Ticket) -> TaskRecord | None:
        """Return the journal's record of a task; None if it never arrived."""
        for pause in SOON:
            try:
                return await self._journal.task(ticket.task_id)
            except UnknownTaskError:
                await asyncio.sleep(pause)
        if ticket.rests > _UNKNOWN_RESTS:
            _log.warning("task %s did not reach the journal", ticket.task_id)
            return None
        return await self._journal.task(ticket.task_id)

    async def _try(self, record: TaskRecord) -> TaskRecord:
        """Run a task, or fail a task that kills runners or lacks a budget; return the record."""
        task_id = record.task_id
        queued = _queued(await self._journal.read(task_id))
        queue = self._options.queues[queued.queue or ""]
        # Otherwise a task that kills its process would kill one runner after the other.
        if record.state is TaskState.INTERRUPTED and record.losses >= queue.losses:
            await self._fail(task_id, _lost_runner_error(task_id, record.losses + 1))
        else:
            agent, give_back = await self._agents.lend(queued.setup)
            try:
                person_options = await self._of_person(agent, queued)
                ledger = person_options.get("ledger")
                if ledger is not None and ledger.is_exhausted:
                    # Not put back: the budget begins anew only next month.
                    end = await self._fail(task_id, _no_money(queued))
                    person_options["listeners"][0](end)
                    return await self._journal.task(task_id)
                await agent.aresume(
                    task_id,
                    queued.timeout,
                    go_on=False,
                    retries=queue.retries if queued.retries is None else queued.retries,
                    retry_after=queued.retry_after or queue.retry_after,
                    **person_options,
                )
            finally:
                give_back()
        return await self._journal.task(task_id)

    async def _of_person(self, agent: Agent, queued: TaskQueued) -> dict[str, Any]:
        """Return the ledger and the listener of a person's task, as options of its submission."""
        if self._people is None or queued.key is None:
            return {}
        ledger = await self._people.ledger(queued.key, agent.ledger)
        return {
            "ledger": ledger,
            "listeners": [self._people.listener(queued.task, queued.key)],
        }

    async def _requeue_failed(self, ticket: Ticket, error: Exception) -> str:
        """Put a task that cannot run now back into the queue, for this or another runner."""
        if not self._leaving:
            _log.log(
                logging.DEBUG if ticket.rests else logging.WARNING,
                "task %s is put back: %s",
                ticket.task_id,
                error,
            )
        return await self._requeue_later(ticket.rested(), 0.0)

    async def _requeue_later(self, ticket: Ticket, seconds: float) -> str:
        """Enqueue a task again with a delay, because its workflow ends now."""
        # Back off, so that a task that fails at once does not keep all runners busy.
        seconds = max(seconds, min(2.0**ticket.rests, _LONGEST_REST) if ticket.rests else 0.0)
        return await self._until_done(lambda: self._queue.again(ticket, seconds))

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> str:
        """Repeat an operation of the queue until its database responds."""
        while not self._leaving:
            with self._away.track(DelfError):
                await work()
                return "rests"
            await asyncio.sleep(AWAY_SECONDS)
        return await asyncio.get_running_loop().create_future()  # other runners continue; see run()

    async def _fail(self, task_id: str, error: DelfError) -> TaskFinished:
        """End an unowned task as failed; return its end."""
        await self._journal.claim(task_id)
        events = await self._journal.read(task_id)
        if isinstance(last := events[-1], TaskFinished):
            return last
        end = end_of(events, error)
        await self._journal.append(end)
        return end

    # -- schedules ----------------------------------------------------------------------

    async def fire(self, workflow_id: str, context: Mapping[str, Any]) -> dict[str, Any]:
        """Start the tasks of a schedule exactly once, even if the workflow is repeated.

        Args:
            workflow_id: The id of the firing.
            context: The schedule as DBOS keeps it, and ``at``, the time of the firing; ``test`` if
                its task may only read.

        Returns:
            ``tasks``: the ids of the tasks that this firing started; for a watched call also
            ``seen``, with which the next firing compares; ``note`` and ``failure``, for people.
        """
        watches = context.get("each") is not None
        before = None
        if watches and not context.get("test"):
            before = await last_seen(self._queue, context)
        base = {"made": context.get("made"), "seen": before or []}
        try:
            await self._check_person(context.get("key"))
            if not watches:
                if is_repeated(context):
                    return {"tasks": [], "note": _CLOCKS}
                return {"tasks": await self._hand_in(workflow_id, workflow_id, context)}
            agent, give_back = await self._watchers.lend(context["setup"])
            try:
                items = await items_of(agent, context["each"])
            finally:
                give_back()
            if context.get("test"):
                return await self._test(workflow_id, context, items)
            look = look_at(items, context.get("id_field"), before)
        except DelfError as error:
            _log.warning("the schedule %s: %s", context["name"], error.message)
            return {**base, "tasks": [], "failure": error.message}
        # The ids of the tasks follow from schedule and item, so that a workflow repeated after a
        # crash submits the same tasks and not new ones.
        source = f"{context['name']}:{context['made']}"
        tasks = [
            task
            for digest, item in reversed(look.new)  # oldest first
            for task in await self._hand_in(
                workflow_id, f"{source}:{digest}", context, {ITEM: item}
            )
        ]
        return {**base, "seen": [*look.seen], "tasks": tasks, "note": look.note}

    async def _check_person(self, holder: str | None) -> None:
        """Raise if a schedule's owner may no longer run tasks.

        Args:
            holder: The person for whom the tasks are done; None for the local user.

        Raises:
            ConfigurationError: If the person was removed, or lost the right to run tasks.
        """
        if holder is None:
            return
        person = next(
            (person for person in await self._journal.people() if person.holder == holder), None
        )
        if person is not None and (person.revoked_at is not None or "run" not in person.rights):
            raise ConfigurationError(f"{person.name} may not run tasks any more")

    async def _test(
        self, workflow_id: str, context: Mapping[str, Any], items: Sequence[Any]
    ) -> dict[str, Any]:
        """Start the task of a schedule as a test, with the first of some items."""
        if not items:
            return {"tasks": [], "note": "the call returns no items now"}
        item = truncate_item(items[0])
        tasks = await self._hand_in(workflow_id, workflow_id, context, {ITEM: item})
        return {"tasks": tasks, "note": f"with the first of {format_count(len(items), 'item')}"}

    async def _hand_in(
        self,
        firing: str,
        source: str,
        context: Mapping[str, Any],
        variables: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Submit a task of a schedule; return its id, or nothing if another firing submitted it.

        Args:
            firing: The id of the firing.
            source: An idempotency key for the task.
            context: The schedule.
            variables: The variables for scripts.
        """
        setup: dict[str, Any] = {**context["setup"], _FIRING: firing}
        if context.get("test"):
            setup["flags"] = {**setup.get("flags", {}), "approval_mode": "read_only"}
        task = str(context["task"])
        if variables:
            setup[VARIABLES] = variables
            if setup.get("flags", {}).get("strategy") == ROUTINE:
                task, setup[TRUST] = _with_values(task, variables[ITEM]), "outside"
        name = f"task_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
        queued = TaskQueued(
            task_id=name,
            seq=1,
            at=time.time(),
            task=task,
            origin="schedule",
            queue=str(context["queue"]),
            key=context.get("key"),
            setup=setup,
        )
        outage = Outage(_log, f"the schedule of {name} waits", self._journal.place)
        while True:
            try:
                is_ours = await self._submit(queued)
            except Exception as error:  # a database may be away; the drivers differ
                outage.record_failure(error)
                await asyncio.sleep(AWAY_SECONDS)
            else:
                outage.record_success()
                return [name] if is_ours else []

    async def _submit(self, queued: TaskQueued) -> bool:
        """Submit a task once; return False if another firing did, or the task was deleted."""
        # The journal first: restore() finds a task that no workflow has, and abandon() would remove
        # a workflow without a task.
        try:
            first_event = (await self._journal.read(queued.task_id))[0]
        except UnknownTaskError:
            if await self._journal.was_removed(queued.task_id):
                return False
            await self._journal.append(queued)
            first_event = queued
        await self._queue.enqueue(queued)
        return (
            isinstance(first_event, TaskQueued)
            and first_event.setup.get(_FIRING) == queued.setup[_FIRING]
        )

    # -- what dead processes left -------------------------------------------------------

    async def sweep(self) -> None:
        """Release workflows without a live owner to other runners.

        The claim of a task names the process that works on the task. If no process has claimed the
        task of a running workflow within a lease, the workflow's runner counts as dead, too.
        """
        at_work = await self._queue.at_work(self._options.queues)
        own = dict(self._working.values())
        now_seen = {
            row.workflow_id: _Seen(row.dequeued_at, monotonic())
            for row in at_work
            if row.workflow_id not in own
        }
        # Restarted workflows have another start time, and begin a new silence.
        still_running = {
            workflow_id: self._seen[workflow_id]
            for workflow_id, now in now_seen.items()
            if workflow_id in self._seen and self._seen[workflow_id].begun == now.begun
        }
        self._seen = now_seen | still_running
        queues = {row.workflow_id: row.queue_name or "" for row in at_work}
        for workflow_id, seen in still_running.items():
            if await self._is_left(workflow_id, monotonic() - seen.since):
                await self._queue.hand_on({workflow_id: queues[workflow_id]})

    async def _is_left(self, workflow_id: str, silent: float) -> bool:
        try:
            state = (await self._journal.task(task_id_of(workflow_id))).state
        except UnknownTaskError:
            state = TaskState.QUEUED
        if state is TaskState.RUNNING:
            return False
        return state is TaskState.INTERRUPTED or silent > self._options.lease

    async def restore(self) -> None:
        """Enqueue tasks without a live workflow, as after a loss of DBOS's database."""
        missing_by_folder: Counter[str] = Counter()
        for state in (TaskState.INTERRUPTED, TaskState.QUEUED):
            waiting: list[str] = []
            last: ListPlace | None = None
            while records := await self._journal.find(_AT_ONCE, state=state, after=last):
                waiting += [r.task_id for r in records if r.queue in self._options.queues]
                last = records[-1].place
            for task_id in await self._queue.left_out(waiting[::-1]):
                queued = _queued(await self._journal.read(task_id))
                folder = str(queued.setup.get("folder", ""))
                if is_here(queued.setup, self._options.former):
                    await self._queue.restore(queued)
                elif not await asyncio.to_thread(Path(folder).is_dir):
                    missing_by_folder[folder] += 1
        for folder, count in missing_by_folder.items():  # existing folders have their own runners
            _log.warning(
                "%d tasks wait that are of the folder %s, which is not here; if the project was "
                "moved to %s, name that folder in former_folders under [plugins.runner-dbos]",
                count,
                folder,
                Path.cwd(),
            )

    async def _forget(self) -> None:
        """Remove workflows older than the journal's retention."""
        before = time.time() - _REMEMBER_SECONDS
        await self._queue.forget(before, await forget_looks(self._queue))
        if ages := self._journal.keep:
            removed = await prune(self._journal, ages)
            if removed.tasks:
                _log.info("%d tasks forgotten", len(removed.tasks))
        await self._queue.abandon(self._options.queues, before, self._is_unknown)

    async def _is_unknown(self, task_id: str) -> bool:
        """Return True if the journal does not have a task."""
        try:
            await self._journal.task(task_id)
        except UnknownTaskError:
            return True
        return False


def _with_values(task: str, item: Any) -> str:
    """Return the call of a routine with values of an item.

    If the item lacks these values, the task stays unchanged and fails with the strategy's error, so
    that one odd item does not hold up the others.
    """
    try:
        return RoutineCall.read(task).of(item)
    except ConfigurationError as error:
        _log.warning("a routine gets no values of an item: %s", error.message)
        return task


def _is_due(record: TaskRecord) -> bool:
    return record.not_before is None or record.not_before <= time.time()


def _lost_runner_error(task_id: str, count: int) -> DelfError:
    return DelfError(
        f"{count} runners ended while they did this task",
        hint=f"perhaps it takes all of their memory: delf runs show {task_id}",
    )


def _no_money(queued: TaskQueued) -> BudgetExceededError:
    return BudgetExceededError(
        f"a budget of {name_of_holder(queued.key)} for this month is used up",
        hint="budgets of [plugins.serve] has the limits; they begin anew each month (UTC)",
    )


def _queued(events: Sequence[Event]) -> TaskQueued:
    first = events[0]
    if not isinstance(first, TaskQueued):
        raise DelfError("the task was not submitted for a queue")
    return first
