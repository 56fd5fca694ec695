"""Replay: answers a resumed task from its journal.

The task's loop runs again from its start. Models are not asked again, calls get their recorded
results in the recorded order, and recorded events are not written twice. After the last recorded
event, the task continues normally.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf import events as ev
from delf.errors import ReplayMismatch
from delf.machine.zones import Zone
from delf.messages import ModelReply, Purpose
from delf_engine.journal.claims import PreviousOwner
from delf_engine.journal.recording import (
    RecordedCall,
    RecordedRequest,
    RecordedScript,
    RecordedStep,
    Recording,
)
from delf_engine.journal.retrying import without_recorded_failures

# The purposes of model calls whose recorded replies are replayed.
#
# Model calls of a script's tools are not replayed, because they belong to recorded tool calls.
_REPLAYED_PURPOSES: Final[frozenset[Purpose]] = frozenset(
    {"generate", "prefilter", "learn", "outline"}
)

# A turn key says what a waiting call waits for. The key of a call with a recorded answer is the
# call's number: the call waits until that answer is the next step. Other calls have these keys.

# The key of waiting calls that have no recorded end; their turn is after all recorded answers.
_AFTER_ALL_ANSWERS: Final = 0

# The key of waiting calls that are not recorded; their turn is after all recorded steps.
_AFTER_ALL_STEPS: Final = -1

# The key of waiting calls whose turn never comes, because the recorded script ended before.
_AFTER_END: Final = -2


class _CallOrder:
    """The recorded order of a script's calls and answers, which its replay must follow.

    A recorded answer is given when all calls and answers recorded before it have happened again. A
    call without a recorded end proceeds after all recorded answers. A new call proceeds after all
    recorded calls and answers. A call whose turn never comes waits until the task's timeout,
    because a slow script cannot be distinguished from a different script.

    Args:
        script: The recorded events of the script.
    """

    def __init__(self, script: RecordedScript) -> None:
        self.script = script
        # The recorded calls that take() has not returned yet, by digest.
        self._unclaimed: defaultdict[str, deque[RecordedCall]] = defaultdict(deque)
        for call in script.calls:
            self._unclaimed[call.digest].append(call)
        # The calls that the script must still make again, by id. An abandoned call need not be
        # repeated, because the script may end before it makes the call, depending on timing.
        self._unrepeated_calls = {call.call_id: call for call in script.calls_to_repeat}
        # The rest of the recorded order, with the next step first. Steps of calls that the script
        # need not repeat are left out.
        self._remaining_steps = deque(
            step for step in script.steps if step.call_id in self._unrepeated_calls
        )
        # The number of answers in _remaining_steps: counting at each call takes quadratic time.
        self._remaining_answer_count = sum(step.is_answer for step in self._remaining_steps)
        # The futures of the waiting calls, by turn key. The futures of cancelled calls stay here.
        self._waiting: defaultdict[int, list[asyncio.Future[None]]] = defaultdict(list)

    @property
    def is_waiting(self) -> bool:
        """True if any call waits for its turn."""
        return any(map(self._is_waiting_with, self._waiting))

    def _is_waiting_with(self, turn_key: int) -> bool:
        """Return True if a call waits with this turn key and the script has not cancelled it."""
        return any(not waiter.done() for waiter in self._waiting[turn_key])

    @property
    def unrepeated_calls(self) -> Sequence[RecordedCall]:
        """The recorded calls that the replay must make and has not made yet."""
        return tuple(self._unrepeated_calls.values())

    def take(self, digest: str) -> RecordedCall | None:
        """Return the next recorded call with this digest; None if no such call is left.

        Each recorded call is returned only once.
        """
        if not self._unclaimed.get(digest):
            return None
        # Equal calls are interchangeable: coroutines may make them in another order than before.
        recorded_call = self._unclaimed[digest].popleft()
        # Calls that the recorded script abandoned are not in this dict.
        self._unrepeated_calls.pop(recorded_call.call_id, None)
        self._advance()  # wakes calls that waited until this call was made
        return recorded_call

    async def wait_for_turn(
        self, recorded_call: RecordedCall | None, *, blocks_script: bool
    ) -> None:
        """Wait for a call's turn in the recorded order.

        Args:
            recorded_call: The recorded call; None for a new call.
            blocks_script: Whether the script makes no other call until the answer arrives.

        Raises:
            ReplayMismatch: If the turn can never come.
        """
        turn_key = _turn_key(recorded_call)
        may_proceed = self._may_proceed(turn_key)
        if not may_proceed and blocks_script:
            # A blocked script makes no other call, so the steps before this one never happen:
            # waiting would last until the task's timeout.
            raise self._wrong_order_error(recorded_call)
        # Remove the answer only after the wait, so that no later answer overtakes it. Remove it
        # even if the script stops waiting for it, because the next step waits for the removal.
        try:
            if not may_proceed:
                await self._wait(turn_key)
        finally:
            if recorded_call is not None and recorded_call.finished is not None:
                self._remove_answer(recorded_call.call_id)

    def _may_proceed(self, turn_key: int) -> bool:
        """Return True if calls that wait with this turn key may proceed now."""
        if turn_key == _AFTER_ALL_STEPS:
            return not self._remaining_steps
        if turn_key == _AFTER_ALL_ANSWERS:
            return self._remaining_answer_count == 0
        # The key is the number of a call, whose turn comes with its recorded answer.
        answer = RecordedStep(call_id=turn_key, is_answer=True)
        return bool(self._remaining_steps) and self._remaining_steps[0] == answer

    def _remove_answer(self, call_id: int) -> None:
        """Remove a call's recorded answer from the remaining steps.

        The next step may then follow.
        """
        self._remaining_steps.remove(RecordedStep(call_id, is_answer=True))
        self._remaining_answer_count -= 1
        self._advance()

    @property
    def has_call_beyond_script(self) -> bool:
        """True if a waiting call was not made by the recorded script.

        The end of the running script cancels this call.
        """
        return self._is_waiting_with(_AFTER_END)

    async def wait_for_end_of_script(self) -> None:
        """Wait until the end of the script cancels the waiting call; never return.

        Used for a call that the recorded script did not make before its recorded end.
        """
        await self._wait(_AFTER_END)  # a key that _advance() never wakes

    async def _wait(self, turn_key: int) -> None:
        """Wait until :meth:`_wake` is called with a turn key."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn_key].append(waiter)
        await waiter

    def _is_repeated_call(self, step: RecordedStep) -> bool:
        """Return True if a step is a call that the replay has made already."""
        return not step.is_answer and step.call_id not in self._unrepeated_calls

    def _advance(self) -> None:
        """Advance to the next recorded step not repeated yet; wake the calls whose turn it is.

        Called after a call was made again or an answer was removed.
        """
        steps = self._remaining_steps
        while steps and self._is_repeated_call(steps[0]):
            steps.popleft()
        if self._remaining_answer_count == 0:
            self._wake(_AFTER_ALL_ANSWERS)
        if not steps:
            self._wake(_AFTER_ALL_STEPS)
        elif steps[0].is_answer:
            self._wake(steps[0].call_id)

    def _wake(self, turn_key: int) -> None:
        """Wake the calls that wait with a turn key."""
        for waiter in self._waiting.pop(turn_key, ()):
            # set_result() raises if the script has cancelled the call meanwhile.
            if not waiter.done():
                waiter.set_result(None)

    @property
    def next_steps(self) -> str:
        """The next recorded calls, for error messages."""
        calls = self.unrepeated_calls
        # The script has repeated all recorded calls. Only a recorded answer can still be due before
        # the call that waits.
        if not calls:
            return "an earlier answer"
        return ", ".join(_named(call) for call in calls[:3])

    def _wrong_order_error(self, recorded_call: RecordedCall | None) -> ReplayMismatch:
        made = "a call that is not recorded" if recorded_call is None else _named(recorded_call)
        return _mismatch(f"the script makes {made} where the journal has {self.next_steps}")


def _turn_key(recorded_call: RecordedCall | None) -> int:
    """Return the key with which a call of a resumed script waits for its turn.

    Args:
        recorded_call: The recorded call that the script repeats; None for a new call.
    """
    if recorded_call is None:
        return _AFTER_ALL_STEPS
    has_recorded_answer = recorded_call.finished is not None
    # A call that was interrupted has no recorded answer, and is made again.
    return recorded_call.call_id if has_recorded_answer else _AFTER_ALL_ANSWERS


class Replay:
    """Answers a resumed task's model calls, tool calls and notes from its recorded events.

    The resumed task runs again from its start and repeats what it did before. Each repeated call
    gets the recorded result. Scripts must repeat their calls in the recorded order.

    Args:
        events: The task's events; none for a new task.
    """

    def __init__(self, events: Sequence[ev.Event] = ()) -> None:
        self.events = tuple(events)
        start = next((event for event in self.events if isinstance(event, ev.TaskStarted)), None)
        self.resumed = start is not None
        """True if the task had started before; False if it was only queued."""
        self.seed = "" if start is None else start.seed
        """The random seed of the task's scripts; empty for a new task."""
        self.zone: Zone | None = None
        """The time zone that was recorded at the start of the task, if any."""
        if start is not None and start.zone:
            self.zone = Zone(start.zone, start.zone_name)
        self.previous_owner: PreviousOwner | None = None
        """The process that owned the task before, if that process may still be alive."""
        # Leave out failures after which the task was retried: the retry repeats what failed.
        self._recording = Recording(without_recorded_failures(self.events))
        self.highest_call_id = self._recording.highest_call_id
        """The highest number of a recorded call; 0 without calls."""
        # The order of the strategy's own calls, which must be followed while no script runs.
        self._order_between_scripts: _CallOrder | None = None
        if self.resumed:
            self._order_between_scripts = _CallOrder(self._recording.between_scripts)
        # The order that the next calls must follow; None if they are new.
        self._recorded_order = self._order_between_scripts

    @property
    def active(self) -> bool:
        """True while the calls of the running script or strategy follow their recorded order."""
        return self._recorded_order is not None

    # -- facts --------------------------------------------------------------------------

    def recorded_selection(self) -> ev.ToolsSelected | None:
        """Return the recorded event with the tools selected for the task, if any."""
        return next((event for event in self.events if isinstance(event, ev.ToolsSelected)), None)

    def has_reply(self, purpose: Purpose) -> bool:
        """Return True if another recorded reply is left for a purpose of model calls."""
        return purpose in _REPLAYED_PURPOSES and bool(self._recording.replies[purpose])

    def next_reply(self, purpose: Purpose) -> ModelReply | None:
        """Return the next recorded reply for a purpose of model calls; None if none is left."""
        if not self.has_reply(purpose):
            return None
        return self._recording.replies[purpose].popleft()

    def next_note(self, topic: str) -> str | None:
        """Return the next recorded note on a topic; None if none is left."""
        notes = self._recording.notes.get(topic)
        return notes.popleft() if notes else None

    # -- what is in the journal already ---------------------------------------------------

    def match(self, kind: type[ev.Event], fields: Mapping[str, Any]) -> bool:
        """Mark an equal recorded event as matched; return False without such an unmatched event."""
        return self._recording.match(kind, fields)

    def skip_recorded_part(self, text: str) -> str:
        """Skip the recorded part of a printed text, and return the rest."""
        if self._recorded_order is None:  # no script or strategy is being replayed
            return text
        script = self._recorded_order.script
        recorded_length = min(script.unreplayed_print_length, len(text))
        script.unreplayed_print_length -= recorded_length
        return text[recorded_length:]

    # -- scripts --------------------------------------------------------------------------

    def has_script(self, attempt: int) -> bool:
        """Return True if a script of this number was recorded before the task was resumed."""
        return attempt in self._recording.scripts

    def begin_script(self, attempt: int) -> RecordedScript | None:
        """Start the replay of a script; return its recorded events, if any."""
        script = self._recording.scripts.get(attempt)
        self._recorded_order = None if script is None else _CallOrder(script)
        return script

    def end_script(self, status: ev.ScriptStatus, message: str) -> None:
        """Compare the end of a script with its record.

        Raises:
            ReplayMismatch: If the script ended with another status than the recorded status, or
                before it made all recorded calls.
        """
        ended_order = self._recorded_order
        # Calls between scripts are those of the strategy, which have an order of their own.
        self._recorded_order = self._order_between_scripts
        if ended_order is None:  # the script is new
            return
        if status == "crashed":  # the script is run again, and may make its other calls then
            return
        script = ended_order.script
        unrepeated_calls = ended_order.unrepeated_calls
        if unrepeated_calls:
            raise _mismatch(f"the script ended without the recorded {_named(unrepeated_calls[0])}")
        if script.finished is not None and script.finished.status != status:
            raise _mismatch(
                f"a script that ended as {script.finished.status!r} ended as {status!r} this "
                f"time: {message}"
            )

    def approval_of_script(self, attempt: int) -> RecordedRequest:
        """Return the recorded request for approval of a script as a whole, and its decision."""
        script = self._recording.scripts.get(attempt)
        if script is None:
            return RecordedRequest()
        return RecordedRequest(script.request, script.decision)

    # -- calls ----------------------------------------------------------------------------

    async def wait_for_turn(
        self, digest: str, *, blocks_script: bool = False
    ) -> RecordedCall | None:
        """Wait for a call's turn in the recorded order, and return the recorded call.

        Never returns for a call that the recorded script abandoned, because that call got no
        answer: the script abandons the call again.

        Args:
            digest: The digest of the call.
            blocks_script: Whether the script makes no other call until the answer arrives.

        Returns:
            The recorded call; None for a new call.

        Raises:
            ReplayMismatch: If the script makes other calls than its record.
        """
        order = self._recorded_order
        if order is None:
            return None
        recorded_call = order.take(digest)
        if recorded_call is None:
            await _wait_until_new_call_allowed(order, blocks_script=blocks_script)
        elif recorded_call.was_abandoned:
            _check_script_can_end(order.script, blocks_script=blocks_script)
            # Wait until the script abandons the call again, which cancels this wait.
            never_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            await never_done
        else:
            await order.wait_for_turn(recorded_call, blocks_script=blocks_script)
        return recorded_call

    def timeout_mismatch(self) -> ReplayMismatch | None:
        """Return the error for a task that timed out while a call waited in :meth:`wait_for_turn`.

        None if no call was waiting.
        """
        order = self._recorded_order
        if order is None or not order.is_waiting:
            return None
        recorded_end = order.script.finished
        if recorded_end is not None and order.has_call_beyond_script:
            # The recorded script ended without the waiting call, and this script did not end.
            return _further_call_error(recorded_end)
        # The waiting call comes after a recorded call that this script did not make, or after the
        # answer to another call.
        return _mismatch(f"the task timed out before the replay reached {order.next_steps}")


async def _wait_until_new_call_allowed(order: _CallOrder, *, blocks_script: bool) -> None:
    """Wait until all recorded calls and answers are repeated: then a new call may be made.

    If the recorded script has ended, no new call may be made: wait until this script ends, too.

    Args:
        order: The recorded order of the script's calls and answers.
        blocks_script: Whether the script makes no other call until the new call is answered.

    Raises:
        ReplayMismatch: If the recorded script has ended, and the new call keeps this script from
            its end.
    """
    await order.wait_for_turn(None, blocks_script=blocks_script)
    has_recorded_end = order.script.finished is not None
    if not has_recorded_end:
        return  # the script was interrupted, and now continues beyond its record
    _check_script_can_end(order.script, blocks_script=blocks_script)
    # The recorded script may have made this call just before its end, too late to be recorded. In
    # that case, this script ends, too, which cancels this wait. If this script does not end, the
    # task's timeout cancels the wait.
    await order.wait_for_end_of_script()


def _check_script_can_end(script: RecordedScript, *, blocks_script: bool) -> None:
    """Check that a script can end as recorded, although its last call gets no answer.

    Args:
        script: The recorded script.
        blocks_script: Whether the script makes no other call until the last call is answered.

    Raises:
        ReplayMismatch: If the recorded script ended, and the last call blocks the script.
    """
    recorded_end = script.finished
    if recorded_end is not None and blocks_script:
        raise _further_call_error(recorded_end)


def _further_call_error(script_end: ev.ScriptFinished) -> ReplayMismatch:
    return _mismatch(f"a script that was {script_end.status!r} makes a further call")


def _named(call: RecordedCall) -> str:
    return f"{call.action} (call {call.call_id})"


def _mismatch(subject: str) -> ReplayMismatch:
    return ReplayMismatch(
        subject,
        hint="resume with the same tools, files and versions; a script can be replayed only if its "
        "calls depend on nothing but results of tools, the time and random numbers",
    )
