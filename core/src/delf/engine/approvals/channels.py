"""The channels that are asked about a request, in their order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from delf.engine.approvals.decision import Answer
from delf.engine.request import TaskOrder
from delf.engine.secrets.redaction import Redactor
from delf.protocols.approval import ApprovalChannel, ApprovalRequest, Decision

_log = logging.getLogger(__name__)


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
    order: TaskOrder,
    redactor: Redactor,
) -> Answer | None:
    """What the first channel says that says anything.

    Args:
        channels: Who is asked, in order.
        request: The request.
        order: The task.
        redactor: Keeps secrets out of the log when a channel fails.
    """
    for named in channels:
        if named.needs_presence and not order.attended:
            continue
        decision = await _ask_channel(named, request, redactor)
        if decision is not None:
            return Answer(decision, named.name)
    return None


async def _ask_channel(
    named: NamedChannel, request: ApprovalRequest, redactor: Redactor
) -> Decision | None:
    """A channel's answer; one that fails is passed over, which can only end in a no."""
    try:
        return await named.channel.decide(request)
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # it does not wait any more; a channel can raise the same by itself
        redactor.log_failure(_log, f"the approval channel {named.name!r} failed", error)
        return None
