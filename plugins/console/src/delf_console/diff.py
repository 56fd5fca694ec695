"""``delf runs diff``: comparison of two tasks."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

import click

from delf.events import Event
from delf.protocols.journal import TaskRecord
from delf.protocols.shared_journal import SharedJournal
from delf.terminal import visible
from delf_cli import complete
from delf_cli.as_json import as_json_option
from delf_cli.formats import format_duration
from delf_cli.ids import short_id
from delf_cli.journals import CurrentProject, ask_journal, find_id
from delf_cli.output import json_text
from delf_cli.state import state_of
from delf_cli.tables import one_line, table

if TYPE_CHECKING:
    from delf_engine.views.compare import Part

_COLOURS: Final = {"+": "green", "-": "red", "@": "cyan"}
# The labels of the compared figures, with their keys in the data.
_FIGURES: Final = (
    ("task", "task"),
    ("state", "state"),
    ("models", "models"),
    ("model calls", "model_calls"),
    ("calls", "calls"),
    ("tokens", "tokens"),
    ("cost", "cost_usd"),
    ("time", "duration_ms"),
    ("error", "error"),
)

TaskWithEvents = tuple[TaskRecord, "Sequence[Event]"]


class ComparisonRow(TypedDict):
    """The JSON of ``delf runs diff``.

    Args:
        a: The first task: ``task_id``, ``task``, ``state``, ``models``, ``model_calls``,
            ``calls``, ``tokens``, ``cost_usd``, ``duration_ms``, ``error``.
        b: The second task.
        scripts: The lines of a unified diff of the scripts; empty if the scripts are the same.
        calls: The lines of a unified diff of the calls with arguments and results; empty if these
            are the same.
        answer: The lines of a unified diff of the answers; empty if the answers are the same.
    """

    a: dict[str, Any]
    b: dict[str, Any]
    scripts: list[str]
    calls: list[str]
    answer: list[str]


@click.command("diff")
@click.argument("first", metavar="A", shell_complete=complete.task_ids)
@click.argument("second", metavar="B", shell_complete=complete.task_ids)
@as_json_option(ComparisonRow)
@click.pass_context
def diff(ctx: click.Context, first: str, second: str, as_json: bool) -> None:
    """Compare two tasks: figures, scripts, calls with their results, answers.

    \b
    delf runs diff 3f9a 7c21
    """  # noqa: D301 - click's mark for lines that stay as they are
    project = CurrentProject.of(state_of(ctx))

    async def load(journal: SharedJournal) -> tuple[TaskWithEvents, TaskWithEvents]:
        async def load_task(text: str) -> TaskWithEvents:
            full_id = await find_id(journal, text, project)
            return await journal.task(full_id), await journal.read(full_id)

        return await load_task(first), await load_task(second)

    task_a, task_b = ask_journal(ctx, load)
    data = compared_data(task_a, task_b)
    if as_json:
        click.echo(json_text(data, indent=2))
        return
    for line in _lines(data):
        click.echo(line)


def compared_data(task_a: TaskWithEvents, task_b: TaskWithEvents) -> ComparisonRow:
    """Return the comparison of two tasks as JSON-ready data."""
    from delf_engine.views.compare import prepare_comparison

    a = prepare_comparison(*task_a)
    b = prepare_comparison(*task_b)
    name_a = short_id(task_a[0].task_id)
    name_b = short_id(task_b[0].task_id)

    def diff_of(part: Part) -> list[str]:
        lines_a, lines_b = a.lines[part], b.lines[part]
        return list(difflib.unified_diff(lines_a, lines_b, name_a, name_b, lineterm="", n=2))

    return ComparisonRow(
        a=a.figures,
        b=b.figures,
        scripts=diff_of("scripts"),
        calls=diff_of("calls"),
        answer=diff_of("answer"),
    )


def _lines(data: ComparisonRow) -> Iterator[str]:
    a = data["a"]
    b = data["b"]
    rows: list[tuple[str, str, str]] = []
    for label, name in _FIGURES:
        if a[name] is None and b[name] is None:
            continue
        rows.append((label, _display_text(name, a[name]), _display_text(name, b[name])))
    yield from table(rows, ("", short_id(a["task_id"]), short_id(b["task_id"])), whole=True)
    for name in ("scripts", "calls", "answer"):
        yield ""
        if not data[name]:
            yield f"{name}: the same"
            continue
        yield click.style(f"{name}:", bold=True)
        for line in data[name]:
            yield click.style(visible(line), fg=_COLOURS.get(line[:1]))


def _display_text(name: str, value: Any) -> str:
    if value is None:
        return "unknown" if name == "cost_usd" else "-"
    if name == "cost_usd":
        return f"${value:.6f}"
    if name == "duration_ms":
        return format_duration(value)
    if isinstance(value, list):
        return ", ".join(str(item) for item in cast("list[Any]", value))
    return f"{value:,}" if isinstance(value, int) else one_line(str(value))
