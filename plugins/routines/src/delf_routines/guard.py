"""The guard of a routine's calls: it enforces the header and repeats no change in a repair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from delf.protocols.connection import Allowed, NeedsApproval, Refused, Verdict
from delf.protocols.sandbox import CallAnswer, Returned
from delf.protocols.strategy import ScriptCall
from delf.tools.action import EFFECTS
from delf_engine.past_calls import is_same
from delf_routines.routine import Routine

_ALLOWED: Final = Allowed()


class Made(NamedTuple):
    """A call made by an earlier script."""

    call: ScriptCall
    answer: CallAnswer

    @property
    def is_change(self) -> bool:
        """True if the call changed something."""
        return self.call.effect != "read" and isinstance(self.answer, Returned)


class RoutineGuard:
    """Rules for a routine's calls. Implements :class:`delf.protocols.strategy.CallGuard`.

    Args:
        routine: The routine, whose header lists its allowed calls.
        earlier: The calls of earlier scripts, if a model repaired the routine. Calls outside of the
            header then need approval instead of being refused.
    """

    def __init__(self, routine: Routine, earlier: Sequence[Made] | None = None) -> None:
        self._routine = routine
        self._repairs = earlier is not None
        self._earlier = [past_call for past_call in earlier or () if past_call.is_change]
        self.begin()

    def begin(self) -> None:
        """Reset the counts."""
        self.unadopted = list(self._earlier)
        """Changes of earlier scripts that this script has not adopted."""
        self.made: list[Made] = []
        """The calls of this script, with the adopted calls of earlier ones."""
        self.empty: dict[str, None] = {}
        """Actions that returned nothing although they must not."""
        self.reused = 0
        self._calls = self._changes = 0

    @property
    def earlier(self) -> list[Made]:
        """The calls that the next repaired script must count as already made.

        They are the calls of this script, and earlier changes that this script has not adopted.
        """
        return [*self.unadopted, *self.made]

    def before_call(self, call: ScriptCall) -> Returned | None:
        """Return the result of an identical change by an earlier script, if any."""
        self._calls += not call.built_in
        self._changes += call.effect != "read" and not call.built_in
        for number, past_call in enumerate(self.unadopted):
            if past_call.call.name == call.name and is_same(
                past_call.call.arguments, call.arguments
            ):
                del self.unadopted[number]
                self.made.append(past_call)
                self.reused += 1
                return cast("Returned", past_call.answer)
        return None

    def check(self, call: ScriptCall) -> Verdict:
        """Check a call against the header."""
        if call.built_in:
            return _ALLOWED
        name = self._routine.name
        if (reason := self._outside(call)) is not None:
            return NeedsApproval(reason=reason) if self._repairs else Refused(message=reason)
        limits = self._routine.limits
        if limits.calls is not None and self._calls > limits.calls:
            return Refused(message=f"the routine {name} makes at most {limits.calls} calls")
        # A read is harmless, even after an unexpectedly empty result.
        if call.effect == "read":
            return self._approval_verdict(call, [])
        if limits.changes is not None and self._changes > limits.changes:
            return Refused(message=f"the routine {name} changes at most {limits.changes} things")
        reasons = [f"{empty} gave nothing, where it gave something before" for empty in self.empty]
        if any(past_call.call.name == call.name for past_call in self.unadopted):
            reasons.append(f"{call.name} was called with other values before the routine failed")
        return self._approval_verdict(call, reasons)

    def _approval_verdict(self, call: ScriptCall, reasons: list[str]) -> Verdict:
        if call.name in self._routine.confirm:
            reasons = [*reasons, f"the routine {self._routine.name} asks before it"]
        return NeedsApproval(reason="; ".join(reasons)) if reasons else _ALLOWED

    def _outside(self, call: ScriptCall) -> str | None:
        """Return why the header does not cover a call; None if the header covers the call."""
        used = self._routine.actions.get(call.name)
        if used is None:
            return f"the header of the routine {self._routine.name} does not name {call.name}"
        if EFFECTS.index(call.effect) > EFFECTS.index(used.effect):
            return f"its effect was {used.effect} when the routine was saved, and is {call.effect}"
        return None

    def after_call(self, call: ScriptCall, answer: CallAnswer) -> CallAnswer:
        """Record the result of a call."""
        if call.built_in:
            return answer
        self.made.append(Made(call, answer))
        used = self._routine.actions.get(call.name)
        if used is not None and isinstance(answer, Returned):
            if used.empty or not is_empty(answer.value):
                return answer
            self.empty[call.name] = None
        return answer


def is_empty(value: object) -> bool:
    """Return True for a result without data: no rows, no text, or only None values."""
    match value:
        case None:
            return True
        case str() | bytes():
            return not value.strip()
        case dict():
            return all(item is None for item in cast("dict[Any, Any]", value).values())
        case list() | tuple():
            return all(map(is_empty, cast("Sequence[object]", value)))
        case _:
            return False
