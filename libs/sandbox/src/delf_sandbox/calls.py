"""The calls of a guest that have no answer yet: those that are served, and those that wait."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from delf.protocols.sandbox import CallAnswer, CallRequest, Raised, ScriptHost
from delf_sandbox.wire import WireError

_log = logging.getLogger(__name__)

_MOST_SERVED: Final = 2_000
"""The number of calls that are served at a time.

The others wait, and the guest is read anyway: it may give calls up, or end.
"""
_STARTED_IN_A_TURN: Final = 200
_SIZE_OF_A_CALL: Final = 1024
"""The bytes of a call in memory beside its arguments."""


class OpenCall:
    """A call without an answer.

    Args:
        host: Who answers it.
        request: What is called.
        size: What it takes in memory, in bytes.
    """

    __slots__ = ("begun", "given_up", "host", "request", "size", "task")

    def __init__(self, host: ScriptHost, request: CallRequest, size: int) -> None:
        self.host = host
        self.request = request
        self.size = size
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        self.given_up = False

    def give_up(self) -> asyncio.Task[None] | None:
        """Cancel it, unless it was before: a second time would cut its cleaning up short.

        Returns:
            What ends now.
        """
        if self.given_up or self.task is None:
            return None
        self.given_up = True
        self.task.cancel()
        return self.task


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
        self._waiting: OrderedDict[int, OpenCall] = OrderedDict()
        self._start_soon: asyncio.Handle | None = None
        self.served: dict[int, OpenCall] = {}
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
        number = request.call_id
        if number in self.served or number in self._waiting:
            raise WireError("the sandbox reused the number of a call that is open")
        size += _SIZE_OF_A_CALL
        call = OpenCall(host, request, size)
        self.held += size
        if self._waiting or len(self.served) >= _MOST_SERVED:
            self._waiting[number] = call
        else:
            self._start(call)

    def give_up(self, number: int) -> None:
        """The script does not want the answer any more."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            self._let_go(waiting)
        elif (call := self.served.get(number)) is None:
            pass
        elif call.begun:  # at once: the script's next call may come with the same frames
            call.give_up()
        else:
            # After its first step: what a script that runs once more does not wait for is known.
            self._loop.call_soon(call.give_up)

    def drop_waiting(self) -> None:
        """Those that nobody serves yet will not be served."""
        waiting = [*self._waiting.values()]
        self._waiting.clear()
        for call in waiting:
            self._let_go(call)

    def clear(self) -> None:
        """Cancel all; none is answered any more."""
        served = [*self.served.values()]
        self.served.clear()
        for call in served:
            call.give_up()
            self._let_go(call)
        self.drop_waiting()

    def _start(self, call: OpenCall) -> None:
        self.served[call.request.call_id] = call
        call.task = self._loop.create_task(self._serve(call), name="delf-call")

    def _start_waiting(self) -> None:
        self._start_soon = None
        for _ in range(_STARTED_IN_A_TURN):
            if not self._waiting or len(self.served) >= _MOST_SERVED:
                return
            self._start(self._waiting.popitem(last=False)[1])
        self._start_soon = self._loop.call_soon(self._start_waiting)

    async def _serve(self, call: OpenCall) -> None:
        call.begun = True
        answer: CallAnswer | None = None
        try:
            answer = await call.host.call(call.request)
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
        if self.served.get(number) is not call:
            return False
        del self.served[number]
        self._let_go(call)
        if self._waiting and self._start_soon is None:
            self._start_soon = self._loop.call_soon(self._start_waiting)
        return True

    def _let_go(self, call: OpenCall) -> None:
        self.held -= call.size
        if self.when_less is not None:
            self.when_less()
