"""Records scripts in a sandbox, and runs them again from the beginning of the record."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from delf.protocols.sandbox import (
    CallAnswer,
    CallRequest,
    Done,
    Failed,
    Outcome,
    Returned,
    ScriptHost,
    ScriptStart,
)
from delf_sandbox.session import WireSession

Entry = tuple[str, Any]
"""A kind and a value. The kinds are ``turns``, ``clock``, ``print``, ``call``, ``answer``, ``abandon``
and ``end``.
"""


@dataclass
class Record:
    """The entries that a host noted about one script, in order."""

    entries: list[Entry] = field(default_factory=list[Entry])

    def add(self, kind: str, value: Any) -> None:
        """Append an entry."""
        self.entries.append((kind, value))

    def numbers(self, kind: str) -> tuple[int, ...]:
        """Return the numbers of all entries of a kind in one sequence."""
        return tuple(number for name, value in self.entries if name == kind for number in value)

    def calls(self) -> list[str]:
        """Return the calls in the order in which the script made them."""
        return [value for kind, value in self.entries if kind == "call"]

    def answers(self) -> dict[str, Any]:
        """Return the answers by call, except those for which the script did not wait."""
        abandoned = {value for kind, value in self.entries if kind == "abandon"}
        answers = dict(value for kind, value in self.entries if kind == "answer")
        return {call: answer for call, answer in answers.items() if call not in abandoned}

    def text(self) -> str:
        """Return everything that the script printed."""
        return "".join(value for kind, value in self.entries if kind == "print")

    def end(self) -> str | None:
        """Return the script's end in words; None if the script has not ended."""
        return next((value for kind, value in self.entries if kind == "end"), None)


class ReplayingHost(ScriptHost):
    """Answers recorded calls from a record and in its order, and further calls afterwards.

    Args:
        past: The record of the script, up to the moment at which its process died.
        tool: Answers a call that has no recorded answer.
    """

    def __init__(self, past: Record, tool: Callable[[str], Awaitable[Any]]) -> None:
        self.seen = Record()
        self.script_start = ScriptStart(
            seed="seed", clock=past.numbers("clock"), turns=past.numbers("turns")
        )
        self._tool = tool
        # Nobody answers a call for which the recorded script stopped waiting.
        self._abandoned = {value for kind, value in past.entries if kind == "abandon"}
        self._recorded = past.answers()
        self._unanswered = deque(self._recorded)
        self._answered = asyncio.Condition()
        self._requests: dict[int, str] = {}
        # The calls for which the script stopped waiting before this host was asked for an answer.
        self._abandoned_early: set[int] = set()

    async def call(self, request: CallRequest) -> CallAnswer:
        """Answer a call."""
        name = f"{request.method}{tuple(request.args)}"
        self._requests[request.call_id] = name
        self.seen.add("call", name)
        if request.call_id in self._abandoned_early:
            self.seen.add("abandon", name)
        if name in self._abandoned:
            await asyncio.get_running_loop().create_future()
        async with self._answered:
            try:
                await self._answered.wait_for(
                    lambda: not self._unanswered or self._unanswered[0] == name
                )
            finally:
                if name in self._unanswered:
                    self._unanswered.remove(name)
                    self._answered.notify_all()
        value = self._recorded[name] if name in self._recorded else await self._tool(name)
        self.seen.add("answer", (name, value))
        return Returned(value)

    def printed(self, text: str) -> None:
        """Note a print."""
        self.seen.add("print", text)

    def clock_read(self, readings: Sequence[int]) -> None:
        """Note new clock reads."""
        self.seen.add("clock", tuple(readings))

    def turns_taken(self, turns: Sequence[int]) -> None:
        """Note new turns."""
        self.seen.add("turns", tuple(turns))

    def abandon(self, call_id: int) -> None:
        """Note that the script stopped waiting for a call."""
        if call_id in self._requests:
            self.seen.add("abandon", self._requests[call_id])
        else:
            self._abandoned_early.add(call_id)


async def run_scripts(
    session: WireSession,
    scripts: Sequence[str],
    tool: Callable[[str], Awaitable[Any]],
    past: Sequence[Record] = (),
) -> list[Record]:
    """Run scripts one after another; return what the host saw of each of them.

    Args:
        session: A new session.
        scripts: The scripts.
        tool: Answers the calls that have no recorded answer.
        past: The records of the first scripts, which the session replays.
    """
    seen: list[Record] = []
    for number, script in enumerate(scripts):
        host = ReplayingHost(past[number] if number < len(past) else Record(), tool)
        try:
            outcome = await asyncio.wait_for(session.execute(script, host), 50)
        except TimeoutError:
            raise AssertionError(
                f"script {number} hangs after {host.seen}\n{past[number:]}"
            ) from None
        host.seen.add("end", _in_words(outcome))
        seen.append(host.seen)
    return seen


def _in_words(outcome: Outcome) -> str:
    assert isinstance(outcome, (Done, Failed)), outcome
    return "done" if isinstance(outcome, Done) else f"{outcome.kind}: {outcome.message}"


def pasts(records: Sequence[Record]) -> list[list[Record]]:
    """Return every beginning of the records: what a journal holds if a process dies then."""
    return [
        [*records[:number], Record(record.entries[:length])]
        for number, record in enumerate(records)
        for length in range(1, len(record.entries) + 1)
    ]


def difference(past: Sequence[Record], now: Sequence[Record]) -> str | None:
    """Return how a replay differs from what its record shows; None if it repeats all of it."""
    for number, (before, after) in enumerate(zip(past, now, strict=False), 1):
        # Whether a call reaches the host for which the script did not wait depends on the machine.
        answers = before.answers()
        old, new = (
            [call for call in record.calls() if call in answers] for record in (before, after)
        )
        if old != new:
            return f"script {number} calls {new}, and not {old}"
        if not after.text().startswith(before.text()):
            return f"script {number} prints {after.text()!r}, and not {before.text()!r}"
        if before.end() not in (None, after.end()):
            return f"script {number} ends as {after.end()!r}, and not {before.end()!r}"
    return None
