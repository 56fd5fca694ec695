"""Decide about the next try of a task that failed in a queue, and where that try goes on.

A try relives what is recorded, and nothing of it is done twice. So it is worth it only where what
failed was outside of all that is recorded - a model or a service that was away, or a sandbox that
was not available - or was a call that only reads, whose end is then taken as not recorded.
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

_BUSY: Final = frozenset({408, 409, 425, 429})
_LONGEST: Final = 3600.0
"""Seconds between two tries at most: a service that was away for a day is found within an hour."""
_ON: Final = (ev.ScriptGenerated, ev.RetryScheduled, ev.RerunRequested, ev.StepStarted)


def next_try(
    error: BaseException, events: Sequence[ev.Event], retries: int, after: float
) -> float | None:
    """In how many seconds a task that failed is to be tried again; None when it is not.

    Args:
        error: Why it failed.
        events: All that happened.
        retries: How often it may be tried again.
        after: Seconds until the first of these; each later one waits twice as long, up to an hour.
    """
    tried = sum(isinstance(event, ev.TaskPostponed) for event in events)
    if tried >= retries or not any(map(_was_away, (error, error.__cause__))):
        return None
    if _has_open_change(events) or isinstance(error, UnrecordedCallError):
        return None
    if _script_failed(events) and _failed_read(events) is None:
        return None
    return min(after * 2.0**tried, _LONGEST)


def as_untried(events: Sequence[ev.Event]) -> list[ev.Event]:
    """Events without the failures after which their task is tried again, or goes on."""
    kept: list[ev.Event] = []
    for event in events:
        if isinstance(event, ev.TaskFinished) and event.code != BudgetExceededError.code:
            continue  # it goes on after its time was over
        if not isinstance(event, (ev.TaskPostponed, ev.TaskFinished)):
            kept.append(event)
        elif (place := _failed_read(kept)) is not None:
            ends = (ev.CallFinished, ev.ApprovalDecided)
            kept[place:] = [e for e in kept[place + 1 :] if isinstance(e, ends)]
    return kept


def _was_away(error: BaseException | None) -> bool:
    if isinstance(error, LLMExecutionError):
        status = error.status
        return status is None or status in _BUSY or status >= 500
    return isinstance(error, (ConnectionUnavailableError, SandboxUnavailableError))


def _has_open_change(events: Sequence[ev.Event]) -> bool:
    """Tell whether nobody knows of a call that may change something whether it did."""
    ends = {e.call_id: e.status for e in events if isinstance(e, ev.CallFinished)}
    begun = (e for e in events if isinstance(e, ev.CallStarted) and e.effect != "read")
    return any(ends.get(event.call_id, "cancelled") == "cancelled" for event in begun)


def _script_failed(events: Sequence[ev.Event]) -> bool:
    """Tell whether the end of a script is the last thing that happened."""
    last = next((e for e in reversed(events) if isinstance(e, (ev.ScriptFinished, *_ON))), None)
    return isinstance(last, ev.ScriptFinished)


def _failed_read(events: Sequence[ev.Event]) -> int | None:
    """The place of the end of a call that only reads, with whose error the last script failed.

    None where its script did something after that: it would not do the same with another answer.
    """
    if not _script_failed(events):
        return None
    for place in range(len(events) - 1, -1, -1):
        event = events[place]
        if isinstance(event, (ev.CallStarted, ev.ApprovalRequested, ev.ScriptGenerated)):
            return None
        if isinstance(event, ev.CallFinished) and event.raised is not None:
            number = event.call_id
            started = (e for e in events if isinstance(e, ev.CallStarted) and e.call_id == number)
            return place if any(e.effect == "read" for e in started) else None
    return None
