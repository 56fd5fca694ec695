"""The last judge: asks people with a journalled request, and waits for the first answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from delf.errors import DelfError, UndecidedCallError, UnknownRequestError
from delf.events import ApprovalDecided, ApprovalRequested, content_of
from delf.protocols.approval import (
    Answered,
    ApprovalRequest,
    Approved,
    DecidedBy,
    Decider,
    Decision,
    Expired,
    Rejected,
    SupportsQuestions,
)
from delf.protocols.questions import Question
from delf_engine.approvals.ballot import Ballot
from delf_engine.approvals.channels import NamedChannel
from delf_engine.approvals.decision import (
    Answer,
    check_fits,
    checked_decision,
    copy_of_request,
    needs_other_approver,
    unanswered,
    with_secrets,
)
from delf_engine.approvals.judges import Case, Ruling
from delf_engine.approvals.remembered import RememberedDecisions, is_lasting_refusal
from delf_engine.approvals.shared import Approvals
from delf_engine.approvals.talk import RequestRemarks
from delf_engine.journal.log import TaskLog
from delf_engine.task import TaskRequest
from delf_engine.waiting import Permit, TaskClock

_log = logging.getLogger(__name__)

# The maximum length of a channel's error message in the reason of a rejection.
_MAX_FAILURE_LENGTH: Final = 200
_STRICT: Final = Rejected(reason="every action that needs approval is denied")
_UNASKED: Final = "it needs a person's approval and nobody could be asked"
_ADVICE: Final = (
    "run it on a terminal, let it wait for `delf approvals` (--wait-approvals), allow it "
    "(--approve all); a program gives on_confirm=… or wait_approvals=True"
)
UNANSWERABLE: Final = (
    "nobody can answer it; run the task on a terminal, let it wait for `delf approvals` "
    "(--wait-approvals), give on_ask=… in a program, or give the question a default"
)
NOBODY: Final = f"{_UNASKED}; {_ADVICE}"


class PeopleJudge:
    """Asks people about calls that no other judge decided.

    A person can answer a request in an approval channel, such as a terminal or a chat, or through
    the agent's methods. The first answer counts. A background task never asks on a terminal.

    Args:
        approvals: The approvals that all tasks of the agent share.
        task: The task.
        log: The log that records requests and decisions.
        permit: The task's permit to run, released while a person decides.
        clock: The task's clock, paused while a person decides.
        decisions: Remembers decisions.
    """

    def __init__(
        self,
        approvals: Approvals,
        task: TaskRequest,
        log: TaskLog,
        permit: Permit,
        clock: TaskClock,
        decisions: RememberedDecisions,
    ) -> None:
        self._approvals = approvals
        self._task = task
        self._log = log
        self._permit = permit
        self._clock = clock
        self._decisions = decisions

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Ask a person about an undecided call; journal the request and the answer."""
        is_decided_without_journal = ruling.answer is not None and not ruling.needs_journal
        if is_decided_without_journal:
            return ruling
        request, answer = self._request_of(case, ruling), ruling.answer
        if case.is_question and not self._approvals.can_answer(self._task):
            answer = Answer.given(Rejected(reason=UNANSWERABLE), "nobody", "nobody")
        elif answer is None and self._approvals.is_strict and not case.is_question:
            answer = Answer.given(_STRICT, "policy", "mode strict")
        if answer is not None:
            return replace(ruling, answer=await self._record_decided(case, request, answer))
        # While a person decides, the task's time stops and other tasks may use its permit. The
        # answer is journalled before the permit is acquired again, which may take long.
        with self._clock.stopped():
            async with self._watched_inbox(), self._permit.released():
                return replace(ruling, answer=await self._ask_people(case, request))

    def _request_of(self, case: Case, ruling: Ruling) -> ApprovalRequest:
        """Return the request to show to people.

        In a resumed task, the request keeps the id of the recorded request, the origins of its
        values, and the people who influenced the task.
        """
        rule = {} if ruling.rule is None else ruling.rule.data()
        request = replace(case.request, flow=ruling.flow, rule=rule)
        if (event := case.request_event) is None:
            return request
        return replace(
            request,
            request_id=event.request_id,
            origins=event.origins,
            shaped_by=event.shaped_by,
        )

    async def _record_decided(self, case: Case, request: ApprovalRequest, answer: Answer) -> Answer:
        """Journal a request and another judge's answer; return the answer that takes effect."""
        async with self._closed_on_cancellation(case, request):
            await self._announce(case, request, by_policy=True)
        return await self._record(case, request, answer)

    async def _ask_people(self, case: Case, request: ApprovalRequest) -> Answer:
        """Journal a request, ask people, and journal and return the answer that takes effect."""
        async with self._closed_on_cancellation(case, request):
            asking = Asking(self._approvals, self._task, self._log, request)
            # A person may answer as soon as the request is announced. Therefore the announcement is
            # not awaited here, but by answer(), which first gets ready to accept answers.
            announcing = self._announce(case, request, by_policy=False)
            was_asked_before = case.request_event is not None
            answer = await asking.answer(announcing, was_asked_before=was_asked_before)
        return await self._record(case, request, answer)

    @asynccontextmanager
    async def _closed_on_cancellation(
        self, case: Case, request: ApprovalRequest
    ) -> AsyncGenerator[None]:
        """Record the end of the request in the journal if the block is cancelled.

        Nobody can answer the request then, and other readers of the journal must not see the
        request as pending.
        """
        try:
            yield
        except asyncio.CancelledError:
            is_abandoned = case.call is not None and case.call.abandoned
            await self._record(case, request, unanswered(abandoned=is_abandoned))
            raise

    @asynccontextmanager
    async def _watched_inbox(self) -> AsyncGenerator[None]:
        if self._approvals.inbox is None:
            yield
            return
        async with self._approvals.inbox.watched():
            yield

    async def _announce(self, case: Case, request: ApprovalRequest, *, by_policy: bool) -> None:
        """Journal a request, so that observers and other processes see the request as pending.

        If a resumed task finds its request in the journal, still pending, the request is only shown
        to the observers again.
        """
        if case.request_event is not None and not case.request_was_closed:
            self._log.show(case.request_event)
            return
        await self._log.record(ApprovalRequested, **content_of(request), by_policy=by_policy)

    async def _record(self, case: Case, request: ApprovalRequest, answer: Answer) -> Answer:
        """Journal an answer, and return the answer with the decision that takes effect.

        A decision is remembered if the person chose so.
        """
        decision = self._effective(request, answer)
        needs_another = needs_other_approver(request, decision)
        # After the checks above, which are about the request as people saw it.
        decision = with_secrets(decision, request, case.arguments)
        final_answer = replace(answer, decision=decision, needs_other_approver=needs_another)
        is_lasting = isinstance(decision, Approved) and decision.remember == "until_revoked"
        await self._log.record(
            ApprovalDecided,
            request_id=request.request_id,
            key=self._decisions.key if is_lasting else None,
            project=self._decisions.project if is_lasting else None,
            **final_answer.data(),
        )
        if isinstance(decision, Approved) and decision.remember == "task":
            self._decisions.add(request, decision, answer.who.name)
        # A rejection by a timeout or by the settings says nothing about the next equal call.
        elif isinstance(decision, Rejected) and is_lasting_refusal(answer.source, request):
            self._decisions.refused[case.key] = decision.reason
        return final_answer

    def _effective(self, request: ApprovalRequest, answer: Answer) -> Decision:
        """Return the decision that takes effect.

        An approval may be remembered until the task ends (``task``) or until it is revoked. The
        field ``remember`` is set to ``no`` if the request does not allow either, and to ``task`` if
        the person may not decide for later tasks. The answer to a question is converted to the
        question's type.
        """
        decision, question = answer.decision, Question.from_request(request)
        if question is not None:
            is_unanswered = answer.source in ("nobody", "timeout")
            if is_unanswered and question.default is not None:
                decision = Answered(question.default)
            if isinstance(decision, Answered):
                return Answered(question.read(decision.answer))
        if not isinstance(decision, Approved) or decision.remember == "no":
            return decision
        # A person approves each repetition of an interrupted call, and each call with a team rule.
        if request.outcome_unknown or request.rule:
            return replace(decision, remember="no")
        if decision.remember == "task":
            return decision
        # One person's decision must not hold for another person's later tasks.
        key_of_task_owner = self._decisions.key
        # A person without a key uses this machine, and so is allowed what the owner is allowed.
        is_by_owner = answer.who.key is None or answer.who.key == key_of_task_owner
        may_outlive_task = is_by_owner and self._decisions.can_outlive_task
        return decision if may_outlive_task else replace(decision, remember="task")


class Asking:
    """A request for approval while people are asked; the first answer counts.

    Answers come from channels, the program, other processes, votes and the timeout. All of these go
    through the agent's pending requests, which accept only one.

    Args:
        approvals: The approvals that all tasks of the agent share.
        task: The task.
        log: The log that records votes.
        request: The request.
    """

    def __init__(
        self, approvals: Approvals, task: TaskRequest, log: TaskLog, request: ApprovalRequest
    ) -> None:
        self._approvals = approvals
        self._pending = approvals.pending
        self._task = task
        self._redactor = log.redactor
        self._request = request
        self._ballot = Ballot(request, task.on_behalf_of, log, approvals)
        self._remarks = RequestRemarks(request, log, approvals.channels)
        # The failed channels, each with the reason.
        self._failures: list[str] = []

    async def answer(self, announced: Awaitable[None], *, was_asked_before: bool) -> Answer:
        """Wait for the answer; if this wait is cancelled, close the request to later answers.

        Args:
            announced: Shows the request to observers when awaited. An answer may arrive earlier.
            was_asked_before: Whether an earlier process showed the request, so that an answer may
                already exist.

        Raises:
            UndecidedCallError: If nobody decides about an interrupted call. The request stays
                pending in the journal until the task is resumed.
        """
        seconds = self._approvals.config.approval_timeout
        # Accept answers before the request is visible, because an answer may come as soon as it is.
        # The ballot says whether an answer is enough to decide. Remarks are the comments and
        # assignments of people, which decide nothing.
        pending_answer = self._pending.open(
            self._request, self._ballot.take_answer, self._remarks.schedule_recording
        )
        # A person whose answer comes after close() gets an error with this outcome.
        outcome = "cancelled"
        try:
            await announced
            try:
                async with asyncio.timeout(seconds):
                    await self._until_answered(pending_answer, was_asked_before=was_asked_before)
            except TimeoutError:
                expiry = Answer.given(Expired(after_seconds=seconds), "timeout", "clock")
                self._decide_without_people(expiry, f"nobody answered within {seconds:g} s")
            # A person may have answered at the moment of the timeout: the earlier one counts.
            answer = await pending_answer
            outcome = type(answer.decision).__name__.lower()
            await self._remarks.wait_until_recorded()
            return answer
        finally:
            self._pending.close(self._request.request_id, outcome)

    async def _until_answered(
        self, pending_answer: asyncio.Future[Answer], *, was_asked_before: bool
    ) -> None:
        """Ask the channels, and wait until the request is decided.

        A channel, the agent's program or another process may decide. If no channel decides, and no
        answer can come another way, the request is rejected.
        """
        # Concurrently, because an answer may arrive from the page while a channel still shows its
        # prompt on the terminal.
        asking_channels = asyncio.create_task(self._ask_channels(was_asked_before=was_asked_before))
        try:
            await asyncio.wait(
                {asking_channels, pending_answer}, return_when=asyncio.FIRST_COMPLETED
            )
            if asking_channels.cancelled():
                _log.error("an approval channel cancelled the task that asked it")
            elif asking_channels.done():
                asking_channels.result()  # raises the error of a failed journal
        finally:
            # If the program or another process has decided, the channel must remove its prompt.
            asking_channels.cancel()
        # Votes from several channels may add up to a decision.
        await self._ballot.wait_until_counted()
        if not self._can_be_answered_later:
            details = f" ({'; '.join(self._failures)})" if self._failures else ""
            reason = f"{_UNASKED}{details}; {_ADVICE}"
            if self._request.is_question:
                reason = "; ".join([*self._failures, UNANSWERABLE])
            rejection = Answer.given(Rejected(reason=reason), "nobody", "nobody")
            # No effect if a channel has answered.
            self._decide_without_people(rejection, f"nobody could be asked about it{details}")
        # A timeout must not cancel the future: an answer that was accepted until then counts.
        await asyncio.shield(pending_answer)

    async def _ask_channels(self, *, was_asked_before: bool) -> None:
        """Ask the channels in order until the request is decided.

        In a resumed task, people may have answered before this process asks anybody.

        An invalid answer counts as a failure of the channel. A decision of the wrong kind for the
        request counts as a rejection.
        """
        request = self._request
        if was_asked_before and self._approvals.inbox is not None:
            await self._approvals.inbox.pass_on_earlier_notes(request.task_id)
            if self._pending.find(request.request_id) is None:
                return  # answered meanwhile
        for named in self._approvals.channels_for(self._task, is_question=request.is_question):
            await self._ask_channel(named)
            if self._pending.find(request.request_id) is None:
                return  # the answer counts, or somebody else was faster

    async def _ask_channel(self, named: NamedChannel) -> None:
        """Ask a channel, and pass on its answer.

        A channel that fails is skipped: if no channel answers, the call is rejected.
        """
        # A copy of the request for each channel, so that none can change the call.
        channel, request = named.channel, copy_of_request(self._request)
        who = Decider(name=named.name)
        try:
            if not request.is_question:
                decision = await channel.decide(request)
            elif isinstance(channel, SupportsQuestions):
                decision = await channel.answer(request)
            else:
                decision = None
            if decision is None:
                return
            if isinstance(decision, DecidedBy):
                decision, who = decision.decision, decision.who
            decision = _reject_if_unfit(request, checked_decision(decision))
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # this task is cancelled; otherwise the channel itself raised the error
            self._redactor.log_failure(_log, f"the approval channel {named.name!r} failed", error)
            cause = self._redactor.redact_failure(str(error) or type(error).__name__)
            self._failures.append(f"{named.name} failed: {cause[:_MAX_FAILURE_LENGTH]}")
            return
        try:
            self._pending.answer(request.request_id, Answer(decision, who))
        except UnknownRequestError as error:
            _log.debug("an answer of %s came late: %s", named.name, error.message)
        except DelfError as error:
            _log.warning("an answer of %s does not count: %s", named.name, error.message)
            self._failures.append(f"{named.name}: {error.message}")

    def _decide_without_people(self, answer: Answer, reason: str) -> None:
        """Decide the request without a person, unless a person has answered meanwhile.

        Args:
            answer: The expiry after the timeout, or the rejection because nobody can be asked.
            reason: Why no person has decided, such as "nobody answered within 5 s". The message of
                the :class:`UndecidedCallError` ends with this text.

        Raises:
            UndecidedCallError: If the request is about an interrupted call.
        """
        request = self._request
        if request.outcome_unknown and self._pending.find(request.request_id) is not None:
            raise UndecidedCallError(
                f"{request.action} was begun and then interrupted, its end is not recorded, "
                f"and {reason}"
            )
        self._pending.settle(request.request_id, answer)

    @property
    def _can_be_answered_later(self) -> bool:
        """True if a person may answer later, in this program or in another process."""
        return self._approvals.may_wait(self._task, is_question=self._request.is_question)


def _reject_if_unfit(request: ApprovalRequest, decision: Decision) -> Decision:
    """Return the decision, or a rejection if the request does not accept this kind of decision."""
    try:
        check_fits(request, decision)
    except DelfError as error:
        return Rejected(reason=f"{error.message}; {error.hint}" if error.hint else error.message)
    return decision
