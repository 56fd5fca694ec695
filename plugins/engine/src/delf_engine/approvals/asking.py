"""A request while people are asked, until a channel, the program or another process decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from delf.errors import DelfError, UndecidedCallError, UnknownRequestError
from delf.events import DECISION_WORDS
from delf.protocols.approval import ApprovalRequest, Expired, Rejected
from delf_engine.approvals.ballot import Ballot
from delf_engine.approvals.channels import NamedChannel
from delf_engine.approvals.decision import Answer
from delf_engine.approvals.shared import Approvals
from delf_engine.approvals.talk import RequestRemarks
from delf_engine.journal.log import TaskLog
from delf_engine.task import TaskRequest
from delf_engine.waiting import is_cancelled

_log = logging.getLogger(__name__)

# The maximum length of a channel's error message in the reason of a rejection.
_MAX_FAILURE_LENGTH: Final = 200
_UNASKED: Final = "it needs a person's approval and nobody could be asked"
_ADVICE: Final = (
    "run it on a terminal, let it wait for `delf approvals` (--wait-approvals), allow it "
    "(--approve all); a program gives on_confirm=… or wait_approvals=True"
)
UNANSWERABLE: Final = (
    "nobody can answer it; run the task on a terminal, let it wait for `delf approvals` "
    "(--wait-approvals), give on_ask=… in a program, or give the question a default"
)


class Asking:
    """A request for approval while people are asked.

    Answers come from channels, the program, other processes, votes and the timeout. All of these go
    through the agent's pending requests, where only one answer decides.

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
        self._pending_requests = approvals.pending_requests
        self._task = task
        self._redactor = log.redactor
        self._request = request
        self._ballot = Ballot(request, task.user, log, approvals)
        self._remarks = RequestRemarks(request, log, approvals.channels)
        # The failed channels, each with the reason.
        self._failures: list[str] = []

    async def wait_for_answer(
        self, record_request: Callable[[], Awaitable[None]], *, was_asked_before: bool
    ) -> Answer:
        """Ask people about the request, and return the answer that decides the request.

        The request accepts no more answers after this method has ended.

        Args:
            record_request: Records the request, which observers then see. An answer may arrive
                before this has ended.
            was_asked_before: Whether an earlier process showed the request, so that an answer may
                already exist.

        Raises:
            UndecidedCallError: If nobody decides about an interrupted call. The request stays
                pending in the journal until the task is resumed.
        """
        # Opened before the record, because a person may answer as soon as the request is visible.
        answer_future = self._pending_requests.open(
            self._request, self._ballot.take_answer, self._remarks.schedule_recording
        )
        outcome = "cancelled"
        try:
            await record_request()
            answer = await self._deciding_answer(answer_future, was_asked_before=was_asked_before)
            kind = answer.decision.kind
            outcome = DECISION_WORDS[kind]
            # The caller records the answer next, and the journal must have earlier remarks before
            # it.
            await self._remarks.wait_until_recorded()
            return answer
        finally:
            # A person who answers later gets an error that names the outcome.
            self._pending_requests.close(self._request.request_id, outcome)

    async def _deciding_answer(
        self, answer_future: asyncio.Future[Answer], *, was_asked_before: bool
    ) -> Answer:
        """Ask the channels; return the answer that decides, from a channel or from elsewhere.

        If nobody answers in time, the answer is an expiry. If nobody can answer at all, the answer
        is a rejection.
        """
        asking_channels = asyncio.create_task(self._ask_channels(was_asked_before=was_asked_before))
        seconds = self._approvals.config.approval_timeout
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait(
                    {asking_channels, answer_future}, return_when=asyncio.FIRST_COMPLETED
                )
                if asking_channels.cancelled():
                    _log.error("an approval channel cancelled the task that asked it")
                elif asking_channels.done():
                    asking_channels.result()  # raises the error of a failed journal
                # The votes may add up to a decision, so there is no rejection before the count.
                await self._ballot.wait_until_counted()
                if self._is_undecided and not self._can_be_answered_later:
                    self._reject()
                # The timeout cancels this wait. It would cancel the future as well if the future
                # was awaited directly.
                await asyncio.wait({answer_future})
        except TimeoutError:
            # An answer that a person gives at the moment of the timeout still counts.
            await self._ballot.wait_until_counted()
            expiry = Answer.given(Expired(after_seconds=seconds), "timeout", "clock")
            self._decide_after_asking(expiry, f"nobody answered within {seconds:g} s")
        finally:
            # If the program or another process has decided, the channel must remove its prompt.
            asking_channels.cancel()
        return await answer_future

    @property
    def _is_undecided(self) -> bool:
        """True until the first valid answer."""
        return self._pending_requests.find(self._request.request_id) is not None

    def _reject(self) -> None:
        """Reject the request because nobody can answer."""
        details = f" ({'; '.join(self._failures)})" if self._failures else ""
        if self._request.is_question:
            reason = "; ".join([*self._failures, UNANSWERABLE])
        else:
            reason = f"{_UNASKED}{details}; {_ADVICE}"
        rejection = Answer.given(Rejected(reason=reason), "nobody", "nobody")
        self._decide_after_asking(rejection, f"nobody could be asked about it{details}")

    async def _ask_channels(self, *, was_asked_before: bool) -> None:
        """Ask the channels in order until the request is decided.

        In a resumed task, people may have answered before this process asks anybody. Their answer
        counts, and no channel is asked.
        """
        request = self._request
        if was_asked_before and self._approvals.inbox is not None:
            await self._approvals.inbox.pass_on_earlier_notes(request.task_id)
            if not self._is_undecided:
                return  # answered meanwhile
        for channel in self._approvals.channels_for(self._task, is_question=request.is_question):
            await self._ask_and_submit(channel)
            if not self._is_undecided:
                return  # decided by this channel's answer, or by somebody else

    async def _ask_and_submit(self, channel: NamedChannel) -> None:
        """Ask a channel, and submit its answer.

        A channel that fails, or whose answer is no decision, is skipped. If no channel answers, the
        call is rejected.
        """
        try:
            answer = await channel.ask(self._request)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise  # this task is cancelled; otherwise the channel itself raised the error
            self._redactor.log_failure(_log, f"the approval channel {channel.name!r} failed", error)
            cause = self._redactor.redact_failure(str(error) or type(error).__name__)
            self._failures.append(f"{channel.name} failed: {cause[:_MAX_FAILURE_LENGTH]}")
            return
        if answer is None:
            return
        try:
            self._pending_requests.submit(self._request.request_id, answer)
        except UnknownRequestError as error:
            _log.debug("an answer of %s came late: %s", channel.name, error.message)
        except DelfError as error:
            _log.warning("an answer of %s does not count: %s", channel.name, error.message)
            self._failures.append(f"{channel.name}: {error.message}")

    def _decide_after_asking(self, answer: Answer, reason: str) -> None:
        """Decide the request without a person, unless a person has answered meanwhile.

        Args:
            answer: The expiry after the timeout, or the rejection because nobody can be asked.
            reason: Why no person has decided, such as "nobody answered within 5 s". The message of
                the :class:`UndecidedCallError` ends with this text.

        Raises:
            UndecidedCallError: If the request is about an interrupted call.
        """
        request = self._request
        if request.outcome_unknown and self._is_undecided:
            raise UndecidedCallError(
                f"{request.action} was begun and then interrupted, its end is not recorded, "
                f"and {reason}"
            )
        self._pending_requests.settle(request.request_id, answer)

    @property
    def _can_be_answered_later(self) -> bool:
        """True if a person may answer later, in this program or in another process."""
        return self._approvals.may_wait(self._task, is_question=self._request.is_question)
