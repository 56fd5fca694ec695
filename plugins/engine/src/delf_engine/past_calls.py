"""Calls of a finished task as plain data, for running its scripts again without services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from delf.events import ANSWER, CallFinished, CallStarted, Event


@dataclass(frozen=True, kw_only=True)
class PastCall:
    """A finished call of a task.

    Args:
        action: The action, as ``gmail.send``.
        arguments: The arguments, by name.
        result: The result.
        error: The error; None for a call that succeeded.
    """

    action: str
    arguments: Mapping[str, Any]
    result: Any = None
    error: str | None = None


def past_calls(events: Sequence[Event]) -> list[PastCall]:
    """Return a task's finished calls in the order of their start.

    Calls of ``answer``, with which a script gives a typed answer, are omitted.

    Args:
        events: The task's events.
    """
    # A call has two starts if its sandbox died before the action was run. The last one counts.
    starts = {event.call_id: event for event in events if isinstance(event, CallStarted)}
    ends = {event.call_id: event for event in events if isinstance(event, CallFinished)}
    calls: list[PastCall] = []
    for start in starts.values():
        end = ends.get(start.call_id)
        if end is None or start.action == ANSWER:
            continue
        call = PastCall(
            action=start.action,
            arguments=dict(start.arguments),
            result=end.result,
            error=None if end.status == "ok" else end.error,
        )
        calls.append(call)
    return calls


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON.

    For example, a date equals its text, 1 equals 1.0, and a key with None equals a missing key.
    """
    return _comparable(one) == _comparable(other)


def _comparable(value: Any) -> Any:
    """Convert a value so that values that are equal in JSON become equal.

    Keys whose value is None are left out.
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): _comparable(item) for key, item in items if item is not None}
    if isinstance(value, (list, tuple)):
        return [_comparable(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, bool) or value is None:
        return value
    # A recorded call is JSON: 1 and 1.0 are one number there, and a date is a text.
    if isinstance(value, (int, float)):
        return float(value)
    return str(value)
