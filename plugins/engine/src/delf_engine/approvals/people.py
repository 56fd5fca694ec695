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
    """Tell whether another person has to approve a call as a decision has changed it."""
    rule = ApprovalRule.of(request.rule)
    return isinstance(decision, Edited) and rule is not None and rule.needs_others


_STRICT: Final = Rejected(reason="every action that needs approval is denied")


class PeopleJudge:
    """Asks people about what no other judge has decided. Each request is used once.

    A request can be answered by a channel or, at any time, through the agent: what comes
    first counts. Nobody waits on a terminal for a task that runs in the background.

    Args:
        shared: What the agent's tasks share.
        task: The task.
        log: Where requests and decisions are recorded.
        permit: The task's place among those that run, given up while a person decides.
        clock: The task's time, which stands still meanwhile.
        decisions: Takes note of what is to be remembered.
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
        """Ask a person where nobody has decided; journal what the journal keeps."""
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
        """Journal a request and its answer, also if nobody gave one; None is to be asked for."""
        asked = None if case.lapsed else case.asked
        told = self._tell(request, asked, by_policy=answer is not None)
        async with self._watched_inbox(answer):
            is_open = True
            try:
                if answer is not None:
                    await told
                    is_open = False
                    return await self._take(case, request, answer)
                with self._clock.stopped():
                    async with self._permit.given_up():
                        since = None if case.asked is None else case.asked.at
                        said = await self._asking.answer(request, told, since=since)
                        is_open = False
                        return await self._take(case, request, said)
            except asyncio.CancelledError:
                if is_open:
                    given_up = case.call is not None and case.call.given_up
                    await self._take(case, request, unanswered(given_up=given_up))
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
        """Journal a request, so that whoever reads the journal sees it wait, or show it again."""
        if asked is not None:
            self._log.show(asked)
            return
        await self._log.record(ApprovalRequested, **content_of(request), by_policy=by_policy)

    async def _take(self, case: Case, request: ApprovalRequest, said: Answer) -> Answer:
        """Journal an answer, remember it if it says so, and give it as it is carried out."""
        decision = with_secrets(self._as_it_counts(request, said), request, case.arguments)
        if isinstance(decision, Edited):  # whoever edited it may change it once more
            decision = replace(decision, arguments=copy_of(decision.arguments))
        answer = replace(said, decision=decision)
        lasts = isinstance(decision, Approved) and decision.remember == "until_revoked"
        await self._log.record(
            ApprovalDecided,
            request_id=request.request_id,
            key=self._decisions.key if lasts else None,
            project=self._decisions.project if lasts else None,
            **answer.data(),
        )
        if isinstance(decision, Approved) and decision.remember == "task":
            self._decisions.add(request, decision, said.who.name)
        elif isinstance(decision, Rejected) and is_refusal(said.source, request):
            self._decisions.refused[case.key] = decision.reason
        return replace(answer, asks_again=asks_again(request, decision))

    def _as_it_counts(self, request: ApprovalRequest, said: Answer) -> Decision:
        """A decision without what its request, or whoever gave it, cannot have."""
        decision = said.decision
        if not isinstance(decision, Approved) or decision.remember == "no":
            return decision
        if request.outcome_unknown or request.rule:
            return replace(decision, remember="no")  # it is about one call
        if decision.remember == "task":
            return decision
        # What one key of a server says holds for no other one's later tasks.
        is_theirs = said.who.key is None or said.who.key == self._decisions.key
        lasts = is_theirs and self._decisions.can_last
        return decision if lasts else replace(decision, remember="task")
