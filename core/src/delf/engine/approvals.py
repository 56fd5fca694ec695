"""Who decides about a call: the mode, what was remembered, then the channels in order."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import inspect
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delf.engine.log import TaskLog
from delf.engine.order import TaskOrder
from delf.engine.past import PastCall
from delf.engine.pending import PendingRequests
from delf.engine.slots import Slot
from delf.engine.toolset import BoundAction
from delf.events import ApprovalDecided, ApprovalRequested
from delf.protocols.approval import (
    ApprovalChannel,
    ApprovalRequest,
    Approved,
    Decision,
    Edited,
    Expired,
    Rejected,
    Settled,
)
from delf.types import ApprovalMode
from delf.values import dumps

_log = logging.getLogger(__name__)

NOBODY = (
    "it needs a person's approval and nobody could be asked; run it on a terminal, pass "
    "on_confirm=…, or allow it with --approve all or confirm=False"
)


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


def call_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """SHA-256 over an action's name and its arguments, the identity of a call."""
    content = dumps([name, dict(sorted(arguments.items()))])
    return hashlib.sha256(content).hexdigest()


class Approvals:
    """The approvals of one agent; what is remembered for the session lives here.

    Args:
        mode: Ask, approve everything, or deny everything.
        channels: Who is asked, in order.
        timeout: Seconds until a request expires, which counts as no.
        pending: Where requests wait, for answers through the agent.
    """

    def __init__(
        self,
        mode: ApprovalMode,
        channels: Sequence[NamedChannel],
        timeout: float,
        pending: PendingRequests,
    ) -> None:
        self.mode: ApprovalMode = mode
        self.channels = tuple(channels)
        self.timeout = timeout
        self.session: set[str] = set()
        self.pending = pending

    def for_task(self, order: TaskOrder, log: TaskLog, slot: Slot) -> TaskApprovals:
        """The same for one task, with its own memory beside the session's."""
        return TaskApprovals(self, order, log, slot)


class TaskApprovals:
    """Decides about the calls of one task. Each request is journalled and used once.

    A request can be answered by a channel or, at any time, through the agent: what comes
    first counts. Nobody waits on a terminal for a task that runs in the background.

    Args:
        shared: What the agent's tasks share.
        order: The task.
        log: Where requests and decisions are recorded.
        slot: The task's place among those that run, given up while a person decides.
    """

    def __init__(self, shared: Approvals, order: TaskOrder, log: TaskLog, slot: Slot) -> None:
        self._shared = shared
        self._order = order
        self._log = log
        self._slot = slot
        self._remembered: set[str] = set()

    async def decide(
        self,
        bound: BoundAction,
        arguments: Mapping[str, Any],
        digest: str,
        call_id: int,
        description: str | None,
        *,
        past: PastCall | None = None,
        unsettled: bool = False,
    ) -> Decision:
        """The decision about a call.

        Args:
            bound: The action.
            arguments: Its validated arguments.
            digest: The call's identity.
            call_id: The call's number in the task.
            description: The script's ``desc=``.
            past: The call in the journal of a resumed task: a decision there is the decision,
                and a request there is the request that waits.
            unsettled: The question is whether to make a call again that was begun.
        """
        if not unsettled and (digest in self._remembered or digest in self._shared.session):
            return Approved(reason="remembered")
        asked, decided = (None, None) if past is None else past.question_of(unsettled=unsettled)
        if decided is not None:
            return _recorded(decided)
        request = ApprovalRequest(
            request_id=f"req_{secrets.token_hex(8)}" if asked is None else asked.request_id,
            task_id=self._log.task_id,
            task=self._order.task,
            action=bound.name,
            permission=bound.action.permission,
            effect=bound.action.effect,
            arguments=arguments,
            description=description,
            digest=digest,
            unsettled=unsettled,
        )
        if asked is None:
            await self._log.record(
                ApprovalRequested,
                request_id=request.request_id,
                call_id=call_id,
                action=request.action,
                arguments=arguments,
                effect=request.effect,
                digest=digest,
                description=description,
                unsettled=unsettled,
            )
        try:
            decision, by = await self._ask(request)
        except asyncio.CancelledError:
            await self._log.record(
                ApprovalDecided,
                request_id=request.request_id,
                decision="expired",
                by="script",
                reason="the call was given up before anybody answered",
            )
            raise
        if isinstance(decision, Approved) and decision.remember != "no":
            everywhere = decision.remember == "session"
            (self._shared.session if everywhere else self._remembered).add(digest)
        await self._record(request, decision, by)
        return decision

    async def _ask(self, request: ApprovalRequest) -> tuple[Decision, str]:
        if self._shared.mode == "approve_all" and not request.unsettled:
            return Approved(), "mode approve_all"
        if self._shared.mode == "strict":
            return Rejected(reason="every action that needs approval is denied"), "mode strict"
        answer = self._shared.pending.open(request)
        how = "cancelled"
        try:
            async with self._slot.given_up():
                decision, by = await self._first_answer(request, answer)
            how = type(decision).__name__.lower()
        finally:
            self._shared.pending.close(request.request_id, how)
        return decision, by

    async def _first_answer(
        self, request: ApprovalRequest, answer: asyncio.Future[Decision]
    ) -> tuple[Decision, str]:
        asking = asyncio.ensure_future(self._ask_channels(request))
        try:
            async with asyncio.timeout(self._shared.timeout):
                await asyncio.wait({asking, answer}, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    return answer.result(), "agent"
                decided = asking.result()
                if decided is not None:
                    return decided
                if self._order.attended:
                    return Rejected(reason=NOBODY), "nobody"
                return await asyncio.shield(answer), "agent"
        except TimeoutError:
            return Expired(after_seconds=self._shared.timeout), "clock"
        finally:
            asking.cancel()

    async def _ask_channels(self, request: ApprovalRequest) -> tuple[Decision, str] | None:
        for named in self._shared.channels:
            if named.needs_presence and not self._order.attended:
                continue
            decision = await _ask_channel(named, request)
            if decision is not None:
                return decision, named.name
        return None

    async def _record(self, request: ApprovalRequest, decision: Decision, by: str) -> None:
        kind, reason, arguments, result = "approved", None, None, None
        match decision:
            case Approved(reason=said):
                reason = said
            case Edited(arguments=changed):
                kind, arguments = "edited", dict(changed)
            case Rejected(reason=said):
                kind, reason = "rejected", said
            case Settled(result=result, reason=said):
                kind, reason = "settled", said
            case Expired(after_seconds=seconds):
                kind, reason = "expired", f"nobody answered within {seconds:g} s"
        await self._log.record(
            ApprovalDecided,
            request_id=request.request_id,
            decision=kind,
            by=by,
            reason=reason,
            arguments=arguments,
            result=result,
        )


def _recorded(event: ApprovalDecided) -> Decision:
    """The decision that an event tells of."""
    match event.decision:
        case "approved":
            return Approved(reason=event.reason)
        case "edited":
            return Edited(arguments=event.arguments or {})
        case "settled":
            return Settled(result=event.result, reason=event.reason)
        case "rejected" | "expired":
            return Rejected(reason=event.reason or event.decision)


async def _ask_channel(named: NamedChannel, request: ApprovalRequest) -> Decision | None:
    """A channel's answer; one that fails is passed over, which can only end in a no."""
    try:
        return await named.channel.decide(request)
    except Exception:
        _log.exception("the approval channel %r failed", named.name)
        return None


class CallbackChannel:
    """``on_confirm`` as a channel.

    Args:
        callback: Plain or async; gets the request and returns True, False, None (leave it
            to the next channel) or a decision. A plain one runs in a thread of its own.
    """

    def __init__(self, callback: Callable[[ApprovalRequest], Any]) -> None:
        self._callback = callback

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Ask the callback."""
        if inspect.iscoroutinefunction(self._callback):
            answer = await self._callback(request)
        else:
            answer = await in_own_thread(lambda: self._callback(request))
            if inspect.isawaitable(answer):
                answer = await answer
        match answer:
            case None:
                return None
            case True:
                return Approved()
            case False:
                return Rejected(reason="rejected by on_confirm")
            case Approved() | Edited() | Rejected() | Settled():
                return answer
            case _:
                return Rejected(
                    reason=f"on_confirm returned {type(answer).__name__}; "
                    "it must return True, False or None"
                )


async def in_own_thread(function: Callable[[], Any]) -> Any:
    """Run something that may wait for a person in a thread that no other work needs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(result) if error is None else future.set_exception(error)

    def run() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = function()
        except BaseException as error:
            failure = error if _can_be_passed(error) else RuntimeError(repr(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="delf-approval", daemon=True).start()
    return await future


def _can_be_passed(error: BaseException) -> bool:
    """Whether an exception may leave a future: others would end the event loop or hang it."""
    return isinstance(error, Exception) and not isinstance(error, StopIteration)
