"""Calls of a turn start as soon as they are written; results keep the order of the calls."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from delf.answers import truncation_error
from delf.messages import ModelDelta, ModelReply
from delf.protocols.sandbox import CallAnswer, Raised, Returned
from delf.protocols.strategy import OnDelta, StrategyHost, ToolDescription
from delf_strategy_stream.context import Turn
from delf_strategy_stream.events import AnswerText, Called, Event, Result, Thought
from delf_strategy_stream.names import normalise_spelling, spellings
from delf_strategy_stream.notation import Reader
from delf_strategy_stream.values import plain

_STATUS: Final[Mapping[str, str]] = {
    "ApprovalRejected": "rejected",
    "ToolArgumentError": "refused",
    "ToolNotAllowed": "refused",
}


class _StartedCall(NamedTuple):
    call: Called
    answer: asyncio.Future[CallAnswer]


class TurnRunner:
    """Makes the calls of one answer.

    Calls start in written order. A read call that needs no approval starts while the model is
    still writing, if all calls before it have started. Other calls start when the answer is
    complete.

    Args:
        host: Makes the calls.
        tools: A mapping from name to tool, of the tools in the prompt.
        reader: Parses the answer.
    """

    def __init__(
        self,
        host: StrategyHost,
        tools: Mapping[str, ToolDescription],
        reader: Reader,
    ) -> None:
        self._host = host
        self._reader = reader
        self._tools = tools
        self._spellings = spellings(tools)
        self._started: list[_StartedCall] = []
        # True once a call was parsed that has to wait for the end of the answer.
        self._must_wait = False

    async def run(self, ask: Callable[[OnDelta], Awaitable[ModelReply]]) -> Turn:
        """Ask the model and make the calls of its answer.

        Args:
            ask: Asks the model; its argument is called with each piece of the answer.

        Returns:
            The turn with its calls and their results, which are not shortened yet.
        """
        try:
            reply = await ask(self._start_calls)  # starts calls while the answer arrives
            if reply.broken_by in ("filter", "refusal"):
                raise truncation_error(reply)
            turn = self._reader.parse(reply)
            turn = replace(turn, calls=tuple(map(self._resolve_name, turn.calls)))
            turn_calls = self._start_remaining_calls(turn)
            answers = await asyncio.gather(*(started.answer for started in turn_calls))
        finally:
            await self._cancel_running_calls()
        calls = tuple(started.call for started in turn_calls)
        results = tuple(
            _result(call.name, answer) for call, answer in zip(calls, answers, strict=True)
        )
        return replace(turn, calls=calls, results=results)

    async def _cancel_running_calls(self) -> None:
        """Cancel the calls that still run, such as after a failure, and wait for their end.

        Nobody would read the results of these calls.
        """
        answers = [started.answer for started in self._started]
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    def _start_remaining_calls(self, turn: Turn) -> list[_StartedCall]:
        """Start those calls of a complete answer that have not started yet.

        Returns:
            The calls of the answer in order, including those that started while it was streamed.
        """
        started_early = deque(self._started)
        turn_calls: list[_StartedCall] = []
        for call in turn.calls:
            # After a retry of the request, the answer may lack some started calls.
            _cancel_calls_before(call, started_early)
            if started_early:  # the first of these is this call
                turn_calls.append(started_early.popleft())
            # Start no calls of an answer that was cut: the model repeats them when it continues.
            elif not turn.is_cut:
                turn_calls.append(self._start(call))
        for started_call in started_early:
            started_call.answer.cancel()
        return turn_calls

    def _resolve_name(self, call: Called) -> Called:
        """Replace a tool's name in another spelling, such as ``readFile`` for ``read_file``."""
        if call.name in self._tools:
            return call
        name = self._spellings.get(normalise_spelling(call.name))
        return call if name is None else replace(call, name=name)

    def _start_calls(self, delta: ModelDelta) -> list[ModelDelta]:
        """Start the calls in a piece of an answer, except calls that have to wait for its end.

        Returns:
            The pieces for the task's live output.
        """
        pieces: list[ModelDelta] = []
        for parsed in self._reader.feed(delta):
            event = self._resolve_name(parsed) if isinstance(parsed, Called) else parsed
            if isinstance(event, Called):
                # After a call that has to wait, all later calls wait, too, because they may depend
                # on that call.
                self._must_wait = self._must_wait or not self._may_start(event)
                if not self._must_wait:
                    self._start(event)
            if (piece := _piece(event)) is not None:
                pieces.append(piece)
        return pieces

    def _may_start(self, call: Called) -> bool:
        """Return True if a call may start while the model still writes the rest of its answer.

        The rest may be lost, and the model then answers again without the call. Only a call that
        reads, and about which nobody is asked, can be given up without a trace.
        """
        tool = self._tools.get(call.name)
        return tool is not None and not tool.asks and tool.effect == "read"

    def _start(self, call: Called) -> _StartedCall:
        answer = asyncio.ensure_future(self._host.call(call.name, call.arguments))
        started_call = _StartedCall(call, answer)
        self._started.append(started_call)
        return started_call


def _cancel_calls_before(call: Called, started: deque[_StartedCall]) -> None:
    """Cancel and remove the started calls that come before ``call``.

    If ``call`` has not been started, cancel and remove all started calls.
    """
    while started and started[0].call != call:
        started.popleft().answer.cancel()


def _piece(event: Event) -> ModelDelta | None:
    """Convert an event to a piece for the task's live output; None for an event not shown."""
    match event:
        case Thought(text=text):
            return ModelDelta(text, kind="think")
        case AnswerText(text=text):
            return ModelDelta(text, kind="respond")
        case Called(name=name, arguments=arguments):
            call = {"name": name, "args": dict(arguments)}
            return ModelDelta(json.dumps(call, ensure_ascii=False), kind="call")
        case _:
            return None


def _result(name: str, answer: CallAnswer) -> Result:
    if isinstance(answer, Returned):
        return Result(name=name, status="ok", value=plain(answer.value))
    if isinstance(answer, Raised):
        return Result(name=name, status=_STATUS.get(answer.kind, "error"), value=answer.message)
    return Result(name=name, status="error", value=answer.message)
