"""The last judge: asks people with a journalled request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from delf.events import ApprovalDecided, ApprovalRequested, content_of
from delf.protocols.approval import (
    Answered,
    ApprovalRequest,
    Approved,
    Decision,
    Rejected,
)
from delf.protocols.questions import Question
from delf_engine.approvals.asking import UNANSWERABLE, Asking
from delf_engine.approvals.case import Case, Ruling
from delf_engine.approvals.decision import Answer, asks_again, unanswered, with_secrets
from delf_engine.approvals.remembered import RememberedDecisions, is_refusal
from delf_engine.approvals.shared import Approvals
from delf_engine.journal.log import TaskLog
from delf_engine.task import TaskRequest
from delf_engine.waiting import Permit, TaskClock

_STRICT: Final = Rejected(reason="every action that needs approval is denied")


class PeopleJudge:
    """Asks people about calls that no other judge decided; each request is used once.

    A request can be answered by a channel or, at any time, through the agent: the first answer
    counts. A background task never waits on a terminal.

    Args:
        shared: The parts that the agent's tasks share.
        task: The task.
        log: The log that records requests and decisions.
        permit: The task's permit to run, released while a person decides.
        clock: The task's clock, which is paused meanwhile.
        decisions: Remembers decisions.
    """

    def __init__(
        self,
        shared: Approvals,
        task: TaskRequest,
        log: TaskLog,
        permit: Permit,
        clock: TaskClock,
        decisions: RememberedDecisions,
    ) -> None:
        self._shared = shared
        self._task = task
        self._log = log
        self._permit = permit
        self._clock = clock
        self._decisions = decisions

    async def judge(self, case: Case, ruling: Ruling) -> Ruling:
        """Ask a person about an undecided call; journal the request and the answer."""
        if ruling.answer is not None and not ruling.has_request:
            return ruling
        request, answer = self._request_of(case, ruling), ruling.answer
        if case.is_question and not self._shared.can_answer(self._task):
            answer = Answer.given(Rejected(reason=UNANSWERABLE), "nobody", "nobody")
        elif answer is None and self._shared.is_strict and not case.is_question:
            answer = Answer.given(_STRICT, "policy", "mode strict")
        if answer is not None:
            return replace(ruling, answer=await self._journalled(case, request, answer))
        # While a person decides, the task's time stops and other tasks may use its permit.
        with self._clock.stopped():
            async with self._watched_inbox(), self._permit.released():
                return replace(ruling, answer=await self._journalled(case, request, None))

    def _request_of(self, case: Case, ruling: Ruling) -> ApprovalRequest:
        """Return the request for people; the recorded one if it is unchanged."""
        rule = {} if ruling.rule is None else ruling.rule.data()
        request = replace(case.request, flow=ruling.flow, rule=rule)
        if (asked := case.asked) is None:
            return request
        return replace(
            request,
            request_id=asked.request_id,
            origins=asked.origins,
            shaped_by=asked.shaped_by,
        )

    async def _journalled(
        self, case: Case, request: ApprovalRequest, answer: Answer | None
    ) -> Answer:
        """Journal a request and its answer, even if unanswered; ask if the policy has none."""
        try:
            showing = self._show(request, case, by_policy=answer is not None)
            if answer is not None:
                await showing
            else:
                asking = Asking(self._shared, self._task, self._log, request)
                answer = await asking.answer(showing, asks_again=case.asked is not None)
        except asyncio.CancelledError:
            # Cancelled while a person thinks: the request must not stay open for other readers.
            abandoned = case.call is not None and case.call.abandoned
            await self._take(case, request, unanswered(abandoned=abandoned))
            raise
        return await self._take(case, request, answer)

    @asynccontextmanager
    async def _watched_inbox(self) -> AsyncGenerator[None]:
        if self._shared.inbox is None:
            yield
            return
        async with self._shared.inbox.watched():
            yield

    async def _show(self, request: ApprovalRequest, case: Case, *, by_policy: bool) -> None:
        """Journal a request so that readers see it pending, or show it again."""
        if case.asked is not None and not case.lapsed:
            self._log.show(case.asked)
            return
        await self._log.record(ApprovalRequested, **content_of(request), by_policy=by_policy)

    async def _take(self, case: Case, request: ApprovalRequest, answer: Answer) -> Answer:
        """Journal an answer, remember it if asked to, and return the effective answer."""
        decision = self._effective(request, answer)
        next_request = asks_again(request, decision)
        decision = with_secrets(decision, request, case.arguments)
        answer = replace(answer, decision=decision, asks_again=next_request)
        lasts = isinstance(decision, Approved) and decision.remember == "until_revoked"
        await self._log.record(
            ApprovalDecided,
            request_id=request.request_id,
            key=self._decisions.key if lasts else None,
            project=self._decisions.project if lasts else None,
            **answer.data(),
        )
        if isinstance(decision, Approved) and decision.remember == "task":
            self._decisions.add(request, decision, answer.who.name)
        elif isinstance(decision, Rejected) and is_refusal(answer.source, request):
            self._decisions.refused[case.key] = decision.reason
        return answer

    def _effective(self, request: ApprovalRequest, answer: Answer) -> Decision:
        """Return the decision without a memory that its request or person does not allow.

        The answer to a question is converted to the question's type.
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
        if request.outcome_unknown or request.rule:
            return replace(decision, remember="no")  # approves one call only
        if decision.remember == "task":
            return decision
        # A decision of one person must not hold for later tasks of another.
        is_theirs = answer.who.key is None or answer.who.key == self._decisions.key
        lasts = is_theirs and self._decisions.can_last
        return decision if lasts else replace(decision, remember="task")
