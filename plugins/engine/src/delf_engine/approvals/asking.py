"""Waiting for the answer to one request, from a channel, another source, or a timeout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from delf.errors import UndecidedCallError
from delf.protocols.approval import ApprovalRequest, Expired, Rejected
from delf_engine.approvals.ballot import Ballot
from delf_engine.approvals.channels import ask_channels
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.shared import Approvals
from delf_engine.approvals.talk import RequestTalk
from delf_engine.journal.log import TaskLog
from delf_engine.task import TaskRequest

_log = logging.getLogger(__name__)

_UNASKED: Final = "it needs a person's approval and nobody could be asked"
_TO_DO: Final = (
    "run it on a terminal, let it wait for `delf approvals` (--wait-approvals), allow it "
    "(--approve all); a program gives on_confirm=… or wait_approvals=True"
)
UNANSWERABLE: Final = (
    "nobody can answer it; run the task on a terminal, let it wait for `delf approvals` "
    "(--wait-approvals), give on_ask=… in a program, or give the question a default"
)
NOBODY: Final = f"{_UNASKED}; {_TO_DO}"


class Asking:
    """Asks about one request; the first of several answers counts.

    Args:
        shared: The parts that the agent's tasks share.
        task: The task.
        log: The log that records votes.
        request: The request.
    """

    def __init__(
        self, shared: Approvals, task: TaskRequest, log: TaskLog, request: ApprovalRequest
    ) -> None:
        self._shared = shared
        self._task = task
        self._redactor = log.redactor
        self._request = request
        self._ballot = Ballot(request, task.on_behalf_of, log, shared)
        self._talk = RequestTalk(request, log, shared.channels)
        self._failures: list[str] = []
        """The failed channels, each with the reason."""

    async def answer(self, announced: Awaitable[None], *, asks_again: bool) -> Answer:
        """Wait for the answer; if cancelled meanwhile, close the request to later answers.

        Args:
            announced: Shows the request to observers; an answer may arrive earlier.
            asks_again: Whether the request was pending before, so that an answer may exist already.
        """
        pending = self._shared.pending
        request_id = self._request.request_id
        external_answer = pending.open(self._request, self._ballot.take, self._talk.take)
        outcome = "cancelled"
        try:
            await announced
            answer = await self._first_in_time(external_answer, asks_again=asks_again)
            if not pending.withdraw(request_id):
                answer = await external_answer  # another source answered first
            outcome = type(answer.decision).__name__.lower()
            await self._talk.ended()
            return answer
        finally:
            pending.close(request_id, outcome)

    async def _first_in_time(
        self, external_answer: asyncio.Future[Answer], *, asks_again: bool
    ) -> Answer:
        """Return the first answer, or an expiry at the end of the request's time.

        Raises:
            UndecidedCallError: If nobody decides about an interrupted call. The request stays
                pending in the journal until the task is resumed.
        """
        seconds = self._shared.config.approval_timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._first(external_answer, asks_again=asks_again)
        except TimeoutError:
            if self._request.outcome_unknown:
                raise self._undecided(f"nobody answered within {seconds:g} s") from None
            return Answer.given(Expired(after_seconds=seconds), "timeout", "clock")

    async def _first(self, external_answer: asyncio.Future[Answer], *, asks_again: bool) -> Answer:
        """Return the first answer of a channel, or of the other sources if no channel has one."""
        channels = asyncio.create_task(self._ask_channels(asks_again=asks_again))
        try:
            await asyncio.wait({channels, external_answer}, return_when=asyncio.FIRST_COMPLETED)
            if external_answer.done():
                return external_answer.result()
            if channels.cancelled():
                _log.error("an approval channel cancelled the task that asked it")
            elif (answer := channels.result()) is not None:
                return answer
        finally:
            # The first answer counts, so that prompts of other channels disappear.
            channels.cancel()
        await self._ballot.counted()  # votes from several channels may add up to a decision
        if external_answer.done() or self._may_wait:
            return await asyncio.shield(external_answer)
        if self._request.outcome_unknown:
            details = f" ({'; '.join(self._failures)})" if self._failures else ""
            raise self._undecided(f"nobody could be asked about it{details}")
        reason = f"{_UNASKED} ({'; '.join(self._failures)}); {_TO_DO}" if self._failures else NOBODY
        if self._request.is_question:
            reason = "; ".join([*self._failures, UNANSWERABLE])
        return Answer.given(Rejected(reason=reason), "nobody", "nobody")

    async def _ask_channels(self, *, asks_again: bool) -> Answer | None:
        """Return the first valid answer of a channel; None if no channel gives one."""
        if asks_again and self._shared.inbox is not None:
            await self._shared.inbox.take_earlier(self._request.task_id)
            if self._shared.pending.find(self._request.request_id) is None:
                return None  # answered meanwhile
        channels = self._shared.channels
        if self._request.is_question:
            channels = self._shared.question_channels(self._task)
        return await ask_channels(
            channels,
            self._request,
            self._task,
            self._redactor,
            self._failures,
            self._ballot.take,
        )

    @property
    def _may_wait(self) -> bool:
        """True if a person may answer later, through the program or another process."""
        return self._shared.may_wait(self._task, is_question=self._request.is_question)

    def _undecided(self, reason: str) -> UndecidedCallError:
        return UndecidedCallError(
            f"{self._request.action} was begun and then interrupted, its end is not recorded, "
            f"and {reason}"
        )
