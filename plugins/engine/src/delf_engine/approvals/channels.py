"""The approval channels of a request, in their order, ``on_confirm`` among them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from delf.errors import DelfError
from delf.machine.threads import in_own_thread
from delf.protocols.approval import (
    ApprovalChannel,
    ApprovalRequest,
    Approved,
    DecidedBy,
    Decider,
    Decision,
    Rejected,
)
from delf.records import dataclass
from delf_engine.approvals.decision import Answer, check_fits, copy_of, well_formed
from delf_engine.redact import Redactor
from delf_engine.task import TaskRequest

_log = logging.getLogger(__name__)

_MOST_OF_A_FAILURE = 200
"""The maximum number of characters of a channel's failure, shown in one line of the rejection."""

_OPEN: Final = ("arguments", "defaults", "effects", "origins", "rule")
"""The fields of a request that a channel could mutate."""


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
    for named in channels:
        if named.needs_presence and not task.interactive:
            continue
        shown = replace(request, **{name: copy_of(getattr(request, name)) for name in _OPEN})
        decision = await _ask_channel(named, shown, redactor, failures)
        if decision is None:
            continue
        if not isinstance(decision, DecidedBy):
            decision = DecidedBy(decision=decision, who=Decider(name=named.name))
        answer = Answer(decision.decision, decision.who)
        try:
            counted = count(answer)
        except DelfError as error:
            _log.warning("an answer of %s does not count: %s", named.name, error.message)
            failures.append(f"{named.name}: {error.message}")
            continue
        if counted is not None:
            return counted
    return None


async def _ask_channel(
    named: NamedChannel, request: ApprovalRequest, redactor: Redactor, failures: list[str]
) -> Decision | DecidedBy | None:
    """Return a channel's answer, or None if the channel fails.

    A skipped channel can only lead to a rejection.
    """
    try:
        answer = await named.channel.decide(request)
        if isinstance(answer, DecidedBy):
            return replace(answer, decision=_fitting(request, well_formed(answer.decision)))
        return None if answer is None else _fitting(request, well_formed(answer))
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it does not wait any more; a channel can raise the same by itself
        redactor.log_failure(_log, f"the approval channel {named.name!r} failed", error)
        why = redactor.text(str(error) or type(error).__name__)
        failures.append(f"{named.name} failed: {why[:_MOST_OF_A_FAILURE]}")
        return None


def _fitting(request: ApprovalRequest, decision: Decision) -> Decision:
    """Return a decision; a decision of the wrong kind for the request becomes a rejection."""
    try:
        check_fits(request, decision)
    except DelfError as error:
        return Rejected(reason=f"{error.message}; {error.hint}" if error.hint else error.message)
    return decision


class CallbackChannel:
    """``on_confirm`` as a channel.

    Args:
        callback: Plain or async; gets the request and returns True, False, None (leave it to the
            next channel) or a decision. A plain function runs in its own thread, one question at a
            time, because it may read from a terminal.
    """

    def __init__(self, callback: Callable[[ApprovalRequest], Any]) -> None:
        self._callback = callback
        self._turn = asyncio.Lock()

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Ask the callback."""
        if inspect.iscoroutinefunction(self._callback):
            answer = await self._callback(request)
        else:
            async with self._turn:
                answer = await in_own_thread(lambda: self._callback(request), "delf-approval")
            if inspect.isawaitable(answer):
                answer = await answer
        match answer:
            case None:
                return None
            case True:
                return Approved()
            case False:
                return Rejected()
            case _:
                return _decision_in(answer)


def _decision_in(answer: object) -> Decision:
    try:
        return well_formed(answer)
    except DelfError as error:
        why = f"on_confirm gave no decision that can be taken: {error.message}"
        return Rejected(reason=f"{why}; it must return True, False or None")
