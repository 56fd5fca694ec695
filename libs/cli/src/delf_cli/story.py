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

_MAX_NAME_CHARACTERS: Final = 50


class _ShortRepr(reprlib.Repr):
    """A ``repr`` of limited length, in which bytes appear as ``<1,024 bytes>``."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_bytes(self, value: Any, _level: int) -> str:
        return f"<{len(value):,} bytes>"


_SHORT: Final = _ShortRepr()


def story(event: ev.Event) -> str | None:
    """Format an event for people, usually as one line; None for events of no interest to people."""
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
            succeeded = event.status
            outcome_note = "done" if succeeded else f"failed: {cut(event.error or '', 200)}"
            return f"  ← {event.call_id} child task {event.child_id}: {outcome_note}"
        case ev.ModelFailed():
            return f"  {short_name(event.model)} ({event.purpose}) failed: {cut(event.error, 200)}"
        case ev.ApprovalDecided():
            return f"  {_format_decision(event)}"
        case ev.ApprovalVoted():
            person = _name_with_channel(event.by, event.via)
            return f"  approved by {person}; another person has to approve it, too"
        case _:
            return f"  {cut(event.headline, 200)}" if event.headline else None


def _format_decision(event: ev.ApprovalDecided) -> str:
    """Format a decision with the person and the channel, or the reason of an expiry."""
    words = ev.DECISION_WORDS[event.decision]
    if event.decision == "expired" and event.source in ev.EXPIRY_REASONS:
        return f"{words}: {ev.EXPIRY_REASONS[event.source]}"
    person = _name_with_channel(event.by, event.via)
    if event.answer is not None:
        return f"{words} by {person}: {cut(str(event.answer), 200)}"
    if event.decision == "changes_requested":
        return f"{words} by {person}: {cut(event.reason or '', 200)}"
    other_voters = f"; {', '.join(event.others)} approved it before" if event.others else ""
    return f"{words} by {person}{other_voters}"


def _name_with_channel(name: str, channel: str) -> str:
    """Return a person's name, with the channel of the answer in parentheses if known."""
    return f"{visible(name)} ({visible(channel)})" if channel else visible(name)


def format_stop(event: ev.TaskFinished) -> str:
    """Return `` by PERSON (CHANNEL)`` for a task that a known person stopped, else ``""``."""
    if not event.by or event.state is not TaskState.STOPPED:
        return ""
    return f" by {_name_with_channel(event.by, event.via)}"


def printed_so_far(events: Iterable[ev.Event]) -> str:
    """Return what the scripts of an unfinished task have printed.

    The output of a failed script is left out once the next script is generated. A script that ends
    with ``rerun()`` has not failed: the next script continues its work.
    """
    finished_output: list[str] = []
    script_output: list[str] = []
    for event in events:
        match event:
            case ev.ScriptGenerated():
                script_output.clear()
            case ev.Printed():
                script_output.append(event.text)
            case ev.ScriptFinished() if event.status in ("done", "rerun"):
                finished_output += script_output
                script_output.clear()
            case _:
                pass
    return "".join((*finished_output, *script_output))


def printed_lines(event: ev.Printed) -> str:
    """Format a script's output with ``|`` before each line, also before an empty line."""
    return textwrap.indent(event.text.rstrip("\n"), "  | ", lambda _line: True)


def purpose(event: ev.CallStarted | ev.ApprovalRequested) -> str:
    """Return a call's description, or its arguments if the script gave no ``desc=``."""
    if event.description:
        return event.description
    arguments = [f"{name}={_SHORT.repr(value)}" for name, value in event.arguments.items()]
    return f"({', '.join(arguments)})"


def call_line(event: ev.CallFinished, subject: str, width: int | None = None) -> str:
    """Format a finished call as one line.

    Args:
        event: The end of the call.
        subject: The purpose of the call, which is truncated to fit the line.
        width: The width of the line in characters; None for about 200.
    """
    call_status = f"{event.status}, {event.duration_ms:.0f} ms"
    subject_width = 200
    if width is not None:
        # Nine columns are for the arrow, the two separators, and an empty last column.
        subject_width = max(20, width - len(event.action) - len(call_status) - 9)
    parts = (f"→ {event.action}", cut(subject, subject_width), call_status)
    return " · ".join(filter(None, parts))


def short_name(model: str) -> str:
    """Return a model's name; of a long name, such as a path, only the end."""
    if len(model) <= _MAX_NAME_CHARACTERS:
        return model
    end_length = _MAX_NAME_CHARACTERS - len("…")
    return f"…{model[-end_length:]}"


def cut(text: str, limit: int) -> str:
    """Convert a text to one line of at most ``limit`` characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def tell_of_event(event: ev.Event) -> None:
    """Print an event to stderr, as the agent's option ``verbose`` does."""
    if isinstance(event, ev.TaskStarted):
        text: str | None = _with_indent(f"task {event.task_id}: {event.task}")
    elif isinstance(event, ev.Warned):
        text = _with_indent(f"  warning: {event.message}")
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


def _with_indent(text: str) -> str:
    """Indent further lines, so that none looks like another event."""
    return text.replace("\n", "\n    ")
