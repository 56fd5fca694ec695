"""Waiting for the answer to one request: from a channel, another source, or the clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Final

from delf.errors import ConfigurationError, DelfError, UndecidedCallError
from delf.events import ApprovalVoted
from delf.protocols.approval import ApprovalRequest, Expired, Rejected
from delf.protocols.people import Person
from delf.protocols.rules import ApprovalRule
from delf.protocols.shared_journal import SharedJournal
from delf_engine.approvals.ballot import Ballot, votes_in
from delf_engine.approvals.channels import ask_channels
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.pending import Count
from delf_engine.approvals.shared import Approvals
from delf_engine.journal.log import TaskLog
from delf_engine.task import TaskRequest

_log = logging.getLogger(__name__)

_UNASKED: Final = "it needs a person's approval and nobody could be asked"
_TO_DO: Final = (
    "run it on a terminal, let it wait for `delf approvals` (--wait-approvals), allow it "
    "(--approve all); a program gives on_confirm=… or wait_approvals=True"
)
NOBODY: Final = f"{_UNASKED}; {_TO_DO}"


class Asking:
    """Asks about the requests of one task, and converts answers by the team's rule.

    Args:
        shared: The parts that the agent's tasks share.
        task: The task.
        log: Where votes are recorded.
    """

    def __init__(self, shared: Approvals, task: TaskRequest, log: TaskLog) -> None:
        self._shared = shared
        self._task = task
        self._log = log
        self._closing: set[asyncio.Task[None]] = set()
        self._in_turn = asyncio.Lock()

    async def answer(
        self, request: ApprovalRequest, announced: Awaitable[None], *, since: float | None
    ) -> Answer:
        """Wait for the answer. Cancelled meanwhile, the request takes none any more.

        Args:
            request: The request; it can be answered before anybody sees it.
            announced: Lets those who look on see it.
            since: Since when it waits, where others saw it wait before.
        """
        pending = self._shared.pending
        count = self._counting(request)
        answer = pending.open(request, count)
        asking: asyncio.Task[Answer | None] | None = None
        how = "cancelled"
        failures: list[str] = []
        try:
            await announced
            is_again = since is not None
            asking = asyncio.create_task(
                self._ask_channels(request, failures, count, again=is_again)
            )
            answered = await self._first_answer(request, asking, answer, failures)
            if not pending.withdraw(request.request_id):
                answered = await answer  # its giver already knows that it counts
            how = type(answered.decision).__name__.lower()
            return answered
        finally:
            if asking is not None:
                asking.cancel()
            pending.close(request.request_id, how)

    async def _first_answer(
        self,
        request: ApprovalRequest,
        asking: asyncio.Task[Answer | None],
        answer: asyncio.Future[Answer],
        failures: Sequence[str],
    ) -> Answer:
        """Return the first answer of a channel or of another source.

        Args:
            request: The request.
            asking: Asks the channels.
            answer: The answer of other sources.
            failures: The channels that have failed by the end of ``asking``.

        Raises:
            UndecidedCallError: If nobody decides about an interrupted call. The request stays
                pending in the journal, for whoever resumes the task.
        """
        try:
            async with asyncio.timeout(self._shared.config.approval_timeout):
                await asyncio.wait({asking, answer}, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    return answer.result()
                if asking.cancelled():
                    _log.error("an approval channel cancelled the task that asked it")
                answered = None if asking.cancelled() else asking.result()
                if answered is not None:
                    return answered
                await asyncio.sleep(0)  # votes of channels may decide together
                while self._closing:
                    await asyncio.wait({*self._closing})
                    await asyncio.sleep(0)
                if answer.done():
                    return answer.result()
                if not (
                    self._task.wait_approvals
                    or self._shared.config.wait_approvals
                    or self._shared.pending.watched
                ):
                    if request.outcome_unknown:
                        details = f" ({'; '.join(failures)})" if failures else ""
                        raise _undecided(request, f"nobody could be asked about it{details}")
                    return Answer.given(Rejected(reason=_nobody(failures)), "nobody", "nobody")
                return await asyncio.shield(answer)
        except TimeoutError:
            if request.outcome_unknown:
                why = f"nobody answered within {self._shared.config.approval_timeout:g} s"
                raise _undecided(request, why) from None
            expired = Expired(after_seconds=self._shared.config.approval_timeout)
            return Answer.given(expired, "timeout", "clock")

    def _counting(self, request: ApprovalRequest) -> Count:
        """Apply the rule of a request to its answers."""
        rule = ApprovalRule.of(request.rule)
        if rule is None:
            return lambda answer: answer
        loop, asker = asyncio.get_running_loop(), self._task.on_behalf_of
        recorded = votes_in(self._log.events, request.request_id)
        ballot = Ballot(rule, asker, request.shaped_by, recorded)

        def begin_to_close(answer: Answer) -> None:
            closing = asyncio.create_task(self._close(request.request_id, ballot, answer))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

        def count(answer: Answer) -> Answer | None:
            if ballot.cast(answer):
                return answer
            # Who was removed meanwhile is looked up first, which the caller cannot wait for.
            loop.call_soon_threadsafe(begin_to_close, answer)
            return None

        return count

    async def _close(self, request_id: str, ballot: Ballot, answer: Answer) -> None:
        """Count a vote: it is recorded, or decides the request with those before it."""
        async with self._in_turn:
            if self._shared.pending.find(request_id) is None:
                return  # somebody rejected it meanwhile
            try:
                people = await self._people()
            except DelfError as error:
                ballot.withdraw(answer)
                _log.error("a vote about %s was not counted: %s", request_id, error.message)
                return
            final = ballot.close(answer, votes_in(self._log.events, request_id), people)
            if final is not None:
                self._shared.pending.settle(request_id, final)
                return
            await self._log.record(
                ApprovalVoted,
                request_id=request_id,
                by=answer.who.name,
                reason=getattr(answer.decision, "reason", None),
                key=answer.who.key,
                teams=answer.who.teams,
                note=answer.note,
                via=answer.who.via,
            )

    async def _people(self) -> Sequence[Person]:
        """Everybody whom the journal knows; nobody where it keeps no people."""
        journal = self._shared.journal
        if not isinstance(journal, SharedJournal):
            return ()
        try:
            return await journal.people()
        except ConfigurationError:
            return ()

    async def _ask_channels(
        self, request: ApprovalRequest, failures: list[str], count: Count, *, again: bool
    ) -> Answer | None:
        if again and self._shared.inbox is not None:
            await self._shared.inbox.take_earlier(request.task_id)
            if self._shared.pending.find(request.request_id) is None:
                return None  # it was answered meanwhile
        channels, redactor = self._shared.channels, self._log.redactor
        return await ask_channels(channels, request, self._task, redactor, failures, count)


def _nobody(failures: Sequence[str]) -> str:
    """Return the reason for an unanswered rejection, with the failed channels."""
    return f"{_UNASKED} ({'; '.join(failures)}); {_TO_DO}" if failures else NOBODY


def _undecided(request: ApprovalRequest, why: str) -> UndecidedCallError:
    return UndecidedCallError(
        f"{request.action} was begun and then interrupted, its end is not recorded, and {why}"
    )
