"""Forks: new tasks with a copy of another task's events up to one event."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from delf.errors import UnknownTaskError
from delf.events import (
    ASKED_FROM,
    ApprovalDecided,
    ApprovalRemembered,
    ApprovalRequested,
    CallFinished,
    CallStarted,
    ChildFinished,
    Event,
    FileWritten,
    ModelCalled,
    ModelReplied,
    ScriptFinished,
    TaskFinished,
    TaskPostponed,
    TaskQueued,
    TaskStarted,
    Warned,
)
from delf.messages import Usage
from delf.protocols.journal import Journal
from delf.protocols.people import name_of_user
from delf.protocols.shared_journal import SharedJournal
from delf_engine.changes import OTHER_AUTHORS_KEY
from delf_engine.retention import OUTPUT_PREFIX
from delf_engine.task import new_task_id
from delf_engine.views.copies import COPIED, PERSON, copied_event_count

# The events that a fork does not copy, because a fork is not queued and gets its own end.
_NOT_COPIED: Final = (TaskQueued, TaskFinished, TaskPostponed)


async def fork(
    journal: Journal,
    task_id: str,
    at: int | None,
    *,
    user: str | None = None,
    setup: Mapping[str, Any] | None = None,
    script: str | None = None,
) -> str:
    """Create a task that continues from an event of another task; return the new task's id.

    Args:
        journal: The journal of both tasks.
        task_id: The id of the other task.
        at: The sequence number of the last event to copy. None copies all events before the last
            model call, so that the model is asked again.
        user: The user of the new task; None for the local user.
        setup: Setup data to add to the other task's setup data.
        script: A script that replaces the model's next script after the last copied event.

    Raises:
        UnknownTaskError: If the other task cannot be forked at this event, or if the model wrote no
            script for ``script`` to replace.
    """
    events = await journal.read(task_id)
    new_id = new_task_id()
    if at is None:
        at = number_before_last_model_call(events)
    # Check ``at`` before any file is copied; the result of this call is not used.
    events_of_fork(events, at, new_id, user, setup, script)
    events = await asyncio.to_thread(copy_output_files, events, at)
    for event in events_of_fork(events, at, new_id, user, setup, script):
        await journal.append(event)
    if isinstance(journal, SharedJournal):
        await journal.release(new_id)  # the process that resumes the fork claims it again
    return new_id


def is_incomplete_fork(events: Sequence[Event]) -> bool:
    """Return True if a fork's process died before it had copied all events.

    An incomplete fork must not be resumed: it would repeat calls whose events were not copied.
    """
    return len(events) < copied_event_count(events)


def number_before_last_model_call(events: Sequence[Event]) -> int:
    """Return the sequence number of the event before the last model call; 0 without model calls."""
    for event in reversed(events):
        if isinstance(event, ModelCalled):
            return event.seq - 1
    return 0


def copy_output_files(events: Sequence[Event], at: int) -> list[Event]:
    """Copy a task's output files; return its events with the paths of the copies.

    Blocking. The event of a missing file is omitted, so that a replay writes the file again.

    Args:
        events: The task's events.
        at: The number of an event. Files of later events are not copied, and these events are
            returned unchanged.
    """
    all_writes = [event for event in events if isinstance(event, FileWritten)]
    writes = [write for write in all_writes if write.seq <= at]
    if not writes:
        return list(events)
    copies = _copies_of_files(dict.fromkeys(write.path for write in writes))
    changed_events: list[Event] = []
    for event in events:
        if not isinstance(event, FileWritten) or event.seq > at:
            changed_events.append(event)
        elif event.path in copies:
            changed_events.append(replace(event, path=copies[event.path]))
    return changed_events


def _copies_of_files(paths: Iterable[str]) -> Mapping[str, str]:
    """Copy files to a new folder; return the path of each copy by the path of the original.

    Leave out files that cannot be read any more.
    """
    folder = Path(tempfile.mkdtemp(prefix=OUTPUT_PREFIX)).resolve()
    copies: dict[str, str] = {}
    for number, path in enumerate(paths):
        # Files of different folders may have the same name.
        target = folder / str(number) / Path(path).name
        target.parent.mkdir()
        try:
            copies[path] = str(shutil.copyfile(path, target))
        except OSError:
            continue  # the file is no longer on this machine
    return copies


def events_of_fork(
    events: Sequence[Event],
    at: int,
    task_id: str,
    user: str | None = None,
    setup: Mapping[str, Any] | None = None,
    script: str | None = None,
) -> list[Event]:
    """Build the events of a new task that continues from an event of another task.

    A call that started before that event keeps its result, even if it ended later. Approvals of
    unfinished calls are not copied, and a copied approval covers no later calls. Copied model
    answers cost nothing, because the other task paid for them. The new task does not continue a
    conversation.

    Args:
        events: The events of the other task.
        at: The number of the last event to copy.
        task_id: The id of the new task.
        user: The user of the new task; None for the local user.
        setup: Setup data to add to the other task's setup data.
        script: A script that replaces the model's next script after that event.

    Raises:
        UnknownTaskError: If the task cannot be forked at this event, or if the model wrote no
            script for ``script`` to replace.
    """
    _check_can_be_forked(events, at)
    copied = _without_approvals(_copied_events(events, at))
    if script is not None:
        copied += _model_call_with_script(events, at, script)
    warning = (
        f"forked from {events[0].task_id} at event {at}: what came before is not done again, and "
        "its answers of models cost nothing here"
    )
    # ``seq=0`` is a placeholder: the loop below numbers all events.
    copied.append(Warned(task_id=task_id, seq=0, at=copied[-1].at, message=warning))
    added_setup = dict(setup or {})
    added_setup[COPIED] = len(copied)
    # Maps the old id of an approval request to its new id, which all events of the request share.
    new_request_ids: dict[str, str] = defaultdict(lambda: f"req_{secrets.token_hex(8)}")
    result: list[Event] = []
    for number, event in enumerate(copied, 1):
        changed = replace(_without_cost(event), task_id=task_id, seq=number)
        if isinstance(changed, TaskStarted):
            changed = _start_of_fork(changed, user, added_setup)
        result.append(_with_new_request_id(changed, new_request_ids))
    return result


def _check_can_be_forked(events: Sequence[Event], at: int) -> None:
    """Raise if a task has no event with the number ``at``, or if it started after this event."""
    start = next((event for event in events if isinstance(event, TaskStarted)), None)
    if start is not None and start.seq <= at <= events[-1].seq:
        return
    first = 1 if start is None else start.seq
    last = events[-1].seq if events else 0
    other = events[0].task_id if events else "ID"
    raise UnknownTaskError(
        f"the task cannot be forked at event {at}",
        hint=f"it has events from {first} to {last}: delf runs events {other} shows them",
    )


def _with_new_request_id(event: Event, new_ids: Mapping[str, str]) -> Event:
    """Return an event about a request with a new id of the request; any other event unchanged.

    With the old id, an answer to the other task's request would count in the fork, too. A decision
    is copied without its effect on later tasks.
    """
    old_id: str | None = getattr(event, "request_id", None)
    if old_id is None:
        return event
    changes: dict[str, Any] = {"request_id": new_ids[old_id]}
    if isinstance(event, ApprovalDecided):
        # Copy the decision as one that is not remembered. A remembered decision applies to later
        # tasks of ``user`` in the folder ``project`` until it is revoked, and a copy would apply
        # even after the original was revoked.
        changes |= {"remember": "no", "user": None, "project": None}
    return replace(event, **changes)


def _copied_events(events: Sequence[Event], at: int) -> list[Event]:
    """Return the events up to number ``at``, and the later ends of calls that were in flight then.

    The fork uses the recorded results of these calls, instead of making the calls again. Events
    about the queue and the end of the task are left out.
    """
    copied: list[Event] = []
    open_calls: set[int] = set()
    for event in events:
        if event.seq <= at:
            _track_open_calls(open_calls, event)
            if not isinstance(event, _NOT_COPIED):
                copied.append(event)
        elif isinstance(event, CallFinished) and event.call_id in open_calls:
            copied.append(event)
    return copied


def _track_open_calls(open_calls: set[int], event: Event) -> None:
    """Add the call that an event starts to the open calls, or remove the call that it ends."""
    if isinstance(event, CallStarted):
        open_calls.add(event.call_id)
    elif isinstance(event, CallFinished):
        # "cut_off" means that the sandbox died and that the script makes the call again, so the
        # call stays open. After "not_started", the call counts as never made.
        is_still_open = event.cancellation == "cut_off"
        if not is_still_open:
            open_calls.discard(event.call_id)


def _ended_calls(events: Sequence[Event]) -> AbstractSet[int]:
    """Return the numbers of the calls whose end is among the events.

    The event of a call that was cut off or was not started does not count as an end.
    """
    ends = [event for event in events if isinstance(event, CallFinished)]
    return {end.call_id for end in ends if end.cancellation not in ("cut_off", "not_started")}


def _start_of_fork(start: TaskStarted, user: str | None, setup: Mapping[str, Any]) -> TaskStarted:
    """Return the start event of a fork, made from the start event of the forked task.

    Args:
        start: The start event of the forked task, below called the other task.
        user: The user of the fork; None for the local user.
        setup: Setup data to add to the other task's setup data.
    """
    changed_setup = dict(start.setup)
    changed_setup.pop(ASKED_FROM, None)  # the network address of the other task's submitter
    changed_setup |= setup
    if start.user != user:  # the task's text was written by the other task's user
        # Drop the options of the command, which the other user chose, such as to approve all calls.
        # Only the command line records such options.
        if "flags" in changed_setup:
            changed_setup["flags"] = {}
        if "overrides" in changed_setup:
            changed_setup["overrides"] = []
        authors = (*start.setup.get(OTHER_AUTHORS_KEY, ()), name_of_user(start.user))
        changed_setup[OTHER_AUTHORS_KEY] = list(dict.fromkeys(authors))
    return replace(
        start, conversation=None, parent=None, worker=None, user=user, setup=changed_setup
    )


def _without_cost(event: Event) -> Event:
    """Return an event with zero cost."""
    if isinstance(event, ModelReplied):
        return replace(event, usage=Usage(), cost_usd=0.0)
    if isinstance(event, ChildFinished):
        return replace(event, cost_usd=0.0)
    return event


def _without_approvals(events: Sequence[Event]) -> list[Event]:
    """Remove approvals of calls and scripts that have not ended: people decide about them again."""
    ended_calls = _ended_calls(events)
    script_ends = [event.seq for event in events if isinstance(event, ScriptFinished)]
    last_script_end = max(script_ends, default=0)

    def has_ended(request: ApprovalRequested) -> bool:
        is_about_script = request.code is not None
        if is_about_script:  # scripts run one after the other
            return request.seq < last_script_end
        return request.call_id in ended_calls

    requests = [event for event in events if isinstance(event, ApprovalRequested)]
    removed_ids = {request.request_id for request in requests if not has_ended(request)}
    kept: list[Event] = []
    for event in events:
        if getattr(event, "request_id", None) in removed_ids:
            continue
        if isinstance(event, ApprovalRemembered) and event.call_id not in ended_calls:
            continue
        kept.append(event)
    return kept


def _model_call_with_script(events: Sequence[Event], at: int, script: str) -> list[Event]:
    """Return the events of a model call, with a person's script as the reply.

    Args:
        events: The events of the task.
        at: The number of an event. The model's first script after this event is replaced.
        script: The script of a person.

    Raises:
        UnknownTaskError: If the model wrote no script after the event.
    """
    later_events = [event for event in events if event.seq > at]
    replies = [event for event in later_events if isinstance(event, ModelReplied)]
    reply = next(filter(is_script, replies), None)
    if reply is None:
        raise UnknownTaskError(
            f"no model wrote a script after event {at}",
            hint="leave out the new script, and the model is asked for one",
        )
    model_calls = [event for event in later_events if isinstance(event, ModelCalled)]
    calls_of_reply = [call for call in model_calls if call.number == reply.number]
    text = f"```python\n{script.rstrip()}\n```"
    new_reply = replace(
        reply,
        model=PERSON,
        text=text,
        calls=(),
        usage=Usage(),
        cost_usd=0.0,
        duration_ms=0.0,
        finish_reason="stop",  # even if the original reply was truncated
        reply_id=None,
    )
    return [*calls_of_reply, new_reply]


def is_script(event: ModelReplied) -> bool:
    """Return True if a model's reply is a script, not a tool call or another kind of reply."""
    return event.purpose == "generate" and not event.calls
