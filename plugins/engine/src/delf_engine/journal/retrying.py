"""Retries of queued tasks: whether a failed task is retried, and from which point.

A retry replays the journal without repeating calls. A retry only helps if the failure is not part
of the record - an outage of a model, a service or the sandbox - or if it is a failed read, whose
recorded end is then ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf import events as ev
from delf.errors import (
    BudgetExceededError,
    ConnectionUnavailableError,
    LLMExecutionError,
    SandboxUnavailableError,
    UnrecordedCallError,
)

_TEMPORARY_STATUSES: Final = frozenset({408, 409, 425, 429})
# The maximum pause, so that the end of a long outage is noticed within an hour.
_MAX_PAUSE_SECONDS: Final = 3600.0
# The maximum number of times that a pause is doubled: a float has no power of two above 1023.
_MAX_DOUBLINGS: Final = 1000
# If one of these events follows the end of the last script, the task went on after that script.
_PROGRESS: Final = (ev.ScriptGenerated, ev.RetryScheduled, ev.RerunRequested, ev.StepStarted)


def seconds_until_retry(
    error: BaseException, events: Sequence[ev.Event], max_retries: int, first_pause: float
) -> float | None:
    """Return the seconds until a failed task is retried; None if it is not retried.

    Args:
        error: The error with which the task failed.
        events: The task's events.
        max_retries: The maximum number of retries.
        first_pause: The seconds until the first retry; each further pause is twice as long, up to
            an hour.
    """
    earlier_retries = sum(isinstance(event, ev.TaskPostponed) for event in events)
    # If a script fails at a call, its error has the service's error as its cause.
    is_temporary = _is_temporary(error) or _is_temporary(error.__cause__)
    if earlier_retries >= max_retries or not is_temporary:
        return None
    # The call may have been made: a person has to say whether to make it again.
    if _has_unknown_write(events) or isinstance(error, UnrecordedCallError):
        return None
    if _failed_after_script(events):
        # A retry runs the script again with its recorded answers, so it would fail again. Only a
        # failed read is made again, and may succeed.
        repeats_read = _index_of_failed_read(events) is not None
        if not repeats_read:
            return None
    doublings = min(earlier_retries, _MAX_DOUBLINGS)
    return min(first_pause * 2.0**doublings, _MAX_PAUSE_SECONDS)


def without_recorded_failures(events: Sequence[ev.Event]) -> list[ev.Event]:
    """Remove the events of failures, after which the task was retried or resumed.

    A failed read that may have caused a failure is removed, too, and so is made again.
    """
    remaining: list[ev.Event] = []
    for event in events:
        if not isinstance(event, (ev.TaskPostponed, ev.TaskFinished)):
            remaining.append(event)
        elif _may_be_due_to_read(event):
            remaining = _without_failed_read(remaining)
    return remaining


def _may_be_due_to_read(event: ev.TaskPostponed | ev.TaskFinished) -> bool:
    """Return whether a failed read may be why a task was postponed or ended.

    True for a task that was postponed or ended at its budget: a read that asks a model fails at the
    budget. False for any other end, such as the timeout, which no failed call causes.
    """
    return isinstance(event, ev.TaskPostponed) or event.code == BudgetExceededError.code


def _without_failed_read(events: list[ev.Event]) -> list[ev.Event]:
    """Remove the end of the read that made a script fail, and what the script did afterwards.

    The read is made again, and the script continues from there. The ends of other calls and
    people's decisions are kept, so that the retry neither repeats these calls nor asks again.
    """
    read_index = _index_of_failed_read(events)
    if read_index is None:
        return events
    kept_types = (ev.CallFinished, ev.ApprovalDecided)
    later_events = events[read_index + 1 :]
    kept_later_events = [event for event in later_events if isinstance(event, kept_types)]
    return events[:read_index] + kept_later_events


def _is_temporary(error: BaseException | None) -> bool:
    """Return True for an error of a model, connection or sandbox that may be temporary."""
    if isinstance(error, LLMExecutionError):
        status = error.status
        return status is None or status in _TEMPORARY_STATUSES or status >= 500
    return isinstance(error, (ConnectionUnavailableError, SandboxUnavailableError))


def _has_unknown_write(events: Sequence[ev.Event]) -> bool:
    """Return True if a write call has an unknown outcome: it was cancelled, or has no end."""
    statuses = {end.call_id: end.status for end in events if isinstance(end, ev.CallFinished)}
    for event in events:
        if isinstance(event, ev.CallStarted) and event.effect != "read":
            status = statuses.get(event.call_id)
            if status is None or status == "cancelled":
                return True
    return False


def _failed_after_script(events: Sequence[ev.Event]) -> bool:
    """Return True if a failed task's last recorded progress is the end of a script."""
    for event in reversed(events):
        if isinstance(event, ev.ScriptFinished):
            return True
        if isinstance(event, _PROGRESS):
            return False
    return False


def _is_read(call_id: int, events: Sequence[ev.Event]) -> bool:
    """Return whether the call with a number is a read."""
    starts = [event for event in events if isinstance(event, ev.CallStarted)]
    return any(start.call_id == call_id and start.effect == "read" for start in starts)


def _index_of_failed_read(events: Sequence[ev.Event]) -> int | None:
    """Return the index of the ``CallFinished`` of the read whose failure made the task fail.

    None if the task failed for another reason.
    """
    if not _failed_after_script(events):
        return None
    for index, event in reversed(list(enumerate(events))):
        if isinstance(event, (ev.CallStarted, ev.ApprovalRequested, ev.ScriptGenerated)):
            # The script handled the failure and went on. A retry in which the read succeeds would
            # differ from the record.
            return None
        if isinstance(event, ev.CallFinished) and event.raised is not None:
            return index if _is_read(event.call_id, events) else None
    return None
