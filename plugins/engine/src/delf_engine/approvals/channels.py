"""The channels that are asked about a request, in their order; ``on_confirm`` is one of them."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
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
from delf_engine.approvals.decision import Answer, check_fits, well_formed
from delf_engine.redact import Redactor
from delf_engine.task import TaskRequest

_log = logging.getLogger(__name__)

_MOST_OF_A_FAILURE = 200
"""Characters of a channel's failure: a person reads it in one line of the rejection."""

_OPEN: Final = ("arguments", "defaults", "effects", "origins", "rule")
"""The fields of a request that a channel could change."""


@dataclass(frozen=True, slots=True)
class NamedChannel:
    """A channel with the name that events give it.

    Args:
        name: Its name.
        channel: The channel.
        needs_presence: Whether it is left out for tasks that nobody waits for.
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

    Each gets a copy of the request, so that none can change the call. What is not a decision is a
    failure of the channel, and what the request cannot have is a no.

    Args:
        channels: The channels.
        request: What is asked.
        task: The task that asks.
        redactor: Takes secrets out of what is told of a failure.
        failures: Each channel that fails is told here.
        count: Makes an answer what it counts for: None where it is not enough.
    """
    for named in channels:
        if named.needs_presence and not task.attended:
            continue
        own = {name: copy_of(getattr(request, name)) for name in _OPEN}
        shown = replace(request, **own)
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
    """A channel's answer; one that fails is passed over, which can only end in a no."""
    try:
        said = await named.channel.decide(request)
        if isinstance(said, DecidedBy):
            return replace(said, decision=_fitting(request, well_formed(said.decision)))
        return None if said is None else _fitting(request, well_formed(said))
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it does not wait any more; a channel can raise the same by itself
        redactor.log_failure(_log, f"the approval channel {named.name!r} failed", error)
        why = redactor.text(str(error) or type(error).__name__)
        failures.append(f"{named.name} failed: {why[:_MOST_OF_A_FAILURE]}")
        return None


def _fitting(request: ApprovalRequest, decision: Decision) -> Decision:
    """A decision; one that the request cannot have is a no."""
    try:
        check_fits(request, decision)
    except DelfError as error:
        return Rejected(reason=f"{error.message}; {error.hint}" if error.hint else error.message)
    return decision


def copy_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for somebody else to read; what cannot be copied cannot be changed by accident."""
    copied: dict[str, Any] = {}
    for name, value in arguments.items():
        try:
            copied[name] = copy.deepcopy(value)
        except Exception:  # an object of the author's own may raise anything
            copied[name] = repr(value)
    return copied


class CallbackChannel:
    """``on_confirm`` as a channel.

    Args:
        callback: Plain or async; gets the request and returns True, False, None (leave it
            to the next channel) or a decision. A plain one runs in a thread of its own, and is
            asked one question at a time, as it may read its answer from a terminal.
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
