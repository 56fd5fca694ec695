"""The gate: the one path of every call on the host.

known → allowed → arguments valid → not recorded before → checked → approved → start recorded → made

A call that people decide goes this way:

1. The gate checks the ``call`` (``checks.py``). ``CallReviews.ask`` (``reviews.py``) reads the
   files that the arguments name, and gives the call with the ``verdict`` of the checks to
   ``TaskApprovals.decide`` (``policy.py``).
2. ``decide`` makes a ``case`` of them. If the task has no earlier answer to the case, the case
   passes one judge after the other (``judges.py``). Each judge returns a ``ruling``: the ``answer``
   so far, if any, and what people have to know.
3. The last judge, ``PeopleJudge`` (``people.py``), completes the ``request`` that people see.
   ``Asking`` (``asking.py``) opens the request among the pending requests (``pending.py``), has it
   recorded (``recorder.py``), and asks the channels in order (``channels.py``).
4. A channel returns a ``decision``, with or without the person who made it, or None to leave the
   request to the next channel. Decision and person are an ``answer``. Answers of channels, of the
   program and of other processes (``inbox.py``) are submitted to the pending request, which applies
   the team's rule (``ballot.py``): an answer may be refused, or be only a vote. ``Asking`` waits
   for the answer that decides, or decides itself after a timeout or if nobody can answer.
5. The recorder records the answer as it takes effect, and ``decide`` returns that answer.
6. ``CallReviews.ask`` applies an edit. It checks the call once more if the call was edited, or if
   the person has seen a preview. Then the call is made, refused, or asked about again.

Questions of scripts, and a tool's requests for consent, are given to ``decide`` without a review.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from typing import Any

from delf.errors import TaskLeftError, ToolRefusedError, UnrecordedCallError
from delf.events import ANSWER, ASK, CallFinished
from delf.protocols.approval import (
    AlreadyDone,
    Answered,
    Approved,
    ChangesRequested,
    Expired,
    Rejected,
)
from delf.protocols.connection import Allowed, NeedsApproval, Refused
from delf.protocols.sandbox import REJECTED, CallAnswer, CallRequest, Raised, Returned
from delf.protocols.strategy import CallGuard
from delf.values.encoding import UnsupportedValueError
from delf.values.sizes import is_large
from delf_engine.approvals.decision import Answer, RefusedByCheck, why_not_made
from delf_engine.bound_action import BoundAction
from delf_engine.calls.call import Call
from delf_engine.calls.checks import CallChecks
from delf_engine.calls.contexts import CallContexts
from delf_engine.calls.making import CallMaker, describe_failure
from delf_engine.calls.records import CallRecords
from delf_engine.calls.results import Results
from delf_engine.calls.reviews import CallReviews, reapply_edits, restore_edited_arguments
from delf_engine.calls.threads import ToolThreads
from delf_engine.journal.recording import RecordedCall
from delf_engine.task_run import TaskRun
from delf_engine.toolset import Toolset

# The maximum number of characters of an error message, because scripts can make it long.
_MAX_MESSAGE_LENGTH = 4000
# The maximum number of characters of a tool's name, because scripts can write unknown names.
_MAX_NAME_LENGTH = 200
# The bytes reserved for the rest of the wire frame that carries a result.
_FRAME_OVERHEAD_BYTES = 1024


class Gate:
    """The only path of a task's calls: checks each call, asks for approval, and makes the call.

    Args:
        run: The run of the task.
        contexts: Creates the contexts of calls.
        threads: The thread pool for actions that are not async.
    """

    def __init__(self, run: TaskRun, contexts: CallContexts, threads: ToolThreads) -> None:
        self._tools = run.tools
        self._approvals = run.approvals
        self._permit = run.permit
        self._log = run.log
        self._redactor = run.log.redactor
        self._replay = run.replay
        self._contexts = contexts
        self._numbers = itertools.count(self._replay.highest_call_id + 1)
        self.answer: Returned | None = None
        """The result of the latest call of the script's function ``answer``."""
        # True after close(): the task is over in this process, so new calls are refused.
        self._is_closed = False
        # True if the task will be resumed: the refused calls then raise TaskLeftError instead of
        # getting an answer.
        self._withholds_answers = False
        # The asyncio tasks of the calls in flight.
        self._call_tasks: set[asyncio.Task[Any]] = set()
        self._records = CallRecords(run.log)
        frame_bytes = run.resources.limits.frame_bytes
        results = Results(self._redactor, frame_bytes - _FRAME_OVERHEAD_BYTES)
        self._checks = CallChecks(contexts, threads, self._records)
        self._reviews = CallReviews(run.approvals, self._checks, contexts, self._records)
        self._maker = CallMaker(run.log, self._records, threads, results, self._redactor, contexts)
        # True while a script runs; without a script, calls come from the strategy itself.
        self._runs_script = False
        # True if a person has asked for another script. All further calls of the running script are
        # then rejected.
        self._rejects_calls = False

    def use(self, tools: Toolset) -> None:
        """Replace the tools that scripts can call."""
        self._tools = tools

    def begin_script(self, guard: CallGuard | None = None) -> None:
        """Prepare for the calls of a new script.

        Args:
            guard: The strategy's additional rules for the script's calls.
        """
        self._records.unregister_calls()
        self._checks.guard = guard
        self._runs_script = True
        self._rejects_calls = False
        if guard is not None:
            guard.begin()

    def end_script(self) -> None:
        """End a script; calls are no longer rejected because a person wants another script."""
        self._runs_script = False
        self._rejects_calls = False

    def abandon(self, call_id: int) -> None:
        """Record that the script stopped waiting for a call.

        Args:
            call_id: The number of the call in the sandbox session.
        """
        self._records.abandon(call_id)

    def close(self, *, without_answers: bool = False) -> None:
        """Refuse new calls from now on.

        Args:
            without_answers: Whether new calls raise ``TaskLeftError`` instead of getting an answer.
                Set if the task will be resumed: after an answer, the script could take steps that
                the resumed task does not repeat.
        """
        self._is_closed = True
        self._withholds_answers = self._withholds_answers or without_answers

    async def wait_for_calls(self, seconds: float) -> None:
        """Wait for the remaining calls after their script ended.

        A call that does not end in time is recorded with the cancellation ``cut_off``.

        Args:
            seconds: The maximum wait in seconds.

        Raises:
            UnrecordedCallError: If the end of a call could not be recorded.
        """
        late_tasks = set(self._call_tasks)
        if late_tasks:
            _, late_tasks = await asyncio.wait(late_tasks, timeout=seconds)
        # End the calls of the late tasks here: a cancelled task would record another reason.
        for late_call in self._records.under_way:
            reason = f"it had not ended {seconds:g} s after its script, and may go on"
            # If one end cannot be recorded, the other calls still get theirs. The error is raised
            # below.
            with contextlib.suppress(UnrecordedCallError):
                await self._records.end(
                    late_call, "cancelled", error=reason, cancellation="cut_off"
                )
        for task in late_tasks:
            task.cancel()
        if self._records.unrecorded_error is not None:
            raise self._records.unrecorded_error

    @property
    def under_way(self) -> list[str]:
        """Descriptions of connections' running checks and of the calls in flight, for messages."""
        return [
            *self._checks.running,
            *(f"the call {call.bound.name}" for call in self._records.under_way),
        ]

    async def until_idle(self) -> None:
        """Wait, without a time limit, until no call is in flight."""
        while self._call_tasks:
            await asyncio.wait({*self._call_tasks}, return_when=asyncio.FIRST_COMPLETED)

    async def call(self, script_request: CallRequest) -> CallAnswer:
        """Make a call of a script if it is allowed and approved; return the answer for the script.

        Raises:
            UnrecordedCallError: If the end of this or an earlier call could not be recorded. No
                further call is made, because a resumed task would not know the effect of that call.
            ReplayMismatch: If a resumed task's script makes another call than the journal has.
            UndecidedCallError: If nobody decides whether to repeat an interrupted call.
            TaskLeftError: If this process has stopped working on a task that will be resumed.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asynchronous code runs in asyncio tasks only
        self._call_tasks.add(task)
        try:
            answer = await self._validate_and_make(script_request)
        except TaskLeftError:
            # This process stops working on the task without recording the end of the call. A
            # resumed task could not replay a call that comes after this one.
            self.close()
            raise
        finally:
            self._call_tasks.discard(task)
        is_final_answer = script_request.connection == ANSWER and not script_request.method
        if is_final_answer and isinstance(answer, Returned):
            self.answer = answer
        return answer

    async def _validate_and_make(self, script_request: CallRequest) -> CallAnswer:
        """Validate and make a call; answer the script with a refusal if the call is invalid."""
        # Taken before anything is awaited, so that numbers follow the order in which calls came.
        number = next(self._numbers)
        if self._is_closed:
            return self._answer_after_close()
        try:
            bound_action = self._tools.find(script_request.connection, script_request.method)
        except ToolRefusedError as error:
            return await self._refuse_invalid(number, script_request, "ToolNotAllowed", error)
        try:
            call = await self._validate(number, bound_action, script_request)
        except ToolRefusedError as error:
            desc = script_request.kwargs.get("desc")
            return await self._refuse_invalid(
                number, script_request, "ToolArgumentError", error, desc
            )
        return await self._make_under_guard(call, script_request)

    async def _validate(self, number: int, bound: BoundAction, script_request: CallRequest) -> Call:
        """Validate the arguments of a script's call, and return the call.

        Raises:
            ToolRefusedError: If the arguments do not fit the action.
        """
        arguments, description = bound.bind(script_request.args, script_request.kwargs)
        validate = functools.partial(Call.validated, number, bound, arguments, description)
        # The validation of a large value would block the event loop, so run it in a thread.
        call = await asyncio.to_thread(validate) if is_large(arguments) else validate()
        call.blocks_script = script_request.alone
        call.line = script_request.line
        return call

    async def _make_under_guard(self, call: Call, script_request: CallRequest) -> CallAnswer:
        """Make a valid call, unless the strategy's guard answers the call itself."""
        guard = self._checks.guard
        if guard is None:
            return await self._make_or_replay(call, script_request)
        script_call = call.script_call
        early_answer = guard.before_call(script_call)
        if early_answer is not None:
            return early_answer
        return guard.after_call(script_call, await self._make_or_replay(call, script_request))

    async def _make_or_replay(self, call: Call, script_request: CallRequest) -> CallAnswer:
        """Make a call if allowed; if a replay has the call's recorded answer, return the answer."""
        recorded_call = None
        if self._replay.active:
            recorded_call = await self._replay.wait_for_turn(
                call.digest, blocks_script=call.blocks_script
            )
        if recorded_call is not None and recorded_call.finished is not None:
            return self._replay_answer(recorded_call)
        # From now on, abandon() can find the call.
        self._records.register(script_request.call_id, call)
        was_asked_whether_to_repeat = False
        if recorded_call is not None:
            # The earlier process died before the call ended, perhaps even before the call started.
            call.continue_from(recorded_call)
            if recorded_call.may_have_taken_effect:
                return await self._repeat_or_ask(call, recorded_call)
            was_asked_whether_to_repeat = recorded_call.repeat_request is not None
        elif self._rejects_calls:
            return await self._reject(call, "changes to the script were requested")
        # If an equal earlier call may have taken effect, a person decides whether to make this one.
        if was_asked_whether_to_repeat or call.digest in self._maker.unknown_outcomes:
            return await self._ask_after_unknown_outcome(call, recorded_call)
        return await self._make_when_ready(call, recorded_call)

    def _replay_answer(self, recorded_call: RecordedCall) -> CallAnswer:
        """Return the recorded answer of a call.

        If a person decided on the call by requesting changes, reject the script's further calls.
        """
        decision_event = recorded_call.decision
        if decision_event is not None and decision_event.decision == "changes_requested":
            self._reject_further_calls_of_script()
        return recorded_call.answer()

    def _reject_further_calls_of_script(self) -> None:
        """Reject all further calls of the running script, because a person requested changes."""
        self._rejects_calls = self._runs_script  # calls without a script are never rejected

    def _answer_after_close(self) -> Raised:
        """Return the answer for a call after :meth:`close`.

        Raises:
            UnrecordedCallError: If the end of an earlier call could not be recorded.
            TaskLeftError: If the task will be resumed.
        """
        if self._records.unrecorded_error is not None:
            raise self._records.unrecorded_error
        if self._withholds_answers:
            raise TaskLeftError("this process no longer works on the task, which will be resumed")
        return Raised("ToolError", "the task is over; no call is made any more")

    async def _make_when_ready(self, call: Call, recorded_call: RecordedCall | None) -> CallAnswer:
        """Ask for approval and make a call, once the task is ready for the call."""
        try:
            # An earlier call may have given the task's permit back while waiting for a person, and
            # then have been cancelled. The task must get the permit again before this call begins.
            await self._permit.wait_until_held()
            await self._contexts.wait_for_output_files()
            # Actions with ``resumes=True`` do all their work in child tasks.
            if call.bound.action.resumes:
                return await self._approve_and_make_with_child(call, recorded_call)
            return await self._approve_and_make(call, recorded_call)
        except asyncio.CancelledError:
            # No-op if the end of the call is recorded already, by the review or by _make().
            await self._records.record_not_started(call)
            raise

    async def _approve_and_make_with_child(
        self, call: Call, recorded_call: RecordedCall | None
    ) -> CallAnswer:
        """Reserve one of the task's remaining children, then ask for approval and make the call.

        If no child remains, the call is refused, and no person is asked to approve it in vain. A
        call that continues its earlier child task needs no reservation.
        """
        children = self._contexts.children
        has_child = call.was_begun_before and bool(children.recorded_children(call.number))
        try:
            problem = None if has_child else await children.reserve(call)
            if problem is not None:
                # The error may end the script, so the running calls get time to finish first.
                await self._records.let_other_calls_end(call)
                message = f"{call.bound.name} is not made: {problem}"
                return await self._refuse_unasked(call, recorded_call, message, "ToolError")
            return await self._approve_and_make(call, recorded_call)
        finally:
            children.release(call)

    async def _approve_and_make(self, call: Call, recorded_call: RecordedCall | None) -> CallAnswer:
        """Check a call, ask for approval if needed, and make the call if approved.

        If the call starts a child task, the caller has reserved the child already, and gives an
        unused reservation back afterwards.
        """
        # The check has to see the call as a person edited it before the task was resumed.
        reapply_edits(call, recorded_call)
        verdict = await self._checks.verdict(call)
        if isinstance(verdict, Refused):
            reason = _refusal_message(call, verdict.message)
            return await self._refuse_unasked(call, recorded_call, reason)
        if call.bound.name == ASK:
            return await self._ask_question(call, recorded_call)
        # Either the connection's check or the user's setting ``confirm`` can require an approval.
        needs_approval = isinstance(verdict, NeedsApproval) or call.bound.asks
        if recorded_call is not None:
            # What people decided before the task was resumed counts in any case: a rejection, and
            # an edit, after which a team's rule may want another approver.
            has_decision = recorded_call.decision is not None or bool(recorded_call.edits)
            needs_approval = needs_approval or has_decision
        if not needs_approval and not await self._approvals.requires_review(call):
            if recorded_call is not None:
                # An earlier process may have requested an approval that its rules required. Close
                # that request, which would otherwise stay open forever.
                await self._approvals.close(recorded_call, "the action needs no approval any more")
            return await self._make(call)
        answer = await self._reviews.ask(call, recorded_call, verdict)
        match answer.decision:
            case Approved():
                return await self._make(call)
            case RefusedByCheck(reason=reason):
                return await self._refuse_validated(call, _refusal_message(call, reason))
            case ChangesRequested():
                self._reject_further_calls_of_script()
            case _:
                pass
        return await self._reject(call, why_not_made(answer.decision), can_retry=_can_retry(answer))

    async def _ask_question(self, call: Call, recorded_call: RecordedCall | None) -> CallAnswer:
        """Ask a person the question of an ``ask`` call; the result is the person's answer."""
        try:
            answer = await self._approvals.decide(call, recorded_call=recorded_call)
        except asyncio.CancelledError:
            await self._records.cancel(call, "cancelled before it was answered")
            raise
        if isinstance(answer.decision, Answered):
            # In the journal, a call that ends without a start was invalid. So record a start.
            await self._records.begin(call)
            return await self._record_stated_result(call, answer.decision.answer)
        reason = f"the question has no answer: {why_not_made(answer.decision)}"
        return await self._reject(call, reason, can_retry=_can_retry(answer))

    async def _refuse_unasked(
        self,
        call: Call,
        recorded_call: RecordedCall | None,
        reason: str,
        kind: str = "ToolNotAllowed",
    ) -> Raised:
        """Refuse a call about which this process asks nobody; close its requests of a resumed task.

        No answer can let the call pass, so people must not see a request about it any more.
        """
        if recorded_call is not None:
            for outcome_unknown in (False, True):
                await self._approvals.close(
                    recorded_call, "the call is refused now", outcome_unknown=outcome_unknown
                )
        return await self._refuse_validated(call, reason, kind)

    async def _refuse_validated(
        self, call: Call, reason: str, kind: str = "ToolNotAllowed"
    ) -> Raised:
        """Refuse a call with valid arguments: record the refusal, and return the script's error."""
        message = self._redactor.redact_text(reason)[:_MAX_MESSAGE_LENGTH]
        await self._records.end(call, "refused", error=message, error_name=kind)
        return Raised(kind, message)

    async def _repeat_or_ask(self, call: Call, recorded_call: RecordedCall) -> CallAnswer:
        """Repeat a call that an earlier process began and did not end, or ask a person first.

        A call that works in child tasks is repeated without a question, because its child tasks
        continue. A person decides about any other call, and about a call whose arguments could not
        be restored. Even an approved call is not repeated if its arguments could not be restored,
        or if the connection's check refuses the call.
        """
        obstacle = restore_edited_arguments(call, recorded_call)
        recorded_children = self._contexts.children.recorded_children(call.number)
        works_in_children = call.bound.action.resumes or bool(recorded_children)
        if obstacle is None and works_in_children:
            return await self._make_after_previous_process(call)
        shown_verdict: Allowed | NeedsApproval = Allowed()  # has no preview
        if obstacle is None:
            verdict = await self._checks.verdict(call)
            if isinstance(verdict, Refused):
                obstacle = f"it is refused: {verdict.message}"
            else:
                shown_verdict = verdict
        # Ask even about a call that cannot be repeated: the person may know that it was done.
        shown_verdict = self._with_warning_of_previous_process(shown_verdict)
        answer = await self._reviews.ask(call, recorded_call, shown_verdict, outcome_unknown=True)
        decision = answer.decision
        if isinstance(decision, AlreadyDone):
            return await self._record_stated_result(call, decision.result)
        if not isinstance(decision, Approved):
            self._maker.unknown_outcomes.add(call.digest)  # an equal call is asked about, too
            return await self._reject(call, why_not_made(decision))
        if obstacle is not None:
            return await self._reject(call, obstacle)
        return await self._make_after_previous_process(call)

    def _with_warning_of_previous_process(
        self, verdict: Allowed | NeedsApproval
    ) -> Allowed | NeedsApproval:
        """Add a warning to a verdict if another process may still be making the call."""
        previous_owner = self._replay.previous_owner
        if previous_owner is None:
            return verdict
        return verdict.with_reason_to_ask(
            f"{previous_owner.process} began the call and has not reported since; that process may "
            "be alive and still making the call"
        )

    async def _make_after_previous_process(self, call: Call) -> CallAnswer:
        """Make a call once the task's previous process has certainly stopped its calls."""
        if self._replay.previous_owner is not None:
            await self._replay.previous_owner.wait_until_expired()
        return await self._make(call)

    async def _ask_after_unknown_outcome(
        self, call: Call, recorded_call: RecordedCall | None
    ) -> CallAnswer:
        """Ask a person whether to repeat a call of this task with an unknown outcome."""
        digest_before_edit = call.digest  # an edit changes call.digest
        reapply_edits(call, recorded_call)
        verdict = await self._checks.verdict(call)
        if isinstance(verdict, Refused):
            reason = _refusal_message(call, verdict.message)
            return await self._refuse_unasked(call, recorded_call, reason)
        reason = "the same call was made before, and its answer was lost: it may have been done"
        if recorded_call is not None:  # close the request that only asked whether to make the call
            await self._approvals.close(recorded_call, reason)
        verdict = verdict.with_reason_to_ask(reason)
        answer = await self._reviews.ask(call, recorded_call, verdict, outcome_unknown=True)
        match answer.decision:
            case AlreadyDone(result=result):
                # The outcome is known now, so an identical later call needs no such question.
                self._maker.unknown_outcomes.discard(digest_before_edit)
                await self._records.begin(call)
                return await self._record_stated_result(call, result)
            case Approved():
                self._maker.unknown_outcomes.discard(digest_before_edit)
                return await self._make(call)
            case RefusedByCheck(reason=reason):
                return await self._refuse_validated(call, _refusal_message(call, reason))
            case decision:
                return await self._reject(call, why_not_made(decision), can_retry=False)

    async def _make(self, call: Call) -> CallAnswer:
        """Record the start of a call, and make the call, unless the gate is closed."""
        if self._is_closed:  # closed while a person decided
            return self._answer_after_close()
        await self._records.begin(call)
        if self._is_closed:  # closed while the journal stored the start
            await self._records.record_not_started(call)
            return self._answer_after_close()
        return await self._maker.make(call)

    async def _record_stated_result(self, call: Call, result: Any) -> CallAnswer:
        """Record a call as done with the result that a person stated; return that result."""
        try:
            return await self._maker.record_stated_result(call, result)
        except UnsupportedValueError as error:
            return await self._reject(call, f"its result cannot be passed on: {error}")

    async def _refuse_invalid(
        self,
        number: int,
        script_request: CallRequest,
        kind: str,
        error: ToolRefusedError,
        desc: Any = None,
    ) -> Raised:
        """Refuse an invalid or unknown call: record the refusal, and return the script's error."""
        name = script_request.connection
        if script_request.method:
            name = f"{name}.{script_request.method}"
        message = self._redactor.redact_text(describe_failure(error))[:_MAX_MESSAGE_LENGTH]
        if desc is not None:
            desc = self._redactor.redact_text(str(desc))[:_MAX_MESSAGE_LENGTH]
        await self._log.record(
            CallFinished,
            call_id=number,
            action=self._redactor.redact_text(name)[:_MAX_NAME_LENGTH],
            status="refused",
            duration_ms=0.0,
            error=message,
            description=desc,
            raised=kind,
            line=script_request.line,
        )
        return Raised(kind, message)

    async def _reject(self, call: Call, reason: str, *, can_retry: bool = True) -> Raised:
        """Record that a call was rejected, and return the error that the script gets."""
        message = f"{call.bound.name} was rejected: {reason}"
        await self._records.end(
            call, "rejected", error=message, error_name=REJECTED, can_retry=can_retry
        )
        return Raised(REJECTED, message, can_retry=can_retry)


def _can_retry(answer: Answer) -> bool:
    """Return whether the model may try another script after a call was not approved."""
    # In a resumed task, an expired request has a recorded rejection, whose source is the timeout.
    has_no_author = answer.source in ("nobody", "timeout")
    is_unanswered = has_no_author or isinstance(answer.decision, Expired)
    if is_unanswered:
        return False  # nobody would answer the request of another script either
    # Without a reason, the model cannot know what to change in another script.
    is_rejected_without_reason = answer.decision == Rejected()
    return not is_rejected_without_reason


def _refusal_message(call: Call, reason: str) -> str:
    return f"{call.bound.name} is refused: {reason}"
