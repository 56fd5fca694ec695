"""Takes an interrupted task up again from its journal.

The loop runs once more from the start, and what the journal holds takes the place of the
world: models are not asked again, calls are answered with their recorded results in their
recorded order, prints and events that are there are not written twice. What goes beyond the
journal is done as ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delf import events as ev
from delf.errors import ReplayMismatch
from delf.messages import ModelReply, Purpose
from delf.protocols.sandbox import CallAnswer, Raised, Returned, Told

PATIENCE_SECONDS: Final = 10.0
"""How long a script may do nothing that the journal tells before it counts as another one."""

_REPLAYED: Final[frozenset[Purpose]] = frozenset({"generate", "prefilter"})
"""Model calls of the loop itself. Those of a script are part of its recorded calls."""

_KEYS: Final[Mapping[type[ev.Event], tuple[str, ...]]] = {
    ev.TaskStarted: (),
    ev.StepStarted: ("step", "attempt"),
    ev.StepFinished: ("step", "attempt"),
    ev.ToolsSelected: (),
    ev.ScriptGenerated: ("attempt",),
    ev.SandboxOpened: (),
    ev.ScriptFinished: ("attempt",),
    ev.RerunRequested: ("attempt",),
    ev.RetryScheduled: ("attempt",),
    ev.FileWritten: ("label",),
    ev.Warned: ("message",),
}
"""What makes an event of a kind the one that is in the journal."""


@dataclass(kw_only=True)
class PastCall:
    """A call as the journal knows it.

    Args:
        call_id: Its number.
        action: What was called.
        digest: Over action and arguments as the script gave them.
        request: The request for approval, if one was made.
        decision: What was decided.
        started: Set when it was begun.
        question: The request whether to make it again, after an earlier resume.
        settlement: What was decided about that.
        finished: Set when its end is known.
    """

    call_id: int
    action: str
    digest: str
    request: ev.ApprovalRequested | None = None
    decision: ev.ApprovalDecided | None = None
    started: ev.CallStarted | None = None
    question: ev.ApprovalRequested | None = None
    settlement: ev.ApprovalDecided | None = None
    finished: ev.CallFinished | None = None

    @property
    def was_given_up(self) -> bool:
        """Whether the script cancelled it, so that it never had an answer."""
        return self.finished is not None and self.finished.status == "cancelled"

    def question_of(
        self, *, unsettled: bool
    ) -> tuple[ev.ApprovalRequested | None, ev.ApprovalDecided | None]:
        """The recorded request about it, and the recorded decision if that still counts.

        Args:
            unsettled: The one whether to make it again. A yes to that counts once: it may
                have been made since.
        """
        if not unsettled:
            return self.request, self.decision
        if self.settlement is None:
            return self.question, None
        if self.settlement.decision == "approved":
            return None, None
        return self.question, self.settlement

    def answer(self) -> CallAnswer:
        """What the script got."""
        done = self.finished
        if done is None:
            raise ValueError("the call has no recorded end")
        if done.raised is not None:
            return Raised(done.raised, done.error or "")
        return Returned(done.result) if done.status == "ok" else Told(str(done.result))


@dataclass(kw_only=True)
class PastScript:
    """What the journal tells of one script.

    Args:
        attempt: Its number.
        calls: Its calls in the order in which they came.
        ends: Their answers in the order in which they were given.
        clock: What it saw on the clock, in nanoseconds.
        printed: How many characters it printed.
        finished: Set when its end is known.
        request: The request for the script as a whole, if one was made.
        decision: What was decided about that.
    """

    attempt: int
    calls: list[PastCall] = field(default_factory=list[PastCall])
    ends: deque[int] = field(default_factory=deque[int])
    clock: list[int] = field(default_factory=list[int])
    printed: int = 0
    finished: ev.ScriptFinished | None = None
    request: ev.ApprovalRequested | None = None
    decision: ev.ApprovalDecided | None = None

    @property
    def expected(self) -> list[PastCall]:
        """The calls that have not come again."""
        return [call for call in self.calls if not call.was_given_up]


class Replay:
    """An interrupted task's journal, used up as the task is lived once more.

    Args:
        events: The task's events.
        patience: Seconds without any recorded step after which it is a mismatch.
    """

    def __init__(self, events: Sequence[ev.Event], patience: float = PATIENCE_SECONDS) -> None:
        self.events = tuple(events)
        self.broken: asyncio.Future[ReplayMismatch] = asyncio.get_running_loop().create_future()
        self._patience = patience
        self._replies: defaultdict[str, deque[ev.ModelReplied]] = defaultdict(deque)
        self._known: Counter[tuple[Any, ...]] = Counter()
        self._scripts: dict[int, PastScript] = {}
        self._script: PastScript | None = None
        self._moved = asyncio.Event()
        self.last_call = 0
        self._read(events)

    def _read(self, events: Sequence[ev.Event]) -> None:
        calls: dict[int, PastCall] = {}
        requests: dict[str, PastCall] = {}
        plans: dict[str, PastScript] = {}
        script = PastScript(attempt=0)
        for event in events:
            match event:
                case ev.ScriptGenerated():
                    script = self._scripts[event.attempt] = PastScript(attempt=event.attempt)
                case ev.ScriptFinished():
                    script.finished = event
                case ev.ClockRead():
                    script.clock += event.readings
                case ev.Printed():
                    script.printed += len(event.text)
                case ev.ModelReplied():
                    self._replies[event.purpose].append(event)
                case ev.ApprovalRequested() if event.code is not None:
                    script.request, plans[event.request_id] = event, script
                case ev.ApprovalDecided() if event.request_id in plans:
                    plans[event.request_id].decision = event
                case ev.ApprovalRequested():
                    past = calls.get(event.call_id) or _add(script, calls, event)
                    requests[event.request_id] = past
                    if event.unsettled:
                        past.question, past.settlement = event, None
                    else:
                        past.request = event
                case ev.ApprovalDecided():
                    past = requests.get(event.request_id)
                    if past is not None and past.question is not None:
                        past.settlement = event
                    elif past is not None:
                        past.decision = event
                case ev.CallStarted():
                    past = calls.get(event.call_id) or _add(script, calls, event)
                    past.started = event
                case ev.CallFinished():
                    self.last_call = max(self.last_call, event.call_id)
                    past = calls.get(event.call_id)
                    if past is None:
                        self._known[_refusal(event.action, event.error)] += 1
                    else:
                        past.finished = event
                        if not past.was_given_up:
                            script.ends.append(event.call_id)
                case _:
                    pass
            names = _KEYS.get(type(event))
            if names is not None:
                self._known[_key(type(event), [getattr(event, name) for name in names])] += 1
        self.last_call = max(self.last_call, *calls, 0)

    # -- facts --------------------------------------------------------------------------

    @property
    def seed(self) -> str:
        """What the task's scripts drew chance from."""
        return next((e.seed for e in self.events if isinstance(e, ev.TaskStarted)), "")

    def selected(self) -> ev.ToolsSelected | None:
        """The tools that were chosen, if the task came so far."""
        return next((e for e in self.events if isinstance(e, ev.ToolsSelected)), None)

    def reply(self, purpose: Purpose) -> ModelReply | None:
        """The next recorded answer of a model, if there is one left."""
        if purpose not in _REPLAYED or not self._replies[purpose]:
            return None
        past = self._replies[purpose].popleft()
        return ModelReply(
            text=past.text, usage=past.usage, model=past.model, cost_usd=past.cost_usd
        )

    # -- what is in the journal already ---------------------------------------------------

    def knows(self, kind: Callable[..., ev.Event], fields: Mapping[str, Any]) -> bool:
        """Whether an event is in the journal; each one counts once."""
        if kind is ev.CallFinished and fields["status"] == "refused":
            key = _refusal(fields["action"], fields["error"])
        else:
            names = _KEYS.get(kind)  # pyright: ignore[reportArgumentType]
            if names is None:
                return False
            key = _key(kind, [fields.get(name, 1) for name in names])
        if self._known[key] == 0:
            return False
        self._known[key] -= 1
        return True

    def unknown_part(self, text: str) -> str:
        """What of a printed text goes beyond all that the journal has of the script's prints."""
        script = self._script
        known = min(script.printed, len(text)) if script is not None else 0
        if script is not None:
            script.printed -= known
        return text[known:]

    # -- scripts --------------------------------------------------------------------------

    def begin_script(self, attempt: int) -> PastScript | None:
        """A script is about to run; what the journal tells of it."""
        self._script = self._scripts.get(attempt)
        return self._script

    def end_script(self, status: ev.ScriptStatus, message: str) -> None:
        """A script ended.

        Raises:
            ReplayMismatch: When the journal tells otherwise.
        """
        script, self._script = self._script, None
        if script is None:
            return
        if script.expected:
            raise _mismatch(f"the script ended without the recorded {_named(script.expected[0])}")
        if script.finished is not None and script.finished.status != status:
            raise _mismatch(
                f"a script that ended as {script.finished.status!r} ended as {status!r} this "
                f"time: {message}"
            )

    def plan(self, attempt: int) -> tuple[ev.ApprovalRequested | None, ev.ApprovalDecided | None]:
        """The request for a script as a whole, and the decision about it."""
        script = self._scripts.get(attempt)
        return (None, None) if script is None else (script.request, script.decision)

    # -- calls ----------------------------------------------------------------------------

    async def call(self, digest: str) -> PastCall | None:
        """The recorded call behind a call of the script, when it is its turn.

        An answered call returns when all answers that were given before it have been given
        again; anything else when the whole record of the script is used up, so that nothing
        new happens before all that happened.

        Returns:
            The call as it is known; None when it is a new one.

        Raises:
            ReplayMismatch: When the script does something else than what is recorded.
        """
        script = self._script
        if script is None:
            return None
        past = next((call for call in script.calls if call.digest == digest), None)
        if past is None:
            await self._until(lambda: not script.ends and not script.expected, None)
            return None
        script.calls.remove(past)
        self._move()
        if past.was_given_up:
            await asyncio.get_running_loop().create_future()  # until the script gives it up again
        elif past.finished is None:
            await self._until(lambda: not script.ends, past)
        else:
            await self._until(lambda: script.ends[0] == past.call_id, past)
            script.ends.popleft()
            self._move()
        return past

    def _move(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def _until(self, ready: Callable[[], bool], past: PastCall | None) -> None:
        while not ready():
            moved = self._moved
            try:
                async with asyncio.timeout(self._patience):
                    await moved.wait()
            except TimeoutError:
                raise self._stuck(past) from None

    def _stuck(self, past: PastCall | None) -> ReplayMismatch:
        calls = [] if self._script is None else self._script.expected
        expected = ", ".join(_named(call) for call in calls[:3]) or "an earlier answer"
        made = "a call that is not recorded" if past is None else _named(past)
        return _mismatch(f"the script makes {made} where the journal has {expected}")

    def fail(self, error: ReplayMismatch) -> None:
        """End the task: its script is not the recorded one."""
        if not self.broken.done():
            self.broken.set_result(error)


def _add(
    script: PastScript, calls: dict[int, PastCall], event: ev.ApprovalRequested | ev.CallStarted
) -> PastCall:
    past = PastCall(call_id=event.call_id, action=event.action, digest=event.digest)
    calls[event.call_id] = past
    script.calls.append(past)
    return past


def _named(call: PastCall) -> str:
    return f"{call.action} (call {call.call_id})"


def _key(kind: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    return (kind, *values)


def _refusal(action: str, error: str | None) -> tuple[Any, ...]:
    return ("refused", action, error)


def _mismatch(what: str) -> ReplayMismatch:
    return ReplayMismatch(
        what,
        hint="resume with the same tools, files and versions; calls that depend on anything but "
        "tools, clock and chance of the script cannot be replayed",
    )
