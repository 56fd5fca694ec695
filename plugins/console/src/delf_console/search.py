"""``delf runs search`` and ``delf runs figures``: all tasks by content and cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import click

from delf.machine.zones import local_zone
from delf.protocols.journal import filterable_fields
from delf.protocols.search import FigureBy, Figures, Found, FoundTask, TaskFilter
from delf.protocols.shared_journal import SharedJournal
from delf.protocols.states import STORED_STATES
from delf.terminal import visible
from delf.types import TaskState
from delf_cli.as_json import as_json_option, limit_option
from delf_cli.formats import format_age, format_duration, format_usd
from delf_cli.ids import short_ids
from delf_cli.journals import history_journal, work_with
from delf_cli.output import json_text
from delf_cli.pruning import DURATION
from delf_cli.streams import wrap_text
from delf_cli.tables import one_line, table
from delf_console.runs_view import (
    StateChoice,
    field_filters,
    field_values,
    money,
    state_text,
    task_data,
)
from delf_engine.elsewhere import search_tasks
from delf_engine.views.figures import figures_csv

if TYPE_CHECKING:
    CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_INDEX_SECONDS: Final = 10.0
# The fields of a found task that ``--json`` adds to those of the task.
_FIELDS_BESIDE_TASK: Final = ("person", "place", "event", "excerpt")
# The groupings for which tokens and cost are shown.
#
# Groups of tool calls, such as by action, have neither.
_GROUPS_WITH_COST: Final = frozenset({"day", "person", "model"})


def _filters(command: CommandT, states: Iterable[TaskState] = TaskState) -> CommandT:
    """Return the command with further options, which filter tasks.

    Args:
        command: The command.
        states: The states that the option ``--state`` accepts.
    """
    command = field_filters(command)
    # Reversed, because click lists the option first that was added last.
    for option in reversed(
        (
            click.option("--person", metavar="NAME", help="Only tasks that this person asked for."),
            click.option("--connection", metavar="NAME", help="Only tasks that called this."),
            click.option("--action", metavar="NAME", help="Only tasks that called this."),
            click.option("--model", metavar="NAME", help="Only tasks that asked this model."),
            click.option("--state", type=StateChoice(states), help="Only tasks in this state."),
            click.option(
                "--since", type=DURATION, metavar="AGE", help="Only tasks of the last 2h, 7d, …"
            ),
            click.option(
                "--cost-from",
                "least_cost",
                type=click.FloatRange(min=0),
                metavar="USD",
                help="Only tasks with at least this cost.",
            ),
        )
    ):
        command = option(command)
    return command


def _task_filter(text: str | None, since: float | None, filters: dict[str, Any]) -> TaskFilter:
    begin = None if since is None else time.time() - since
    fields = field_values(filters)
    other_filters = {name: filters[name] for name in filters.keys() - filterable_fields().keys()}
    return TaskFilter(text=text or None, since=begin, fields=fields, **other_filters)


@click.command("search")
@click.argument("words", nargs=-1)
@_filters
@limit_option(20, "The most tasks to show.", highest=1000)
@as_json_option(FoundTask, _FIELDS_BESIDE_TASK)
@click.pass_context
def search(
    ctx: click.Context,
    words: Sequence[str],
    since: float | None,
    limit: int,
    as_json: bool,
    **filter_options: Any,
) -> None:
    """Find tasks by what happened in them: words of a task, script, call, answer or error.

    Words in double quotes must follow each other. The last word may be the beginning of a word.

    \b
    delf runs search invoice Müller
    delf runs search '"not paid"' --connection mail --since 30d
    """  # noqa: D301 - click's mark for lines that stay as they are
    task_filter = _task_filter(" ".join(words), since, filter_options)
    journal = history_journal(ctx)
    matches = work_with(journal, lambda j: _search(j, task_filter, limit))
    if as_json:
        click.echo(json_text([_match_data(match) for match in matches.tasks], indent=2))
    elif not matches.tasks:
        click.echo(f"No task in {journal.place} matches", err=True)
    else:
        names = short_ids([match.task.task_id for match in matches.tasks])
        for name, match in zip(names, matches.tasks, strict=True):
            _print_match(name, match)
    if matches.behind:
        click.echo(f"{matches.behind:,} events are not searched yet; search again", err=True)


async def _search(journal: SharedJournal, task_filter: TaskFilter, limit: int) -> Found:
    await _update_index(journal)
    return await search_tasks(journal, task_filter, limit)


async def _update_index(journal: SharedJournal) -> None:
    # Searches update the index, so that running tasks need not.
    await journal.index(_INDEX_SECONDS)


def _match_data(match: FoundTask) -> dict[str, Any]:
    return task_data(match.task) | {name: getattr(match, name) for name in _FIELDS_BESIDE_TASK}


def _print_match(name: str, match: FoundTask) -> None:
    task = match.task
    parts = [
        state_text(task),
        format_age(task.started_at),
        format_duration(task.duration_ms),
        money(task),
        match.person,
    ]
    line = "  ".join(part for part in parts if part not in (None, "", "-"))
    indent = 4
    shown_name = one_line(name)
    # The first line has the name in place of the indent.
    columns_beyond_indent = len(f"{shown_name}  ") - indent
    title = wrap_text(one_line(task.task), indent=indent, head=columns_beyond_indent)
    click.echo(f"{click.style(shown_name, bold=True)}  {title}")
    click.echo(f"    {line}")
    if match.place not in (None, "task"):  # the words were found in another text than the title
        label = f"{match.place}: "
        excerpt = wrap_text(visible(match.excerpt), indent=indent, head=len(label))
        click.echo(f"    {click.style(f'{match.place}:', dim=True)} {excerpt}")


@click.command("figures")
@click.option(
    "--by",
    type=click.Choice(get_args(FigureBy)),
    default="day",
    show_default=True,
    help="How to group the figures.",
)
@partial(_filters, states=STORED_STATES)
@click.option("--csv", "as_csv", is_flag=True, help="Write the figures as CSV.")
@as_json_option(Figures)
@click.pass_context
def figures(
    ctx: click.Context,
    by: FigureBy,
    since: float | None,
    as_csv: bool,
    as_json: bool,
    **filter_options: Any,
) -> None:
    """Add up tasks, calls, questions, tokens and cost.

    Days begin at midnight in this machine's time zone.

    \b
    delf runs figures --since 30d
    delf runs figures --by model --since 7d --csv > models.csv
    """  # noqa: D301 - click's mark for lines that stay as they are
    task_filter = _task_filter(None, since, filter_options)
    zone_name = local_zone().name or "UTC"
    journal = history_journal(ctx)
    groups = work_with(journal, lambda j: _figures(j, by, task_filter, zone_name))
    if as_json:
        click.echo(json_text([asdict(group) for group in groups], indent=2))
    elif as_csv:
        click.echo(figures_csv(by, groups), nl=False)
    elif not groups:
        click.echo(f"No task in {journal.place} matches", err=True)
    else:
        for line in _as_table(by, groups):
            click.echo(line)


async def _figures(
    journal: SharedJournal, by: FigureBy, task_filter: TaskFilter, zone: str
) -> Sequence[Figures]:
    await _update_index(journal)
    return await journal.figures(by, task_filter, zone)


def _as_table(by: str, groups: Sequence[Figures]) -> list[str]:
    shows_cost = by in _GROUPS_WITH_COST
    head = [by, "tasks", "failed", "calls", "questions", "waited"]
    if shows_cost:
        head += ["tokens", "cost"]
    rows: list[list[str]] = []
    for group in groups:
        name = one_line(group.group) or "not known"
        waited = format_duration(group.waited_seconds * 1000) if group.questions else "-"
        numbers = (group.tasks, group.failed, group.calls, group.questions)
        row = [name, *(f"{number:,}" for number in numbers), waited]
        if shows_cost:
            tokens = group.input_tokens + group.output_tokens
            unpriced_note = " and more" if group.unpriced else ""
            row += [f"{tokens:,}", f"{format_usd(group.cost_usd)}{unpriced_note}"]
        rows.append(row)
    return table(rows, head, whole=True)
