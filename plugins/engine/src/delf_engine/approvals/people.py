"""The last judge: people, asked by a request that the journal keeps with its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from delf.events import ApprovalDecided, ApprovalRequested, content_of
from delf.protocols.approval import ApprovalRequest, Approved, Decision, Edited, Rejected
from delf.protocols.rules import ApprovalRule
from delf_engine.approvals.asking import Asking
from delf_engine.approvals.case import Case, Ruling
from delf_engine.approvals.channels import copy_of
from delf_engine.approvals.decision import Answer, unanswered, with_secrets
from delf_engine.approvals.remembered import RememberedDecisions, is_refusal
from delf_engine.approvals.shared import Approvals
from delf_engine.journal.log import TaskLog
from delf_engine.task import TaskRequest
from delf_engine.waiting import Permit, TaskClock


def asks_again(request: ApprovalRequest, decision: Decision) -> bool:
    """Return whether another person has to approve a call as a decision has changed it."""
    rule = ApprovalRule.of(request.rule)
    return isinstance(decision, Edited) and rule is not None and rule.needs_others


_STRICT: Final = Rejected(reason="every action that needs approval is denied")


class PeopleJudge:
    """Asks people about calls that no other judge has decided. Each request is used once.

    A request can be answered by a channel or, at any time, through the agent: the first answer
    counts. A background task never waits on a terminal.

    Args:
        shared: The parts that the agent's tasks share.
        task: The task.
        log: Where requests and decisions are recorded.
        permit: The task's place among running tasks, released while a person decides.
        clock: The task's time, which stands still meanwhile.
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
        self._log = log
        self._permit = permit
        self._clock = clock
        self._decisions = decisions
        self._asking = Asking(shared, task, log)

    async def judge(self, case: Case, so_far: Ruling) -> Ruling:
        """Ask a person about an undecided call; journal the request and the answer."""
        if so_far.answer is not None and not so_far.has_request:
            return so_far
        rule = {} if so_far.rule is None else so_far.rule.data()
        request = replace(case.request, flow=so_far.flow, rule=rule)
        if case.asked is not None:  # it goes on to wait, as people have seen it
            asked = case.asked
            request = replace(
                request,
                request_id=asked.request_id,
                origins=asked.origins,
                shaped_by=asked.shaped_by,
            )
        answer = so_far.answer
        if answer is None and self._shared.is_strict:
            answer = Answer.given(_STRICT, "policy", "mode strict")
        return replace(so_far, answer=await self._journalled(case, request, answer))

    async def _journalled(
        self, case: Case, request: ApprovalRequest, answer: Answer | None
    ) -> Answer:
        """Journal a request and its answer, even if unanswered; ask if ``answer`` is None."""
        asked = None if case.lapsed else case.asked
        announced = self._tell(request, asked, by_policy=answer is not None)
        async with self._watched_inbox(answer):
            is_open = True
            try:
                if answer is not None:
                    await announced
                    is_open = False
                    return await self._take(case, request, answer)
                with self._clock.stopped():
                    async with self._permit.released():
                        since = None if case.asked is None else case.asked.at
                        answered = await self._asking.answer(request, announced, since=since)
                        is_open = False
                        return await self._take(case, request, answered)
            except asyncio.CancelledError:
                if is_open:
                    abandoned = case.call is not None and case.call.abandoned
                    await self._take(case, request, unanswered(abandoned=abandoned))
                raise

    @asynccontextmanager
    async def _watched_inbox(self, answer: Answer | None) -> AsyncGenerator[None]:
        inbox = self._shared.inbox
        if inbox is None or answer is not None:
            yield
            return
        async with inbox.watched():
            yield

    async def _tell(
        self, request: ApprovalRequest, asked: ApprovalRequested | None, *, by_policy: bool
    ) -> None:
        """Journal a request so that readers see it pending, or show it again."""
        if asked is not None:
            self._log.show(asked)
            return
        await self._log.record(ApprovalRequested, **content_of(request), by_policy=by_policy)

    async def _take(self, case: Case, request: ApprovalRequest, answered: Answer) -> Answer:
        """Journal an answer, remember it if requested, and return the effective answer."""
        decision = with_secrets(self._as_it_counts(request, answered), request, case.arguments)
        if isinstance(decision, Edited):  # whoever edited it may change it once more
            decision = replace(decision, arguments=copy_of(decision.arguments))
        answer = replace(answered, decision=decision)
        lasts = isinstance(decision, Approved) and decision.remember == "until_revoked"
        await self._log.record(
            ApprovalDecided,
            request_id=request.request_id,
            key=self._decisions.key if lasts else None,
            project=self._decisions.project if lasts else None,
            **answer.data(),
        )
        if isinstance(decision, Approved) and decision.remember == "task":
            self._decisions.add(request, decision, answered.who.name)
        elif isinstance(decision, Rejected) and is_refusal(answered.source, request):
            self._decisions.refused[case.key] = decision.reason
        return replace(answer, asks_again=asks_again(request, decision))

    def _as_it_counts(self, request: ApprovalRequest, answered: Answer) -> Decision:
        """Return a decision without the parts that its request or its person may not have."""
        decision = answered.decision
        if not isinstance(decision, Approved) or decision.remember == "no":
            return decision
        if request.outcome_unknown or request.rule:
            return replace(decision, remember="no")  # it is about one call
        if decision.remember == "task":
            return decision
        # What one key of a server says holds for no other one's later tasks.
        is_theirs = answered.who.key is None or answered.who.key == self._decisions.key
        lasts = is_theirs and self._decisions.can_last
        return decision if lasts else replace(decision, remember="task")
