"""Who decides about a call: the mode, what was remembered, then the channels in order."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delf.engine.log import TaskLog
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
    """A channel with the name that events give it."""

    name: str
    channel: ApprovalChannel


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
    """

    def __init__(
        self, mode: ApprovalMode, channels: Sequence[NamedChannel], timeout: float
    ) -> None:
        self._mode: ApprovalMode = mode
        self._channels = tuple(channels)
        self._timeout = timeout
        self._session: set[str] = set()

    def for_task(self, task: str, log: TaskLog) -> TaskApprovals:
        """The same for one task, with its own memory beside the session's."""
        return TaskApprovals(self._mode, self._channels, self._timeout, self._session, task, log)


class TaskApprovals:
    """Decides about the calls of one task. Each request is journalled and used once."""

    def __init__(
        self,
        mode: ApprovalMode,
        channels: Sequence[NamedChannel],
        timeout: float,
        session: set[str],
        task: str,
        log: TaskLog,
    ) -> None:
        self._mode = mode
        self._channels = channels
        self._timeout = timeout
        self._session = session
        self._remembered: set[str] = set()
        self._task = task
        self._log = log

    async def decide(
        self,
        bound: BoundAction,
        arguments: Mapping[str, Any],
        digest: str,
        call_id: int,
        description: str | None,
    ) -> Decision:
        """The decision about a call.

        Args:
            bound: The action.
            arguments: Its validated arguments.
            digest: The call's identity.
            call_id: The call's number in the task.
            description: The script's ``desc=``.
        """
        if digest in self._remembered or digest in self._session:
            return Approved(reason="remembered")
        request = ApprovalRequest(
            request_id=f"req_{secrets.token_hex(8)}",
            task_id=self._log.task_id,
            task=self._task,
            action=bound.name,
            permission=bound.action.permission,
            effect=bound.action.effect,
            arguments=arguments,
            description=description,
            digest=digest,
        )
        await self._log.record(
            ApprovalRequested,
            request_id=request.request_id,
            call_id=call_id,
            action=request.action,
            arguments=arguments,
            effect=request.effect,
            digest=digest,
            description=description,
        )
        decision, by = await self._ask(request)
        if isinstance(decision, Approved) and decision.remember != "no":
            (self._session if decision.remember == "session" else self._remembered).add(digest)
        await self._record(request, decision, by)
        return decision

    async def _ask(self, request: ApprovalRequest) -> tuple[Decision, str]:
        if self._mode == "approve_all":
            return Approved(), "mode approve_all"
        if self._mode == "strict":
            return Rejected(reason="every action that needs approval is denied"), "mode strict"
        try:
            async with asyncio.timeout(self._timeout):
                for named in self._channels:
                    decision = await _ask_channel(named, request)
                    if decision is not None:
                        return decision, named.name
        except TimeoutError:
            return Expired(after_seconds=self._timeout), "clock"
        return Rejected(reason=NOBODY), "nobody"

    async def _record(self, request: ApprovalRequest, decision: Decision, by: str) -> None:
        kind, reason, arguments = "approved", None, None
        match decision:
            case Approved(reason=said):
                reason = said
            case Edited(arguments=changed):
                kind, arguments = "edited", dict(changed)
            case Rejected(reason=said):
                kind, reason = "rejected", said
            case Expired(after_seconds=seconds):
                kind, reason = "expired", f"nobody answered within {seconds:g} s"
        await self._log.record(
            ApprovalDecided,
            request_id=request.request_id,
            decision=kind,
            by=by,
            reason=reason,
            arguments=arguments,
        )


async def _ask_channel(named: NamedChannel, request: ApprovalRequest) -> Decision | None:
    """A channel's answer; one that fails is passed over, which can only end in a no."""
    try:
        return await named.channel.decide(request)
    except TimeoutError:
        raise
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
            case Approved() | Edited() | Rejected():
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
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="delf-approval", daemon=True).start()
    return await future
