"""A task's events, indexed by script and call."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from delf import events as ev
from delf.messages import ModelReply
from delf.protocols.sandbox import CallAnswer, Raised, Returned, ToolMessage
from delf.records import dataclass
from delf_engine.redact import REDACTED


@dataclass(kw_only=True)
class RecordedCall:
    """A call in the journal.

    Args:
        call_id: The number.
        action: The action.
        digest: SHA-256 over the action and the script's arguments.
        request: The request for approval, if one was made.
        decision: The decision.
        started: The start event, if the call was started.
        repeat_request: The request whether to repeat the call, from an earlier resume.
        repeat_decision: The decision about that request.
        finished: The end event, if known.
        lapsed: Whether the request was closed because the sandbox died.
        cut_off: Whether the sandbox died during the call, which is not an end of the call.
        is_over: Whether the script ended without waiting for the call.
        unseen: Whether the script stopped waiting before the end.
        edits: Requests that a person answered with edited arguments and that led to a further
            request, with these answers.
    """

    call_id: int
    action: str
    digest: str
    request: ev.ApprovalRequested | None = None
    decision: ev.ApprovalDecided | None = None
    started: ev.CallStarted | None = None
    repeat_request: ev.ApprovalRequested | None = None
    repeat_decision: ev.ApprovalDecided | None = None
    finished: ev.CallFinished | None = None
    lapsed: bool = False
    cut_off: bool = False
    is_over: bool = False
    unseen: bool = False
    edits: list[tuple[ev.ApprovalRequested, ev.ApprovalDecided]] = field(
        default_factory=list[tuple[ev.ApprovalRequested, ev.ApprovalDecided]]
    )

    @property
    def was_abandoned(self) -> bool:
        """True if the script cancelled the call and never got an answer."""
        if self.unseen:
            return True
        # A call that was cut off has no answer: a script that has ended never asks for the answer,
        # and any other script asks again when the script is repeated.
        if self.finished is None:
            return self.cut_off and self.is_over
        return self.finished.status == "cancelled"

    @property
    def edited_arguments(self) -> Mapping[str, Any] | None:
        """The arguments of the started call, if a person had edited them."""
        started = self.started
        return None if started is None or started.digest == self.digest else started.arguments

    @property
    def lost_arguments(self) -> bool:
        """True if the edited arguments contained a secret, which the journal does not store."""
        edited_arguments = None if self.decision is None else self.decision.arguments
        return REDACTED in repr(edited_arguments) or REDACTED in repr(self.edited_arguments)

    def request_for(
        self, *, outcome_unknown: bool
    ) -> tuple[ev.ApprovalRequested | None, ev.ApprovalDecided | None]:
        """Return the recorded request about the call, and its decision if still valid.

        Args:
            outcome_unknown: Whether to return the request to repeat an interrupted call. An
                approval of that request is valid once, because the call may have been made since.
        """
        if not outcome_unknown:
            return (None, None) if self.lost_arguments else (self.request, self.decision)
        if self.repeat_decision is None:
            return self.repeat_request, None
        if self.repeat_decision.decision == "approved":
            return None, None
        return self.repeat_request, self.repeat_decision

    def answer(self) -> CallAnswer:
        """Return the answer that the script got."""
        end = self.finished
        if end is None:
            raise ValueError("the call has no recorded end")
        if end.raised is not None:
            return Raised(
                end.raised,
                end.error or "",
                can_retry=end.can_retry,
                http_status=end.http_status,
            )
        return Returned(end.result) if end.status == "ok" else ToolMessage(str(end.result))


@dataclass(kw_only=True)
class RecordedScript:
    """The journal of one script, or of the strategy's own work between scripts.

    Args:
        attempt: The script's number; 0 for the strategy's own calls.
        calls: The calls in the order in which they came.
        steps: The order of its calls: the negative number of a call that came, the number of a call
            that was answered.
        clock: The clock reads, in nanoseconds.
        turns: The turns of its event loop in which answers arrived.
        printed: The printed text.
        left_to_print: The number of printed characters not yet replayed.
        finished: The end event, if known.
        request: The request for the script as a whole, if one was made.
        decision: The decision about that request.
    """

    attempt: int
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])
    steps: list[int] = field(default_factory=list[int])
    clock: list[int] = field(default_factory=list[int])
    turns: list[int] = field(default_factory=list[int])
    printed: list[str] = field(default_factory=list[str])
    left_to_print: int = 0
    finished: ev.ScriptFinished | None = None
    request: ev.ApprovalRequested | None = None
    decision: ev.ApprovalDecided | None = None

    @property
    def expected(self) -> list[RecordedCall]:
        """The recorded calls not yet replayed."""
        return [call for call in self.calls if not call.was_abandoned]


class Recording:
    """A task's events, grouped by script, call and purpose.

    Args:
        events: All of them, in order.
    """

    def __init__(self, events: Sequence[ev.Event] = ()) -> None:
        self.replies: defaultdict[str, deque[ModelReply]] = defaultdict(deque)
        self.notes: defaultdict[str, deque[str]] = defaultdict(deque)
        self._drafts: dict[str, list[ev.ModelWrote]] = {}
        self.unmatched: Counter[tuple[Any, ...]] = Counter()
        self.scripts: dict[int, RecordedScript] = {}
        self.last_call = 0
        self._abandoned: set[int] = set()
        self._calls: dict[int, RecordedCall] = {}
        self._callers: dict[int, RecordedScript] = {}
        self._call_by_request: dict[str, RecordedCall] = {}
        self._script_by_request: dict[str, RecordedScript] = {}
        script_of_calls = script = self.scripts[0] = RecordedScript(attempt=0)
        for event in events:
            if isinstance(event, ev.ScriptGenerated):
                script = self.scripts[event.attempt] = RecordedScript(attempt=event.attempt)
            self._take(event, script)
            if isinstance(event, ev.ScriptFinished):
                # What comes between scripts is the strategy's own: counted to the last script, its
                # calls would be expected from that script.
                script = script_of_calls
            names = event.replay_key
            if names is not None:
                key = (type(event), *(getattr(event, name) for name in names))
                self.unmatched[key] += 1
        for purpose in list(self._drafts):
            self._end_draft(purpose)
        for script in self.scripts.values():
            # After a crash the script runs again and makes its calls again; only after an end does
            # nobody wait for them.
            is_finished = script.finished is not None and script.finished.status != "crashed"
            for call in script.calls:
                call.is_over = is_finished

    def knows(self, kind: type[ev.Event], fields: Mapping[str, Any]) -> bool:
        """Return True if an event is recorded; each recorded event matches once."""
        if not self.unmatched:
            return False
        if kind is ev.CallFinished and fields["status"] == "refused":
            # A call refused before it had a digest is matched by its message: its number may differ
            # in a replay, where calls come in another order.
            key = _refusal(fields["action"], fields["error"])
        else:
            names = kind.replay_key
            if names is None:
                return False
            key = (kind, *(fields.get(name, 1) for name in names))
        if self.unmatched[key] == 0:
            return False
        self.unmatched[key] -= 1
        return True

    def _take(self, event: ev.Event, script: RecordedScript) -> None:
        """Sort an event into its script, call or purpose."""
        match event:
            case ev.ScriptFinished():
                script.finished = event
            case ev.ClockRead():
                script.clock += event.readings
                script.turns += event.turns
            case ev.Printed():
                script.printed.append(event.text)
                script.left_to_print += len(event.text)
            # A call with neither reply nor failure was cut off by the end of its process. What the
            # model had written is paid for and may have started calls, so it counts as the reply.
            case ev.ModelCalled():
                self._end_draft(event.purpose)
                self._drafts[event.purpose] = []
            case ev.ModelFailed():
                self._end_draft(event.purpose)
            case ev.ModelWrote():  # ignored after the complete answer
                self._drafts.get(event.purpose, []).append(event)
            case ev.ModelReplied():
                self._drafts.pop(event.purpose, None)
                self.replies[event.purpose].append(
                    ModelReply(
                        text=event.text,
                        calls=event.calls,
                        usage=event.usage,
                        model=event.model,
                        cost_usd=event.cost_usd,
                        finish_reason=event.finish_reason,
                        reply_id=event.reply_id,
                    )
                )
            case ev.Noted():
                self.notes[event.topic].append(event.text)
            # Only the request for a whole script shows code; it belongs to no call.
            case ev.ApprovalRequested() if event.code is not None:
                script.request, self._script_by_request[event.request_id] = event, script
            case ev.ApprovalDecided() if event.request_id in self._script_by_request:
                self._script_by_request[event.request_id].decision = event
            case ev.ApprovalRequested():
                self._take_request(event, self._call(event, event.digest, script))
            case ev.ApprovalDecided():
                self._take_decision(event)
            case ev.ApprovalRemembered() if event.call_id:
                self._call(event, event.digest, script)
            case ev.CallStarted():
                self._call(event, event.digest, script).started = event
            case ev.CallFinished():
                self._take_end(event, script)
            case ev.CallAbandoned():
                self._take_abandoned(event)
            case _:
                pass

    def _end_draft(self, purpose: str) -> None:
        """Turn the journalled pieces of a truncated answer into a recorded reply."""
        deltas = self._drafts.pop(purpose, ())
        if deltas:
            text = "".join(event.text for event in deltas)
            calls = tuple(call for event in deltas for call in event.calls)
            reply = ModelReply(text=text, calls=calls, model="", finish_reason="cut")
            self.replies[purpose].append(reply)

    def _call(
        self,
        event: ev.ApprovalRequested | ev.ApprovalRemembered | ev.CallStarted | ev.CallFinished,
        digest: str,
        script: RecordedScript,
    ) -> RecordedCall:
        """Return the recorded call of an event, creating it for the call's first event."""
        recorded_call = self._calls.get(event.call_id)
        if recorded_call is None:
            recorded_call = RecordedCall(
                call_id=event.call_id,
                action=event.action,
                digest=digest,
                # The script may give up a call before the call's first event is recorded.
                unseen=event.call_id in self._abandoned,
            )
            self._calls[event.call_id] = recorded_call
            self._callers[event.call_id] = script
            self.last_call = max(self.last_call, event.call_id)
            script.calls.append(recorded_call)
            script.steps.append(-recorded_call.call_id)
        return recorded_call

    def _take_request(self, event: ev.ApprovalRequested, recorded_call: RecordedCall) -> None:
        """Record a request for approval with its call."""
        if event.action != recorded_call.action:
            return  # a tool's own question during the call
        self._call_by_request[event.request_id] = recorded_call
        recorded_call.lapsed = False
        if event.outcome_unknown:
            recorded_call.repeat_request, recorded_call.repeat_decision = event, None
        else:
            before, decision = recorded_call.request, recorded_call.decision
            if before is not None and decision is not None and decision.decision == "edited":
                recorded_call.edits.append((before, decision))
            recorded_call.request, recorded_call.decision = event, None

    def _take_decision(self, event: ev.ApprovalDecided) -> None:
        """Record a decision with the request that it answers."""
        recorded_call = self._call_by_request.get(event.request_id)
        if recorded_call is None:
            return
        if event.source == "sandbox_died":
            recorded_call.lapsed = True
        elif (
            recorded_call.repeat_request is not None
            and recorded_call.repeat_request.request_id == event.request_id
        ):
            recorded_call.repeat_decision = event
        elif (
            recorded_call.request is not None
            and recorded_call.request.request_id == event.request_id
        ):
            recorded_call.decision = event
            if event.source == "changed":  # the changed call has not been asked about
                recorded_call.request = recorded_call.decision = None

    def _take_abandoned(self, event: ev.CallAbandoned) -> None:
        self.last_call = max(self.last_call, event.call_id)
        recorded_call = self._calls.get(event.call_id)
        if recorded_call is None:
            self._abandoned.add(event.call_id)
            return
        recorded_call.unseen = True

    def _take_end(self, event: ev.CallFinished, script: RecordedScript) -> None:
        """Record the end of a call, unless the call may have gone on."""
        self.last_call = max(self.last_call, event.call_id)
        recorded_call = self._calls.get(event.call_id)
        if recorded_call is None and event.digest is not None:
            recorded_call = self._call(event, event.digest, script)
        if recorded_call is None:
            self.unmatched[_refusal(event.action, event.error)] += 1
            return
        # Not an end: the call may have gone on after its sandbox died, so a resume has to ask.
        if event.cancellation == "cut_off":
            recorded_call.cut_off = True
            return
        if event.cancellation == "not_started":  # its decision stays valid
            recorded_call.started, recorded_call.cut_off = None, True
            return
        recorded_call.finished = event
        self._callers[event.call_id].steps.append(event.call_id)


def _refusal(action: str, error: str | None) -> tuple[Any, ...]:
    return (ev.CallFinished, action, error)
