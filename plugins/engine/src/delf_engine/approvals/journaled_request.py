"""A request in the journal of its task: the request itself, and the answer in effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from delf.events import ApprovalDecided, ApprovalRequested, content_of
from delf.protocols.approval import Answered, ApprovalRequest, Approved, Decision, Rejected
from delf_engine.approvals.decision import Answer, needs_other_approver, unanswered, with_secrets
from delf_engine.approvals.judges import Case
from delf_engine.approvals.remembered import RememberedDecisions, is_lasting_refusal
from delf_engine.journal.log import TaskLog


class JournaledRequest:
    """A request in the journal of its task; records the request and its answer.

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
            await self.close(unanswered(abandoned=is_abandoned))
            raise

    async def announce(self, *, by_policy: bool) -> None:
        """Record the request, so that observers and other processes see the request as pending.

        If a resumed task finds its request in the journal, still pending, the request is only shown
        to the observers again.

        Args:
            by_policy: Whether a judge has decided already, so that no person is asked.
        """
        if self._case.request_event is not None and not self._case.request_was_closed:
            self._log.show(self._case.request_event)
            return
        await self._log.record(ApprovalRequested, **content_of(self._request), by_policy=by_policy)

    async def close(self, answer: Answer) -> Answer:
        """Record the answer to the request, and return a copy with the decision that takes effect.

        This decision may differ from the given one, as :meth:`_in_effect` describes. The decision
        is remembered if the person chose so.
        """
        request = self._request
        decision_without_secrets = self._in_effect(answer)  # like the request that the person saw
        needs_another = needs_other_approver(request, decision_without_secrets)
        decision = with_secrets(decision_without_secrets, request, self._case.arguments)
        final_answer = replace(answer, decision=decision, needs_other_approver=needs_another)
        # By the key and the project, later tasks find the decision in the journal.
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
            self._decisions.refused[self._case.key] = decision.reason
        return final_answer

    def _in_effect(self, answer: Answer) -> Decision:
        """Return the decision that takes effect.

        An approval may be remembered until the task ends (``task``) or until it is revoked. The
        field ``remember`` is set to ``no`` if the request does not allow either, and to ``task`` if
        the person may not decide for later tasks. The answer to a question is converted to the
        question's type.
        """
        decision = answer.decision
        question = self._request.question
        if question is not None:
            is_unanswered = answer.source in ("nobody", "timeout")
            if is_unanswered and question.default is not None:
                decision = Answered(question.default)
            if isinstance(decision, Answered):
                return Answered(question.read(decision.answer))
        if not isinstance(decision, Approved) or decision.remember == "no":
            return decision
        # A person approves each repetition of an interrupted call, and each call with a team rule.
        if self._request.outcome_unknown or self._request.rule:
            return replace(decision, remember="no")
        if decision.remember == "task":
            return decision
        # One person's decision must not hold for another person's later tasks.
        key_of_task_owner = self._decisions.key
        # A person without a key uses this machine, and so is allowed what the owner is allowed.
        is_by_owner = answer.who.key is None or answer.who.key == key_of_task_owner
        may_outlive_task = is_by_owner and self._decisions.can_outlive_task
        if may_outlive_task:
            return decision
        return replace(decision, remember="task")
