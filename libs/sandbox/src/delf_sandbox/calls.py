"""The unanswered calls of a guest, running or queued."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from delf.protocols.sandbox import CallAnswer, CallRequest, Raised, ScriptHost
from delf_sandbox.wire import WireError

_log = logging.getLogger(__name__)

MAX_SERVED: Final = 2_000
"""The maximum number of calls that the host makes concurrently for one guest.

Further calls wait in a queue. The host still reads the guest's messages meanwhile, because the
guest may abandon a call or end.
"""
# The estimated size in memory of a call and its asyncio task, without the arguments.
_BYTES_PER_CALL: Final = 4 * 1024
_CANCELLED: Final = Raised("ToolError", "the call was cancelled before it had a result")


class OpenCall:
    """A call that the host has not answered yet.

    Args:
        request: The call as the guest sent it.
        memory_bytes: The size of the call in memory.
        script_number: The number of the script that makes the call.
    """

    __slots__ = (
        "has_begun",
        "is_abandoned",
        "memory_bytes",
        "request",
        "script_number",
        "task",
    )

    def __init__(self, request: CallRequest, memory_bytes: int, script_number: int) -> None:
        self.request = request
        self.memory_bytes = memory_bytes
        self.script_number = script_number
        self.task: asyncio.Task[None] | None = None
        # True after the first step of the asyncio task; the call may still wait in the queue.
        self.has_begun = False
        self.is_abandoned = False

    def abandon(self) -> None:
        """Cancel the call's task. Do nothing if the call was cancelled before.

        A second cancellation would interrupt the clean-up after the first one.
        """
        if not self.is_abandoned and self.task is not None:
            self.is_abandoned = True
            self.task.cancel()


class OpenCalls:
    """Runs the guest's calls on the host, in order and with limited concurrency.

    Args:
        loop: The event loop.
        answer: Sends an answer to the guest; called with the call's number and the answer.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, answer: Callable[[int, CallAnswer], None]
    ) -> None:
        self._loop = loop
        self._answer = answer
        # A semaphore serves waiters in order, so calls begin in the order of the script.
        self._permits = asyncio.Semaphore(MAX_SERVED)
        self._current_script_number = 0
        self.open: dict[int, OpenCall] = {}
        self.held_bytes = 0
        """The total size in memory of all unanswered calls, in bytes."""
        self.on_call_end: Callable[[], None] | None = None
        """Called at the end of each call, if not None."""

    def begin(self, host: ScriptHost, request: CallRequest, size: int) -> None:
        """Run a call as soon as the concurrency limit allows.

        Args:
            host: The object that makes the calls of the current script.
            request: The call as the guest sent it.
            size: The size of the call's arguments in memory, in bytes.

        Raises:
            WireError: If a call with the same number is unanswered.
        """
        if request.call_id in self.open:
            raise WireError("the sandbox reused the number of a call that is open")
        call = OpenCall(request, size + _BYTES_PER_CALL, self._current_script_number)
        self.open[request.call_id] = call
        self.held_bytes += call.memory_bytes
        call.task = self._loop.create_task(self._serve(call, host), name="delf-call")

    def abandon(self, number: int) -> None:
        """Cancel a call whose answer the script no longer awaits."""
        call = self.open.get(number)
        if call is None:
            return
        if call.has_begun:
            # Cancel before the guest's next message is handled, which may start another call.
            call.abandon()
        else:
            # A task that is cancelled before its first step runs none of its code, so nothing would
            # journal the call. The step is scheduled already, and so runs before this callback.
            self._loop.call_soon(call.abandon)

    def skip_queued_calls(self) -> None:
        """Skip the calls that are still queued, because their script has ended.

        Otherwise, queued calls could begin between the script's end and :meth:`clear`. Calls that
        are already running go on until :meth:`clear`.
        """
        # A queued call compares this number with that of its own script.
        self._current_script_number += 1

    def clear(self) -> None:
        """Cancel all calls without answering them."""
        # Iterate over a copy, because _end() removes the call from the dict.
        for call in list(self.open.values()):
            # Cancel calls that have not begun, too. They are not journalled, as if the guest had
            # been killed before it made them.
            call.abandon()
            self._end(call)

    async def _serve(self, call: OpenCall, host: ScriptHost) -> None:
        """Make a call, and send its answer to the guest."""
        # A task that is cancelled before its first step runs none of this code, and the host would
        # not journal the call. So :meth:`abandon` cancels the task only once this flag is set.
        call.has_begun = True
        answer: CallAnswer | None = None  # None if the guest needs no answer
        try:
            answer = await self._make_when_permitted(call, host)
        except asyncio.CancelledError:
            # Without an answer, a script would wait forever for a call that it did not abandon.
            if not call.is_abandoned:
                answer = _CANCELLED
            raise
        finally:
            was_open = self._end(call)
            if was_open and answer is not None:
                self._answer(call.request.call_id, answer)

    async def _make_when_permitted(self, call: OpenCall, host: ScriptHost) -> CallAnswer | None:
        """Wait until fewer than ``MAX_SERVED`` calls run, then make a call and return the answer.

        Return None, without making the call, if the call was queued and its script has ended
        meanwhile.
        """
        must_queue = self._permits.locked()
        async with self._permits:
            has_script_ended = call.script_number != self._current_script_number
            # A call that did not queue is always made. Whether its script has ended by now depends
            # on the machine's speed, but a replay must make the same calls again.
            if must_queue and has_script_ended:
                return None
            try:
                return await host.call(call.request)
            except asyncio.CancelledError:
                current_task = asyncio.current_task()
                is_cancelled_by_us = current_task is not None and current_task.cancelling()
                if is_cancelled_by_us:
                    raise
                # The tool itself raised CancelledError, which is a failure like any other.
                return _CANCELLED
            except Exception:
                _log.exception("a tool call failed outside of its tool")
                return Raised("ToolError", "the call failed inside delf; see the log")

    def _end(self, call: OpenCall) -> bool:
        """Remove a call from the open calls. Return False if it had been removed before."""
        number = call.request.call_id
        # clear() may have removed the call, and a later script may use its number again.
        if self.open.get(number) is not call:
            return False
        # Update the size before the callback, which reads the size and may resume the guest.
        del self.open[number]
        self.held_bytes -= call.memory_bytes
        if self.on_call_end is not None:
            self.on_call_end()
        return True
