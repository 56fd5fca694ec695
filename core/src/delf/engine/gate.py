"""The gate: the one path that every call takes on the host.

known → allowed → arguments valid → approval → call → record
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from delf.actions import Action
from delf.engine.approvals import TaskApprovals, call_digest
from delf.engine.log import TaskLog
from delf.engine.toolset import BoundAction, Toolset
from delf.errors import DelfError, ToolException, ToolRefusedError
from delf.events import CallFinished, CallStarted, CallStatus
from delf.protocols.approval import Approved, Edited, Expired, Rejected
from delf.protocols.sandbox import CallAnswer, CallRequest, Raised, Returned, Told
from delf.values import UnsupportedValueError, dumps

_MAX_MESSAGE = 4000


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that was found and whose arguments fit."""

    number: int
    bound: BoundAction
    arguments: dict[str, Any]
    description: str | None
    digest: str


class Gate:
    """Checks and makes the calls of one task.

    Args:
        tools: What may be called.
        approvals: Who decides where a person is asked.
        log: Where every call is recorded.
        executor: Where plain functions run.
        max_result_bytes: The largest result that can be passed to a script.
    """

    def __init__(
        self,
        tools: Toolset,
        approvals: TaskApprovals,
        log: TaskLog,
        executor: Executor,
        max_result_bytes: int,
    ) -> None:
        self._tools = tools
        self._approvals = approvals
        self._log = log
        self._executor = executor
        self._max_result_bytes = max_result_bytes
        self._numbers = itertools.count(1)
        self._closed = False

    def close(self) -> None:
        """The task is over: no call starts any more."""
        self._closed = True

    async def call(self, request: CallRequest) -> CallAnswer:
        """Make a call if it may be made. Everything that becomes of it is an answer."""
        number = next(self._numbers)
        name = f"{request.connection}.{request.method}" if request.method else request.connection
        if self._closed:
            return Raised("ToolError", "the task is over; no call is made any more")
        try:
            bound = self._tools.find(request.connection, request.method)
        except ToolRefusedError as error:
            return await self._refuse(number, name, "ToolNotAllowed", error, None)
        try:
            named, description = bound.bind(request.args, request.kwargs)
            call = self._check(number, bound, named, description)
        except ToolRefusedError as error:
            said = request.kwargs.get("desc")
            return await self._refuse(number, name, "ToolArgumentError", error, said)
        if bound.asks:
            settled = await self._approve(call)
            if not isinstance(settled, _Call):
                return settled
            call = settled
        if self._closed:
            return Raised("ToolError", "the task is over; no call is made any more")
        return await self._make(call)

    def _check(
        self, number: int, bound: BoundAction, named: Mapping[str, Any], description: str | None
    ) -> _Call:
        arguments = bound.action.validate(named)
        try:
            digest = call_digest(bound.name, arguments)
        except UnsupportedValueError:
            digest = call_digest(bound.name, {name: repr(v) for name, v in arguments.items()})
        return _Call(number, bound, arguments, description, digest)

    async def _refuse(
        self, number: int, name: str, kind: str, error: ToolRefusedError, said: Any
    ) -> Raised:
        message = error.message[:_MAX_MESSAGE]
        await self._log.record(
            CallFinished,
            call_id=number,
            action=name[:200],
            status="refused",
            duration_ms=0.0,
            error=message,
            description=None if said is None else str(said)[:_MAX_MESSAGE],
        )
        return Raised(kind, message)

    async def _approve(self, call: _Call) -> _Call | Raised:
        """The call as it may be made, or the answer to a script that may not make it."""
        try:
            decision = await self._approvals.decide(
                call.bound, call.arguments, call.digest, call.number, call.description
            )
        except asyncio.CancelledError:
            await self._finish(call, "cancelled", 0.0, error="cancelled before it was decided")
            raise
        match decision:
            case Approved():
                return call
            case Edited(arguments=arguments):
                try:
                    return self._check(call.number, call.bound, arguments, call.description)
                except ToolRefusedError as error:
                    reason = f"the edited arguments do not fit: {error.message}"
            case Rejected(reason=reason):
                pass
            case Expired(after_seconds=seconds):
                reason = f"nobody answered within {seconds:g} s"
        message = f"{call.bound.name} was rejected: {reason}"
        await self._finish(call, "rejected", 0.0, error=message)
        return Raised("ApprovalRejected", message)

    async def _make(self, call: _Call) -> CallAnswer:
        action = call.bound.action
        await self._log.record(
            CallStarted,
            call_id=call.number,
            action=call.bound.name,
            arguments=call.arguments,
            effect=action.effect,
            digest=call.digest,
            description=call.description,
        )
        started = time.perf_counter()
        try:
            result = await self._invoke(action, call.arguments)
            encoded = self._encode(result)
        except asyncio.CancelledError:
            await self._finish(call, "cancelled", started, error="cancelled")
            if _is_cancelled():
                raise
            return Raised("ToolError", f"{call.bound.name} cancelled itself")
        except ToolException as error:
            await self._finish(call, "error", started, error=error.message)
            return _told(action, error)
        except (Exception, SystemExit) as error:
            message = describe_failure(error)
            await self._finish(call, "error", started, error=message)
            return Raised("ToolError", message)
        await self._finish(call, "ok", started, result=result)
        return Returned(result, encoded)

    async def _invoke(self, action: Action, arguments: dict[str, Any]) -> Any:
        if action.is_async:
            return await action.call(**arguments)
        context = contextvars.copy_context()
        call = functools.partial(context.run, action.call, **arguments)
        result = await asyncio.get_running_loop().run_in_executor(self._executor, call)
        return await result if asyncio.iscoroutine(result) else result

    def _encode(self, result: Any) -> bytes:
        encoded = dumps(result)
        if len(encoded) > self._max_result_bytes:
            raise UnsupportedValueError(
                f"the result is too large: {len(encoded):,} bytes, and at most "
                f"{self._max_result_bytes:,} can be passed; ask for less"
            )
        return encoded

    async def _finish(
        self,
        call: _Call,
        status: CallStatus,
        started: float,
        *,
        result: Any = None,
        error: str | None = None,
    ) -> None:
        elapsed = (time.perf_counter() - started) * 1000 if started else 0.0
        await self._log.record(
            CallFinished,
            call_id=call.number,
            action=call.bound.name,
            status=status,
            duration_ms=elapsed,
            result=result,
            error=error,
            description=call.description,
        )


def _told(action: Action, error: ToolException) -> CallAnswer:
    """What a script gets when a tool raised ``ToolException``."""
    handler = action.handle_error
    if handler is False:
        return Raised("ToolException", error.message)
    if handler is True:
        return Told(error.message)
    if isinstance(handler, str):
        return Told(handler)
    try:
        return Told(str(handler(error)))
    except Exception as failure:
        return Raised("ToolError", f"{error.message} (handle_error failed: {failure})")


def _is_cancelled() -> bool:
    """Whether this task is being cancelled; a tool can raise the same by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def describe_failure(error: BaseException) -> str:
    """A tool's failure as a script and a model may read it."""
    if isinstance(error, DelfError):
        text = error.for_model()
        return f"{text} ({error.hint})" if error.hint else text
    if isinstance(error, UnsupportedValueError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
