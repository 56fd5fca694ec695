"""The calls of a guest that have no answer yet: those that are served, and those that wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from delf.protocols.sandbox import CallAnswer, CallRequest, Raised, ScriptHost
from delf_sandbox.wire import WireError

_log = logging.getLogger(__name__)

MOST_SERVED: Final = 2_000
"""The number of calls that are served at a time.

The others wait, and the guest is read anyway: it may give calls up, or end.
"""
_SIZE_OF_A_CALL: Final = 4 * 1024
"""The bytes of a call and its task in memory beside its arguments."""


class OpenCall:
    """A call without an answer.

    Args:
        request: What is called.
        size: What it takes in memory, in bytes.
        script: The number of the script that makes it.
    """

    __slots__ = ("begun", "given_up", "request", "script", "size", "task")

    def __init__(self, request: CallRequest, size: int, script: int) -> None:
        self.request = request
        self.size = size
        self.script = script
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.given_up = False

    def give_up(self) -> None:
        """Cancel it, unless it was before: a second time would cut its cleaning up short."""
        if not self.given_up and self.task is not None:
            self.given_up = True
            self.task.cancel()


class OpenCalls:
    """Has the host serve calls, in order and not too many at once.

    Args:
        loop: The event loop.
        answer: Takes the number of a call and its answer.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, answer: Callable[[int, CallAnswer], None]
    ) -> None:
        self._loop = loop
        self._answer = answer
        self._places = asyncio.Semaphore(MOST_SERVED)
        self._script = 0
        self.open: dict[int, OpenCall] = {}
        self.held = 0
        """The bytes of all of them in memory."""
        self.when_less: Callable[[], None] | None = None
        """Called whenever one is over."""

    def begin(self, host: ScriptHost, request: CallRequest, size: int) -> None:
        """Serve a call, as soon as there is a place.

        Args:
            host: Who answers it.
            request: What is called.
            size: What its arguments take in memory, in bytes.

        Raises:
            WireError: When another one of this number has no answer yet.
        """
        if request.call_id in self.open:
            raise WireError("the sandbox reused the number of a call that is open")
        call = self.open[request.call_id] = OpenCall(request, size + _SIZE_OF_A_CALL, self._script)
        self.held += call.size
        call.task = self._loop.create_task(self._serve(call, host), name="delf-call")

    def give_up(self, number: int) -> None:
        """The script does not want the answer any more."""
        call = self.open.get(number)
        if call is None:
            return
        if call.begun:  # at once: the script's next call may come with the same frames
            call.give_up()
        else:
            # After its first step: what a script that runs once more does not wait for is known.
            self._loop.call_soon(call.give_up)

    def script_ended(self) -> None:
        """The calls that wait will not be served."""
        self._script += 1

    def clear(self) -> None:
        """Cancel all; none is answered any more."""
        for call in [*self.open.values()]:
            call.give_up()
            self._end(call)

    async def _serve(self, call: OpenCall, host: ScriptHost) -> None:
        call.begun = True
        answer: CallAnswer | None = None
        try:
            async with self._places:
                if call.script == self._script:
                    answer = await host.call(call.request)
        except asyncio.CancelledError:
            if call.given_up:
                raise
            answer = Raised("ToolError", "the call was cancelled before it had a result")
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                raise
        except Exception:
            _log.exception("a tool call failed outside of its tool")
            answer = Raised("ToolError", "the call failed inside delf; see the log")
        finally:
            if self._end(call) and answer is not None:
                self._answer(call.request.call_id, answer)

    def _end(self, call: OpenCall) -> bool:
        """A call is over; whether that was not known before."""
        number = call.request.call_id
        if self.open.get(number) is not call:
            return False
        del self.open[number]
        self.held -= call.size
        if self.when_less is not None:
            self.when_less()
        return True
