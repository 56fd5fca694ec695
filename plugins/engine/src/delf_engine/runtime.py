"""``Runtime``: runs the tasks of a started agent, on one event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from delf.errors import (
    AgentStateError,
    BudgetExceededError,
    ConfigurationError,
    DelfError,
    TaskStoppedError,
    TaskTimeoutError,
    UnknownTaskError,
)
from delf.events import Event, StoppedBy, end_event, make_end_event
from delf.protocols.connection import FinishedTask, SupportsLearning
from delf.protocols.journal import Journal
from delf.protocols.sandbox import SupportsAbandoning
from delf.protocols.shared_journal import SharedJournal
from delf.tools.context import ChildResult
from delf_engine.bounded import convert_exits_to_errors
from delf_engine.calls.children import MAX_LEVELS, ChildTasks, too_deep
from delf_engine.calls.contexts import CallContexts
from delf_engine.calls.gate import Gate
from delf_engine.calls.threads import ToolThreads
from delf_engine.closing import STOP_SECONDS
from delf_engine.descriptors import descriptors_left
from delf_engine.elsewhere import outcome_of
from delf_engine.host import TaskHost
from delf_engine.journal.claims import Claims
from delf_engine.journal.log import TaskLog
from delf_engine.loop.pipeline import TaskPipeline, queued_event
from delf_engine.resources import Resources
from delf_engine.scripts import SandboxDied, ScriptRunner
from delf_engine.task import TaskOutcome, TaskRequest
from delf_engine.task_run import TaskRun
from delf_engine.waiting import Permit, Stops, await_despite_cancellation, is_cancelled

_log = logging.getLogger(__name__)
# The maximum number of threads for plain functions, which mostly wait for services.
_TOOL_THREADS = 64
# The file descriptors reserved for the journal, prepared sandboxes and short-lived use.
_OWN_DESCRIPTORS = 24
# The file descriptors reserved per task, for its sandbox, model connection and files.
_TASK_DESCRIPTORS = 5


class Runtime:
    """Runs concurrent tasks with the resources of a started agent.

    Args:
        resources: The resources, closed with the runtime.
    """

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._threads = ToolThreads(_TOOL_THREADS, MAX_LEVELS)
        # The asyncio tasks of all tasks in run(), including those that still wait for a permit.
        self._accepted: set[asyncio.Task[TaskOutcome]] = set()
        # The pipelines of the tasks that have got their permit, by task id.
        self._pipelines: dict[str, TaskPipeline] = {}
        self._claims = Claims()
        most_tasks = _most_tasks()
        # Two limits: one counts the tasks that run, the other the tasks with open files, including
        # the tasks that wait for a person.
        self._task_permits = asyncio.Semaphore(min(resources.config.max_tasks, most_tasks))
        self._descriptor_permits = asyncio.Semaphore(most_tasks)
        # The background work that closes the sandboxes of ended tasks, by the id of the task.
        self._closing_sandboxes: dict[str, asyncio.Future[None]] = {}
        self._stops = Stops(resources.journal)
        self._background: set[asyncio.Future[Any]] = set()
        # The background work of connections that learn from the texts of new tasks.
        self._learning: set[asyncio.Future[None]] = set()
        self._warm_up = asyncio.ensure_future(resources.warm_up())
        self._stopped = False
        # True if no end of a task is recorded any more, because the agent stops.
        self._all_stay_resumable = False
        # The running tasks whose end is not recorded if they are cancelled.
        self._resumable_ids: set[str] = set()

    @property
    def journal(self) -> Journal:
        """The journal of all events."""
        return self.resources.journal

    @property
    def sandbox(self) -> dict[str, str]:
        """The name and the isolation of the sandbox."""
        sandbox = self.resources.sandbox
        return {"name": sandbox.spec.name, "isolation": sandbox.isolation}

    @property
    def counts(self) -> tuple[int, int]:
        """Two numbers: the running tasks, and the tasks that wait because too many tasks run."""
        running_count = len(self._pipelines)
        return running_count, len(self._accepted) - running_count

    async def check(self) -> tuple[str, ...]:
        """Check that tools, sandbox and model are usable, without asking the model.

        Returns:
            Warnings about connections and packages that do not prevent tasks.

        Raises:
            DelfError: If a component is missing or unusable.
        """
        return await self.resources.check()

    async def stop_anywhere(self, task_id: str, by: StoppedBy) -> bool:
        """Stop a task at a person's request, even if another process runs the task.

        Returns:
            False if the task was already over.

        Raises:
            UnknownTaskError: If the journal does not have the task.
        """
        if self._stops.stop(task_id, by):
            return True
        if isinstance(self.journal, SharedJournal):
            return await self.journal.stop(task_id, by.name or "", by.via)
        await self.journal.read(task_id)  # raises for an unknown task; known tasks are over
        return False

    async def run(self, request: TaskRequest) -> TaskOutcome:
        """Run one task to its end; concurrent calls are allowed.

        Raises:
            AgentStateError: If the runtime was stopped.
            TaskLimitError: If tools have run tasks in each other too many levels deep.
        """
        if self._stopped:
            raise AgentStateError("the agent was stopped")
        work = asyncio.ensure_future(self._work(self._with_observer_notes(request)))
        self._accepted.add(work)
        work.add_done_callback(self._accepted.discard)
        # Claim the task before the work begins, so that a concurrent resume finds the task claimed.
        self._claims.claimed.add(request.task_id)
        with self._stops.stoppable(request.task_id, work) as stoppable_work:
            try:
                async with self.permit_of_caller_released(request):
                    return await work
            except asyncio.CancelledError:
                if is_cancelled():  # the caller is cancelled
                    raise
                if self._stopped:
                    raise AgentStateError("the agent was stopped") from None
                if stoppable_work.is_stop_requested:  # a person or program has stopped this task
                    return await self._outcome_of_stopped_task(request.task_id)
                raise  # code of the task has cancelled the task
            finally:
                # Even if the caller is cancelled, wait until the work has ended: another process
                # must not resume the task before.
                await await_despite_cancellation(self._release_claim(work, request.task_id))

    @asynccontextmanager
    async def permit_of_caller_released(
        self, request: TaskRequest | None = None
    ) -> AsyncGenerator[None]:
        """Release the calling task's permit in the block, while the caller waits for another task.

        Without the release, the running tasks could keep all permits while they wait for further
        tasks of the same agent, which could then never start. If no task is calling, do nothing.
        """
        permit = self._permit_of_caller()
        is_child = request is not None and request.child is not None
        # A task that delegates to a child task has released its permit before it submits the child.
        if permit is None or is_child:
            yield
        else:
            async with permit.released():
                yield

    def _permit_of_caller(self) -> Permit | None:
        """Return the permit of the task that calls this method; None without such a task.

        The call may be indirect: a task of this agent may have started a task of another agent, and
        the other task calls.
        """
        callers = Permit.of_callers()
        return next((each for each in callers if each.permits is self._task_permits), None)

    async def _outcome_of_stopped_task(self, task_id: str) -> TaskOutcome:
        """Return the outcome of a task whose work was stopped, even if the end is not recorded.

        The end is missing if the journal failed, or if the task was stopped before its start.
        """
        try:
            events = await self.journal.read(task_id)
        except UnknownTaskError:
            events = ()
        if end_event(events) is not None:
            return await outcome_of(self.journal, task_id)
        error = TaskStoppedError("the task was stopped, and its end is not in the journal")
        return TaskOutcome(text="", error=error, duration_ms=0.0, events=events)

    def _with_observer_notes(self, request: TaskRequest) -> TaskRequest:
        """Add the observers' notes, such as a trace id, to the setup of a new task.

        Called in the context of the task's caller, because observers read ContextVars.
        """
        has_notes = bool(request.past)  # from when the task was queued or first started
        if has_notes or request.child is not None:
            return request
        noted: dict[str, Any] = {}
        for make_setup in self.resources.observers.setups:
            try:
                noted |= make_setup()
            except (Exception, SystemExit) as error:  # a plugin may raise anything
                message = f"an observer has no setup data for task {request.task_id}"
                self.resources.redactor.log_failure(_log, message, error)
        if noted:
            return replace(request, setup={**noted, **request.setup})
        return request

    async def _release_claim(self, work: asyncio.Task[TaskOutcome], task_id: str) -> None:
        """Release the claim on a task when its work has ended, so that others can resume the task.

        A task with a final end in the journal needs no release, because nobody can resume it.
        """
        await asyncio.wait({work})
        if _has_final_end(work):
            self._claims.claimed.discard(task_id)
        else:
            await self._claims.release(self.journal, task_id)

    async def _work(self, request: TaskRequest) -> TaskOutcome:
        """Run a task within the agent's limits."""
        # The callers are the running task whose code starts this task, and the tasks above.
        caller_count = len([*Permit.of_callers()])
        if caller_count > MAX_LEVELS:
            depth_of_caller = caller_count - 1  # a task without callers has the depth 0
            raise too_deep(depth_of_caller)
        # The ledger adds up the costs of the task.
        ledger = TaskRun.ledger_of(self.resources, request)
        ledger.begin(request.task_id, request.past, parent=_parent_of(request))
        try:
            async with AsyncExitStack() as reserved:
                run_or_refusal = await self._start(request, reserved)
                if isinstance(run_or_refusal, ConfigurationError):
                    ledger.end(request.task_id)
                    return await self._refuse_start(request, run_or_refusal)
                outcome = await self._run_in_sandboxes(run_or_refusal, request)
        finally:
            self._resumable_ids.discard(request.task_id)
        # A task at its timeout or budget may be resumed. The ledger keeps the task, so that its
        # earlier costs are not added again then.
        if not isinstance(outcome.error, (TaskTimeoutError, BudgetExceededError)):
            ledger.end(request.task_id)
        return outcome

    async def _start(
        self, request: TaskRequest, reserved: AsyncExitStack
    ) -> TaskRun | ConfigurationError:
        """Wait until a task can start, and start the task; return an error if it must not start.

        Args:
            request: The task.
            reserved: Releases the task's file descriptors and permit when it is closed.
        """
        try:
            # Reserve file descriptors before the permit to run: a task that waits for descriptors
            # must not hold a permit.
            await self._reserve_descriptors(request, reserved)
            permit = await reserved.enter_async_context(Permit(self._task_permits))
            refusal = await _refusal_of_start(request)
            if refusal is not None:
                return refusal
            return await TaskRun.begin(self.resources, request, permit)
        except ConfigurationError as error:
            # A new task has no event yet. A resumed task gets no end, so that the task can be
            # resumed again once the cause is mended.
            is_new = not request.past
            if is_new or request.is_resumed:
                raise
            # A task from the queue gets an end, or the task would look as if it still had to run.
            return error
        except asyncio.CancelledError:
            # Without a recorded end, another process can resume the task.
            stays_resumable = self._stopped or self._stays_resumable(request.task_id)
            if not stays_resumable:
                await await_despite_cancellation(self._record_cancelled_start(request))
            raise

    async def _run_in_sandboxes(self, run: TaskRun, request: TaskRequest) -> TaskOutcome:
        """Run a started task; if its sandbox dies, continue in another one."""
        # The process that worked on the task before may be alive: its lease must expire before a
        # call of unknown outcome is repeated.
        run.replay.previous_owner = self._claims.previous_owners.pop(request.task_id, None)
        children = self._children_of(run)
        self._tell_connections_about_task(request)
        while True:
            outcome = await self._run(self._prepare(run, children), request)
            if not isinstance(outcome.error, SandboxDied):
                return outcome
            run = run.restarted()  # continues as a resumed task does
            children.adopt(run)

    async def _refuse_start(self, request: TaskRequest, refusal: ConfigurationError) -> TaskOutcome:
        """Record the end of a task that must not start, and return its outcome."""
        await await_despite_cancellation(self._record_end_without_run(request, refusal))
        outcome = await outcome_of(self.journal, request.task_id)
        return replace(outcome, error=refusal)

    async def _run(self, pipeline: TaskPipeline, request: TaskRequest) -> TaskOutcome:
        """Run a pipeline, which is listed in ``_pipelines`` meanwhile."""
        self._pipelines[request.task_id] = pipeline
        try:
            return await pipeline.run(self.resources.agent.agent_id)
        finally:
            self._pipelines.pop(request.task_id, None)

    async def _reserve_descriptors(self, request: TaskRequest, reserved: AsyncExitStack) -> None:
        """Wait until enough file descriptors are free for a task, and reserve them.

        Nothing is reserved for a task that the code of another task runs: both tasks share the
        descriptors of the waiting task. Unlike the permit to run (``max_tasks``), the descriptors
        stay reserved while a task waits for a person.
        """
        if request.child is None and self._permit_of_caller() is None:
            await self._descriptor_permits.acquire()
            reserved.callback(self._release_descriptors, request.task_id)
        else:  # nothing is reserved: only forget that the sandbox is closing
            reserved.callback(self._closing_sandboxes.pop, request.task_id, None)

    def _release_descriptors(self, task_id: str) -> None:
        """Release the file descriptors reserved for a task, once its sandbox is closed."""
        # Set if the sandbox is still closing in the background.
        sandbox_closing = self._closing_sandboxes.pop(task_id, None)
        if sandbox_closing is None:
            self._descriptor_permits.release()
        else:
            sandbox_closing.add_done_callback(lambda _: self._descriptor_permits.release())

    async def _record_cancelled_start(self, request: TaskRequest) -> None:
        """Record the end of a task that was cancelled while it waited for its start."""
        # Only a task that was queued or resumed has events, and so needs an end in the journal.
        if request.past:
            await self._record_end_without_run(request, TaskStoppedError("the task was stopped"))

    async def _record_end_without_run(self, request: TaskRequest, error: DelfError) -> None:
        """Record that a queued or resumed task ended with an error before it started.

        A task that has ended at its timeout or budget can be resumed, for which the journal reopens
        the task. If such a resumption fails, the earlier end is recorded again, and not ``error``.
        """
        earlier_end = end_event(request.past)
        if earlier_end is None:
            end = make_end_event(request.past, error, self._stops.author_of(request.task_id))
        else:
            end = replace(earlier_end, seq=request.past[-1].seq + 1, at=time.time())
        await self.journal.append(end)
        self._notify_listeners(request, end)

    def _notify_listeners(self, request: TaskRequest, event: Event) -> None:
        """Pass an event of a task that is not running to its listeners; log their exceptions."""
        listeners = (*self.resources.observers.feeds, *request.listeners)
        TaskLog(request.task_id, None, listeners, self.resources.redactor).notify_listeners(event)

    async def enqueue(self, request: TaskRequest) -> TaskRequest:
        """Journal a task that starts later, in this process or another."""
        if request.queue is not None and not isinstance(self.journal, SharedJournal):
            raise ConfigurationError(
                f"runners cannot read the journal {self.resources.config.journal!r}",
                hint='use one that other processes share: journal = "sql"',
            )
        request = self._with_observer_notes(request)
        queued = queued_event(request, self.resources.agent.agent_id, self.resources.redactor)
        if request.queue is not None:
            # Queue first: an entry without a task is dropped by runners, a task without an entry
            # would wait forever.
            await self.resources.queue.enqueue(queued)
        await self.journal.append(queued)
        self._notify_listeners(request, queued)
        return replace(request, past=(queued,))

    async def run_child(self, request: TaskRequest) -> ChildResult:
        """Run a child task to its end.

        A child that has a final end in the journal is not run again. A child that ended at its
        timeout or budget continues.

        Raises:
            DelfError: If the child was interrupted, so that it can be resumed.
        """
        end = end_event(request.past)
        if end is not None and not end.at_limit:
            # The child ended in an earlier process: only its cost is still to be counted.
            ledger = TaskRun.ledger_of(self.resources, request)
            ledger.begin(request.task_id, request.past, parent=_parent_of(request))
            ledger.end(request.task_id)
        else:
            outcome = await self.run(request)
            events = outcome.events
            end = end_event(events)
            if end is None:
                raise outcome.error or AgentStateError("the child task has no end")
        return ChildResult(
            task_id=request.task_id,
            text=end.text,
            status=end.status,
            error=end.error,
            hint=end.hint,
            cost_usd=end.cost_usd,
            files=dict(end.files),
            value=end.value,
            at_limit=end.at_limit,
        )

    async def claim(self, task_id: str, *, even_if_ended_at_limit: bool = False) -> Sequence[Event]:
        """Claim a task of the journal for this agent, as :meth:`Claims.claim` does.

        While a claim is in progress, :meth:`stop` waits, because the claim would reopen the closed
        journal.

        Args:
            task_id: The id of the task.
            even_if_ended_at_limit: Whether to claim the task even if the task ended at its timeout
                or budget.

        Raises:
            AgentStateError: If the runtime was stopped; the task is then unclaimed.
        """
        if self._stopped:
            raise AgentStateError("the agent was stopped")
        # Claim in a separate asyncio task, for which stop() waits.
        claiming = asyncio.ensure_future(
            self._claim(task_id, even_if_ended_at_limit=even_if_ended_at_limit)
        )
        self._background.add(claiming)
        claiming.add_done_callback(self._background.discard)
        return await claiming

    async def release(self, task_id: str) -> None:
        """Release the claim on a task that this agent does not run after all."""
        await self._claims.release(self.journal, task_id)

    async def _claim(self, task_id: str, *, even_if_ended_at_limit: bool) -> Sequence[Event]:
        """Claim a task and return its events.

        Raises:
            AgentStateError: If the agent was stopped meanwhile. The task is released then.
        """
        events = await self._claims.claim(
            self.journal, task_id, even_if_ended_at_limit=even_if_ended_at_limit
        )
        if self._stopped:
            # The agent was stopped meanwhile, and would keep the claim without working on the task.
            if task_id in self._claims.claimed:
                await self._claims.release(self.journal, task_id)
            raise AgentStateError("the agent was stopped")
        return events

    def _tell_connections_about_task(self, request: TaskRequest) -> None:
        """Let connections learn from the text of a new task, in the background."""
        if request.child is not None or request.is_resumed:
            return
        agent = self.resources.agent
        redactor = self.resources.redactor
        # None chooses the model for small questions.
        ask_light_model = partial(agent.context.ask_outside_task, None)
        # The protocol calls the text of a task a FinishedTask, although this task only begins.
        task_text = FinishedTask(task=redactor.redact_text(request.task), ask=ask_light_model)

        async def learn(connection: SupportsLearning, name: str) -> None:
            try:
                await convert_exits_to_errors(lambda: connection.learn(task_text))
            except Exception as error:
                redactor.log_failure(_log, f"{name} has learned nothing", error)

        for connection in agent.connections:
            if isinstance(connection, SupportsLearning):
                learning = asyncio.ensure_future(learn(connection, connection.name))
                self._learning.add(learning)
                learning.add_done_callback(self._learning.discard)

    def _children_of(self, run: TaskRun) -> ChildTasks:
        # A child that ended at its parent's timeout continues with the parent.
        claim = partial(self.claim, even_if_ended_at_limit=True)
        return ChildTasks(run, self.run_child, claim, self.keep_resumable)

    def _prepare(self, run: TaskRun, children: ChildTasks) -> TaskPipeline:
        """Build the pipeline that runs a task in one sandbox."""
        task_id = run.request.task_id
        gate = Gate(run, CallContexts(run, children), self._threads)
        close_in_background = partial(self._close_in_background, task_id)
        scripts = ScriptRunner(run, gate, children, close_in_background)
        host = TaskHost(run, gate, scripts, children)
        find_stopper = partial(self._stops.author_of, task_id)
        return TaskPipeline(run, host, find_stopper, partial(self._stays_resumable, task_id))

    def _stays_resumable(self, task_id: str) -> bool:
        return self._all_stay_resumable or task_id in self._resumable_ids

    def keep_all_resumable(self) -> None:
        """Make all tasks resumable: from now on, a cancellation is not recorded as an end."""
        self._all_stay_resumable = True

    def keep_resumable(self, task_id: str) -> None:
        """Make a task resumable: if it is cancelled, the cancellation is not recorded as an end."""
        self._resumable_ids.add(task_id)

    def _close_in_background(self, task_id: str, work: Awaitable[None]) -> None:
        """Close a task's sandbox in the background, so that the answer is returned earlier."""
        closing = self._closing_sandboxes[task_id] = asyncio.ensure_future(work)
        self._background.add(closing)
        closing.add_done_callback(self._background.discard)

    async def stop(self, *, keep_resumable: bool = False) -> None:
        """Cancel running tasks and release all resources. Idempotent.

        With ``keep_resumable``, the ends of the tasks are not recorded, so that the tasks can be
        resumed.
        """
        if self._stopped:
            return
        # Set this before the first await: no further task may begin, and a second call returns at
        # once.
        self._stopped = True
        if keep_resumable:
            self.keep_all_resumable()
        ending: set[asyncio.Future[Any]] = {
            *self._accepted,
            *self._learning,
            self._warm_up,
        }
        for work in ending:
            work.cancel()
        # Work such as closing a sandbox (self._background) is not cancelled, only waited for.
        _, unfinished = await asyncio.wait({*ending, *self._background}, timeout=STOP_SECONDS)
        if unfinished:
            calls: list[str] = []
            for pipeline in self._pipelines.values():
                calls += pipeline.under_way
            awaited_work = ", ".join(calls) or "the work of a task"
            _log.warning("while stopping: %s did not end within %g s", awaited_work, STOP_SECONDS)
        await self.free()

    async def free(self) -> None:
        """Release all resources, even if an earlier stop was interrupted. Idempotent."""
        await self.resources.aclose()
        self._threads.close()

    def abandon(self) -> None:
        """Release processes and threads after the event loop was closed without a stop."""
        self._stopped = True
        self._threads.close()
        backend = self.resources.sandbox.backend
        if isinstance(backend, SupportsAbandoning):
            backend.abandon()


def _most_tasks() -> int:
    """Return how many tasks can run with the free file descriptors of this process; at least 1."""
    free_descriptors = descriptors_left()
    if free_descriptors is None:
        return sys.maxsize
    return max(1, (free_descriptors - _OWN_DESCRIPTORS) // _TASK_DESCRIPTORS)


def _parent_of(request: TaskRequest) -> str | None:
    """Return the parent task of a child."""
    return None if request.child is None else request.child.parent


async def _refusal_of_start(request: TaskRequest) -> ConfigurationError | None:
    """Return the error with which a task's ``before_start`` refuses the start; None to start it.

    Raises:
        DelfError: If it is unknown whether the task may start, as during an outage of the journal.
    """
    if request.before_start is None:
        return None
    try:
        await request.before_start()
    except ConfigurationError as error:
        return error
    return None


def _has_final_end(work: asyncio.Task[TaskOutcome]) -> bool:
    """Return True if the work of a task is done, and the task has an end and cannot be resumed."""
    if not work.done() or work.cancelled() or work.exception() is not None:
        return False
    return work.result().is_over
