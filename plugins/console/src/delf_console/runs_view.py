"""Tasks and events on a terminal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from delf.events import Event
from delf.protocols.journal import TaskRecord, filterable_fields
from delf.terminal import visible
from delf.types import STATE_WORDS, TaskState
from delf_cli.formats import format_age, format_duration, format_usd
from delf_cli.ids import short_ids
from delf_cli.streams import wrap_text
from delf_cli.tables import cut_at_word, one_line, project_column, table, terminal_width

if TYPE_CHECKING:
    from delf_engine.views.prompts import Prompt
    from delf_engine.views.records import ToolCallTrace

    CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_MAX_PATHS: Final = 5
# The fields of an event that are left out of the list of fields in its line.
#
# ``seq`` and ``at`` begin the line, and ``runs show --prompts`` shows prompts.
_HIDDEN_FIELDS: Final = ("task_id", "seq", "at", "prompt")


def moment(at: float) -> str:
    """Format a Unix time as date and time in the local time zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def money(task: TaskRecord) -> str:
    """Format the cost of a task in USD.

    Without a known cost, return ``-`` before the end of the task, and ``unknown`` after it.
    """
    if task.cost_usd is not None:
        return format_usd(task.cost_usd)
    return "unknown" if task.finished_at is not None else "-"


class StateChoice(click.Choice[str]):
    """An option type that accepts names of task states."""

    def __init__(self, states: Iterable[TaskState] = TaskState) -> None:
        super().__init__([state.value for state in states])

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TaskState:
        """Return the task state with a given name.

        Args:
            value: The name of the state.
            param: The parameter, for error messages.
            ctx: The context, for error messages.
        """
        return TaskState(super().convert(value, param, ctx))


def field_filters(command: CommandT) -> CommandT:
    """Return the command with an option for each field of a task by which lists can be filtered."""
    for name, words in reversed(tuple(filterable_fields().items())):
        option = click.option(f"--{name.replace('_', '-')}", name, metavar="NAME", help=words)
        command = option(command)
    return command


def field_values(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the given values of the options of :func:`field_filters`, by field."""
    values = {name: options[name] for name in filterable_fields()}
    return {name: value for name, value in values.items() if value is not None}


def state_text(task: TaskRecord) -> str:
    """Return the label of a task's state, in the state's colour.

    For a task that waits for a retry, the label has the number of the next attempt.
    """
    label = STATE_WORDS[task.state]
    waits_for_retry = task.tries > 0 and task.state is TaskState.QUEUED
    retry_note = f", try {task.tries + 1}" if waits_for_retry else ""
    return click.style(label.text, fg=label.colour) + retry_note


def tasks_table(tasks: Sequence[TaskRecord]) -> list[str]:
    """Format tasks as the lines of a table with a header."""
    names = short_ids([task.task_id for task in tasks])
    # Each is a list with one cell; all are empty if the table needs no column for the project.
    project_header, *project_cells = project_column([task.folder for task in tasks])
    headings = [*dict.fromkeys(heading for task in tasks for heading in task.columns)]
    rows = [
        (
            one_line(name),
            state_text(task),
            format_age(task.started_at),
            format_duration(task.duration_ms),
            money(task),
            *(one_line(task.columns.get(heading, "-")) for heading in headings),
            *project_cell,
            one_line(task.task),
        )
        for name, task, project_cell in zip(names, tasks, project_cells, strict=True)
    ]
    header = ("id", "state", "started", "took", "cost", *headings, *project_header, "task")
    return table(rows, header)


def event_line(event: Event, began: float) -> str:
    """Format an event as a line with its number, time, type and fields.

    Args:
        event: The event.
        began: The Unix time of the task's first event; the line shows the seconds since then.
    """
    texts: list[str] = []
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name not in _HIDDEN_FIELDS and value is not None:
            texts.append(f"{field.name}={one_line(_as_text(value))}")
    seconds = event.at - began
    head = f"{event.seq:5d}  {seconds:9.3f} s  {type(event).__name__:<17} "
    line = head + " ".join(texts)
    width = terminal_width()
    return line if width is None else cut_at_word(line, width)


def origin_lines(call: ToolCallTrace) -> Iterator[str]:
    """Yield a line for each origin of values in a call, with the paths of these values."""
    paths_by_origin: dict[str, list[str]] = {}
    for path, origin in call.origins.items():
        paths_by_origin.setdefault(str(origin["text"]), []).append(path)
    for text, paths in paths_by_origin.items():
        rest_note = f" and {len(paths) - _MAX_PATHS} more" if len(paths) > _MAX_PATHS else ""
        path_list = ", ".join(paths[:_MAX_PATHS]) + rest_note
        line = f"{one_line(call.name)} {one_line(path_list)}: {one_line(text)}"
        yield f"{call.call_id:>4}  {wrap_text(line, indent=6)}"


def prompt_lines(prompt: Prompt) -> Iterator[str]:
    """Yield lines about a model call: time, cost, tokens, new messages, and answer."""
    head = f"model call {prompt.number} · {one_line(prompt.model)} · {prompt.purpose}"
    if prompt.duration_ms is not None:
        head += f" · {format_duration(prompt.duration_ms)}"
    if prompt.answer is not None:
        head += f" · cost {format_usd(prompt.cost_usd, digits=6)}"
    yield click.style(head, bold=True)
    if prompt.answer is not None:
        yield prompt.usage.text
    if prompt.reply_id:
        yield f"the provider's id of the answer: {one_line(prompt.reply_id)}"
    if prompt.messages is None:
        yield "the messages of this call are not stored, or were removed"
    else:
        # The messages repeated from the previous call come first.
        repeated_count = sum(message.same for message in prompt.messages)
        if repeated_count:
            plural = "" if repeated_count == 1 else "s"
            yield f"[{repeated_count} message{plural} as in the call before]"
        for message in prompt.messages[repeated_count:]:
            yield click.style(f"--- {message.role}", dim=True)
            yield _quote(message.text)
    if prompt.tools:
        yield click.style(f"--- functions: {', '.join(map(one_line, prompt.tools))}", dim=True)
    if prompt.error:
        yield click.style("--- failed", dim=True)
        yield _quote(prompt.error)
    else:
        yield click.style("--- answer", dim=True)
        answer = "(none yet)"
        if prompt.answer is not None:
            answer = prompt.answer or "(no text)"  # there may be only calls of functions
        yield _quote(answer)
    for call in prompt.calls:
        yield f"{one_line(call.name)} {one_line(call.arguments)}"
    yield ""


def _quote(text: str) -> str:
    """Indent a text, so that no line of the text looks like the head of another message."""
    return f"  {wrap_text(visible(text), indent=2)}"


def _as_text(value: Any) -> str:
    if isinstance(value, float):
        return str(round(value, 6))
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # values that JSON does not have
        return repr(value)


def task_data(task: TaskRecord) -> dict[str, Any]:
    """Return a task as JSON-ready data."""
    return {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
