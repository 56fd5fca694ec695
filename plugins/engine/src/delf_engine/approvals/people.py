"""The last judge: asks people about calls that no other judge decided."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from delf.protocols.approval import ApprovalRequest, Rejected
from delf_engine.approvals.asking import UNANSWERABLE, Asking
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.judges import Case, Ruling
from delf_engine.approvals.recorder import RequestRecorder
from delf_engine.approvals.remembered import RememberedDecisions
from delf_engine.approvals.shared import Approvals
from delf_engine.journal.log import TaskLog
from delf_engine.task import TaskRequest
from delf_engine.waiting import Permit, TaskClock

_STRICT: Final = Rejected(reason="every action that needs approval is denied")


class PeopleJudge:
    """Asks people about calls that no other judge decided.

    A person can answer a request in an approval channel, such as a terminal or a chat, or through
    the agent's methods. A background task never asks on a terminal.

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
        """Ask a person about an undecided case; journal the request and the answer.

        In the mode ``strict``, the case is rejected instead, and so is a question that nobody can
        answer. If an earlier judge has answered, nobody is asked, and the answer is journalled only
        if ``ruling.needs_journal`` is true.
        """
        if ruling.answer is not None and not ruling.needs_journal:
            return ruling
        request = self._request_of(case, ruling)
        recorder = RequestRecorder(case, request, self._log, self._decisions)
        answer = ruling.answer or self._answer_before_asking(case)
        if answer is None:
            answer = await self._ask_people(case, request, recorder)
        else:
            async with recorder.closed_on_cancellation():
                await recorder.record_request(by_policy=True)
            answer = await recorder.record_answer(answer)
        return replace(ruling, answer=answer)

    def _answer_before_asking(self, case: Case) -> Answer | None:
        """Return the answer to a case about which no person can or may be asked; else None."""
        if case.is_question:
            if self._approvals.can_answer(self._task):
                return None
            return Answer.given(Rejected(reason=UNANSWERABLE), "nobody", "nobody")
        if self._approvals.is_strict:
            return Answer.given(_STRICT, "policy", "mode strict")
        return None

    async def _ask_people(
        self, case: Case, request: ApprovalRequest, recorder: RequestRecorder
    ) -> Answer:
        """Ask people about a request; journal the request and return the recorded answer."""
        asking = Asking(self._approvals, self._task, self._log, request)
        record_request = partial(recorder.record_request, by_policy=False)
        was_asked_before = case.request_event is not None
        # While a person decides, the task's time stops and other tasks may use its permit.
        with self._clock.paused():
            async with self._watched_inbox(), self._permit.released():
                async with recorder.closed_on_cancellation():
                    answer = await asking.wait_for_answer(
                        record_request, was_asked_before=was_asked_before
                    )
                # Recorded before the permit is acquired again, which may take long.
                return await recorder.record_answer(answer)

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

    @asynccontextmanager
    async def _watched_inbox(self) -> AsyncGenerator[None]:
        """Receive answers from other processes within the block, if the agent has an inbox."""
        if self._approvals.inbox is None:
            yield
            return
        async with self._approvals.inbox.watched():
            yield
