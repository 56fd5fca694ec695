"""``delf runs``: look at the tasks in the journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from delf.events import Event, ScriptGenerated, TaskFinished, encode
from delf.protocols.journal import TaskRecord
from delf.protocols.people import name_of_user
from delf.protocols.shared_journal import SharedJournal
from delf.terminal import visible
from delf.types import TaskState
from delf_cli import complete
from delf_cli.as_json import as_json_option, limit_option
from delf_cli.errors import TRACE
from delf_cli.formats import format_count, format_duration
from delf_cli.ids import short_id
from delf_cli.journals import (
    CurrentProject,
    ask_journal,
    find_id,
    history_journal,
    load_task,
    work_with,
)
from delf_cli.lazy import LazyGroup
from delf_cli.output import json_text, show_answer
from delf_cli.pruning import DURATION, Pruning, prune_options
from delf_cli.script_view import script_lines, scripts_of
from delf_cli.state import state_of
from delf_cli.story import format_stop, printed_so_far
from delf_cli.streams import real_stdout, wrap_text
from delf_cli.summary import summary_of
from delf_cli.tables import one_line, table, terminal_width
from delf_console import runs_view as render
from delf_engine.elsewhere import find_tasks
from delf_engine.retention import prune as prune_tasks

if TYPE_CHECKING:
    from delf_engine.views.records import ToolCallTrace
    from delf_engine.views.trace import Trace

POLL_SECONDS: Final = 5.0
_MAX_CALL_LINES: Final = 30

task_argument = click.argument(
    "task_id", metavar="[ID]", default="last", shell_complete=complete.task_ids
)


class _CourseRow(TypedDict):
    """The fields that ``delf runs show --json`` adds to those of a task.

    Args:
        code: The code of the error, such as ``ERR-MODEL-001``.
        hint: The remedy for the error.
        answer: The answer, once the task is over.
        files: The paths of the output files, by name.
        trace: The course of the task, as in a response.
    """

    code: str | None
    hint: str | None
    answer: str | None
    files: dict[str, str]
    trace: dict[str, Any]


class _EventRow(TypedDict):
    """The JSON of an event, as :func:`delf.events.encode` makes it.

    Args:
        type: The type, such as ``TaskStarted`` or ``CallFinished``.
        v: The version of the type.
        task_id: The task.
        seq: The number of the event in the task, from 1.
        at: The Unix time at which it happened.
        data: The fields of the type.
    """

    type: str
    v: int
    task_id: str
    seq: int
    at: float
    data: dict[str, Any]


class _ScriptRow(TypedDict):
    """The JSON of a script in ``delf runs code``.

    Args:
        attempt: The number of the script.
        code: The script.
    """

    attempt: int
    code: str


class _PrunedRow(TypedDict):
    """The JSON of ``delf runs prune`` and ``delf journal prune``.

    Args:
        dry_run: True if nothing was removed.
        tasks: The ids of the tasks that were removed, or would be.
        events: The number of their events.
    """

    dry_run: bool
    tasks: list[str]
    events: int


@click.group("runs", cls=LazyGroup, group="runs ", bare_command="list")
def runs() -> None:
    """Look at the tasks in the journal; you may shorten an ID.

    `last` is the newest task of this project; outside of a project, the newest task of all.

    \b
    delf runs
    delf runs list --state failed
    delf runs show 3f9a
    delf runs events 3f9a --follow
    """  # noqa: D301 - click's mark for lines that stay as they are


@runs.command("list")
@click.option("--state", type=render.StateChoice(), help="Only tasks in this state.")
@click.option("--since", type=DURATION, metavar="AGE", help="Only tasks of the last 2h, 7d, …")
@render.field_filters
@limit_option(20, "The most tasks to show.")
@as_json_option(TaskRecord)
@click.pass_context
def list_command(
    ctx: click.Context,
    state: TaskState | None,
    since: float | None,
    limit: int,
    as_json: bool,
    **field_options: str | None,
) -> None:
    """List tasks, the newest first.

    A task is queued (for a runner), running, waiting (for a person), done, failed, stopped (by a
    person), or interrupted (its process died).
    """
    begin = None if since is None else time.time() - since
    journal = history_journal(ctx)
    fields = render.field_values(field_options)
    has_filter = bool(fields) or state is not None or since is not None

    async def find(journal: SharedJournal) -> Sequence[TaskRecord]:
        return await find_tasks(journal, limit, state=state, since=begin, fields=fields)

    tasks = work_with(journal, find)
    if as_json:
        click.echo(json_text([render.task_data(task) for task in tasks], indent=2))
        return
    if not tasks:
        message = "No task fits" if has_filter else "There is no task yet"
        click.echo(f"{message} in {journal.place}", err=True)
        return
    click.echo("\n".join(render.tasks_table(tasks)))  # 100,000 single writes would take seconds


@runs.command("show")
@task_argument
@click.option("--prompts", is_flag=True, help="Show the messages to the models, call by call.")
@as_json_option(_CourseRow)
@click.pass_context
def show(ctx: click.Context, task_id: str, prompts: bool, as_json: bool) -> None:
    """Show how a task, by default the last, went: its scripts with calls, tokens, cost, answer."""
    from delf_engine.views.sources import sources_of
    from delf_engine.views.trace import Trace

    task, events = load_task(ctx, task_id)
    if prompts:
        _show_prompts(events, as_json)
        return
    trace = Trace(events)
    sources = sources_of(events)
    for call in trace.tool_calls:
        # The journal has only the origins that a person was shown. sources_of() finds the others.
        if not call.origins:
            call.origins = sources.get(call.call_id, {})
    last = events[-1] if events else None
    end = last if isinstance(last, TaskFinished) else None
    if as_json:
        data = {**render.task_data(task), **_course_data(end, trace)}
        click.echo(json_text(data, indent=2))
    else:
        _show_course(task, events, trace, end)


def _show_course(
    task: TaskRecord, events: Sequence[Event], trace: Trace, end: TaskFinished | None
) -> None:
    """Write how a task went: its state, scripts, calls, error and answer."""
    click.echo(click.style(wrap_text(one_line(task.task)), bold=True))
    click.echo(_state_line(task, end))
    click.echo("")
    summary = summary_of(trace, calls=False, width=terminal_width())
    click.echo(wrap_text(visible(summary)))
    scripts = scripts_of(events, terminal_width())
    for script in scripts:
        click.echo("")
        for line in script_lines(script, total=len(scripts), width=terminal_width()):
            click.echo(line)
    if trace.tool_calls:
        _show_calls(trace.tool_calls, f"delf runs events {short_id(task.task_id)}")
    _show_origins(trace.tool_calls)
    if task.error:
        _show_error(task.error, end)
    answer = "" if end is None else end.text.strip()
    if not answer:  # the task has not ended, or ended without an answer
        answer = printed_so_far(events).strip()
    if answer:
        click.echo("")
        show_answer(visible(answer))
    if task.state is TaskState.INTERRUPTED:
        name = one_line(task.task_id)
        click.echo(f"\n{click.style('hint:', fg='cyan', bold=True)} delf resume {name}")


def _course_data(end: TaskFinished | None, trace: Trace) -> _CourseRow:
    """Return the course and end of a task as data; a task without an end has the same keys."""
    if end is None:
        return _CourseRow(code=None, hint=None, answer=None, files={}, trace=trace.to_dict())
    return _CourseRow(
        code=end.code,
        hint=end.hint,
        answer=end.text,
        files=dict(end.files),
        trace=trace.to_dict(),
    )


def _state_line(task: TaskRecord, end: TaskFinished | None) -> str:
    """Format a task's state, when it started, its process, and who asked for it."""
    line = render.state_text(task)
    if end is not None:
        line += format_stop(end)
    if task.state is TaskState.QUEUED and task.not_before is not None:
        line += f" not before {render.moment(task.not_before)}"
    line += f", started {render.moment(task.started_at)}"
    if task.owner:
        line += f", by {task.owner}"
    if task.user is not None:
        line += f", asked by {one_line(name_of_user(task.user))}"
    return line


def _show_origins(calls: Sequence[ToolCallTrace]) -> None:
    lines = [line for call in calls for line in render.origin_lines(call)]
    if not lines:
        return
    click.echo("\nsources of values:")
    for line in lines[:_MAX_CALL_LINES]:
        click.echo(line)
    omitted_count = len(lines) - _MAX_CALL_LINES
    if omitted_count > 0:
        click.echo(f"… and {omitted_count} more; --json shows all")


def _show_error(error: str, end: TaskFinished | None) -> None:
    """Write a task's error, and the hint of a failure."""
    error_text = wrap_text(one_line(error), head=len("error: "))
    click.echo(f"\n{click.style('error:', fg='red', bold=True)} {error_text}")
    if end is None or end.state is not TaskState.FAILED or not end.hint:
        return
    is_about_this_command = end.hint.startswith(TRACE)
    if not is_about_this_command:
        hint_text = wrap_text(one_line(end.hint), head=len("hint: "))
        click.echo(f"{click.style('hint:', fg='cyan', bold=True)} {hint_text}")


def _show_calls(calls: Sequence[ToolCallTrace], command_for_all: str) -> None:
    rows = [
        (
            str(call.call_id),
            call.status,
            format_duration(call.duration_ms),
            one_line(call.name),
            one_line(call.error or call.description or ""),
        )
        for call in calls[:_MAX_CALL_LINES]
    ]
    click.echo("")
    for line in table(rows, ("call", "status", "took", "action", "what"), whole=True):
        click.echo(line)
    omitted_count = len(calls) - len(rows)
    if omitted_count > 0:
        click.echo(f"… and {omitted_count} more; {command_for_all} shows all")


def _show_prompts(events: Sequence[Event], as_json: bool) -> None:
    """Write each model call, with the messages that were not in the previous model call."""
    from delf_engine.views.prompts import prompts_of

    prompts = prompts_of(events)
    if as_json:
        click.echo(json_text([asdict(prompt) for prompt in prompts], indent=2))
        return
    if not prompts:
        click.echo("no model was asked", err=True)
    for prompt in prompts:
        for line in render.prompt_lines(prompt):
            click.echo(line)


@runs.command("events")
@task_argument
@click.option("-f", "--follow", is_flag=True, help="Continue until the task is over.")
@as_json_option(_EventRow)
@click.pass_context
def events(ctx: click.Context, task_id: str, follow: bool, as_json: bool) -> None:
    """Write the events of the task ID, one per line; without ID, of `last`."""
    project = CurrentProject.of(state_of(ctx))

    async def print_events(journal: SharedJournal) -> None:
        began: float | None = None  # the time of the first event
        complete_id = await find_id(journal, task_id, project)
        async for event in events_of(journal, complete_id, follow=follow):
            began = event.at if began is None else began
            line = json_text(encode(event)) if as_json else render.event_line(event, began)
            click.echo(line)
            if follow:
                real_stdout().flush()

    ask_journal(ctx, print_events)


@runs.command("code")
@task_argument
@as_json_option(_ScriptRow)
@click.pass_context
def code(ctx: click.Context, task_id: str, as_json: bool) -> None:
    """Write the scripts that a task, by default the last, ran."""
    task, events = load_task(ctx, task_id)
    scripts = [event for event in events if isinstance(event, ScriptGenerated)]
    if as_json:
        data = [_ScriptRow(attempt=item.attempt, code=item.code) for item in scripts]
        click.echo(json_text(data, indent=2))
        return
    if not scripts:
        click.echo(f"task {task.task_id} has no script", err=True)
    for number, script in enumerate(scripts, 1):
        if number > 1:
            click.echo("")
        if len(scripts) > 1:
            click.echo(f"# script {number} of {len(scripts)}")
        click.echo(visible(script.code.rstrip()))


@runs.command("prune")
@prune_options(
    older_than_help="Remove tasks that ended longer ago than this.",
    keep_help="Keep the newest N tasks.",
)
@as_json_option(_PrunedRow)
@click.pass_context
def prune(ctx: click.Context, pruning: Pruning, as_json: bool) -> None:
    """Remove old tasks with all their events, except running tasks."""
    age, keep, dry_run = pruning.older_than, pruning.keep, pruning.dry_run
    removed = ask_journal(ctx, lambda j: prune_tasks(j, age, keep, dry_run=dry_run))
    if as_json:
        data = _PrunedRow(dry_run=dry_run, tasks=list(removed.tasks), events=removed.events)
        click.echo(json_text(data, indent=2))
        return
    if dry_run:
        for task_id in removed.tasks:
            click.echo(one_line(task_id))
    verb = "would be removed" if dry_run else "removed"
    count = format_count(len(removed.tasks), "task")
    # A dry run writes only ids to the standard output, for scripts.
    click.echo(f"{count} with {format_count(removed.events, 'event')} {verb}", err=dry_run)


# -- what they share --------------------------------------------------------------------------


async def events_of(journal: SharedJournal, task_id: str, *, follow: bool) -> AsyncGenerator[Event]:
    """Yield a task's recorded events.

    With ``follow``, also yield new events until the task ends or its process dies.
    """
    live = journal.subscribe(task_id)  # before reading, to miss no event
    next_event: asyncio.Future[Event] | None = None
    last_event: Event | None = None
    try:
        while True:
            # Read the state before the events: if the task is not at work, all its events are
            # recorded.
            state = (await journal.task(task_id)).state
            for event in await journal.read(task_id, 0 if last_event is None else last_event.seq):
                yield event
                last_event = event
            # Check the last event only: a resumed task goes on after an earlier end.
            if not follow or isinstance(last_event, TaskFinished):
                return
            if not state.is_at_work:
                if state is TaskState.INTERRUPTED:
                    click.echo("interrupted: the process that worked on it is gone", err=True)
                return
            # Keep the future after a timeout, because cancelling anext() would end the generator.
            if next_event is None:
                next_event = asyncio.ensure_future(anext(live))
            await asyncio.wait({next_event}, timeout=POLL_SECONDS)
            if next_event.done():
                next_event.result()  # only a signal: the next iteration reads the events
                next_event = None
    finally:
        if next_event is not None:
            next_event.cancel()
