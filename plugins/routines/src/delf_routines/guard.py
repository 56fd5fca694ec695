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


class CallMade(NamedTuple):
    """A call that a script has made, with its result."""

    call: ScriptCall
    answer: CallAnswer

    @property
    def is_change(self) -> bool:
        """True if the call changed something."""
        return self.call.effect != "read" and isinstance(self.answer, Returned)


class RoutineGuard:
    """Checks a routine's calls. Implements :class:`delf.protocols.strategy.CallGuard`.

    Args:
        routine: The routine, whose header lists the allowed actions. Any other action is refused,
            or needs approval while a model repairs the routine.
        earlier: The calls of earlier scripts while a model repairs the routine; otherwise None.
    """

    def __init__(self, routine: Routine, earlier: Sequence[CallMade] | None = None) -> None:
        self._routine = routine
        self._is_repair = earlier is not None
        self._changes_of_earlier_scripts = [
            past_call for past_call in earlier or () if past_call.is_change
        ]
        self.begin()

    def begin(self) -> None:
        """Start a script with an empty list of calls.

        While a model repairs the routine, the write calls of earlier scripts are kept, because each
        new script is expected to repeat all of them.
        """
        self.unrepeated_changes = list(self._changes_of_earlier_scripts)
        """The write calls of earlier scripts that this script has not asked for yet."""
        self.calls_made: list[CallMade] = []
        """The calls of this script, including those answered with an earlier script's result."""
        self.unexpectedly_empty: dict[str, None] = {}
        """The names of actions that returned nothing although they never did before."""
        self._call_count = 0
        self._change_count = 0

    @property
    def reused_change_count(self) -> int:
        """The number of write calls that were answered with an earlier script's result."""
        return len(self._changes_of_earlier_scripts) - len(self.unrepeated_changes)

    @property
    def calls_so_far(self) -> list[CallMade]:
        """The unrepeated write calls of earlier scripts, followed by the calls of this script.

        If this script fails, a model repairs the routine. The guard of the next script then gets
        the list as ``earlier``.
        """
        return [*self.unrepeated_changes, *self.calls_made]

    def before_call(self, call: ScriptCall) -> Returned | None:
        """Count a call for the limits. If an earlier script made the call, return that result.

        Returns:
            The earlier result, so that the call is not made again; None if the call must be made.
        """
        if not call.built_in:
            self._call_count += 1
            if call.effect != "read":
                self._change_count += 1
        # The write calls of earlier scripts are not made again, but give their old results.
        for number, past_call in enumerate(self.unrepeated_changes):
            if past_call.call.name == call.name and is_same(
                past_call.call.arguments, call.arguments
            ):
                del self.unrepeated_changes[number]
                self.calls_made.append(past_call)
                return cast("Returned", past_call.answer)
        return None

    def check(self, call: ScriptCall) -> Verdict:
        """Check a call against the allowed actions and the limits of the routine's header.

        The header also lists actions that always need approval. Any write call needs approval after
        an unexpectedly empty result. A write call of a repaired script needs approval if the failed
        script called the same action with other arguments.
        """
        if call.built_in:
            return _ALLOWED
        name = self._routine.name
        violation = self._header_violation(call)
        if violation is not None:
            if self._is_repair:
                return NeedsApproval(reason=violation)
            return Refused(message=violation)
        limits = self._routine.limits
        if limits.calls is not None and self._call_count > limits.calls:
            return Refused(message=f"the routine {name} makes at most {limits.calls} calls")
        # A read is harmless, even after an unexpectedly empty result.
        if call.effect == "read":
            return self._approval_verdict(call, [])
        if limits.changes is not None and self._change_count > limits.changes:
            return Refused(message=f"the routine {name} changes at most {limits.changes} things")
        reasons = [
            f"{action} returned nothing for the first time" for action in self.unexpectedly_empty
        ]
        # before_call() answers a repeated call itself, so the arguments of this call differ.
        if call.name in [past_call.call.name for past_call in self.unrepeated_changes]:
            reasons.append(f"{call.name} was called with other values before the routine failed")
        return self._approval_verdict(call, reasons)

    def _approval_verdict(self, call: ScriptCall, reasons: list[str]) -> Verdict:
        if call.name in self._routine.confirm:
            reasons = [*reasons, f"the routine {self._routine.name} asks before it"]
        if reasons:
            return NeedsApproval(reason="; ".join(reasons))
        return _ALLOWED

    def _header_violation(self, call: ScriptCall) -> str | None:
        """Return why the routine's header does not allow a call; None if it does."""
        used = self._routine.actions.get(call.name)
        if used is None:
            return f"the header of the routine {self._routine.name} does not name {call.name}"
        if EFFECTS.index(call.effect) > EFFECTS.index(used.effect):
            return f"its effect was {used.effect} when the routine was saved, and is {call.effect}"
        return None

    def after_call(self, call: ScriptCall, answer: CallAnswer) -> CallAnswer:
        """Record a call, note a result that is unexpectedly empty, and return the answer unchanged.

        An empty result is expected only if the action had one when the routine was saved.
        """
        if call.built_in:
            return answer
        self.calls_made.append(CallMade(call, answer))
        recorded_action = self._routine.actions.get(call.name)
        if recorded_action is not None and isinstance(answer, Returned):
            was_empty_when_saved = recorded_action.empty
            if is_empty(answer.value) and not was_empty_when_saved:
                self.unexpectedly_empty[call.name] = None
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
