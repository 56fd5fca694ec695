"""A task with its result, its decisions and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from delf.events import (
    ASKED_FROM,
    ApprovalDecided,
    ApprovalRequested,
    ApprovalVoted,
    Event,
    end_event,
    start_event,
)
from delf.types import TaskState
from delf_engine.views.snapshot import snapshot
from delf_serve.keys import Caller
from delf_serve.schemas import OutputFile, Task, TaskDecision, TaskDetail
from delf_serve.tasks.conversation_names import shown_name


def task_detail(
    view: Task, events: Sequence[Event], request_ids: Sequence[str], caller: Caller
) -> TaskDetail:
    """Return a task with its result, its decisions and its files.

    Slow for long tasks, so call the function in a thread.

    Args:
        view: The task without details, as the list of tasks shows it.
        events: The events of the task.
        request_ids: The ids of the task's pending requests.
        caller: The authenticated caller.
    """
    state = snapshot(events)
    is_waiting = view.state is TaskState.WAITING
    return TaskDetail(
        **view.model_dump(),
        **_fields_of_start(events, caller),
        **_fields_of_end(events),
        result=state.result,
        value=state.value,
        output_so_far=state.output_so_far,
        files=_existing_files(state.files),
        decisions=_decisions(events),
        tokens_used=state.tokens_used,
        approvals=list(request_ids) if is_waiting else [],
    )


def _fields_of_start(events: Sequence[Event], caller: Caller) -> dict[str, Any]:
    """Return the fields that the task's first event determines."""
    start = start_event(events)
    if start is None:
        return {}
    conversation = start.conversation
    return {
        "asked_from": start.setup.get(ASKED_FROM),
        "conversation_id": None if conversation is None else shown_name(conversation, caller),
    }


def _fields_of_end(events: Sequence[Event]) -> dict[str, Any]:
    """Return the fields that the task's end determines; none before the end."""
    end = end_event(events)
    if end is None:
        return {}
    return {
        "code": end.code,
        "hint": end.hint,
        "stopped_by": end.by,
        # ``via`` is the channel and the address from which a person stopped the task.
        "stopped_from": end.via or None,
    }


def _existing_files(paths: Mapping[str, str]) -> list[OutputFile]:
    """Return the output files that are still on this machine, from their paths by name."""
    files: list[OutputFile] = []
    for name, recorded_path in paths.items():
        path = Path(recorded_path)
        # A task of another machine, or a removed folder, leaves only the recorded path.
        if path.is_file():
            files.append(OutputFile(name=name, size=path.stat().st_size))
    return files


def _decisions(events: Sequence[Event]) -> list[TaskDecision]:
    """Return the decisions and votes about a task's requests."""
    actions = {e.request_id: e.action for e in events if isinstance(e, ApprovalRequested)}
    decisions: list[TaskDecision] = []
    for event in events:
        if not isinstance(event, (ApprovalDecided, ApprovalVoted)):
            continue
        is_final = isinstance(event, ApprovalDecided)
        decision = TaskDecision.of(
            event,
            action=actions.get(event.request_id, ""),
            # A vote, the first of two approvals, is always an approval.
            decision=event.decision if is_final else "approved",
            source=event.source if is_final else "person",
            is_final=is_final,
        )
        decisions.append(decision)
    return decisions
