"""The approval channels of an agent, ``on_confirm`` and ``on_ask`` among them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
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
from delf_engine.approvals.decision import (
    Answer,
    checked_decision,
    copy_of_request,
    fitting_decision,
)

Confirmed = bool | Decision | None
Confirm = Callable[[ApprovalRequest], Confirmed | Awaitable[Confirmed]]
"""A type of ``on_confirm``: returns True, False or a decision; None asks the next channel."""
AnswerGiven = str | bool | float | Answered | Rejected | None
Ask = Callable[[ApprovalRequest], AnswerGiven | Awaitable[AnswerGiven]]
"""The type of the callback ``on_ask``, which may be async.

It returns the answer, or None to leave the question to the next approval channel.
"""


@dataclass(frozen=True, slots=True)
class NamedChannel:
    """A channel, with the name that events use for the channel.

    Args:
        name: The name.
        channel: The channel.
        needs_presence: Whether the channel needs a person who waits for the task; the channel is
            skipped for background tasks.
    """

    name: str
    channel: ApprovalChannel
    needs_presence: bool = True

    @property
    def can_ask(self) -> bool:
        """False if the channel reports that nobody can answer now; otherwise True."""
        if isinstance(self.channel, SupportsPresence):
            return self.channel.can_ask()
        return True

    async def ask(self, request: ApprovalRequest) -> Answer | None:
        """Ask the channel; None leaves the request to the next channel.

        A decision of a kind that the request does not accept is returned as a rejection.

        Raises:
            DelfError: If the channel returns neither a decision nor None.
        """
        # The channel gets a copy, and so cannot change the call.
        if not request.is_question:
            reply = await self.channel.decide(copy_of_request(request))
        elif isinstance(self.channel, SupportsQuestions):
            reply = await self.channel.answer(copy_of_request(request))
        else:
            return None
        if reply is None:
            return None
        if isinstance(reply, DecidedBy):
            return Answer(fitting_decision(request, reply.decision), reply.who)
        return Answer(fitting_decision(request, reply), Decider(name=self.name))


class _Callback:
    """A function of the program that answers approval requests or questions.

    Args:
        callback: Plain or async. A plain function runs in its own thread, one request at a time,
            because it may read from a terminal.
    """

    def __init__(self, callback: Callable[[ApprovalRequest], object]) -> None:
        self._callback = callback
        self._callback_lock = asyncio.Lock()

    async def _call_back(self, request: ApprovalRequest) -> Any:
        """Call the user's function; a plain one runs in a thread, one request at a time."""
        if inspect.iscoroutinefunction(self._callback):
            return await self._callback(request)
        async with self._callback_lock:
            answer = await in_own_thread(lambda: self._callback(request), "delf-approval")
        # A plain function such as ``lambda request: ask(request)`` may return a coroutine.
        return await answer if inspect.isawaitable(answer) else answer


class CallbackChannel(_Callback):
    """``on_confirm`` as a channel: a function that returns True, False, None or a decision."""

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Ask the callback; None leaves the request to the next channel."""
        answer = await self._call_back(request)
        match answer:
            case None:
                return None
            case True:
                return Approved()
            case False:
                return Rejected()
            case _:
                return _valid_decision(answer)


class QuestionCallback(_Callback):
    """A channel that calls the agent's callback ``on_ask``, which may return an answer or None."""

    async def decide(self, request: ApprovalRequest) -> None:
        """Leave requests for approval to the other channels."""

    async def answer(self, request: ApprovalRequest) -> Decision | None:
        """Ask the callback; None leaves the question to the next channel."""
        answer = await self._call_back(request)
        if answer is None or isinstance(answer, (Answered, Rejected)):
            return answer
        return Answered(answer)


def _valid_decision(answer: object) -> Decision:
    """Return the answer if it is a valid decision.

    Raises:
        DelfError: If the answer is not a decision.
    """
    try:
        return checked_decision(answer)
    except DelfError as error:
        raise DelfError(
            f"{error.message}; the function must return True, False, None or a decision"
        ) from None
