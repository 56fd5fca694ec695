"""Child tasks: a call that delegates a task and waits for its result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delf.errors import (
    AgentStateError,
    DelfError,
    TaskLeftError,
    TaskLimitError,
    UnknownTaskError,
)
from delf.events import ChildFinished, ChildStarted, Event
from delf.protocols.people import name_of_user
from delf.tools.context import ChildResult, ChildTask
from delf.types import Trust
from delf.values.sequences import one_or_more
from delf_engine.calls.call import Call
from delf_engine.changes import OTHER_AUTHORS_KEY, shapers_of
from delf_engine.config import AgentConfig
from delf_engine.foreign_tools import as_connections
from delf_engine.models.money import Ledger
from delf_engine.outputs import Output
from delf_engine.task import ChildOptions, TaskRequest
from delf_engine.task_run import TaskRun
from delf_engine.waiting import await_despite_cancellation

MAX_LEVELS: Final = 5
"""The maximum number of levels of tasks below a task, run by its tools."""
# Seconds without a new call after which a batch of concurrent calls is complete.
_BATCH_SECONDS: Final = 0.05


def too_deep(depth: int) -> TaskLimitError:
    """Return the error for a task that may start no child task, because tasks nest too deeply."""
    return TaskLimitError(
        f"the task is {depth} tasks deep, and can start no child task",
        hint=f"tasks nest at most {MAX_LEVELS} levels deep",
    )


class _Batch:
    """Concurrent calls, each of which wants to start a child task."""

    def __init__(self) -> None:
        self.call_numbers: set[int] = set()  # of the calls that have joined the batch
        self.problem: str | None = None  # why no call may start a child; None if all may
        self.is_decided = asyncio.Event()  # set once ``problem`` is final


async def _wait_for_further_calls(batch: _Batch) -> None:
    """Wait until no call has joined a batch during one pause.

    Calls of ``asyncio.gather`` arrive one by one, and no message says how many are still to come.
    """
    while True:
        call_count = len(batch.call_numbers)
        await asyncio.sleep(_BATCH_SECONDS)
        if len(batch.call_numbers) == call_count:
            return


class ChildTasks:
    """The child tasks of one task.

    A child keeps running while the parent may still fetch its result. If a sandbox dies and its
    script is repeated, the repeated calls find their children still running.

    Args:
        run: The run of the parent task.
        run_child: Runs a child task to its end.
        claim_and_read: Claims the task with an id for this agent, and returns the task's events.
        keep_resumable: Takes a task's id. If this task is cancelled later, no end of the task is
            recorded, so that the task can be resumed.
    """

    def __init__(
        self,
        run: TaskRun,
        run_child: Callable[[TaskRequest], Awaitable[ChildResult]],
        claim_and_read: Callable[[str], Awaitable[Sequence[Event]]],
        keep_resumable: Callable[[str], None],
    ) -> None:
        self._run = run
        self._run_child = run_child
        self._claim_and_read = claim_and_read
        self._keep_child_resumable = keep_resumable
        # The children whose result is not fetched yet, by call number and child id.
        self._running: dict[tuple[int, str], asyncio.Task[ChildResult]] = {}
        # The number of children that the parent has started, including those before a resume.
        self._count = sum(isinstance(event, ChildStarted) for event in run.log.events)
        # The calls, by number, that have reserved one of the remaining children by reserve(), and
        # have not started this child yet.
        self._reserving_calls: set[int] = set()
        # The concurrent calls that wait in reserve() for a decision on all of them; None if no call
        # waits.
        self._batch: _Batch | None = None
        # True if the parent will be resumed. Then no end is recorded for a cancelled child.
        self._will_be_resumed = False
        self.left_error: TaskLeftError | None = None
        """The error of a child that was left unfinished, so that the parent cannot end either."""

    @property
    def depth(self) -> int:
        """The depth of the parent task: 0 if it is no child task itself, otherwise 1 or more."""
        as_child = self._run.request.child
        return 0 if as_child is None else as_child.depth

    @property
    def remaining(self) -> int:
        """The number of child tasks that the parent can still start."""
        return max(0, self._run.config.max_children - self._count)

    async def reserve(self, call: Call) -> str | None:
        """Reserve one of the parent's remaining child tasks for a call that may start a child.

        Concurrent calls form a batch. If the batch exceeds the limit, all of its calls are refused
        before any of them starts.

        Args:
            call: The call, at whose end the caller calls :meth:`release`.

        Returns:
            None if reserved; the reason if the limit on child tasks is exceeded.
        """
        batch = self._batch
        if (
            batch is not None
        ):  # the first call has opened the batch, and decides below for all calls
            batch.call_numbers.add(call.number)
            await batch.is_decided.wait()
            return batch.problem
        batch = self._batch = _Batch()
        batch.call_numbers.add(call.number)
        try:
            if not call.blocks_script:  # a blocked script makes no further calls
                await _wait_for_further_calls(batch)
        except asyncio.CancelledError:
            batch.call_numbers.discard(call.number)  # the call needs no child any more
            raise
        finally:
            # Even if this call was cancelled, the other calls of the batch wait for the decision.
            self._batch = None  # the next call opens another batch
            self._decide_batch(batch)
        return batch.problem

    def _decide_batch(self, batch: _Batch) -> None:
        """Reserve one child task for each call of a batch.

        If the task may not start so many more children, reserve none, and set ``batch.problem``.
        """
        call_count = len(batch.call_numbers)
        remaining = self.remaining - len(self._reserving_calls)
        if call_count <= remaining:
            self._reserving_calls |= batch.call_numbers
        elif call_count == 1:
            batch.problem = self._limit_message()
        else:
            batch.problem = (
                f"{call_count} calls came together, each for a child task, and the task can have "
                f"{remaining} more of at most {self._run.config.max_children}: make fewer calls, "
                "each with a larger part of the work"
            )
        batch.is_decided.set()

    def release(self, call: Call) -> None:
        """Give back the child task that :meth:`reserve` has reserved for a call, if any."""
        self._reserving_calls.discard(call.number)
        if self._batch is not None:
            # The call may have been cancelled while it waited with its batch in reserve().
            self._batch.call_numbers.discard(call.number)

    def recorded_children(self, call_id: int) -> list[ChildStarted]:
        """Return the start events of the children that a call started before a resume."""
        starts = (event for event in self._run.log.events if isinstance(event, ChildStarted))
        return [event for event in starts if event.call_id == call_id]

    async def delegate(
        self, call: Call, child: ChildTask, recorded_starts: list[ChildStarted]
    ) -> ChildResult:
        """Run a child task of a call to its end, and return the result.

        A repeated call continues its earlier child with the same task text, instead of starting
        another child.

        Args:
            call: The call that waits for the result.
            child: The child task.
            recorded_starts: The starts of the call's earlier children. This method removes the
                start of the child that it continues.

        Raises:
            TaskLimitError: If the limit on nesting or on the number of children is reached.
        """
        if self.depth >= MAX_LEVELS:
            raise too_deep(self.depth)
        request = self._build_child_request(child, call)
        recorded_text = self._run.log.redactor.redact_text(child.task)  # as the journal has it
        recorded_start = next(
            (each for each in recorded_starts if each.task == recorded_text), None
        )
        # The reservation is used: the child is counted now, or was counted at its first start.
        self._reserving_calls.discard(call.number)
        if recorded_start is None:
            self._count_child()
        else:
            # A second child with the same text must not continue the same earlier child.
            recorded_starts.remove(recorded_start)
            request = replace(request, task_id=recorded_start.child_id)
        key = call.number, request.task_id
        # If only the sandbox died, the earlier child still runs.
        if key not in self._running:
            # In its own asyncio task, so that a cancelled call does not cancel the child.
            self._running[key] = asyncio.create_task(
                self._run_recorded(call, request, is_resumed=recorded_start is not None)
            )
        return await self._take_result(key)

    async def _take_result(self, key: tuple[int, str]) -> ChildResult:
        """Wait for the end of a running child, and return the child's result.

        If this wait is cancelled, the child keeps running. When the script repeats the call, the
        repeated call waits for the same child.

        Args:
            key: The key of the child in ``_running``.
        """
        child_task = self._running[key]
        # The child needs a permit itself. If waiting parents kept theirs, they could hold all
        # permits, and no child could ever start.
        async with self._run.permit.released():
            await asyncio.wait({child_task})
        self._running.pop(key, None)  # end() may have removed the child already
        return child_task.result()

    def adopt(self, run: TaskRun) -> None:
        """Attach the child tasks to the new run of a restarted parent; running children go on."""
        self._run = run

    def keep_resumable(self) -> None:
        """From now on, do not record the end of a cancelled child, so that it can be resumed."""
        self._will_be_resumed = True

    async def end(self, call: Call | None = None) -> None:
        """Cancel children whose results can no longer be fetched.

        Args:
            call: The ended call, whose children are cancelled; None for the children of all calls.
        """
        ended_children: list[tuple[str, asyncio.Task[ChildResult]]] = []
        # Children are removed before they are cancelled, so that no call waits for the result of a
        # cancelled child.
        for call_number, child_id in list(self._running):
            if call is None or call.number == call_number:
                ended_children.append((child_id, self._running.pop((call_number, child_id))))
        for child_id, child_task in ended_children:
            if self._will_be_resumed and not child_task.done():
                # The resumed parent continues the child.
                self._keep_child_resumable(child_id)
            child_task.cancel()
        if ended_children:
            child_tasks = [child_task for _, child_task in ended_children]
            await await_despite_cancellation(asyncio.gather(*child_tasks, return_exceptions=True))

    async def _run_recorded(
        self, call: Call, request: TaskRequest, *, is_resumed: bool
    ) -> ChildResult:
        """Run a child task, and record its start and end among the parent's events."""
        log = self._run.log
        child_id = request.task_id
        worker = None if request.child is None else request.child.worker
        id_fields: dict[str, Any] = {"call_id": call.number, "child_id": child_id}
        # No-op if a resumed parent has this start in its journal.
        await log.record(ChildStarted, **id_fields, task=request.task, worker=worker)
        started = time.perf_counter()
        try:
            if is_resumed:
                request = replace(request, past=await self._past(child_id))
            result = await self._run_child(request)
        except asyncio.CancelledError:
            # Record no end if the child will be resumed with its parent; see keep_resumable().
            if not self._will_be_resumed:
                self._record_failed(id_fields, started, "the task was cancelled")
            raise
        except TaskLeftError as error:
            # This child was left unfinished, so the parent and all its children are resumed later.
            self._will_be_resumed = True
            self.left_error = error
            raise
        except AgentStateError:  # the agent was stopped; the child may be resumed
            raise
        except DelfError as error:  # the child could not begin, for example without its files
            self._record_failed(id_fields, started, error.message)
            raise
        await log.record(
            ChildFinished,
            **id_fields,
            status=result.status,
            duration_ms=_ms_since(started),
            error=result.error,
            cost_usd=result.cost_usd,
        )
        return result

    def _record_failed(self, id_fields: Mapping[str, Any], started: float, error: str) -> None:
        self._run.log.record_soon(
            ChildFinished,
            **id_fields,
            status=False,
            duration_ms=_ms_since(started),
            error=error,
        )

    async def _past(self, child_id: str) -> Sequence[Event]:
        """Return the recorded events of a child task; empty if the child never began."""
        try:
            return await self._claim_and_read(child_id)
        except UnknownTaskError:  # recorded as started, but the process died before the child began
            return ()

    def _count_child(self) -> None:
        """Count a new child.

        Raises:
            TaskLimitError: If the parent has the maximum number of children already.
        """
        if self._count >= self._run.config.max_children:
            raise TaskLimitError(self._limit_message(), hint="max_children allows more")
        self._count += 1

    def _limit_message(self) -> str:
        return (
            f"the task has had {self._count} child tasks, and can have no more: do with their "
            "results what can be done, and say what is left"
        )

    def _influencing_people(self) -> list[str]:
        """Return the names of the people who influenced this task, and thereby its children.

        A person influences a task by a decision such as an edited call or an answer to a question,
        in this task or in a task above this task. Answers by the user of the task do not count,
        because the user wrote the task.
        """
        request = self._run.request
        task_user = name_of_user(request.user)
        names_in_this_task = shapers_of(self._run.log.events, task_user)
        names_in_parent_tasks = request.setup.get(OTHER_AUTHORS_KEY, ())
        return list(dict.fromkeys((*names_in_parent_tasks, *names_in_this_task)))

    def _build_child_request(self, child: ChildTask, call: Call) -> TaskRequest:
        """Build the request of a child task.

        The connection that starts the child may choose the options in ``child``; the request
        inherits an option that ``child`` omits, and all other options, from the parent.
        """
        ledger = self._run.models.ledger
        if child.budget_usd is not None:
            ledger = Ledger(child.budget_usd, outer_ledger=ledger)
        own_options = ChildOptions(
            parent=self._run.log.task_id,
            depth=self.depth + 1,
            config=self._config_of(child),
            clock=self._run.clock,
            worker=child.worker,
            ledger=ledger,
            check=child.check,
            trust=self._trust_of_text(child, call),
            tools=None if child.tools is None else as_connections(child.tools),
        )
        parent_request = self._run.request
        timeout = parent_request.timeout if child.timeout is None else child.timeout
        files = parent_request.files
        if child.files is not None:
            files = [str(file) for file in one_or_more(child.files)]
        return TaskRequest(
            task=child.task,
            # Listeners of child tasks get the events of child tasks at any depth.
            listeners=parent_request.child_listeners,
            child_listeners=parent_request.child_listeners,
            timeout=timeout,
            interactive=parent_request.interactive,
            wait_approvals=parent_request.wait_approvals,
            settle=parent_request.settle,  # how interrupted calls are decided after a resume
            user=parent_request.user,
            # Whoever influenced this task has also influenced the child task.
            setup={OTHER_AUTHORS_KEY: self._influencing_people()},
            child=own_options,
            files=files,
            output=None if child.output is None else Output(child.output),
        )

    def _trust_of_text(self, child: ChildTask, call: Call) -> Trust:
        """Return the trust in the text of a child's task: the child obeys only a trusted text.

        The text has the trust of the call's arguments in two cases: the text is an argument, as in
        ``summarise(text)``, or the connection declares that it added only fixed text to the
        arguments. Any other text counts as a stranger's.
        """
        is_argument = child.task in call.arguments.values()
        if is_argument or child.trust == "own":
            return self._run.trust_of(call)
        return "outside"

    def _config_of(self, child: ChildTask) -> AgentConfig:
        """Return the parent's configuration with the changes that a child task asks for."""
        changes: dict[str, Any] = {}
        if child.llm is not None:
            llm = self._run.chosen_llm(child.llm)
            # Clear the light and the heavy model, so that the chosen model does all work of the
            # child.
            changes |= {"llm": llm, "light_llm": None, "heavy_llm": None}
        for name in ("system_prompt", "retry_count", "rerun_count", "strategy"):
            value = getattr(child, name)
            if value is not None:
                changes[name] = value
        return self._run.config.model_copy(update=changes)


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
