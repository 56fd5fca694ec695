"""The approval channels of a request, in their order, ``on_confirm`` among them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from delf.errors import DelfError
from delf.machine.threads import in_own_thread
from delf.protocols.approval import (
    Answered,
    ApprovalChannel,
    ApprovalRequest,
    Approved,
    DecidedBy,
    Decider,
    Decision,
    Rejected,
    SupportsPresence,
    SupportsQuestions,
)
from delf.records import dataclass
from delf_engine.approvals.decision import Answer, check_fits, copy_of_request, well_formed
from delf_engine.redact import Redactor
from delf_engine.task import TaskRequest

_log = logging.getLogger(__name__)

_MAX_FAILURE_LENGTH = 200
"""The maximum length of a channel's error message in the reason of a rejection."""

Confirmed = bool | Decision | None
Confirm = Callable[[ApprovalRequest], Confirmed | Awaitable[Confirmed]]
"""``on_confirm``: returns True, False, a decision, or None to leave it to the next channel."""
AnswerGiven = str | bool | float | Answered | Rejected | None
Ask = Callable[[ApprovalRequest], AnswerGiven | Awaitable[AnswerGiven]]
"""``on_ask``: plain or async; returns the answer, or None to leave it to the next channel."""


@dataclass(frozen=True, slots=True)
class NamedChannel:
    """A channel with its name in events.

    Args:
        name: The name.
        channel: The channel.
        needs_presence: Whether the channel is skipped for tasks that nobody waits for.
    """

    name: str
    channel: ApprovalChannel
    needs_presence: bool = True

    @property
    def can_ask(self) -> bool:
        """False if the channel reports that nobody can answer now; otherwise True."""
        return self.channel.can_ask() if isinstance(self.channel, SupportsPresence) else True


async def ask_channels(
    channels: Sequence[NamedChannel],
    request: ApprovalRequest,
    task: TaskRequest,
    redactor: Redactor,
    failures: list[str],
    count: Callable[[Answer], Answer | None],
) -> Answer | None:
    """Ask the channels in order and return the first answer that counts.

    Each channel gets a copy of the request, so that none can change the call. An invalid answer
    counts as a failure of the channel. A decision of the wrong kind for the request counts as a
    rejection.

    Args:
        channels: The channels.
        request: The request.
        task: The task that asks.
        redactor: Redacts the message of a failure.
        failures: Collects the failure of each channel.
        count: Applies the rule to an answer: None if the answer is not enough.
    """
    for channel in channels:
        if channel.needs_presence and not task.interactive:
            continue
        answer = await _ask_channel(channel, copy_of_request(request), redactor, failures)
        if answer is None:
            continue
        try:
            counted_answer = count(answer)
        except DelfError as error:
            _log.warning("an answer of %s does not count: %s", channel.name, error.message)
            failures.append(f"{channel.name}: {error.message}")
            continue
        if counted_answer is not None:
            return counted_answer
    return None


async def _ask_channel(
    named: NamedChannel, request: ApprovalRequest, redactor: Redactor, failures: list[str]
) -> Answer | None:
    """Return a channel's answer, or None if the channel fails.

    Skipping a failed channel is safe: without any answer, the call is rejected.
    """
    try:
        channel = named.channel
        if not request.is_question:
            decision = await channel.decide(request)
        elif isinstance(channel, SupportsQuestions):
            decision = await channel.answer(request)
        else:
            decision = None
        if decision is None:
            return None
        who = Decider(name=named.name)
        if isinstance(decision, DecidedBy):
            decision, who = decision.decision, decision.who
        return Answer(_reject_if_unfit(request, well_formed(decision)), who)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # this task is cancelled; otherwise the channel itself raised the error
        redactor.log_failure(_log, f"the approval channel {named.name!r} failed", error)
        cause = redactor.failure(str(error) or type(error).__name__)
        failures.append(f"{named.name} failed: {cause[:_MAX_FAILURE_LENGTH]}")
        return None


def _reject_if_unfit(request: ApprovalRequest, decision: Decision) -> Decision:
    """Return the decision, or a rejection if its kind does not fit the request."""
    try:
        check_fits(request, decision)
    except DelfError as error:
        return Rejected(reason=f"{error.message}; {error.hint}" if error.hint else error.message)
    return decision


class _Callback:
    """A program's function that gets requests.

    Args:
        callback: Plain or async. A plain function runs in its own thread, one request at a time,
            because it may read from a terminal.
    """

    def __init__(self, callback: Callable[[ApprovalRequest], object]) -> None:
        self._callback = callback
        self._turn = asyncio.Lock()

    async def _result(self, request: ApprovalRequest) -> Any:
        """Call the function with a request."""
        if inspect.iscoroutinefunction(self._callback):
            return await self._callback(request)
        async with self._turn:
            answer = await in_own_thread(lambda: self._callback(request), "delf-approval")
        return await answer if inspect.isawaitable(answer) else answer


class CallbackChannel(_Callback):
    """``on_confirm`` as a channel: a function that returns True, False, None or a decision."""

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Ask the callback; None leaves the request to the next channel."""
        answer = await self._result(request)
        match answer:
            case None:
                return None
            case True:
                return Approved()
            case False:
                return Rejected()
            case _:
                return _decision_in(answer)


class QuestionCallback(_Callback):
    """``on_ask`` as a channel: a function that returns an answer, None or a decision."""

    async def decide(self, request: ApprovalRequest) -> None:
        """Leave requests for approval to the other channels."""

    async def answer(self, request: ApprovalRequest) -> Decision | None:
        """Ask the callback; None leaves the question to the next channel."""
        answer = await self._result(request)
        if answer is None or isinstance(answer, (Answered, Rejected)):
            return answer
        return Answered(answer)


def _decision_in(answer: object) -> Decision:
    try:
        return well_formed(answer)
    except DelfError as error:
        message = f"on_confirm gave no decision that can be taken: {error.message}"
        return Rejected(reason=f"{message}; it must return True, False or None")
