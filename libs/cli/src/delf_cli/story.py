"""A task's progress as text, one line per event."""

from __future__ import annotations

import reprlib
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, Final

from delf import events as ev
from delf.terminal import visible
from delf.types import TaskState

_WIDEST: Final = 50


class _Short(reprlib.Repr):
    """A ``repr`` of limited length for values of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_bytes(self, value: Any, _level: int) -> str:
        """Format bytes as their number."""
        return f"<{len(value):,} bytes>"


_SHORT: Final = _Short()
_VOID: Final = {
    "timeout": "nobody answered in time",
    "abandoned": "the script stopped waiting for the call before anybody answered",
    "sandbox_died": "the sandbox of the script ended before anybody answered",
    "changed": "something else would be done now, so it is asked again",
}
"""The reasons that a request has no answer, by the source of its decision."""


def story(event: ev.Event) -> str | None:
    """Format an event as one line; None for events that people need not see."""
    match event:
        case ev.SandboxOpened():
            return f"  sandbox {event.backend} ({event.isolation})"
        case ev.StepFinished():
            return f"  {event.step}: {event.duration_ms:.1f} ms"
        case ev.ModelReplied():
            usage = event.usage
            cost = "" if event.cost_usd is None else f", ${event.cost_usd:.6f}"
            tokens = f"{usage.text}{cost}"
            name = short_name(event.model)
            return f"  {name} ({event.purpose}): {tokens}, {event.duration_ms:.0f} ms"
        case ev.CallStarted():
            purpose_note = f": {event.description}" if event.description else purpose(event)
            return f"  → {event.call_id} {cut(event.action + purpose_note, 200)}"
        case ev.CallFinished():
            outcome_note = f": {cut(event.error, 200)}" if event.error else ""
            return f"  ← {event.call_id} {event.status}, {event.duration_ms:.0f} ms{outcome_note}"
        case ev.CallPrinted():
            lines = event.text.rstrip("\n").split("\n")
            return "\n".join(f"  | {event.call_id} {cut(line, 200)}" for line in lines)
        case ev.ChildStarted():
            child_name = f"worker {event.worker}" if event.worker else "child task"
            return f"  → {event.call_id} {child_name} {event.child_id}: {cut(event.task, 200)}"
        case ev.ChildFinished():
            outcome_note = "done" if event.status else f"failed: {cut(event.error or '', 200)}"
            return f"  ← {event.call_id} child task {event.child_id}: {outcome_note}"
        case ev.ModelFailed():
            return f"  {short_name(event.model)} ({event.purpose}) failed: {cut(event.error, 200)}"
        case ev.ApprovalDecided():
            return f"  {_format_decision(event)}"
        case ev.ApprovalVoted():
            return f"  approved by {_person(event)}; another person has to approve it, too"
        case _:
            return f"  {cut(event.headline, 200)}" if event.headline else None


def _format_decision(event: ev.ApprovalDecided) -> str:
    """Format a decision: outcome, person and channel, or why the request became void."""
    if event.decision == "expired" and event.source in _VOID:
        return f"expired: {_VOID[event.source]}"
    if event.answer is not None:
        return f"answered by {_person(event)}: {cut(str(event.answer), 200)}"
    other_voters = f"; {', '.join(event.others)} approved it before" if event.others else ""
    if event.decision == "changes_requested":
        return f"changes requested by {_person(event)}: {cut(event.reason or '', 200)}"
    return f"{event.decision} by {_person(event)}{other_voters}"


def _person(event: ev.ApprovalDecided | ev.ApprovalVoted) -> str:
    via = f" ({visible(event.via)})" if event.via else ""
    return f"{visible(event.by)}{via}"


def format_stop(event: ev.TaskFinished) -> str:
    """Format who stopped a task and from where; empty if unknown."""
    via = f" ({visible(event.via)})" if event.via else ""
    return f" by {visible(event.by)}{via}" if event.by and event.state is TaskState.STOPPED else ""


def printed_so_far(events: Iterable[ev.Event]) -> str:
    """Return the visible output of an unfinished task.

    The output of a failed script is replaced by that of the next script.
    """
    lines: list[str] = []
    last: list[str] = []
    for event in events:
        match event:
            case ev.ScriptGenerated():
                last.clear()
            case ev.Printed():
                last.append(event.text)
            case ev.ScriptFinished() if event.status in ("done", "rerun"):
                lines += last
                last.clear()
            case _:
                pass
    return "".join((*lines, *last))


def printed_lines(event: ev.Printed) -> str:
    """Format a script's output with a mark on each line."""
    return textwrap.indent(event.text.rstrip("\n"), "  | ", lambda _line: True)


def purpose(event: ev.CallStarted) -> str:
    """Return a call's ``desc=``, or else its arguments."""
    argument_list = ", ".join(f"{n}={_SHORT.repr(v)}" for n, v in event.arguments.items())
    return event.description or f"({argument_list})"


def call_line(event: ev.CallFinished, subject: str, width: int | None = None) -> str:
    """Format a finished call as one line."""
    call_status = f"{event.status}, {event.duration_ms:.0f} ms"
    room = 200 if width is None else width - len(event.action) - len(call_status) - 9
    return " · ".join(filter(None, (f"→ {event.action}", cut(subject, max(20, room)), call_status)))


def short_name(model: str) -> str:
    """Return a model's name, shortened to its end if it is long, such as a path."""
    return model if len(model) <= _WIDEST else f"…{model[1 - _WIDEST :]}"


def cut(text: str, limit: int) -> str:
    """Truncate a text to one line of some characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def tell_of_event(event: ev.Event) -> None:
    """Print an event to stderr; the listener of ``verbose``."""
    if isinstance(event, ev.TaskStarted):
        text: str | None = f"task {event.task_id}: {event.task}"
    elif isinstance(event, ev.Warned):
        text = f"  warning: {event.message}"
    elif isinstance(event, ev.Printed):
        text = printed_lines(event)
    elif isinstance(event, ev.ScriptGenerated):
        code = textwrap.indent(event.code.rstrip(), "    ")
        text = f"  script, attempt {event.attempt}:\n{code}"
    else:
        text = story(event)
    if text and sys.stderr is not None:
        sys.stderr.write(visible(text) + "\n")
        sys.stderr.flush()
