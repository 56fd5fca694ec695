"""Derives from a task's events what the task is waiting for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from delf.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallAbandoned,
    CallFinished,
    CallStarted,
    Event,
    ModelCalled,
    ModelFailed,
    ModelReplied,
)


def waiting_for(events: Sequence[Event]) -> str | None:
    """Describe what a task is waiting for: a person; otherwise calls; otherwise the model.

    Args:
        events: The events of the task, in order.

    Returns:
        A phrase to complete the sentence "waiting for …". None while a script runs, or before the
        task starts.
    """
    model: str | None = None
    # By request; an empty text for a question of a script, which is about no action.
    action_by_request: dict[str, str] = {}
    calls: dict[int, str] = {}
    for event in events:
        match event:
            case ModelCalled():
                model = event.model
            case ModelReplied() | ModelFailed():
                model = None
            case ApprovalRequested():
                action = "" if event.is_question else event.action
                action_by_request[event.request_id] = action
            case ApprovalDecided():
                action_by_request.pop(event.request_id, None)
            case CallStarted():
                calls[event.call_id] = f"{event.action} (call {event.call_id})"
            case CallFinished() | CallAbandoned():
                calls.pop(event.call_id, None)
            case _:
                pass
    if action_by_request:
        actions = [*filter(None, action_by_request.values())]
        if actions:
            return f"a decision about {_some(actions)}"
        return "an answer to a question"
    if calls:
        return f"an answer of {_some(calls.values())}"
    return None if model is None else f"an answer of the model {model}"


def _some(names: Collection[str]) -> str:
    """List the first three names, and the number of the others."""
    first = list(names)[:3]
    omitted_count = len(names) - len(first)
    text = ", ".join(first)
    return f"{text} and {omitted_count} more" if omitted_count else text
