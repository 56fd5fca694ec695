"""``on_confirm``: a program's own function that decides about calls."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from typing import Any

from delf.protocols.approval import ApprovalRequest, Approved, Decision, Edited, Rejected, Settled


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


async def in_own_thread(function: Callable[[], Any], name: str = "delf-approval") -> Any:
    """Run something that may take long, as a person does, in a thread that no other work needs."""
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

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


def _can_be_passed(error: BaseException) -> bool:
    """Whether an exception may leave a future: others would end the event loop or hang it."""
    return isinstance(error, Exception) and not isinstance(error, StopIteration)
