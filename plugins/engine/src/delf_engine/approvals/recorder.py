"""``RequestRecorder``: records a request, and the answer that takes effect, in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from delf.events import ApprovalDecided, ApprovalRequested, Remember, content_of
from delf.protocols.approval import (
    Answered,
    ApprovalRequest,
    Approved,
    Decider,
    Decision,
    Rejected,
)
from delf.questions import Question
from delf_engine.approvals.decision import Answer, needs_other_approver, unanswered, with_secrets
from delf_engine.approvals.judges import Case
from delf_engine.approvals.remembered import RememberedDecisions, is_lasting_refusal
from delf_engine.journal.log import TaskLog


class RequestRecorder:
    """Records a request and its answer in the journal of the task.

    Args:
        case: The case that the request is about.
        request: The request, as people see it.
        log: The log of the task.
        decisions: Remembers the decision, if the person chose so.
    """

    def __init__(
        self, case: Case, request: ApprovalRequest, log: TaskLog, decisions: RememberedDecisions
    ) -> None:
        self._case = case
        self._request = request
        self._log = log
        self._decisions = decisions

    @asynccontextmanager
    async def closed_on_cancellation(self) -> AsyncGenerator[None]:
        """Record the end of the request if the block is cancelled.

        Nobody can answer the request then, and other readers of the journal must not see the
        request as pending.
        """
        try:
            yield
        except asyncio.CancelledError:
            is_abandoned = self._case.call is not None and self._case.call.abandoned
            await self.record_answer(unanswered(abandoned=is_abandoned))
            raise

    async def record_request(self, *, by_policy: bool) -> None:
        """Record the request, so that observers and other processes see the request as pending.

        If a resumed task finds its request in the journal, still pending, the request is only shown
        to the observers again.

        Args:
            by_policy: Whether a judge has decided already, so that no person is asked.
        """
        # If the sandbox died meanwhile, the recorded request was closed. A new record reopens it.
        if self._case.request_event is not None and not self._case.request_has_lapsed:
            self._log.notify_listeners(self._case.request_event)
            return
        await self._log.record(ApprovalRequested, **content_of(self._request), by_policy=by_policy)

    async def record_answer(self, answer: Answer) -> Answer:
        """Record the answer to the request, and return a copy with the decision that takes effect.

        This decision may differ from the given one, as :meth:`_in_effect` describes. The decision
        is remembered if the person chose so.
        """
        request = self._request
        decision = with_secrets(self._in_effect(answer), request, self._case.arguments)
        answer_in_effect = replace(
            answer,
            decision=decision,
            needs_other_approver=needs_other_approver(request, decision),
        )
        await self._record(answer_in_effect)
        self._remember(answer_in_effect)
        return answer_in_effect

    async def _record(self, answer: Answer) -> None:
        decision = answer.decision
        # Later tasks look up the decision by its user and its project.
        is_for_later_tasks = isinstance(decision, Approved) and decision.remember == "until_revoked"
        await self._log.record(
            ApprovalDecided,
            request_id=self._request.request_id,
            user=self._decisions.user if is_for_later_tasks else None,
            project=self._decisions.project if is_for_later_tasks else None,
            **answer.data(),
        )

    def _remember(self, answer: Answer) -> None:
        """Remember an approval or a rejection that also decides later equal calls of this task."""
        match answer.decision:
            case Approved(remember="task") as approval:
                self._decisions.add(self._request, approval, answer.who.name)
            case Rejected(reason=reason) if is_lasting_refusal(answer.source, self._request):
                self._decisions.refused[self._case.key] = reason
            case _:
                pass

    def _in_effect(self, answer: Answer) -> Decision:
        """Return the decision that takes effect, which may differ from the person's decision."""
        decision = answer.decision
        question = self._request.question
        if question is not None:  # if nobody has answered, the default takes effect
            return _answer_in_effect(question, answer)
        if isinstance(decision, Approved):
            # The approval may end earlier than the person chose: see _remember_in_effect().
            return replace(decision, remember=self._remember_in_effect(decision, answer.who))
        return decision

    def _remember_in_effect(self, approval: Approved, approver: Decider) -> Remember:
        """Return how long an approval is remembered: no longer than the person chose."""
        # Repeating an interrupted call, and any call with a team rule, needs a new approval each
        # time.
        if self._request.outcome_unknown or self._request.rule:
            return "no"
        if approval.remember != "until_revoked":
            return approval.remember
        # One person's decision must not hold for another person's later tasks. But the local
        # user may decide for everybody.
        is_local_user = approver.user is None
        may_decide_for_user = is_local_user or approver.user == self._decisions.user
        if may_decide_for_user and self._decisions.can_outlive_task:
            return "until_revoked"
        return "task"


def _answer_in_effect(question: Question, answer: Answer) -> Decision:
    """Return the answer to a question, converted to the question's type.

    If nobody answered, return the question's default answer, if there is one.
    """
    decision = answer.decision
    is_unanswered = answer.source in ("nobody", "timeout")
    if is_unanswered and question.default is not None:
        decision = Answered(question.default)
    if isinstance(decision, Answered):
        return Answered(question.read(decision.answer))
    return decision
