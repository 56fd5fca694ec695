"""How tasks and events look on a terminal."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click

from delf.cli.output import json_text
from delf.events import Event
from delf.protocols.journal import TaskRecord

_COLOURS: Final = {
    "queued": "blue",
    "running": "cyan",
    "interrupted": "yellow",
    "done": "green",
    "error": "red",
}
_NARROWEST: Final = 60
_SHORTEST_ID: Final = 7
_PREFIX: Final = "task_"
_HEAD: Final = ("task_id", "seq", "at")


def visible(text: str) -> str:
    """A text in one line, without characters that steer a terminal."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def table(rows: Sequence[Sequence[str]], head: Sequence[str]) -> list[str]:
    """Rows in aligned columns under their heads; on a terminal none is wider than it."""
    lines = [[click.style(cell, bold=True) for cell in head], *rows]
    columns = list(zip(*lines, strict=True))
    widths = [max(len(click.unstyle(cell)) for cell in column) for column in columns]
    width = terminal_width()
    if width is not None:
        widths[-1] = min(widths[-1], max(20, width - sum(widths[:-1]) - 2 * len(widths) + 2))
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
            visible(name),
            coloured(task.state),
            day(task.started_at),
            span(task.duration_ms),
            money(task),
            visible(task.task),
        )
        for name, task in zip(names, tasks, strict=True)
    ]
    return table(rows, head)


def short_ids(ids: Sequence[str]) -> list[str]:
    """Ids without ``task_``, cut to the shortest length at which no two of them are alike."""
    bare = [name.removeprefix(_PREFIX) for name in ids]
    longest = max(map(len, bare), default=0)
    for length in range(_SHORTEST_ID, longest):
        if len({name[:length] for name in bare}) == len(set(bare)):
            return [name[:length] for name in bare]
    return bare


def day(at: float) -> str:
    """A time as it is here, to the minute; the year where it is not this one."""
    then, now = datetime.fromtimestamp(at).astimezone(), datetime.now().astimezone()
    return then.strftime("%m-%d %H:%M" if then.year == now.year else "%Y-%m-%d")


def event_line(event: Event, began: float) -> str:
    """An event as a line: number, time since the task began, kind, fields."""
    fields = (item.name for item in dataclasses.fields(event) if item.name not in _HEAD)
    data = {name: value for name in fields if (value := getattr(event, name)) is not None}
    texts = [f"{name}={visible(_short(item))}" for name, item in data.items()]
    head = f"{event.seq:5d}  {event.at - began:9.3f} s  {type(event).__name__:<17} "
    line = head + " ".join(texts)
    width = terminal_width()
    return line if width is None else cut(line, width)


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def task_data(task: TaskRecord) -> dict[str, Any]:
    """A task as JSON-ready data."""
    return dataclasses.asdict(task)
