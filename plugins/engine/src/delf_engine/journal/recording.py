"""A task's events, indexed by script and call."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from delf import events as ev
from delf.messages import ModelReply
from delf.protocols.sandbox import CallAnswer, Raised, Returned, ToolMessage
from delf.records import dataclass
from delf_engine.redact import REDACTED


class RecordedRequest(NamedTuple):
    """A recorded request for approval and its decision; each is None if it is not recorded."""

    request: ev.ApprovalRequested | None = None
    decision: ev.ApprovalDecided | None = None


@dataclass(kw_only=True)
class RecordedCall:
    """The events of one call in the journal.

    Args:
        call_id: The number of the call in the task.
        action: The full name of the action.
        digest: The SHA-256 of the action and the arguments as the script gave them.
        request: The latest request for approval, if any.
        decision: The decision about that request, if any.
        started: The start event, if the call was started.
        repeat_request: The question, from an earlier resume, whether to repeat the interrupted
            call.
        repeat_decision: The answer to that question, if any.
        finished: The end event, if the call has ended.
        request_has_lapsed: Whether the request for approval was closed because the sandbox died.
        was_interrupted: Whether the sandbox died before the call ended.
        is_script_over: Whether the script has ended and is not run again.
        script_stopped_waiting: Whether the script stopped waiting before the call ended.
        edits: The earlier requests that a person answered by editing the arguments, each with that
            answer. Each answer led to a new request.
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
    request_has_lapsed: bool = False
    was_interrupted: bool = False
    is_script_over: bool = False
    script_stopped_waiting: bool = False
    edits: list[tuple[ev.ApprovalRequested, ev.ApprovalDecided]] = field(
        default_factory=list[tuple[ev.ApprovalRequested, ev.ApprovalDecided]]
    )

    @property
    def was_abandoned(self) -> bool:
        """True if the script abandoned the call and never got an answer."""
        if self.script_stopped_waiting:
            return True
        if self.finished is not None:
            return self.finished.status == "cancelled"
        # If the sandbox died before the call ended, the script is usually run again, makes the call
        # again, and gets an answer. Only a script that is not run again has abandoned the call.
        return self.was_interrupted and self.is_script_over

    @property
    def may_have_taken_effect(self) -> bool:
        """True if the call was started and can change something."""
        return self.started is not None and self.started.effect != "read"

    @property
    def edited_start(self) -> ev.CallStarted | None:
        """The start event of the call if a person had edited the call's arguments, else None."""
        started = self.started
        is_edited = started is not None and started.digest != self.digest
        return started if is_edited else None

    @property
    def has_lost_arguments(self) -> bool:
        """True if a person's edit contained a secret, which the journal does not store."""
        arguments_of_decision = None if self.decision is None else self.decision.arguments
        arguments_of_start = None if self.edited_start is None else self.edited_start.arguments
        return REDACTED in repr(arguments_of_decision) or REDACTED in repr(arguments_of_start)

    def request_for(self, *, outcome_unknown: bool) -> RecordedRequest:
        """Return a recorded request about the call, and the recorded decision on the request.

        Each is None if it is not recorded or does not apply any more.

        Args:
            outcome_unknown: True for the request that asks whether to repeat the interrupted call;
                False for the ordinary request for approval.
        """
        if outcome_unknown:
            repeat_decision = self.repeat_decision
            was_approved = repeat_decision is not None and repeat_decision.decision == "approved"
            if was_approved and self.started is not None:
                # The approved repetition was interrupted, too: ask a person again.
                return RecordedRequest()
            return RecordedRequest(self.repeat_request, repeat_decision)
        if self.has_lost_arguments:
            # The request cannot be shown without its arguments: ask a person again.
            return RecordedRequest()
        return RecordedRequest(self.request, self.decision)

    def answer(self) -> CallAnswer:
        """Return the recorded answer that the script got.

        Raises:
            ValueError: If the call has no recorded end.
        """
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
        if end.status == "ok":
            return Returned(end.result)
        return ToolMessage(str(end.result))


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step in the recorded order of a script: a call was made, or a call was answered."""

    call_id: int
    is_answer: bool


@dataclass(kw_only=True)
class RecordedScript:
    """The events of one script, or of the strategy's own work between scripts.

    Args:
        attempt: The script's number; 0 for the strategy's own work.
        calls: The calls in the order in which the script made them.
        steps: The calls and the answers to the calls, in their order.
        clock: The times that the script read from the clock, in nanoseconds.
        turns: The iterations of the script's event loop in which answers arrived or timers fired,
            as pairs of numbers (see :meth:`TaskLog.buffer_loop_turns`).
        printed: The printed text, in pieces.
        unreplayed_print_length: The number of printed characters that a replay has not printed yet.
        finished: The end event, if the script has ended.
        request: The request for approval of the script as a whole, if any.
        decision: The decision about that request, if any.
    """

    attempt: int
    calls: list[RecordedCall] = field(default_factory=list[RecordedCall])
    steps: list[RecordedStep] = field(default_factory=list[RecordedStep])
    clock: list[int] = field(default_factory=list[int])
    turns: list[int] = field(default_factory=list[int])
    printed: list[str] = field(default_factory=list[str])
    unreplayed_print_length: int = 0
    finished: ev.ScriptFinished | None = None
    request: ev.ApprovalRequested | None = None
    decision: ev.ApprovalDecided | None = None

    @property
    def calls_to_repeat(self) -> list[RecordedCall]:
        """The recorded calls that a replay must make: all that the script did not abandon."""
        return [call for call in self.calls if not call.was_abandoned]


class Recording:
    """A task's events, grouped by script, by call, and by purpose of model calls.

    Args:
        events: All events of the task in order.
    """

    def __init__(self, events: Sequence[ev.Event] = ()) -> None:
        # The model's complete replies, by the purpose of the model call.
        self.replies: defaultdict[str, deque[ModelReply]] = defaultdict(deque)
        # The strategy's notes, by topic.
        self.notes: defaultdict[str, deque[str]] = defaultdict(deque)
        # The pieces of incomplete replies, by the purpose of the model call.
        self._pieces_of_incomplete_reply: dict[str, list[ev.ModelWrote]] = {}
        # How many recorded events match() has not matched yet, by their type and key fields.
        self._unmatched: Counter[tuple[Any, ...]] = Counter()
        self.between_scripts = RecordedScript(attempt=0)
        """The strategy's own work before, between and after the scripts."""
        self.scripts: dict[int, RecordedScript] = {}
        """The scripts by attempt, from 1."""
        self.highest_call_id = 0
        """The highest number of a call; 0 without calls."""
        # The numbers of calls with a CallAbandoned before any other event of the call. If another
        # event follows, _find_or_add_call() marks the call as abandoned.
        self._abandoned_call_ids: set[int] = set()
        self._calls: dict[int, RecordedCall] = {}  # by call number
        self._script_by_call_id: dict[int, RecordedScript] = {}
        # The call, or the whole script, that a request for approval is about, by the request's id.
        self._call_by_request: dict[str, RecordedCall] = {}
        self._script_by_request: dict[str, RecordedScript] = {}
        self._add_all(events)
        for purpose in list(self._pieces_of_incomplete_reply):
            self._add_incomplete_reply(purpose)
        for script in self.scripts.values():
            # A script that has no end, or whose sandbox crashed, is run again.
            is_over = script.finished is not None and script.finished.status != "crashed"
            for call in script.calls:
                call.is_script_over = is_over

    def _add_all(self, events: Sequence[ev.Event]) -> None:
        """Add each event to the script that was running, or to the strategy's own work."""
        script = self.between_scripts
        for event in events:
            if isinstance(event, ev.ScriptGenerated):
                script = self.scripts[event.attempt] = RecordedScript(attempt=event.attempt)
            self._add(event, script)
            if isinstance(event, ev.ScriptFinished):
                script = self.between_scripts
            if event.replay_key is not None:
                key_values = [getattr(event, name) for name in event.replay_key]
                self._unmatched[type(event), *key_values] += 1

    def match(self, kind: type[ev.Event], fields: Mapping[str, Any]) -> bool:
        """Mark an equal recorded event as matched; return False if there is none to mark.

        Each recorded event is matched only once. Events are equal if they have the same type and
        the same values of the type's key fields.
        """
        if not self._unmatched:
            return False
        if kind is ev.CallFinished and fields["status"] == "refused":
            # An invalid call is refused before it gets a digest, by which other calls are matched.
            # Its number may differ, too, because a replay may make calls in another order.
            key = _refusal_key(fields["action"], fields["error"])
        else:
            names = kind.replay_key
            if names is None:
                return False
            # The only optional field of a replay key is ``attempt``, whose default is 1.
            key = (kind, *(fields.get(name, 1) for name in names))
        if self._unmatched[key] == 0:
            return False
        self._unmatched[key] -= 1
        return True

    def _add(self, event: ev.Event, script: RecordedScript) -> None:
        """Add an event to the record of its script, call or model call."""
        match event:
            case ev.ScriptFinished():
                script.finished = event
            case ev.ClockRead():
                script.clock += event.readings
                script.turns += event.turns  # the turns of the script's event loop
            case ev.Printed():
                script.printed.append(event.text)
                script.unreplayed_print_length += len(event.text)
            case ev.Noted():
                self.notes[event.topic].append(event.text)
            case ev.ModelCalled() | ev.ModelFailed() | ev.ModelWrote() | ev.ModelReplied():
                self._add_model_event(event)
            case ev.ApprovalRequested():
                self._add_request(event, script)
            case ev.ApprovalDecided():
                self._add_decision(event)
            case ev.ApprovalRemembered() if event.call_id:
                # The script has made the call, although the call has no other event yet.
                self._find_or_add_call(event, event.digest, script)
            case ev.CallStarted():
                self._find_or_add_call(event, event.digest, script).started = event
            case ev.CallFinished():
                self._add_end(event, script)
            case ev.CallAbandoned():
                self._add_abandonment(event)
            case _:
                pass

    def _add_model_event(
        self, event: ev.ModelCalled | ev.ModelFailed | ev.ModelWrote | ev.ModelReplied
    ) -> None:
        """Add a complete reply, or collect the pieces of a reply that may stay incomplete."""
        match event:
            case ev.ModelCalled():
                # If the previous model call has no end, its process died during the call.
                self._add_incomplete_reply(event.purpose)
                self._pieces_of_incomplete_reply[event.purpose] = []
            case ev.ModelFailed():
                self._add_incomplete_reply(event.purpose)
            case ev.ModelWrote():
                pieces = self._pieces_of_incomplete_reply.get(event.purpose)
                if pieces is not None:  # None after the complete reply
                    pieces.append(event)
            case ev.ModelReplied():
                self._pieces_of_incomplete_reply.pop(event.purpose, None)
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

    def _add_incomplete_reply(self, purpose: str) -> None:
        """Add an unfinished reply, joined from its recorded pieces, as if it were complete.

        The process died while the model was replying. The recorded pieces are paid for and may have
        started calls, so they count as the whole reply.

        Args:
            purpose: The purpose of the model call.
        """
        pieces = self._pieces_of_incomplete_reply.pop(purpose, ())
        if pieces:
            text = "".join(event.text for event in pieces)
            calls = tuple(call for event in pieces for call in event.calls)
            reply = ModelReply(text=text, calls=calls, model="", finish_reason="cut")
            self.replies[purpose].append(reply)

    def _find_or_add_call(
        self,
        event: ev.ApprovalRequested | ev.ApprovalRemembered | ev.CallStarted | ev.CallFinished,
        digest: str,
        script: RecordedScript,
    ) -> RecordedCall:
        """Return the :class:`RecordedCall` of an event; create it for the call's first event."""
        recorded_call = self._calls.get(event.call_id)
        if recorded_call is None:
            recorded_call = RecordedCall(
                call_id=event.call_id,
                action=event.action,
                digest=digest,
                # The script may give up a call before the call's first event is recorded.
                script_stopped_waiting=event.call_id in self._abandoned_call_ids,
            )
            self._calls[event.call_id] = recorded_call
            self._script_by_call_id[event.call_id] = script
            self.highest_call_id = max(self.highest_call_id, event.call_id)
            script.calls.append(recorded_call)
            script.steps.append(RecordedStep(recorded_call.call_id, is_answer=False))
        return recorded_call

    def _add_request(self, event: ev.ApprovalRequested, script: RecordedScript) -> None:
        """Add a request for approval to the script or to the call that the request is about."""
        is_about_script = event.code is not None
        if is_about_script:
            script.request = event
            self._script_by_request[event.request_id] = script
            return
        recorded_call = self._find_or_add_call(event, event.digest, script)
        if event.action != recorded_call.action:
            return  # a tool's own question during the call
        self._call_by_request[event.request_id] = recorded_call
        recorded_call.request_has_lapsed = False
        if event.outcome_unknown:  # the question whether to repeat an interrupted call
            recorded_call.repeat_request = event
            recorded_call.repeat_decision = None
            return
        previous_request = recorded_call.request
        previous_decision = recorded_call.decision
        if (
            previous_request is not None
            and previous_decision is not None
            and previous_decision.decision == "edited"
        ):
            # The new request asks for approval of the edited call. Keep the edit.
            recorded_call.edits.append((previous_request, previous_decision))
        recorded_call.request = event
        recorded_call.decision = None

    def _add_decision(self, event: ev.ApprovalDecided) -> None:
        """Add a decision to the recorded script or call about which a person was asked."""
        script = self._script_by_request.get(event.request_id)
        if script is not None:
            script.decision = event
            return
        recorded_call = self._call_by_request.get(event.request_id)
        if recorded_call is None:
            return
        if event.source == "sandbox_died":  # nobody has decided
            recorded_call.request_has_lapsed = True
        elif _is_answered_by(recorded_call.repeat_request, event):
            recorded_call.repeat_decision = event
            if event.source == "changed":  # as below
                recorded_call.repeat_request = recorded_call.repeat_decision = None
        elif not _is_answered_by(recorded_call.request, event):
            return  # the decision is about an older request of the call
        elif event.source == "changed":
            # The request was closed because the effect of the call had changed. Nobody has decided
            # about the call as it is now, so forget the request.
            recorded_call.request = recorded_call.decision = None
        else:
            recorded_call.decision = event

    def _add_abandonment(self, event: ev.CallAbandoned) -> None:
        self.highest_call_id = max(self.highest_call_id, event.call_id)
        recorded_call = self._calls.get(event.call_id)
        if recorded_call is None:
            # The script stopped waiting before the call's first event was recorded. That event may
            # follow, so remember the abandonment for it.
            self._abandoned_call_ids.add(event.call_id)
            return
        recorded_call.script_stopped_waiting = True

    def _add_end(self, event: ev.CallFinished, script: RecordedScript) -> None:
        """Add the last event of a call: the end of the call, or the death of its sandbox."""
        self.highest_call_id = max(self.highest_call_id, event.call_id)
        recorded_call = self._calls.get(event.call_id)
        if recorded_call is None and event.digest is not None:
            recorded_call = self._find_or_add_call(event, event.digest, script)
        if recorded_call is None:
            # An invalid call was refused, which is its only event. A replay makes the call again,
            # and match() then finds the refusal.
            self._unmatched[_refusal_key(event.action, event.error)] += 1
        elif event.cancellation == "cut_off":
            # The sandbox died during the call, so the call has not ended: it is repeated later.
            recorded_call.was_interrupted = True
        elif event.cancellation == "not_started":
            # The sandbox died before the action was run, although the journal has a start. The
            # decision stays valid, and a resume starts the call.
            recorded_call.was_interrupted = True
            recorded_call.started = None
        else:
            recorded_call.finished = event
            script_of_call = self._script_by_call_id[event.call_id]
            script_of_call.steps.append(RecordedStep(event.call_id, is_answer=True))


def _is_answered_by(request: ev.ApprovalRequested | None, decision: ev.ApprovalDecided) -> bool:
    return request is not None and request.request_id == decision.request_id


def _refusal_key(action: str, error: str | None) -> tuple[Any, ...]:
    """Return the key under which ``Recording._unmatched`` counts refusals of an invalid call.

    The key begins with the class of the event, like all keys of this counter.
    """
    return (ev.CallFinished, action, error)
