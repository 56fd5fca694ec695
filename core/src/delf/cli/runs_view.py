"""How tasks and events look on a terminal."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click

from delf.events import Event
from delf.protocols.journal import TaskRecord
from delf.terminal import one_line

_COLOURS: Final = {
    "queued": "blue",
    "running": "cyan",
    "waiting": "yellow",
    "interrupted": "yellow",
    "stopped": "yellow",
    "done": "green",
    "failed": "red",
}
_NARROW: Final = 30
"""The last column is to have so many columns of the terminal, if it needs them."""
_NARROWEST: Final = 60
_SHORTEST_ID: Final = 7
_HEAD: Final = ("task_id", "seq", "at")


def table(
    rows: Sequence[Sequence[str]], head: Sequence[str], droppable: Sequence[str] = ()
) -> list[str]:
    """Rows in aligned columns under their heads; on a terminal none is wider than it.

    Args:
        rows: Cells, which may be coloured.
        head: The columns' names.
        droppable: Columns that are left out, in this order, where the last one has no room.
    """
    if not rows:
        return []
    lines = [[click.style(cell, bold=True) for cell in head], *rows]
    columns = list(zip(*lines, strict=True))
    widths = [max(len(click.unstyle(cell)) for cell in column) for column in columns]
    width = terminal_width()
    if width is not None:
        room = width - sum(widths[:-1]) - 2 * len(widths) + 2
        if droppable and room < min(_NARROW, widths[-1]):
            out = head.index(droppable[0])
            rest = [[*row[:out], *row[out + 1 :]] for row in (head, *rows)]
            return table(rest[1:], rest[0], droppable[1:])
        widths[-1] = min(widths[-1], max(20, room))
    drawn: list[str] = []
    for line in lines:
        cells = [*line[:-1], cut(line[-1], widths[-1])]
        pairs = zip(cells, widths, strict=True)
        padded = (cell + " " * (size - len(click.unstyle(cell))) for cell, size in pairs)
        drawn.append("  ".join(padded).rstrip())
    return drawn


def terminal_width() -> int | None:
    """The terminal's width; None when stdout is none."""
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def cut(text: str, width: int) -> str:
    """A text of at most so many characters."""
    return text if len(click.unstyle(text)) <= width else f"{text[: width - 1]}…"


def moment(at: float) -> str:
    """A time as it is here."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def span(milliseconds: float | None) -> str:
    """A duration for people."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def money(task: TaskRecord) -> str:
    """What a task cost."""
    if task.cost_usd is not None:
        return f"${task.cost_usd:.4f}"
    return "unknown" if task.finished_at is not None else "-"


def coloured(state: str) -> str:
    """A state in its colour."""
    return click.style(state, fg=_COLOURS.get(state))


def tasks_table(tasks: Sequence[TaskRecord]) -> list[str]:
    """Tasks as rows; an id is as short as keeps it apart from the others."""
    names = short_ids([task.task_id for task in tasks])
    head = ("id", "state", "started", "took", "cost", "task")
    rows = [
        (
            one_line(name),
            coloured(task.state),
            ago(task.started_at),
            span(task.duration_ms),
            money(task),
            one_line(task.task),
        )
        for name, task in zip(names, tasks, strict=True)
    ]
    return table(rows, head, ("took", "cost"))


def short_ids(ids: Sequence[str]) -> list[str]:
    """Ids without ``task_`` or ``req_``, as short as keeps them apart."""
    bare = [name.partition("_")[2] or name for name in ids]
    longest = max(map(len, bare), default=0)
    for length in range(_SHORTEST_ID, longest):
        if len({name[:length] for name in bare}) == len(set(bare)):
            return [name[:length] for name in bare]
    return bare


def ago(at: float) -> str:
    """How long ago a moment was; the day of one that was not of these days."""
    seconds = max(0, round(time.time() - at))
    for unit, length, most in (("s", 1, 60), ("min", 60, 60), ("h", 3600, 48)):
        if seconds < length * most:
            return f"{seconds // length} {unit} ago"
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d")


def event_line(event: Event, began: float) -> str:
    """An event as a line: number, time since the task began, kind, fields."""
    fields = (item.name for item in dataclasses.fields(event) if item.name not in _HEAD)
    data = {name: value for name in fields if (value := getattr(event, name)) is not None}
    texts = [f"{name}={one_line(_short(item))}" for name, item in data.items()]
    head = f"{event.seq:5d}  {event.at - began:9.3f} s  {type(event).__name__:<17} "
    line = head + " ".join(texts)
    width = terminal_width()
    return line if width is None else cut(line, width)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return str(round(value, 6))
    try:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # what JSON lacks, as Python has it
        return repr(value)


def task_data(task: TaskRecord) -> dict[str, Any]:
    """A task as JSON-ready data."""
    return dataclasses.asdict(task)
