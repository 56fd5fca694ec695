"""The changes of a task and its running script, computed from events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from delf import events as ev
from delf.protocols.approval import NO_REASON
from delf.protocols.people import LOCAL, name_of_user, normalise_name
from delf.records import dataclass

# The maximum number of characters of the line that describes a call.
_MAX_CALL_LENGTH: Final = 200
# The maximum number of a returned dict's keys that are shown.
_MAX_KEYS: Final = 12
# The maximum number of changes that a request shows and its journal entry stores.
_MAX_CHANGES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A call that changed something or may have changed something.

    Args:
        call_id: The number of the call in the task.
        script: The number of the script that made the call; 0 if the strategy itself made the call.
        action: The action.
        arguments: The arguments.
        digest: The digest of the call, which is equal for equal calls.
        certain: Whether the change is known to have happened. The change may have happened if the
            call was abandoned, if its tool could not tell, or if the call was begun and its end is
            not recorded.
    """

    call_id: int
    script: int
    action: str
    arguments: Mapping[str, Any]
    digest: str
    certain: bool

    def __str__(self) -> str:
        text = call_text(self.action, self.arguments)
        return text if self.certain else f"{text} (begun; may be done or not)"


def used_tools(events: Iterable[ev.Event]) -> bool:
    """Return whether a tool was called, and the call was allowed."""
    starts = (event for event in events if isinstance(event, ev.CallStarted))
    return any(event.action != ev.ANSWER for event in starts)


def refusal_of(events: Iterable[ev.Event]) -> str | None:
    """Return ``mail.send was refused: …`` if a tool's refusal made the last script fail.

    None if the last script did not fail, or failed for another reason.

    Args:
        events: The task's events.
    """
    refused_call: ev.CallFinished | None = None
    message: str | None = None
    for event in events:
        match event:
            case ev.ScriptGenerated():  # only the last script counts
                refused_call = message = None
            case ev.CallFinished(raised="ToolException"):
                refused_call = event
            case ev.ScriptFinished(status="failed") if refused_call is not None:
                reason = refused_call.error or ""
                # The script may have caught the refusal, and failed with another error.
                failed_with_refusal = reason in (event.error or "")
                text = f"{refused_call.action} was refused: {reason}"
                message = text if failed_with_refusal else None
            case _:
                pass
    return message


def changes_of(events: Iterable[ev.Event], script: int | None = None) -> list[Change]:
    """Return the calls that changed something or may have, in order of their start.

    Args:
        events: The task's events.
        script: Return only the changes of this script; the changes of all scripts when None.
    """
    course = Course()
    course.follow(tuple(events))
    return [each for each in course.changes if script is None or each.script == script]


def unknown_outcomes(events: Iterable[ev.Event]) -> set[str]:
    """Return the digests of calls whose outcome is unknown and has not been clarified by a person.

    A person clarifies the outcome by approving an equal call, or by declaring the call as already
    done.
    """
    digests: set[str] = set()
    digest_by_call: dict[int, str] = {}
    digest_by_request: dict[str, str] = {}
    for event in events:
        match event:
            case ev.CallStarted():
                digest_by_call[event.call_id] = event.digest
            case ev.CallFinished(outcome_unknown=True) if event.call_id in digest_by_call:
                digests.add(digest_by_call[event.call_id])
            case ev.ApprovalRequested(outcome_unknown=True):
                digest_by_request[event.request_id] = event.digest
                digests.add(event.digest)
            case ev.ApprovalDecided(decision="approved" | "already_done") if (
                event.request_id in digest_by_request
            ):
                digests.discard(digest_by_request[event.request_id])
            case _:
                pass
    return digests


def _has_changed_nothing(end: ev.CallFinished) -> bool:
    """Return True if a call certainly changed nothing, judging by the event of its end.

    This holds for a call that failed, unless its tool raised ``OutcomeUnknownError``, and for a
    call that was cancelled before it was made.
    """
    if end.status == "cancelled":
        return end.cancellation == "not_started"
    # A refused call does not count: a person may refuse to repeat a call that was interrupted.
    return end.status == "error" and not end.outcome_unknown


class DescribedResults(NamedTuple):
    """The results of a script's calls, in words."""

    lines: Sequence[str] = ()
    """A description of each call with its result."""
    are_all_empty: bool = False
    """True if there are results, and all are empty."""


def describe_results(events: Iterable[ev.Event], script_number: int) -> DescribedResults:
    """Describe the results of a script's calls.

    Args:
        events: The task's events.
        script_number: The script's number in the task.
    """
    starts: dict[int, ev.CallStarted] = {}
    lines: list[str] = []
    has_content = False
    current_script = 0
    for event in events:
        match event:
            case ev.ScriptGenerated():
                current_script = event.attempt
            case ev.CallStarted() if current_script == script_number:
                starts[event.call_id] = event
            case ev.CallFinished(status="ok") if event.call_id in starts:
                call = starts.pop(event.call_id)
                call_line = call_text(call.action, call.arguments)
                lines.append(f"{call_line} returned {_result_text(event.result)}")
                is_empty = event.result is None or event.result in ("", [], {})
                has_content = has_content or not is_empty
            case _:
                pass
    return DescribedResults(lines, are_all_empty=bool(lines) and not has_content)


def _result_text(result: Any) -> str:
    """Describe a result briefly: its kind, its size, and the keys of a record."""
    match result:
        case None | bool() | int() | float():
            return repr(result)
        case str() | bytes():
            if not result:
                return "an empty text"
            kind = "text" if isinstance(result, str) else "bytes"
            return f"{kind} of the length {len(result):,}"
        case list() | tuple():
            items = cast("list[Any]", result)
            if not items:
                return "an empty list"
            return f"a list of {len(items):,}, the first {_result_text(items[0])}"
        case dict():
            keys = [str(key)[:40] for key in cast("dict[Any, Any]", result)]
            if not keys:
                return "an empty dict"
            shown_keys = keys[:_MAX_KEYS]
            if len(keys) > _MAX_KEYS:
                shown_keys.append("…")
            return f"a dict with {', '.join(shown_keys)}"
        case _:
            return f"a {type(result).__name__}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The state of a task at the time of a request for approval.

    Args:
        script: The number of the running script; 0 if the strategy itself makes the call.
        because: Why the model wrote the running script; None for the task's first script.
        changes: The latest changes that the task has made.
        changes_before: How many earlier changes are not listed in ``changes``.
        made_before: The ``call_id`` of an earlier call with the same arguments, if any.
    """

    script: int = 0
    because: str | None = None
    changes: tuple[str, ...] = ()
    changes_before: int = 0
    made_before: int | None = None


class Course:
    """The scripts and the changes of a growing task; each event of the task is read once."""

    def __init__(self) -> None:
        self._read_count = 0  # the number of events that were read
        self._running_script = 0
        self._latest_script = 0
        # Why the latest script replaced the one before, such as a failure; None for the first.
        self._reason_for_script: str | None = None
        # The same for the next script, which the model has not written yet.
        self._reason_for_next_script: str | None = None
        self._changes: dict[int, Change] = {}  # by call number

    @property
    def changes(self) -> Iterable[Change]:
        """The calls that changed something or may have, in order of their start."""
        return self._changes.values()

    def follow(self, events: Sequence[ev.Event]) -> None:
        """Read the events that were added since the last time.

        Args:
            events: All events of the task so far.
        """
        for event in events[self._read_count :]:
            new_reason = event.rewrite_reason
            self._reason_for_next_script = new_reason or self._reason_for_next_script
            self._add(event)
        self._read_count = len(events)

    def _add(self, event: ev.Event) -> None:
        """Update the scripts and the changes of the task by one event."""
        match event:
            case ev.ScriptGenerated():
                self._running_script = self._latest_script = event.attempt
                is_first_script = event.attempt <= 1
                self._reason_for_script = None if is_first_script else self._reason_for_next_script
            case ev.ScriptFinished():
                self._running_script = 0
            case ev.CallStarted() if event.effect != "read":
                # A call that was made again counts by its last attempt.
                self._changes[event.call_id] = Change(
                    call_id=event.call_id,
                    script=self._running_script,
                    action=event.action,
                    arguments=event.arguments,
                    digest=event.digest,
                    certain=False,
                )
            case ev.CallFinished() if event.call_id in self._changes:
                if _has_changed_nothing(event):
                    del self._changes[event.call_id]
                elif event.status == "ok":
                    change = self._changes[event.call_id]
                    self._changes[event.call_id] = replace(change, certain=True)
            case _:
                pass

    def situation(self, digest: str, call_id: int) -> Situation:
        """Describe the state of the task for a person who is asked about a call.

        Args:
            digest: The digest of the call, which is the same for equal calls.
            call_id: The number of the call.
        """
        # Leave out the change by an earlier attempt of this call.
        changes = [change for change in self.changes if change.call_id != call_id]
        equal_calls = [change.call_id for change in changes if change.digest == digest]
        listed_changes = changes[-_MAX_CHANGES:]
        return Situation(
            script=self._latest_script,
            because=self._reason_for_script,
            changes=tuple(map(str, listed_changes)),
            changes_before=len(changes) - len(listed_changes),
            made_before=equal_calls[-1] if equal_calls else None,
        )


OTHER_AUTHORS_KEY: Final = "shaped_by"
"""The key, in a task's setup, of the names of people who influenced the task before its start."""
# The kinds of decisions that always influence what a task does next.
_SHAPING: Final = ("edited", "changes_requested", "already_done", "answered")


def changes_requested(events: Iterable[ev.Event], script: int) -> list[str]:
    """Return the changes that people requested about a script or its calls, in order.

    Args:
        events: The task's events.
        script: The script's number.
    """
    request_ids: set[str] = set()
    reasons: list[str] = []
    for event in events:
        match event:
            case ev.ApprovalRequested() if event.script == script:
                request_ids.add(event.request_id)
            case ev.ApprovalDecided(decision="changes_requested") if (
                event.request_id in request_ids
            ):
                reasons.append(event.reason or "")
            case _:
                pass
    return reasons


def shapers_of(events: Iterable[ev.Event], task_user: str) -> list[str]:
    """Return the people whose decisions influenced what a task does next.

    The people are in the order of their first such decision.

    A person influences a task by editing a call, declaring the result of an interrupted call,
    answering a question, requesting changes, or rejecting a call with a reason that the script
    and the model read. Answers by the user of the task are a part of the task, and do not count.

    Args:
        events: The task's events.
        task_user: The name of the task's user.
    """
    shapers: dict[str, None] = {}
    user_name = normalise_name(task_user)
    for event in events:
        if not isinstance(event, ev.ApprovalDecided) or event.source != "person":
            continue
        if not _influences_task(event):
            continue
        name = LOCAL if event.person is None else name_of_user(event.person)
        is_task_user = normalise_name(name) == user_name
        is_answer_of_task_user = is_task_user and event.decision == "answered"
        if not is_answer_of_task_user:
            shapers[name] = None
    return list(shapers)


def _influences_task(decision: ev.ApprovalDecided) -> bool:
    """Return whether a decision does more than approve or reject a call.

    Examples are an edit of the arguments, and a reason for the rejection.
    """
    if decision.decision == "rejected":
        # NO_REASON is the text of a rejection for which the person gave no reason.
        return decision.reason not in (None, "", NO_REASON)
    return decision.decision in _SHAPING


def call_text(action: str, arguments: Mapping[str, Any]) -> str:
    """Format a call as one line of text, truncated if long."""
    argument_list = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    text = " ".join(f"{action}({argument_list})".split())
    if len(text) <= _MAX_CALL_LENGTH:
        return text
    return f"{text[:_MAX_CALL_LENGTH]}…"
