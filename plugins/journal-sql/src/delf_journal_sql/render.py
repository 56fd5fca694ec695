"""How tasks and events look on a terminal."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

import click

from delf.events import Event, encode
from delf_journal_sql.store import StoredTask

_COLOURS: Final = {"running": "cyan", "interrupted": "yellow", "done": "green", "error": "red"}
_NARROWEST: Final = 60


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


def money(task: StoredTask) -> str:
    """What a task cost."""
    if task.cost_usd is not None:
        return f"${task.cost_usd:.4f}"
    return "unknown" if task.finished_at is not None else "-"


def coloured(state: str) -> str:
    """A state in its colour."""
    return click.style(state, fg=_COLOURS.get(state))


def tasks_table(tasks: Sequence[StoredTask]) -> list[str]:
    """Tasks as rows."""
    head = ("id", "state", "started", "took", "cost", "events", "task")
    rows = [
        (
            visible(task.task_id),
            coloured(task.state),
            moment(task.started_at),
            span(task.duration_ms),
            money(task),
            str(task.events),
            visible(task.task),
        )
        for task in tasks
    ]
    return table(rows, head)


def event_line(event: Event, began: float) -> str:
    """An event as a line: number, time since the task began, kind, fields."""
    data = {name: item for name, item in encode(event)["data"].items() if item is not None}
    texts = [f"{name}={visible(_short(item))}" for name, item in data.items()]
    head = f"{event.seq:5d}  {event.at - began:9.3f} s  {type(event).__name__:<17} "
    line = head + " ".join(texts)
    width = terminal_width()
    return line if width is None else cut(line, width)


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def task_data(task: StoredTask) -> dict[str, Any]:
    """A task as JSON-ready data."""
    return dataclasses.asdict(task)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """A value as valid JSON; numbers that JSON lacks become text."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
        text.encode()
    except ValueError:  # UnicodeEncodeError is one
        text = json.dumps(_finite(value), allow_nan=False, indent=indent)
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: _finite(item) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in cast("list[Any]", value)]
    return value
