"""``TaskHost``: the interface through which a strategy works on its task."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import Context
from dataclasses import replace
from typing import Any

from delf.errors import (
    BudgetExceededError,
    CodeGenerationError,
    DelfError,
    ModelConfigurationError,
    TaskLeftError,
    ToolRefusedError,
)
from delf.events import (
    Noted,
    RerunRequested,
    RetryScheduled,
    ScriptGenerated,
    Step,
    TaskStarted,
    Warned,
)
from delf.messages import Message, ModelReply, ModelRequest, ModelTool, as_messages, system
from delf.protocols.approval import Approved
from delf.protocols.model import ModelSession, SupportsTools
from delf.protocols.sandbox import (
    REJECTED,
    CallAnswer,
    CallRequest,
    Done,
    Failed,
    Outcome,
    Raised,
    Rerun,
)
from delf.protocols.strategy import (
    CallGuard,
    OnDelta,
    ScriptResult,
    Strategy,
    ToolChoice,
    ToolDescription,
)
from delf.specs import StrategySpec
from delf.values.frozen import thaw
from delf_engine.approvals.decision import why_not_made
from delf_engine.approvals.judges import named_actions
from delf_engine.bound_action import BoundAction
from delf_engine.calls.children import ChildTasks
from delf_engine.calls.gate import Gate
from delf_engine.changes import (
    DescribedResults,
    changes_of,
    changes_requested,
    describe_results,
    used_tools,
)
from delf_engine.limits import excess, excess_if_all_delegate
from delf_engine.models.drafts import Draft
from delf_engine.own_context import awaited_in_own_context, in_own_context
from delf_engine.scripts import ScriptRunner
from delf_engine.task_run import TaskRun
from delf_engine.toolset import Toolset


class TaskHost:
    """The host of a task's strategy. Implements :class:`delf.protocols.strategy.StrategyHost`.

    Args:
        run: The task.
        gate: Checks and makes the calls of the task.
        scripts: Runs scripts.
        children: The child tasks.
    """

    def __init__(
        self, run: TaskRun, gate: Gate, scripts: ScriptRunner, children: ChildTasks
    ) -> None:
        self._run = run
        self._gate = gate
        self.scripts = scripts
        self._children = children
        self.interruption: DelfError | None = None
        """The first error that interrupted the task so that the task can be resumed, else None.

        If there is such an error, the journal gets no ``TaskFinished`` event.
        """
        self._output = run.request.output
        # The value that was parsed from the text of the final answer.
        self._value_of_answer_text: Any = None
        self._attempt = 1
        self._has_run_script = False
        # The number of scripts that ended with rerun(), by which they asked for another script.
        self._reruns = 0
        # The texts of the answer so far, without the output of the last script.
        self._answer_texts: list[str] = []
        # False if the last script failed, or if its output was refused as an answer. The output is
        # then dropped by _move_output_to_answer().
        self._answer_includes_last_output = True
        self._call_ids = itertools.count(1)
        # The number of the strategy's own calls in flight; no script may run meanwhile.
        self._open_calls = 0
        # The model's answers that still arrive; they are recorded before a call is made.
        self._drafts: list[Draft] = []
        self._is_script_running = False
        self._is_closed = False

    # -- what there is ------------------------------------------------------------------

    @property
    def under_way(self) -> list[str]:
        """Descriptions of the calls in flight, for messages."""
        return self._gate.under_way

    @property
    def context(self) -> Context:
        """The ContextVars of the task's caller."""
        return self._run.log.context

    @property
    def task(self) -> str:
        """The user's task in plain words."""
        return self._run.request.task

    @property
    def tools(self) -> Sequence[ToolDescription]:
        """The tools that the model is shown."""
        return [bound_action.describe() for bound_action in self._run.tools.shown]

    @property
    def choice(self) -> ToolChoice:
        """The tools that the prompt describes to the model, and the tools that it leaves out."""
        return self._run.tool_choice()

    @property
    def libraries(self) -> Sequence[str]:
        """Packages that scripts may import in addition to harmless standard modules."""
        return self.scripts.libraries

    @property
    def unsupported(self) -> str:
        """The unsupported Python features of the sandbox, in words for the model."""
        return self.scripts.unsupported

    @property
    def language(self) -> str:
        """The Python that scripts run on, such as ``Python 3.12``."""
        return self.scripts.language

    @property
    def is_conversation(self) -> bool:
        """True if the task is a turn of a conversation."""
        return self._run.request.conversation is not None

    @property
    def used_tools(self) -> bool:
        """True if the task has called a tool so far."""
        return used_tools(self._run.log.events)

    @property
    def retry_count(self) -> int:
        """The maximum number of retries of a failed step."""
        return self._run.config.retry_count

    @property
    def rerun_count(self) -> int:
        """The maximum number of ``rerun()`` calls in a task after a write call.

        A script calls ``rerun()`` to request a further script.
        """
        return self._run.config.rerun_count

    def begin(self, rules: str) -> tuple[Message, ...]:
        """Return the first messages: rules, facts, history, and the task with its context."""
        context = self._run.context
        events = self._run.log.events
        # A resumed task sends the same message again, with the time of its first start.
        start_times = (event.at for event in events if isinstance(event, TaskStarted))
        started_at = next(start_times, None)
        message = context.message(self.task, self._output, started_at, self._run.zone)
        return (system(rules), *context.facts_message(), *context.history, message)

    # -- the model ----------------------------------------------------------------------

    @property
    def takes_tools(self) -> bool:
        """True if the main model supports tool calls."""
        model = self._run.models.pool.get(self._run.config.main_llm)
        return isinstance(model, SupportsTools) and model.takes_tools

    @awaited_in_own_context
    async def ask(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ModelTool] = (),
        on_delta: OnDelta | None = None,
        session: ModelSession | None = None,
        continues: bool = False,
    ) -> ModelReply:
        """Ask the main model.

        Args:
            messages: The messages.
            tools: The tools that the model may call.
            on_delta: Receives the pieces of the reply; None to get only the whole reply.
            session: The model's session, which holds earlier messages.
            continues: Whether the messages follow those that the session already holds.
        """
        request = ModelRequest(messages=as_messages(messages), tools=tuple(tools))
        config = self._run.config.main_llm
        attempt = self._next_attempt()
        if on_delta is None and session is None:
            return await self._run.models.ask_whole(config, request, attempt)
        # The strategy may make a call as soon as a piece of the reply asks for the call. The draft
        # collects the pieces, and _call() journals them before the call.
        draft = Draft(self._run.log, request.purpose)
        self._drafts.append(draft)
        try:
            return await self._run.models.ask(
                config,
                request,
                attempt,
                on_delta=on_delta,
                session=session,
                continues=continues,
                draft=draft,
            )
        finally:
            self._drafts.remove(draft)

    @awaited_in_own_context
    async def connect(self, *, needed: bool = False) -> ModelSession | None:
        """Open a session of the main model.

        Args:
            needed: Whether to raise an error if the model does not support sessions.

        Returns:
            The session. None if the model does not support sessions, or if a resumed task still has
            recorded replies to replay, because a new session would not know these replies.

        Raises:
            ModelConfigurationError: If the model does not support sessions and ``needed`` is True.
        """
        if self._run.replay.has_reply("generate"):
            return None
        config = self._run.config.main_llm
        session = await self._run.models.pool.connect(config)
        if session is None and needed:
            raise ModelConfigurationError(
                f"the model {config.model!r} has no sessions that stay open",
                hint="OpenAI's Realtime and Gemini's Live models have sessions",
            )
        return session

    # -- calls --------------------------------------------------------------------------

    @awaited_in_own_context
    async def call(
        self, name: str, arguments: Mapping[str, Any], description: str | None = None
    ) -> CallAnswer:
        """Make a tool call; if cancelled, wait until the call has ended."""
        if self._is_script_running:
            raise RuntimeError("a strategy makes no call of its own while its script runs")
        request = self._build_call_request(name, arguments, description)
        self._open_calls += 1
        # Shielded: a cancellation is first recorded, and only then passed on to the call.
        work = asyncio.ensure_future(self._call(request))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The strategy gives up this call, unless close() was called: then the whole task is
            # cancelled.
            if not self._is_closed:
                self._gate.abandon(request.call_id)  # records that nobody waits for the result
            work.cancel()
            await asyncio.wait({work})
            if not work.cancelled():
                work.exception()  # retrieved, so that asyncio does not log it
            raise
        except TaskLeftError as error:
            self.interruption = self.interruption or error
            raise
        finally:
            self._open_calls -= 1

    async def _call(self, request: CallRequest) -> CallAnswer:
        """Make a call after journalling the model's answer that contains it."""
        # A model that streams may ask for a call before its answer is complete: the journal needs
        # the cause of a call before the call.
        for draft in self._drafts:
            await draft.record()
        return await self._gate.call(request)

    def _build_call_request(
        self, name: str, arguments: Mapping[str, Any], description: str | None
    ) -> CallRequest:
        """Build the request for a call that the strategy itself makes."""
        connection, _, method = name.partition(".")
        bound_action = self._run.tools.get(name)
        parameters = () if bound_action is None else bound_action.action.parameters
        keywords = dict(arguments)
        # If the tool itself has a parameter ``desc``, the description would become its argument.
        if description is not None and "desc" not in (each.name for each in parameters):
            keywords["desc"] = description
        return CallRequest(
            call_id=next(self._call_ids),
            connection=connection,
            method=method,
            args=(),
            kwargs=keywords,
        )

    # -- scripts ------------------------------------------------------------------------

    def strategy(self, name: str) -> Strategy:
        """Return another installed strategy, to delegate a part of the task."""
        return self._run.resources.plugin(StrategySpec, name)

    @awaited_in_own_context
    async def execute(self, code: str, guard: CallGuard | None = None) -> ScriptResult:
        """Run a script in the task's sandbox, after approval of the whole script if configured."""
        if self._is_script_running or self._open_calls:
            raise RuntimeError("a script cannot run beside another script or a call")
        attempt = self._next_attempt()
        # Do this first, because _answer_includes_last_output still describes the previous script.
        self._move_output_to_answer()
        bound_actions = named_actions(code, self._run.tools)
        names = tuple(bound_action.name for bound_action in bound_actions)
        log = self._run.log
        await log.record(ScriptGenerated, code=code, attempt=attempt, confirmed_actions=names)
        self._has_run_script = True
        with self._script_running():
            needs_approval = self._asks_for_script(bound_actions)
            refusal = await self._refuse_excess(code, attempt)
            if refusal is None and needs_approval:
                refusal = await self._ask_about(code, attempt, bound_actions)
            outcome: Outcome
            if refusal is not None:
                outcome = refusal
            else:  # if the script needed approval, a person has approved it
                outcome = await self.scripts.run(code, attempt, guard, is_approved=needs_approval)
        if isinstance(outcome, Done):
            outcome = _without_placeholder(outcome)
        requested_changes = changes_requested(log.events, attempt)
        # A script that failed or that people want changed is replaced by another script, and the
        # answer leaves out its output.
        is_final = isinstance(outcome, (Done, Rerun)) and not requested_changes
        self._answer_includes_last_output = is_final
        if isinstance(outcome, Rerun) and is_final:
            await self._record_rerun(outcome)
        was_refused = refusal is not None
        return self._script_result(outcome, attempt, requested_changes, was_refused=was_refused)

    @contextmanager
    def _script_running(self) -> Generator[None]:
        """Refuse calls of the strategy while the block asks about a script and runs the script.

        If the block has to leave the task unfinished, keep its error in ``interruption``.
        """
        self._is_script_running = True
        try:
            yield
        except TaskLeftError as error:
            self.interruption = self.interruption or error
            raise
        finally:
            self._is_script_running = False
            self._run.approvals.script_ended()

    def _script_result(
        self,
        outcome: Outcome,
        attempt: int,
        requested_changes: list[str],
        *,
        was_refused: bool,
    ) -> ScriptResult:
        """Describe the outcome of a script for the strategy.

        Args:
            outcome: The outcome.
            attempt: The script's number in the task.
            requested_changes: The changes that people requested about the script or its calls.
            was_refused: Whether the script was refused before its start.
        """
        events = self._run.log.events
        failed_call = self.scripts.failed_call_answer(outcome)
        cause = None if failed_call is None else failed_call.cause
        # Without a permission, for example, the call would fail in any script.
        can_retry_call = failed_call is None or failed_call.can_retry
        changes = [str(change) for change in changes_of(events, attempt)]
        printed = self._printed()
        has_visible_effect = bool(printed.strip() or changes or self.scripts.output.files)
        has_no_value = isinstance(outcome, Done) and outcome.value in (None, "")
        is_silent = has_no_value and not has_visible_effect
        # After a silent script, the model gets to know what the script's calls returned.
        results = describe_results(events, attempt) if is_silent else DescribedResults()
        return ScriptResult(
            outcome=outcome,
            printed=printed,
            variables_alive=self.scripts.sandbox.alive,
            changes=changes,
            is_silent=is_silent,
            returned=[self._redact(line) for line in results.lines],
            found_nothing=results.are_all_empty,
            refused=_budget_error_behind(cause),
            can_retry=can_retry_call and self.scripts.may_go_on,
            cause=cause,
            rejected=_is_rejection(outcome, failed_call, was_refused=was_refused),
            changes_requested=[self._redact(text) for text in requested_changes],
        )

    async def _refuse_excess(self, code: str, attempt: int) -> Failed | None:
        """Return a failure for a script that certainly exceeds a limit; None for other scripts.

        Called before a person is asked to approve the script. If the script was checked before the
        task was resumed, the recorded result is used. Since that check, the script itself may have
        started child tasks, and a new check would count these child tasks against the limit.

        Args:
            code: The script.
            attempt: The script's number in the task.
        """
        run = self._run
        topic = f"limits of script {attempt}"
        tools = [*run.tools]
        children_left = self._children.remaining
        was_checked_before = run.replay.has_script(attempt)
        if was_checked_before:
            problem = run.replay.next_note(topic)
        else:
            calls_left = self.scripts.calls_left
            problem = excess(code, tools, calls_left=calls_left, children_left=children_left)
        if problem is not None:
            # A no-op if the journal already has this problem.
            await run.log.record(Noted, topic=topic, text=problem)
            return Failed(kind="TaskLimitError", message=f"the script was not run: {problem}")
        if not was_checked_before:
            warning = excess_if_all_delegate(code, tools, children_left=children_left)
            if warning is not None:
                await run.log.record(Warned, message=warning)
        return None

    def _asks_for_script(self, bound_actions: Sequence[BoundAction]) -> bool:
        """Return True if a person is asked about the whole script instead of each call."""
        config = self._run.config
        if config.confirm_mode != "plan" or config.approval_mode != "interactive":
            return False
        # An earlier script that nobody approved may have redefined a function that this script
        # calls. The text of this script then does not show what it does.
        is_text_enough = not self.scripts.sandbox.holds_unapproved
        return bool(bound_actions) and is_text_enough

    async def _ask_about(
        self, code: str, attempt: int, bound_actions: Sequence[BoundAction]
    ) -> Failed | None:
        """Ask for approval of a whole script; return the failure if it is rejected."""
        async with self._run.log.step(Step.PREVIEW, attempt):
            recorded_request = self._run.replay.approval_of_script(attempt)
            answer = await self._run.approvals.decide_script(
                code, attempt, bound_actions, recorded_request
            )
        if isinstance(answer.decision, Approved):
            return None
        reason = why_not_made(answer.decision)
        # A person who requests changes has not rejected the script for good.
        if not changes_requested(self._run.log.events, attempt):
            reason = f"it was rejected: {reason}"
        return Failed(kind=REJECTED, message=f"the script was not run: {reason}")

    async def _record_rerun(self, outcome: Rerun) -> None:
        self._reruns += 1  # numbers the reruns of the task
        async with self._run.log.step(Step.RERUN, self._reruns):
            await self._run.log.record(
                RerunRequested,
                attempt=self._reruns,
                context=outcome.context,
                remaining=outcome.remaining,
                variables=outcome.variables,
            )

    # -- the answer, and what people see --------------------------------------------------

    @property
    def output(self) -> str:
        """The answer so far, without secrets."""
        return self._redact("".join(self._answer_texts)) + self._printed()

    @in_own_context
    def say(self, text: str) -> None:
        """Append a text of the strategy to the task's answer, after the last script's output."""
        self._move_output_to_answer()
        self._answer_texts.append(text)
        self._run.log.buffer_output(text)
        # The text is whole, so its end is not held back as the possible beginning of a secret.
        self._run.log.flush_held_back_output()

    def _printed(self) -> str:
        return self._redact("".join(self.scripts.printed_text))

    def _redact(self, text: str) -> str:
        return self._run.log.redactor.redact_text(text)

    def _move_output_to_answer(self) -> None:
        """Append the output of the last script to the answer, unless the script failed."""
        if self._answer_includes_last_output:
            self._answer_texts += self.scripts.printed_text
        self.scripts.printed_text.clear()

    def refuse_mismatch(self, text: str) -> str | None:
        """Refuse a final answer that :meth:`accept_answer` does not accept; return the reason.

        A refusal discards the texts collected for the answer and the output of the last script.
        None if the answer is accepted.
        """
        error = self.accept_answer(text)
        if error is None:
            return None
        self._answer_texts.clear()
        self._answer_includes_last_output = False
        return error.message

    def accept_answer(self, text: str) -> DelfError | None:
        """Check a final answer in words, and store its value if it has the declared type.

        The type is not checked if a script has called ``answer()``, which has checked its argument.
        The answer of a child task also has to pass the check of the parent's connection.

        Returns:
            The error if the answer does not match; None if the answer matches.
        """
        child = self._run.request.child
        if child is not None and child.check is not None:
            problem = child.check(text)
            if problem is not None:
                return CodeGenerationError(problem)
        if self._output is None or self.has_answered:
            return None
        try:
            self._value_of_answer_text = self._output.parse_text(text)
        except ToolRefusedError as error:
            return CodeGenerationError(error.message)
        return None

    @property
    def has_answered(self) -> bool:
        """True if ``answer`` was called, in a task with a declared answer type."""
        return self._gate.answer is not None

    @property
    def value(self) -> Any:
        """The answer as plain data."""
        answer_value = self._gate.answer
        if answer_value is None:
            return self._value_of_answer_text
        return thaw(answer_value.value)

    def step(self, name: str) -> AbstractAsyncContextManager[None]:
        """Record a step in the trace, with the duration of the block."""
        return self._run.log.step(name, self._next_attempt())

    @awaited_in_own_context
    async def note(self, topic: str, source: Callable[[], Awaitable[str]]) -> str:
        """Fetch data from outside the task and journal the data, for use on resume.

        Args:
            topic: The kind of data, for the journal.
            source: Fetches the data.
        """
        recorded_note = self._run.replay.next_note(topic)
        if recorded_note is not None:
            return recorded_note
        text = self._run.log.redactor.redact_text(await source())
        await self._run.log.record(Noted, topic=topic, text=text)
        return text

    @awaited_in_own_context
    async def warn(self, message: str) -> None:
        """Record a warning for people; the task continues."""
        await self._run.log.record(Warned, message=message)

    @awaited_in_own_context
    async def retrying(self, reason: str) -> None:
        """Record that a step failed and is retried."""
        attempt = self._attempt
        if not self._has_run_script:  # the model gave no script: nothing to show as a step
            await self._run.log.record(RetryScheduled, attempt=attempt, error=reason)
            return
        async with self._run.log.step(Step.RETRY, attempt):
            await self._run.log.record(RetryScheduled, attempt=attempt, error=reason)

    def _next_attempt(self) -> int:
        """Return the number of the script that is written next.

        Only a script that has run uses up its number. If a model is asked again because its reply
        had no script, its next script gets the same number.
        """
        if self._has_run_script:
            self._attempt += 1
            self._has_run_script = False
        return self._attempt

    # -- for the loop -------------------------------------------------------------------

    def use(self, tools: Toolset) -> None:
        """Set the callable tools, before the sandbox is opened."""
        self._gate.use(tools)
        self.scripts.sandbox.use(tools)

    def close(self, *, stays_resumable: bool = False, is_timeout: bool = False) -> None:
        """Refuse new calls from now on.

        If the task stays resumable or its time is over, new calls of the script get no answer.

        Args:
            stays_resumable: Whether the task is left unfinished, so that it can be resumed.
            is_timeout: Whether the task's time is over.
        """
        self._is_closed = True
        self._gate.close(without_answers=stays_resumable or is_timeout)
        if stays_resumable:
            self._children.keep_resumable()

    async def finish_work_in_flight(self, seconds: float) -> None:
        """Wait for running calls, end the child tasks, and wait until all files are written.

        Args:
            seconds: The maximum time to wait for the calls, and again for the files. Files that are
                not written by then are abandoned.

        Raises:
            UnrecordedCallError: If the end of a call could not be recorded.
        """
        try:
            await self._gate.wait_for_calls(seconds)
        finally:
            await self._children.end()
            await self.scripts.output.wait(seconds)


def _without_placeholder(outcome: Done) -> Done:
    """Remove the value of a script that ends with ``...``, because ``...`` means no result."""
    return replace(outcome, value=None) if outcome.value == repr(...) else outcome


def _is_rejection(outcome: Outcome, failed_call: Raised | None, *, was_refused: bool) -> bool:
    """Return whether a script failed because a person rejected the script or one of its calls.

    Args:
        outcome: The outcome of the script.
        failed_call: The answer to the call that made the script fail, if any.
        was_refused: Whether the script was refused before its start, for example because a person
            rejected the whole script.
    """
    if not isinstance(outcome, Failed) or outcome.kind != REJECTED:
        return False
    # A script can itself raise an exception with this name. So the name counts only if the script
    # was not run, or if delf gave this error to one of its calls.
    is_call_rejected = failed_call is not None and failed_call.kind == REJECTED
    return was_refused or is_call_rejected


def _budget_error_behind(error: BaseException | None) -> BudgetExceededError | None:
    """Return the budget error in an exception's chain of causes, if any."""
    while error is not None and not isinstance(error, BudgetExceededError):
        error = error.__cause__ or error.__context__
    return error
