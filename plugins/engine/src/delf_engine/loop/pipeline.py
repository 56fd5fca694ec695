"""The steps of a task.

1 recall → 2 select → 3 context, then the strategy's own steps until it has an answer, and at last
learn. A step without work is skipped. An agent's first task sets connections up before step 2.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from delf.errors import (
    DelfError,
    JournalFailedError,
    JournalUnavailableError,
    PluginError,
    ReplayMismatch,
    TaskLeftError,
    TaskStoppedError,
    TaskTimeoutError,
    ToolException,
    UnrecordedCallError,
    UnrecordedEventError,
    describe_exception,
)
from delf.events import (
    ScriptGenerated,
    Step,
    StoppedBy,
    TaskFinished,
    TaskPostponed,
    TaskQueued,
    TaskResumed,
    TaskStarted,
    Warned,
    cost_of,
)
from delf.protocols.strategy import SupportsOwnTools, runs_scripts
from delf_engine.bounded import EndedItselfError, convert_exits_to_errors
from delf_engine.changes import refusal_of, used_tools
from delf_engine.host import TaskHost
from delf_engine.journal.retrying import seconds_until_retry
from delf_engine.kept_variables import keep_variables
from delf_engine.limits import limits_of
from delf_engine.live_facts import facts_of
from delf_engine.loop.learn import learn
from delf_engine.loop.recall import keep_turn, recall_context
from delf_engine.loop.select import select_tools
from delf_engine.loop.setup import set_up_connections
from delf_engine.loop.waiting_for import waiting_for
from delf_engine.outputs import AnswerTool
from delf_engine.redact import Redactor
from delf_engine.scripts import SandboxDied
from delf_engine.task import TaskOutcome, TaskRequest
from delf_engine.task_run import TaskRun
from delf_engine.waiting import await_despite_cancellation

_log = logging.getLogger(__name__)
GRACE_SECONDS = 1.0
"""The time, in seconds, for which cancelled work may continue before it is abandoned."""
# The maximum number of seconds to wait for the journal when a task is cut short.
_FINAL_JOURNAL_SECONDS = 5.0
# The share of a task's timeout that recall may use, and that tool selection may use.
_PREPARATION_SHARE = 0.25

_UNUSED_TOOLS: Final = (
    "no script ran and no tool was called: the answer is what the model says by itself; try a "
    "stronger model (--llm MODEL), or say in the task what to look up or to do"
)


class TaskPipeline:
    """Runs one task to its end.

    Args:
        run: The task.
        host: The host for its strategy.
        find_stopper: Returns the person who stopped the task, if any.
        stays_resumable: Returns True if no end is recorded when the task is cancelled now, so that
            the task can be resumed.
    """

    def __init__(
        self,
        run: TaskRun,
        host: TaskHost,
        find_stopper: Callable[[], StoppedBy | None],
        stays_resumable: Callable[[], bool],
    ) -> None:
        self._find_stopper = find_stopper
        self._stays_resumable = stays_resumable
        self._run = run
        self._log = run.log
        self._host = host
        self._strategy = run.strategy

    @property
    def under_way(self) -> list[str]:
        """Descriptions of the calls in flight, for messages."""
        return self._host.under_way

    async def run(self, origin: str) -> TaskOutcome:
        """Run the task within its timeout.

        When this method returns, no call is in flight, and the sandbox is being closed.

        Args:
            origin: The agent's id.

        Raises:
            asyncio.CancelledError: If the task was cancelled. The end of the task is recorded
                before, unless the task stays resumable.
        """
        work: asyncio.Future[str] | None = None
        try:
            await self._record_start(origin)
            # The work is a separate asyncio task: a timeout cancels only the work, and this method
            # goes on to record the end of the delf task.
            work = asyncio.ensure_future(convert_exits_to_errors(self._work))
            work.add_done_callback(_retrieve_exception)
            await self._run.clock.wait(work)
            if isinstance(self._host.interruption, SandboxDied):
                leaving = self._leave_for_restart(self._host.interruption)
                return await await_despite_cancellation(leaving)
            result = await self._result(work)
            if isinstance(result, str) and self._run.config.learn:
                await learn(self._run, result)
        except UnrecordedEventError as error:
            # The journal did not store an event, such as the start or a step of learning. The task
            # is left without an end, and continues when it is resumed.
            result = error
        except asyncio.CancelledError:
            # Wait until the cancellation is recorded, even if this method is cancelled again.
            await await_despite_cancellation(self._cancel(work))
            raise
        return await await_despite_cancellation(self._finish(result), on_failure=self._log_lost_end)

    async def _leave_for_restart(self, error: SandboxDied) -> TaskOutcome:
        """Stop working on a task whose sandbox died; the caller resumes the task at once.

        The task's child tasks keep running.
        """
        self._host.close()
        self._host.scripts.sandbox.retire()
        await self._log.record(Warned, message=error.message)
        return TaskOutcome(text="", error=error, duration_ms=0.0, events=self._log.events)

    async def _record_start(self, origin: str) -> None:
        """Record that the task starts or is resumed, with warnings about its agent."""
        run = self._run
        request = run.request
        if run.is_continued:  # the same process goes on after its sandbox died
            return
        parent = None if request.child is None else request.child.parent
        if run.replay.resumed:
            await self._log.record(TaskResumed, origin=origin, setup=request.setup, parent=parent)
        else:
            await self._log.record(
                TaskStarted,
                task=request.task,
                origin=origin,
                seed=run.seed,
                zone=run.zone.rule,  # a POSIX rule
                zone_name=run.zone.name,
                setup=request.setup,
                conversation=_conversation_id(request),
                interactive=request.interactive,
                parent=parent,
                worker=None if request.child is None else request.worker,
                user=request.user,
            )
        for message in run.resources.take_warnings(run.agent_tools, self._strategy):
            await self._log.record(Warned, message=message)

    async def _work(self) -> str:
        """Prepare the task, and return the strategy's answer.

        The tools change in this order: the tool for a typed answer and the tool for questions are
        added, set-up connections are reloaded, the shown tools are selected, and the strategy adds
        tools of its own, such as ``find_tools``.
        """
        run = self._run
        await self._add_tools_for_answers()
        # A new task fails at once if the budget is exhausted, or if an action needs approval and
        # nobody can be asked. A resumed task is not checked here: its model calls and approvals may
        # all be in the journal already. Further ones are checked when they happen.
        if not run.replay.resumed:
            run.models.ledger.check()
            run.approvals.check_answerable(run.tools)
        seconds = run.clock.seconds * _PREPARATION_SHARE
        if run.memory is not None or run.request.conversation is not None:
            await recall_context(run, seconds)
        if run.agent_tools.needed_setup:
            await set_up_connections(run)
        await select_tools(run, seconds)
        await self._add_tools_of_strategy()
        self._host.use(run.tools)
        has_scripts = runs_scripts(self._strategy)
        if has_scripts:
            # The sandbox starts while the context loads and the model answers.
            self._host.scripts.sandbox.open()
        run.context = replace(run.context, limits=limits_of(run, scripts=has_scripts))
        await _load_live_facts(run)
        answer: Any = await self._strategy.solve(self._host)
        if not isinstance(answer, str):
            answer_type = f"{type(answer).__name__} in place of text"
            raise PluginError(
                f"the strategy {type(self._strategy).__name__} answered with {answer_type}"
            )
        await self._warn_of_unused_tools()
        return answer

    async def _add_tools_for_answers(self) -> None:
        """Add the tool for a typed answer and the tool for questions, if the task needs them."""
        run = self._run
        if run.request.output is not None:
            answer_tool: Any = AnswerTool(run.request.output)
            run.tools = await run.tools.with_builtins([answer_tool])
        if run.approvals.can_answer:
            run.tools = run.tools.showing_questions()

    async def _add_tools_of_strategy(self) -> None:
        """Add the strategy's own tools, which find other tools.

        The strategy's tools are needed only if the prompt does not show all tools.
        """
        run = self._run
        was_chosen_by_prefilter = run.tools.is_chosen
        shows_all_tools = run.tools.fits(run.config.tools_budget) and not was_chosen_by_prefilter
        if not shows_all_tools and isinstance(self._strategy, SupportsOwnTools):
            connections = self._strategy.own_tools(run.tool_choice())
            run.tools = await run.tools.with_builtins(connections)

    async def _warn_of_unused_tools(self) -> None:
        """Warn if the answer used neither a tool nor a script.

        In a conversation such answers are usual, so there is no warning.
        """
        run = self._run
        if run.request.conversation is not None or not run.tools.custom_count:
            return
        events = self._log.events
        has_script = any(isinstance(event, ScriptGenerated) for event in events)
        if not has_script and not used_tools(events):
            await run.warn(_UNUSED_TOOLS)

    async def _time_out(self, work: asyncio.Future[str]) -> DelfError:
        """Cancel the work of a task whose time is over, and return the error of the task."""
        # A replay that waited for a missing call is a mismatch, not a timeout.
        mismatch = self._run.replay.timeout_mismatch()
        # Determined before the work is cancelled, because a cancelled task waits for nothing.
        awaited = self._waits_for()
        # Closed before the work is cancelled, so that its clean-up code cannot call tools.
        self._host.close(stays_resumable=mismatch is not None, is_timeout=True)
        await self._abandon(work)
        if mismatch is not None:
            return mismatch
        seconds = self._run.clock.seconds
        return TaskTimeoutError(
            f"Timeout: the task did not end within {seconds:g} s; it waited for {awaited}"
        )

    async def _result(self, work: asyncio.Future[str]) -> str | DelfError:
        """Return the task's answer, or the error with which the task ends.

        Called when the work is done or the task's time is over. Work that still runs is cancelled.
        """
        host = self._host
        if not work.done():
            return await self._time_out(work)
        # A strategy may have caught the first two errors, and failed with another one later.
        failure = host.interruption or self._log.write_failure or work.exception()
        is_of_journal = isinstance(failure, JournalFailedError | JournalUnavailableError)
        if is_of_journal and failure.is_outage:
            # The task itself has not failed: the journal could not be read, for example for the
            # conversation. With this error, the task stays resumable.
            failure = UnrecordedEventError(f"the journal failed: {failure.message}")
        if failure is None:
            await self._keep_variables()  # while the sandbox is open
        host.close(stays_resumable=isinstance(failure, TaskLeftError))
        host.scripts.sandbox.retire()
        if failure is None:
            return self._checked_answer(work.result())
        # A tool's refusal becomes the answer for a person. For a parent task, it stays an error.
        is_child_task = self._run.request.child is not None
        if isinstance(failure, ToolException) and not is_child_task:
            return await self._answer_with_refusal(failure)
        return failure if isinstance(failure, DelfError) else self._internal_error(failure)

    async def _keep_variables(self) -> None:
        """Keep the last script's variables for the next task, if there are any; warn on failure."""
        scripts = self._host.scripts
        if scripts.variables and scripts.sandbox.alive:
            async with self._run.failures_as_warnings(
                "the variables are not kept for the next task"
            ):
                session = await scripts.sandbox.session()
                await keep_variables(self._run, session, scripts.variables)

    def _checked_answer(self, text: str) -> str | DelfError:
        """Return the strategy's answer, or the error if the answer is invalid.

        In place of an empty answer, return the value of the last script, if there is one.
        """
        host = self._host
        error = host.accept_answer(text)
        if error is not None:
            return error
        if not text and host.value is not None:
            return _as_text(host.value)
        return text

    def _internal_error(self, error: BaseException) -> DelfError:
        """Log an unexpected exception, and convert it to a ``DelfError``."""
        message = f"task {self._log.task_id} failed inside delf"
        self._log.redactor.log_failure(_log, message, error)
        # EndedItselfError hides the exception that the plugin raised, such as SystemExit.
        cause = error.__cause__ if isinstance(error, EndedItselfError) else None
        unexpected = cause or error
        kind = type(unexpected).__name__
        details = describe_exception(unexpected).removeprefix(f"{kind}: ")
        model_or_function = self._failed_model_or_function(error)
        internal_error = DelfError(
            f"an unexpected {kind} inside {model_or_function}: {details}",
            hint="the log has the traceback; please report it",
        )
        internal_error.__cause__ = error
        return internal_error

    def _failed_model_or_function(self, error: BaseException) -> str:
        """Return the name of the model or the function in which an error happened."""
        if self._run.models.unexpected_failure is not None:
            model_error, model_name = self._run.models.unexpected_failure
            if model_error is error:
                return model_name
        return _failed_function(error)

    def _waits_for(self) -> str:
        """Return what an unfinished task waits for, as the end of a sentence."""
        awaited_in_events = waiting_for(self._log.events)
        calls = ", ".join(self._host.under_way)
        strategy = f"the strategy {self._run.config.strategy!r}"
        # The first of these that is known.
        return awaited_in_events or calls or self._host.scripts.waiting_for or strategy

    async def _answer_with_refusal(self, error: ToolException) -> str | DelfError:
        """Return the output with a tool's refusal at its end, if this is a valid answer.

        Return the error if the last script failed for another reason, or if the answer does not
        have the type that the task requires.
        """
        refusal = refusal_of(self._log.events)
        if refusal is None:  # the last script failed for another reason
            return error
        text = "\n".join(part for part in (self._host.output.strip("\n"), refusal) if part)
        is_invalid_answer = self._host.accept_answer(text) is not None
        if is_invalid_answer:  # for example, the task must answer with a number
            return error
        await self._log.record(Warned, message=f"{refusal}; the rest of the script was not done")
        return text

    async def _abandon(self, work: asyncio.Future[str]) -> None:
        """Kill the sandbox and cancel the running work; work that does not end is abandoned."""
        work.cancel()
        # The cancelled work records the ends of its calls, and a journal that hangs must not delay
        # the timeout or the shutdown.
        self._log.limit_waits(_FINAL_JOURNAL_SECONDS)
        # First the sandbox: a busy script does not notice a cancellation.
        await self._host.scripts.sandbox.end(GRACE_SECONDS)
        await asyncio.wait({work}, timeout=GRACE_SECONDS)

    async def _cancel(self, work: asyncio.Future[str] | None) -> None:
        """End a cancelled task and its running work; failures are logged, not raised.

        Args:
            work: The running work; None if it has not started.
        """
        # Called once: a shutdown may change the result while the end is being written.
        stays_resumable = self._stays_resumable()
        self._log.limit_waits(_FINAL_JOURNAL_SECONDS)
        try:
            # Closed before the work is cancelled, so that its clean-up code cannot call tools.
            self._host.close(stays_resumable=stays_resumable, is_timeout=self._run.clock.is_over)
            if stays_resumable:
                # Refuse events before the work is cancelled: a resumed task must not find events
                # that only the shutdown caused, such as a failed script. Ends of calls are still
                # recorded, so that a resumed task need not ask whether these calls were made.
                self._log.accept_only_outcomes()
            if work is not None:
                await self._abandon(work)
            if stays_resumable:
                # aclose() also refuses the ends of abandoned calls: another process may already
                # resume the task.
                await self._log.aclose()
            else:
                await self._finish(self._cancellation_error(), self._find_stopper())
        except Exception as error:
            self._log_lost_end(error)

    def _cancellation_error(self) -> DelfError:
        """Return the error of a cancelled task: a timeout if time was over, otherwise a stop."""
        clock = self._run.clock
        if clock.is_parent_over:
            return TaskTimeoutError("Timeout: the time of the task above was over")
        if clock.is_over:  # its work was still ending when somebody stopped the task
            return TaskTimeoutError(f"Timeout: the task did not end within {clock.seconds:g} s")
        return TaskStoppedError("the task was stopped")

    async def _finish(
        self, result: str | DelfError, stopper: StoppedBy | None = None
    ) -> TaskOutcome:
        """Wait for calls in flight, record the end of the task, and return the outcome.

        Args:
            result: The answer, or the error. After an error, the text of the outcome is the output
                so far.
            stopper: The person who stopped the task, if any.
        """
        run = self._run
        log = self._log
        if isinstance(result, str):
            text, error = result, None
        else:
            text, error = self._host.output, result
        try:
            await self._host.finish_work_in_flight(GRACE_SECONDS)
        except UnrecordedCallError as unrecorded:
            error = unrecorded
        stays_resumable = isinstance(error, TaskLeftError)
        if not stays_resumable:  # a resumed task prints everything again
            log.flush_held_back_output()
        outcome = self._redacted_outcome(text, error)
        if stays_resumable:
            await self._record_interruption(outcome)
            return outcome
        if error is not None and await self._postpone(error):
            return replace(outcome, postponed=True)
        if run.request.conversation is not None:
            # Add task and answer to the conversation before TaskFinished is recorded: if this
            # process died in between, a finished task would never be resumed to add them.
            await keep_turn(run, outcome.text, error)
        try:
            await self._record_end(outcome, stopper)
        except DelfError as journal_error:
            if isinstance(error, TaskStoppedError):
                raise  # _cancel() logs the error; nobody waits for the outcome of a stopped task
            # The caller has to see the answer or the timeout, even if the journal is not available.
            self._log_lost_end(journal_error)
            if isinstance(error, TaskTimeoutError):
                return replace(outcome, is_recorded=False)
            message = f"the journal did not store the end of the task: {journal_error.message}"
            return replace(outcome, error=UnrecordedEventError(message), is_recorded=False)
        return outcome

    def _redacted_outcome(self, text: str, error: DelfError | None) -> TaskOutcome:
        """Build the outcome of the task so far, without secrets."""
        redactor = self._log.redactor
        value: Any = None
        if error is None:
            value = redactor.redact_value(self._host.value)
        else:
            redactor.redact_error(error)
        return TaskOutcome(
            text=redactor.redact_text(text),
            error=error,
            duration_ms=(time.perf_counter() - self._run.started) * 1000,
            events=self._log.events,
            files=self._host.scripts.output.files,
            value=value,
        )

    async def _record_end(self, outcome: TaskOutcome, stopper: StoppedBy | None) -> None:
        """Record the final end of the task, with the person who stopped the task, if any."""
        error = outcome.error
        reason: dict[str, Any] = {}
        if error is not None:
            reason |= {"error": error.message, "code": error.code, "hint": error.hint}
        if stopper is not None:
            reason |= {"by": stopper.name, "via": stopper.via}
        await self._log.record(
            TaskFinished,
            status=error is None,
            text=outcome.text,
            duration_ms=outcome.duration_ms,
            cost_usd=cost_of(self._log.events),
            files=dict(outcome.files),
            value=outcome.value,
            **reason,
        )

    async def _postpone(self, error: DelfError) -> bool:
        """Return a failed task to its queue if a retry may succeed; return whether it is queued."""
        request = self._run.request
        log = self._run.log
        retries = request.retries or 0
        retry_after = request.retry_after or 0.0
        delay_seconds = seconds_until_retry(error, log.events, retries, retry_after)
        if delay_seconds is None:
            return False
        earlier_attempts = sum(isinstance(event, TaskPostponed) for event in log.events)
        await log.record(
            TaskPostponed,
            error=error.message,
            code=error.code,
            hint=error.hint,
            tries=1 + earlier_attempts,
            not_before=time.time() + delay_seconds,
        )
        return True

    async def _record_interruption(self, outcome: TaskOutcome) -> None:
        """Record a warning with the reason why a task stopped, and close the task's log.

        The task's end is not recorded, so that the task can be resumed.
        """
        error = outcome.error
        reason = "not resumed" if isinstance(error, ReplayMismatch) else "stopped"
        try:
            async with aclosing(self._log):
                message = "" if error is None else error.message
                await self._log.record(Warned, message=f"{reason}: {message}")
        except Exception as failure:
            message = f"task {self._log.task_id} stopped, and its journal cannot be written"
            self._log.redactor.log_failure(_log, message, failure)

    def _log_lost_end(self, error: BaseException) -> None:
        message = f"task {self._log.task_id} was stopped, and its end could not be recorded"
        self._log.redactor.log_failure(_log, message, error)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False)


def _conversation_id(request: TaskRequest) -> str | None:
    if request.conversation is None:
        return None
    return request.conversation.conversation_id


def queued_event(request: TaskRequest, agent_id: str, redactor: Redactor) -> TaskQueued:
    """Return the event that records a task in a queue, for a runner to start later."""
    user = None if request.user is None else redactor.redact_text(request.user)
    return TaskQueued(
        task_id=request.task_id,
        seq=1,
        at=time.time(),
        task=redactor.redact_text(request.task),
        origin=agent_id,
        timeout=request.timeout,
        setup=redactor.redact_value(dict(request.setup)),
        conversation=_conversation_id(request),
        interactive=request.interactive,
        queue=request.queue,
        user=user,
        priority=request.priority,
        not_before=request.not_before,
        retries=request.retries,
        retry_after=request.retry_after,
    )


def _failed_function(error: BaseException) -> str:
    """Return the function of a plugin in which an error happened: ``acme.Model.send()``.

    Return ``delf or a plugin`` if no function of a plugin can be named.
    """
    function: str | None = None
    trace = error.__traceback__
    while trace is not None:  # from the outermost call to the line that raised the error
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package in ("delf", "delf_engine"):
            function = None  # only a function called after the last frame of delf counts
        elif function is None and package not in sys.stdlib_module_names:
            function = f"{module}.{trace.tb_frame.f_code.co_qualname}()"
        trace = trace.tb_next
    return "delf or a plugin" if function is None else function


def _retrieve_exception(work: asyncio.Future[str]) -> None:
    """Retrieve the exception of abandoned work, so that asyncio does not log it."""
    if not work.cancelled():
        work.exception()


async def _load_live_facts(run: TaskRun) -> None:
    """Load the live facts of all connections concurrently, such as database schemas.

    Raises:
        DelfError: If a connection cannot be reached. Scripts could not use the connection either,
            so the task fails early.
    """
    sources = run.tools.with_context
    if not sources:
        return
    async with run.log.step(Step.CONTEXT):
        loading = [facts_of(name, source, run.request.task) for name, source in sources.items()]
        texts = await asyncio.gather(*loading)
        live = {name: text for name, text in zip(sources, texts, strict=True) if text}
        run.context = replace(run.context, live=live)
