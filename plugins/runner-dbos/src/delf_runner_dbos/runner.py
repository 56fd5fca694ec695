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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delf.errors import (
    BudgetExceededError,
    ConfigurationError,
    DelfError,
    JournalFailedError,
    JournalUnavailableError,
    UnknownTaskError,
    UnreadableEventError,
)
from delf.events import Event, TaskFinished, TaskQueued, make_end_event
from delf.network.outages import Outage
from delf.protocols.journal import ListPlace, TaskRecord
from delf.protocols.people import check_may_run, name_of_user
from delf.protocols.shared_journal import SharedJournal
from delf.types import TaskState
from delf_cli.formats import format_count
from delf_cli.routine_calls import ITEM, RoutineCall
from delf_cli.schedules import runs_routine
from delf_engine.closing import all_ended
from delf_engine.retention import prune
from delf_engine.task import TRUST, VARIABLES
from delf_runner_dbos.queue import DbosQueue, Ticket, belongs_to_project, folder_of, task_id_of
from delf_runner_dbos.schedules import delete_idle_firings, seen_digests
from delf_runner_dbos.times import repeats_time_of_day
from delf_runner_dbos.watching import compare_items, items_of, truncate_item

if TYPE_CHECKING:
    from delf import Agent
    from delf_cli.people_tasks import PeopleTasks
    from delf_runner_dbos.agents import Agents
    from delf_runner_dbos.engine import Workflows
    from delf_runner_dbos.settings import QueueSettings

_log = logging.getLogger(__name__)
AWAY_SECONDS: Final = 2.0
_MAX_REQUEUE_SECONDS: Final = 300.0
PERMIT_SECONDS: Final = 1.0
_UPKEEP_SECONDS: Final = 3600.0
_REMEMBER_SECONDS: Final = 86400.0
_BATCH_SIZE: Final = 1000
JOURNAL_PAUSES: Final = (0.05,) * 10
"""The seconds to wait after each failed look-up in the journal of a task just enqueued."""
# The setup field of a task that names the firing of a schedule that submitted the task.
_FIRING_ID: Final = "firing"
_REPEATED_TIME_NOTE: Final = (
    "nothing was started: clocks were set back, and this time came before, too"
)
_MAX_UNKNOWN_REQUEUES: Final = 6
_REQUEUED: Final = "requeued"  # the state for DBOS of a task that is back in its queue


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """The options of a runner.

    Args:
        queues: The settings of each queue to serve, by queue name.
        concurrency: The maximum number of concurrent tasks.
        lease: The seconds after which other runners may claim the tasks of an unresponsive runner.
        grace: The seconds that running tasks have to finish at shutdown.
        former_folders: Earlier paths of the project's folder.
    """

    queues: Mapping[str, QueueSettings]
    concurrency: int
    lease: float
    grace: float
    former_folders: Collection[str] = ()


class _Run(NamedTuple):
    workflow_id: str
    dbos_queue_name: str


class Runner:
    """Runs queued tasks and schedules until it is stopped.

    Args:
        journal: The journal with the tasks.
        queue: The DBOS queue.
        agents: The agents that run the tasks.
        read_only_agents: The agents that make the calls by which schedules look for new items.
        options: The options of the runner.
        people: The budgets and notifications of users; None if no server plugin is installed.
    """

    def __init__(
        self,
        journal: SharedJournal,
        queue: DbosQueue,
        agents: Agents,
        read_only_agents: Agents,
        options: RunnerOptions,
        people: PeopleTasks | None = None,
    ) -> None:
        self._people = people
        self._journal = journal
        self._queue = queue
        self._agents = agents
        # These agents only make the calls by which schedules look for new items.
        self._read_only_agents = read_only_agents
        self._options = options
        self._permits = asyncio.Semaphore(options.concurrency)
        # The workflows that this process runs now. work() adds and removes them. A workflow may be
        # in the list twice, if it was requeued and starts again before its first run has returned.
        self._current_runs: list[_Run] = []
        # The running workflows of other processes, as of the latest sweep(). The key is the id and
        # DBOS's start time, the value the monotonic time at which a sweep() first saw the workflow.
        self._first_seen: dict[tuple[str, int | None], float] = {}
        self._shutdown_requested = asyncio.Event()
        self._is_shutting_down = False
        self._queue_outage = Outage(_log, "tasks wait for their queue")

    def end(self) -> None:
        """Stop taking tasks, and shut down gracefully."""
        self._shutdown_requested.set()

    async def run(self, workflows: Workflows) -> None:
        """Run tasks until :meth:`end` is called.

        Args:
            workflows: The DBOS instance, which calls this runner.
        """
        if not await self._start(workflows):
            return
        # Release the workflows of dead runners, restore lost workflows, and delete old ones.
        background_work = [
            asyncio.ensure_future(work)
            for work in (
                self._repeat(self._options.lease / 3, self.sweep),
                self._repeat(_UPKEEP_SECONDS, self.restore),
                self._repeat(_UPKEEP_SECONDS, self._delete_old),
            )
        ]
        await self._shutdown_requested.wait()
        for work in background_work:
            work.cancel()
        await asyncio.wait(background_work)
        await workflows.stop(self._options.grace)
        # Copy the list before the agents stop, because each run then leaves the list.
        unfinished = {run.workflow_id: run.dbos_queue_name for run in self._current_runs}
        self._is_shutting_down = True
        try:
            await all_ended([self._read_only_agents.aclose(), self._agents.aclose()])
        finally:
            await self._release_unfinished(unfinished)

    async def _release_unfinished(self, workflows: Mapping[str, str]) -> None:
        """Let other runners start workflows at once instead of after this runner's lease.

        Args:
            workflows: A mapping from workflow id to the name of the workflow's DBOS queue.
        """
        try:
            await self._queue.release(workflows)
        except DelfError as error:
            _log.warning("%d tasks wait until their lease ends: %s", len(workflows), error)

    async def _start(self, workflows: Workflows) -> bool:
        """Start DBOS's workflows, retrying until its database responds.

        Returns:
            False if the shutdown was requested before the start succeeded.
        """
        outage = Outage(_log, "a runner does not start yet")
        while not self._shutdown_requested.is_set():
            try:
                for name, settings in self._options.queues.items():
                    await self._queue.register(name, settings, self._options.concurrency)
                await workflows.start(self._options.queues)
            except Exception as error:  # drivers of databases raise errors of any type
                outage.record_failure(DelfError(str(error).partition("\n")[0]))
                await self._pause(AWAY_SECONDS)
            else:
                outage.record_success()
                return True
        return False

    async def _pause(self, seconds: float) -> None:
        """Sleep until the time is over or the shutdown is requested."""
        try:
            async with asyncio.timeout(seconds):
                await self._shutdown_requested.wait()
        except TimeoutError:
            return

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat an operation until the shutdown is requested.

        Args:
            seconds: The interval. After a failure, the pause is at most ``AWAY_SECONDS``.
            work: The operation.
        """
        outage = Outage(_log, "a runner looks again later", self._journal.place)
        while not self._shutdown_requested.is_set():
            with outage.track(Exception):  # drivers of databases raise errors of any type
                await work()
            await self._pause(min(seconds, AWAY_SECONDS) if outage.failures else seconds)

    # -- one workflow -------------------------------------------------------------------

    async def work(self, workflow_id: str, ticket: Ticket) -> str:
        """Run or resume a task.

        Returns:
            The state of the task; or ``requeued`` if the task is back in its queue.
        """
        queue_name = ticket.dbos_queue_name
        run = _Run(workflow_id, queue_name)
        self._current_runs.append(run)
        try:
            async with self._permit() as has_permit:
                if has_permit:
                    return await self._run_if_due(ticket)
            # DBOS limits each queue, and the permits limit all queues together. A workflow without
            # a permit goes back to its queue.
            await self._repeat_until_done(lambda: self._queue.release({workflow_id: queue_name}))
            return _REQUEUED
        finally:
            self._current_runs.remove(run)

    @asynccontextmanager
    async def _permit(self) -> AsyncGenerator[bool]:
        """Acquire a permit for one of this runner's concurrent tasks; yield False on timeout."""
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

    async def _run_if_due(self, ticket: Ticket) -> str:
        """Run the task of a ticket if the task is due; put an unfinished task back into the queue.

        Returns:
            The state of the task for DBOS: the final state, ``unknown`` if the journal does not
            have the task, or ``requeued`` if the task is back in its queue.
        """
        try:
            record = await self._find_record(ticket)
            if record is None:
                return "unknown"
            is_due = record.state is TaskState.QUEUED and _is_due(record)
            if is_due or record.state is TaskState.INTERRUPTED:
                record = await self._run_task(record)
        except Exception as error:  # drivers of databases raise errors of any type
            return await self._requeue_failed(ticket, error)
        if record.state.is_terminal:
            return record.state.value
        if record.state is TaskState.INTERRUPTED:
            # The run did not end the task. Each further requeue makes the delay longer.
            return await self._requeue_later(ticket.with_another_requeue(), min_delay=0.0)
        # The task has to wait, which is no failure, so the count of requeues begins again.
        if record.state is TaskState.QUEUED:
            wait_seconds = (record.not_before or 0.0) - time.time()
        else:
            wait_seconds = self._options.lease  # another process runs the task, and may die
        return await self._requeue_later(replace(ticket, requeues=0), wait_seconds)

    async def _find_record(self, ticket: Ticket) -> TaskRecord | None:
        """Return the journal's record of the ticket's task.

        Returns:
            The record; None if it is missing and the ticket was requeued too often.

        Raises:
            UnknownTaskError: If the record is missing, and the caller should requeue the ticket.
        """
        for pause in JOURNAL_PAUSES:
            try:
                return await self._journal.task(ticket.task_id)
            except UnknownTaskError:
                await asyncio.sleep(pause)
        if ticket.requeues > _MAX_UNKNOWN_REQUEUES:
            _log.warning("task %s did not reach the journal", ticket.task_id)
            return None
        return await self._journal.task(ticket.task_id)  # a last try, which may raise

    async def _run_task(self, record: TaskRecord) -> TaskRecord:
        """Run or resume a task, and return its record after the run.

        Fail the task without running it if too many runners died during the task, if its user may
        not run tasks any more, or if its user's budget is exhausted.
        """
        task_id = record.task_id
        queued = _queued(await self._journal.read(task_id))
        queue = self._options.queues[queued.queue or ""]  # a task that runs here has a queue
        refusal = await self._refusal_of(record, queued, queue)
        if refusal is not None:
            await self._fail(queued, refusal)
            return await self._journal.task(task_id)
        async with self._agents.lend(queued.setup) as agent:
            user_options = await self._user_options(agent, queued)
            ledger = user_options.get("ledger")
            if ledger is not None and ledger.is_exhausted:
                # The task is not requeued, because the budget is renewed only next month.
                await self._fail(queued, _budget_error(queued))
            else:
                await self._resume(agent, queued, queue, user_options)
        return await self._journal.task(task_id)

    async def _refusal_of(
        self, record: TaskRecord, queued: TaskQueued, queue: QueueSettings
    ) -> DelfError | None:
        """Return the error with which a task fails before it runs; None if the task may run.

        A task must not run if too many runners died while they ran the task, or if its user has no
        access.
        """
        error_of_losses = _error_of_losses(record, queue)
        if error_of_losses is not None:
            return error_of_losses
        try:
            await self._check_user(queued.user)
        except ConfigurationError as error:
            return error
        return None

    async def _resume(
        self, agent: Agent, queued: TaskQueued, queue: QueueSettings, user_options: dict[str, Any]
    ) -> None:
        """Run or resume a task with an agent, and record the end of the task.

        Raises:
            DelfError: If the task could not be run and stays unfinished.
        """
        try:
            await agent.aresume(
                queued.task_id,
                queued.timeout,
                continue_past_limit=False,
                retries=queue.retries if queued.retries is None else queued.retries,
                retry_after=queue.retry_after if queued.retry_after is None else queued.retry_after,
                **user_options,
            )
        except (ConfigurationError, BudgetExceededError):
            # The agent may have recorded the task as failed before it raised the error.
            record = await self._journal.task(queued.task_id)
            is_recorded_as_failed = record.state.is_terminal
            if not is_recorded_as_failed:
                raise

    async def _user_options(self, agent: Agent, queued: TaskQueued) -> dict[str, Any]:
        """Return the parameters ``ledger`` and ``listeners`` for the task of a user.

        The mapping is empty if the task has no user, or if no server plugin is installed.
        """
        user = queued.user
        if self._people is None or user is None:
            return {}
        return {
            "ledger": await self._people.ledger(user, agent.ledger),
            "listeners": [self._people.listen],
        }

    async def _requeue_failed(self, ticket: Ticket, error: Exception) -> str:
        """Put a task back into the queue after an error, for this or another runner.

        Returns:
            ``requeued``, the state of the task for DBOS.
        """
        if not self._is_shutting_down:
            # Only the first failure of a task is a warning, so that retries do not fill the log.
            level = logging.DEBUG if ticket.requeues else logging.WARNING
            _log.log(level, "task %s is put back: %s", ticket.task_id, error)
        return await self._requeue_later(ticket.with_another_requeue(), min_delay=0.0)

    async def _requeue_later(self, ticket: Ticket, min_delay: float) -> str:
        """Put a task back into the queue.

        Args:
            ticket: The ticket of the task.
            min_delay: The minimum delay in seconds. The delay is longer if the task was often
                requeued.

        Returns:
            ``requeued``, the state of the task for DBOS.
        """
        # Back off, so that a task whose runs fail at once does not keep all runners busy.
        backoff = min(2.0**ticket.requeues, _MAX_REQUEUE_SECONDS) if ticket.requeues else 0.0
        delay = max(min_delay, backoff)
        await self._repeat_until_done(lambda: self._queue.requeue(ticket, delay))
        return _REQUEUED

    async def _repeat_until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Retry a queue operation until the database responds.

        Once this runner shuts down, never return: another runner takes over the task.
        """
        while not self._is_shutting_down:
            with self._queue_outage.track(DelfError):  # suppresses the error of work()
                await work()
                return
            await asyncio.sleep(AWAY_SECONDS)
        # Never return: run() releases the task to other runners, and this process ends.
        await asyncio.get_running_loop().create_future()

    async def _fail(self, queued: TaskQueued, error: DelfError) -> None:
        """Record a task as failed, and notify its user. Does nothing if the task is over."""
        await self._journal.claim(queued.task_id)
        events = await self._journal.read(queued.task_id)
        if isinstance(events[-1], TaskFinished):
            return
        end = make_end_event(events, error)
        await self._journal.append(end)
        # An agent would call the listener to notify the user, but no agent runs.
        if self._people is not None and queued.user is not None:
            self._people.listen(end)

    # -- schedules ----------------------------------------------------------------------

    async def fire(self, workflow_id: str, context: Mapping[str, Any]) -> dict[str, Any]:
        """Start the tasks of a schedule exactly once, even if the workflow is repeated.

        Args:
            workflow_id: The id of the firing.
            context: The schedule's fields from DBOS, and ``at``, the time of the firing. ``each``
                is a call to watch: each new item in its result starts a task. With ``test``, the
                task may only read.

        Returns:
            ``tasks``: the ids of the started tasks; ``note`` and ``failure``: messages for people.
            A firing that watches a call also returns data for the next firing: ``made``, the
            schedule's id, and ``seen``, the digests of the known items.
        """
        watches_call = context.get("each") is not None
        is_test = bool(context.get("test"))
        if watches_call and not is_test:
            # _fire_for_new_items() handles its own errors, because even the result of a failed
            # firing must contain the known items for the next firing.
            return await self._fire_for_new_items(workflow_id, context)
        try:
            await self._check_user_of_schedule(context)
            if watches_call:
                items = await self._watched_items(context)
                return await self._submit_test(workflow_id, context, items)
            return await self._submit_unless_time_is_repeated(workflow_id, context)
        except DelfError as error:
            return _failed_firing(context, error)

    async def _fire_for_new_items(
        self, workflow_id: str, context: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Start a task for each new item in the result of a watched call.

        Returns:
            The result for DBOS, which the next firing reads: ``made`` identifies the schedule, and
            ``seen`` has the digests of the known items.
        """
        known_digests = await seen_digests(self._queue, context)
        schedule_id = context.get("made")
        try:
            await self._check_user_of_schedule(context)
            items = await self._watched_items(context)
            comparison = compare_items(items, context.get("id_field"), known_digests)
        except DelfError as error:
            return {"made": schedule_id, "seen": known_digests, **_failed_firing(context, error)}
        task_ids = await self._submit_for_items(workflow_id, context, comparison.new)
        return {
            "made": schedule_id,
            "seen": list(comparison.seen),
            "tasks": task_ids,
            "note": comparison.note,
        }

    async def _submit_unless_time_is_repeated(
        self, workflow_id: str, context: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Submit a schedule's task, and return the result of the firing.

        When clocks are set back, a time such as 02:30 comes twice. The second time submits no task.
        """
        if repeats_time_of_day(context):
            return {"tasks": [], "note": _REPEATED_TIME_NOTE}
        task_ids = await self._submit_scheduled(
            firing_id=workflow_id, idempotency_key=workflow_id, schedule=context
        )
        return {"tasks": task_ids}

    async def _watched_items(self, context: Mapping[str, Any]) -> Sequence[Any]:
        async with self._read_only_agents.lend(context["setup"]) as agent:
            return await items_of(agent, context["each"])

    async def _submit_for_items(
        self, workflow_id: str, context: Mapping[str, Any], items: Sequence[tuple[str, Any]]
    ) -> list[str]:
        """Start a task for each new item, oldest first; return the ids of the tasks.

        Args:
            workflow_id: The id of the firing.
            context: The schedule's fields from DBOS.
            items: Pairs of digest and item, newest first.
        """
        task_ids: list[str] = []
        for digest, item in reversed(items):
            task_ids += await self._submit_scheduled(
                firing_id=workflow_id,
                # Derived from schedule and item, so that a workflow that is repeated after a crash
                # submits the same tasks again and no new tasks.
                idempotency_key=f"{context['name']}:{context['made']}:{digest}",
                schedule=context,
                variables={ITEM: item},
            )
        return task_ids

    async def _check_user(self, user: str | None) -> None:
        """Check that the user of a task or schedule may still run tasks.

        Args:
            user: The user's name; None for the local user.

        Raises:
            ConfigurationError: If the user was removed, or lost the right to run tasks.
            JournalFailedError: If the journal, which has the users' rights, cannot be read.
        """
        if user is None:
            return
        try:
            people = await self._journal.people()
        except JournalUnavailableError as error:
            # JournalUnavailableError is a ConfigurationError, so callers would take the outage for
            # a user without rights.
            raise JournalFailedError(error.message, hint=error.hint) from error
        check_may_run(user, people)

    async def _check_user_of_schedule(self, schedule: Mapping[str, Any]) -> None:
        """Check the user of a schedule by :meth:`_check_user`; retry until the journal responds."""
        outage = Outage(_log, "a schedule waits for the people of the journal", self._journal.place)
        while True:
            try:
                await self._check_user(schedule["user"])
            except JournalFailedError as error:
                outage.record_failure(error)
                await asyncio.sleep(AWAY_SECONDS)
            else:
                outage.record_success()
                return

    async def _submit_test(
        self, workflow_id: str, context: Mapping[str, Any], items: Sequence[Any]
    ) -> dict[str, Any]:
        """Start the task of a schedule as a test, with the first of the watched call's items.

        Args:
            workflow_id: The id of the test's firing.
            context: The schedule's fields from DBOS.
            items: The items that the call has returned.
        """
        if not items:
            return {"tasks": [], "note": "the call returns no items now"}
        item = truncate_item(items[0])
        tasks = await self._submit_scheduled(
            firing_id=workflow_id,
            idempotency_key=workflow_id,  # a test has only one task
            schedule=context,
            variables={ITEM: item},
        )
        return {"tasks": tasks, "note": f"with the first of {format_count(len(items), 'item')}"}

    async def _submit_scheduled(
        self,
        firing_id: str,
        idempotency_key: str,
        schedule: Mapping[str, Any],
        variables: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Submit a task of a schedule, retrying until the journal and the queue respond.

        Args:
            firing_id: The id of the firing.
            idempotency_key: The text from which the task's id is derived.
            schedule: The schedule's fields from DBOS.
            variables: The variables for scripts.

        Returns:
            The ids of the submitted tasks, for the firing's result: one, or none if another firing
            has submitted the task.
        """
        setup: dict[str, Any] = {**schedule["setup"], _FIRING_ID: firing_id}
        if schedule.get("test"):
            setup["flags"] = {**setup.get("flags", {}), "approval_mode": "read_only"}
        task = str(schedule["task"])
        if variables:
            setup[VARIABLES] = variables
            if runs_routine(setup):
                task = _fill_routine_call(task, variables[ITEM])
                setup[TRUST] = "outside"  # the task's text now contains the item's data
        task_id = f"task_{hashlib.sha256(idempotency_key.encode()).hexdigest()[:16]}"
        queued = TaskQueued(
            task_id=task_id,
            seq=1,
            at=time.time(),
            task=task,
            origin="schedule",
            queue=str(schedule["queue"]),
            user=schedule["user"],
            setup=setup,
        )
        outage = Outage(_log, f"the schedule of {task_id} waits", self._journal.place)
        while True:
            try:
                is_of_this_firing = await self._submit(queued)
            except Exception as error:  # drivers of databases raise errors of any type
                outage.record_failure(error)
                await asyncio.sleep(AWAY_SECONDS)
            else:
                outage.record_success()
                return [task_id] if is_of_this_firing else []

    async def _submit(self, queued: TaskQueued) -> bool:
        """Write a task to the journal and to its queue, each at most once.

        Returns:
            True if this firing of the schedule has submitted the task. False if an earlier firing
            has, or if the task was deleted or cannot be read.
        """
        # Write the journal before the queue. If this process dies in between, restore() enqueues
        # the task, because the task has no workflow. In the other order, a runner would drop the
        # workflow, because the workflow has no task.
        try:
            first_event = (await self._journal.read(queued.task_id))[0]
        except UnknownTaskError:
            if await self._journal.was_removed(queued.task_id):
                return False
            await self._journal.append(queued)
            first_event = queued
        except UnreadableEventError as error:
            _log.warning("a task of a schedule is not started: %s", error.message)
            return False
        await self._queue.enqueue(queued)
        if not isinstance(first_event, TaskQueued):
            return False
        return first_event.setup.get(_FIRING_ID) == queued.setup[_FIRING_ID]

    # -- what dead processes left -------------------------------------------------------

    async def sweep(self) -> None:
        """Release the workflows of dead runners, so that other runners can start them.

        A runner counts as dead if its claim of the workflow's task has expired. A runner that has
        not claimed the task counts as dead when the workflow has run for longer than a lease.
        """
        own_workflow_ids = {run.workflow_id for run in self._current_runs}
        # A restarted workflow has another start time, so that its lease counts from the restart.
        running = {
            (row.workflow_id, row.dequeued_at): row.queue_name or ""
            for row in await self._queue.running_workflows(self._options.queues)
            if row.workflow_id not in own_workflow_ids
        }
        seen_before = self._first_seen
        now = monotonic()
        self._first_seen = {key: seen_before.get(key, now) for key in running}
        # Skip workflows that are seen for the first time: their tasks may not be claimed yet.
        for key in running.keys() & seen_before.keys():
            workflow_id, _ = key
            if await self._is_abandoned(workflow_id, now - seen_before[key]):
                await self._queue.release({workflow_id: running[key]})

    async def _is_abandoned(self, workflow_id: str, seconds: float) -> bool:
        """Return True if no living process works on the task of a running workflow.

        Args:
            workflow_id: The id of the workflow.
            seconds: The duration for which this runner has seen the workflow run. If no process has
                claimed the task, the task counts as abandoned after the option ``lease``, because a
                claim takes a much shorter time.
        """
        is_lease_over = seconds > self._options.lease
        try:
            state = (await self._journal.task(task_id_of(workflow_id))).state
        except UnknownTaskError:  # no process has claimed a task that is not in the journal yet
            return is_lease_over
        if state is TaskState.RUNNING:  # a living process has claimed the task
            return False
        if state is TaskState.INTERRUPTED:  # the process that had claimed the task has died
            return True
        return is_lease_over  # in any other state, such as queued, no process has claimed the task

    async def _tasks_in_state(self, state: TaskState) -> Sequence[str]:
        """Return the ids of the tasks in a state that are in this runner's queues, oldest first."""
        task_ids: list[str] = []
        last: ListPlace | None = None
        while records := await self._journal.find(_BATCH_SIZE, state=state, after=last):
            task_ids += [r.task_id for r in records if r.queue in self._options.queues]
            last = records[-1].place
        task_ids.reverse()
        return task_ids

    async def restore(self) -> None:
        """Enqueue tasks that have no workflow, for example after a loss of DBOS's database."""
        task_count_by_missing_folder: Counter[str] = Counter()
        # Interrupted tasks first: they had begun before the tasks that are still queued.
        for state in (TaskState.INTERRUPTED, TaskState.QUEUED):
            oldest_first = await self._tasks_in_state(state)
            for task_id in await self._queue.without_workflow(oldest_first):
                try:
                    queued = _queued(await self._journal.read(task_id))
                except UnknownTaskError:
                    continue  # removed since the list was read
                except UnreadableEventError as error:
                    _log.warning("a task is not put back into its queue: %s", error.message)
                    continue
                folder = folder_of(queued.setup)
                if belongs_to_project(queued.setup, self._options.former_folders):
                    await self._queue.restore(queued)
                elif not await asyncio.to_thread(Path(folder).is_dir):
                    task_count_by_missing_folder[folder] += 1
                # A task of another project whose folder exists is left to that project's runner.
        for folder, count in task_count_by_missing_folder.items():
            _log.warning(
                "%d tasks belong to the folder %s, which does not exist; if the project was "
                "moved to %s, name that folder in former_folders under [agent]",
                count,
                folder,
                Path.cwd(),
            )

    async def _delete_old(self) -> None:
        """Delete old workflows, and tasks beyond the journal's retention."""
        before = time.time() - _REMEMBER_SECONDS
        # The newest firing of each schedule is kept, because the next firing reads its result.
        # delete_idle_firings() returns the ids of these firings.
        kept_firing_ids = await delete_idle_firings(self._queue)
        await self._queue.delete_old_workflows(before, excluded_ids=kept_firing_ids)
        if ages := self._journal.keep:
            removed = await prune(self._journal, ages)
            if removed.tasks:
                _log.info("%d tasks forgotten", len(removed.tasks))


def _fill_routine_call(task: str, item: Any) -> str:
    """Fill the placeholders in the call of a routine with the fields of an item.

    If the item does not have a field, the call is returned unchanged. The task then fails when it
    runs, and the tasks of other items still start.

    Args:
        task: The text of the task, such as ``enter(mail=item["id"])``.
        item: The item.
    """
    try:
        return RoutineCall.read(task, with_item=True).text_for(item)
    except ConfigurationError as error:
        _log.warning("a routine gets no values of an item: %s", error.message)
        return task


def _failed_firing(schedule: Mapping[str, Any], error: DelfError) -> dict[str, Any]:
    """Log that a firing of a schedule failed, and return the result that DBOS stores for it."""
    _log.warning("the schedule %s failed: %s", schedule["name"], error.message)
    return {"tasks": [], "failure": error.message}


def _is_due(record: TaskRecord) -> bool:
    return record.not_before is None or record.not_before <= time.time()


def _error_of_losses(record: TaskRecord, queue: QueueSettings) -> DelfError | None:
    """Return an error if too many runners died while they ran an interrupted task.

    Without this limit, a task that kills its process would kill one runner after another.
    """
    if record.state is not TaskState.INTERRUPTED:
        return None
    # The journal counts the death of the last runner only when the next runner claims the task.
    lost_runners = record.losses + 1
    if lost_runners <= queue.losses:
        return None
    return DelfError(
        f"{lost_runners} runners ended while they did this task",
        hint=f"perhaps it takes all of their memory: delf runs show {record.task_id}",
    )


def _budget_error(queued: TaskQueued) -> BudgetExceededError:
    return BudgetExceededError(
        f"a budget of {name_of_user(queued.user)} for this month is used up",
        hint="budgets of [plugins.serve] has the limits; they begin anew each month (UTC)",
    )


def _queued(events: Sequence[Event]) -> TaskQueued:
    first = events[0]
    if not isinstance(first, TaskQueued):
        raise DelfError("the task was not submitted for a queue")
    return first
