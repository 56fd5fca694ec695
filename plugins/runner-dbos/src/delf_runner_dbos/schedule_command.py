"""``delf schedule``."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import click

from delf.types import TaskState
from delf_cli.as_json import as_json_option, write_result
from delf_cli.errors import say
from delf_cli.journals import history_journal
from delf_cli.lazy import BareGroup
from delf_cli.options import flags_of, remaining_options, run_options
from delf_cli.routines import ROUTINE, ROUTINES
from delf_cli.schedules import (
    SHOWN_SCHEDULE_FIELDS,
    Firing,
    Schedule,
    add_outcomes,
    check_routine,
)
from delf_cli.session import Options, Setup
from delf_cli.streams import wrap_text
from delf_cli.tables import one_line, table
from delf_runner_dbos.schedules import DbosSchedules, open_schedules

if TYPE_CHECKING:
    from delf_cli.state import State

T = TypeVar("T")

# Options of ``delf run`` that a schedule does not store: options that may hold a secret, because
# DBOS's tables would show it; the journal, because runners use the project's journal; and options
# of the terminal.
_NOT_SHARED: Final = frozenset(
    {"base_url", "overrides", "journal", "calls", "verbose", "as_json", "events"}
)
_POLL_SECONDS: Final = 0.5
# The maximum number of seconds to wait until a runner starts a test.
TEST_SECONDS: Final = 5.0


class _Removed(TypedDict):
    """The JSON of ``delf schedule remove``.

    Args:
        name: The name of the schedule.
        removed: Always true.
    """

    name: str
    removed: bool


@click.group(cls=BareGroup, bare_command="list")
def schedule() -> None:
    """Let runners do a task at set times, or for each new item that a call returns.

    \b
    delf schedule add morning "0 8 * * 1-5" "Tell what came in overnight."
    delf schedule list
    """  # noqa: D301 - click's mark for lines that stay as they are


@schedule.command("add")
@click.argument("name")
@click.argument("cron")
@click.argument("task")
@click.option(
    "--each",
    metavar="CALL",
    help="A call that only reads. At each time it is made, and each new item that it returns "
    "starts the task; scripts find the item as the variable `item`.",
)
@click.option("--id", "id_field", metavar="FIELD", help="The field that identifies an item.")
@click.option(
    "--queue", metavar="NAME", default="default", show_default=True, help="The queue for the task."
)
@click.option(
    "--zone", metavar="NAME", help="The time zone, such as Europe/Vienna; by default UTC."
)
@as_json_option(Schedule, SHOWN_SCHEDULE_FIELDS)
@click.pass_context
def add(
    ctx: click.Context,
    name: str,
    cron: str,
    task: str,
    *,
    each: str | None,
    id_field: str | None,
    queue: str,
    zone: str | None,
    as_json: bool,
    **run_options: Any,
) -> None:
    """Do TASK at the times of CRON: minute, hour, day, month, weekday.

    \b
    delf schedule add morning "0 8 * * 1-5" "Tell what came in overnight."
    delf schedule add income "0 7 1 * *" 'revenue(month="2026-11")' --strategy routine
    delf schedule add invoices "* * * * *" "Enter the invoice in the mail item." \\
        --each 'mail.search(query="label:invoices")'
    """  # noqa: D301 - click's mark for lines that stay as they are
    state: State = ctx.find_root().obj
    options = Options(flags=flags_of(run_options), **remaining_options(run_options))
    if state.load_project(options.overrides, options.flags).agent.strategy == ROUTINE:
        # The strategy may come from delf.toml, but runners read it only from the schedule.
        options = replace(options, flags={**options.flags, "strategy": ROUTINE})
    new_schedule = Schedule(
        name=name,
        cron=cron,
        task=task,
        zone=zone,
        each=each,
        id_field=id_field,
        queue=queue,
        setup=options.to_record(state),
    )
    asyncio.run(_check_schedule(state, options, new_schedule))
    _run_with_schedules(ctx, lambda schedules: schedules.add(new_schedule))
    write_result(f"{name}: {cron}", _schedule_data(new_schedule), as_json=as_json)


add.params += run_options(without=_NOT_SHARED)


@schedule.command("list")
@as_json_option(Schedule, SHOWN_SCHEDULE_FIELDS)
@click.pass_context
def list_schedules(ctx: click.Context, *, as_json: bool) -> None:
    """Show the schedules."""
    schedules_found = _run_with_schedules(ctx, lambda schedules: schedules.all())
    if as_json:
        click.echo(json.dumps([_schedule_data(item) for item in schedules_found]))
        return
    rows: list[tuple[str, ...]] = []
    for item in schedules_found:
        cron = "paused" if item.paused else item.cron
        task = f"{item.task} (each of {item.each})" if item.each else item.task
        rows.append((item.name, cron, item.zone or "UTC", item.queue, one_line(task)))
    for line in table(rows, ("name", "cron", "zone", "queue", "task"), whole=True):
        click.echo(line)
    if not schedules_found:
        click.echo("There is no schedule yet: delf schedule add NAME CRON TASK", err=True)


@schedule.command("remove")
@click.argument("name")
@as_json_option(_Removed)
@click.pass_context
def remove(ctx: click.Context, name: str, *, as_json: bool) -> None:
    """Remove the schedule NAME."""
    _run_with_schedules(ctx, lambda schedules: schedules.remove(name))
    write_result(f"{name} is removed", _Removed(name=name, removed=True), as_json=as_json)


@schedule.command("pause")
@click.argument("name")
@as_json_option(Schedule, SHOWN_SCHEDULE_FIELDS)
@click.pass_context
def pause(ctx: click.Context, name: str, *, as_json: bool) -> None:
    """Pause the schedule NAME: it starts no tasks until it is resumed."""
    _set_paused(ctx, name, paused=True, as_json=as_json)


@schedule.command("resume")
@click.argument("name")
@as_json_option(Schedule, SHOWN_SCHEDULE_FIELDS)
@click.pass_context
def resume(ctx: click.Context, name: str, *, as_json: bool) -> None:
    """Resume the schedule NAME. Items that arrived during the pause are handled as new items."""
    _set_paused(ctx, name, paused=False, as_json=as_json)


@schedule.command("history")
@click.argument("name")
@click.option("--limit", metavar="N", type=click.IntRange(1, 500), default=20, show_default=True)
@as_json_option(Firing)
@click.pass_context
def history(ctx: click.Context, name: str, *, limit: int, as_json: bool) -> None:
    """Show the outcomes of the most recent firings of the schedule NAME."""
    journal = history_journal(ctx)

    async def past(schedules: DbosSchedules) -> list[Firing]:
        async with aclosing(journal):
            firings = await schedules.history(name, limit)
            return await add_outcomes(firings, journal)

    firings = _run_with_schedules(ctx, past)
    if as_json:
        click.echo(json.dumps([_firing_data(firing) for firing in firings]))
        return
    for firing in firings:
        click.echo(wrap_text(_firing_line(firing), indent=4))
    if not firings:
        click.echo(f"{name} has started no task yet", err=True)


@schedule.command("test")
@click.argument("name")
@as_json_option(Firing)
@click.pass_context
def test(ctx: click.Context, name: str, *, as_json: bool) -> None:
    """Do the task of the schedule NAME once, now, as a test.

    A process of `delf runner` does the task. Each call that would change something is denied, and
    the schedule stays as it is. With --each the task gets the first item.
    """
    journal = history_journal(ctx)

    async def outcome(schedules: DbosSchedules, test_id: str) -> Firing:
        (firing,) = await add_outcomes([await schedules.firing(test_id)], journal)
        return firing

    async def run_test(schedules: DbosSchedules) -> Firing:
        async with aclosing(journal):
            test_id = await schedules.test(name)
            deadline = time.monotonic() + TEST_SECONDS
            firing = await outcome(schedules, test_id)
            while not firing.state.is_terminal and time.monotonic() < deadline:
                await asyncio.sleep(_POLL_SECONDS)
                firing = await outcome(schedules, test_id)
        if firing.state is TaskState.QUEUED:
            queue = (await schedules.find(name)).queue
            say("hint", f"no runner has begun it yet: delf runner --queue {queue}")
        return firing

    firing = _run_with_schedules(ctx, run_test)
    write_result(_firing_line(firing), _firing_data(firing), as_json=as_json)
    # If a task was started, its failure is no error of this command: a task may fail only because
    # the test denies its changes.
    has_started_no_task = not firing.task_ids
    if firing.state is TaskState.FAILED and has_started_no_task:
        ctx.exit(1)


def _run_with_schedules(ctx: click.Context, work: Callable[[DbosSchedules], Awaitable[T]]) -> T:
    state: State = ctx.find_root().obj

    async def main() -> T:
        schedules = open_schedules(state.load_project())
        try:
            return await work(schedules)
        finally:
            await schedules.aclose()

    return asyncio.run(main())


async def _check_schedule(state: State, options: Options, schedule: Schedule) -> None:
    """Check the options and calls of a schedule before the schedule is stored.

    An agent is started with the options, as for `delf run`, so that a misspelt name fails now. A
    schedule may also have a call that looks for new items, and a call of a routine as its task.

    Raises:
        ConfigurationError: If an option names something unknown; if the call that looks for items
            is invalid, changes something, or needs approval; or if the routine or a value of its
            call is invalid.
    """
    # A late import: the agent is slow to import, and only this command needs one.
    from delf_engine.watched_calls import check_watched_call

    setup = Setup.of(state, options)
    async with setup.agent(journal="none", approvals=[]) as agent:
        if schedule.is_routine:
            check_routine(schedule, setup.host.service(ROUTINES)(agent))
        if schedule.each is not None:
            await check_watched_call(agent.tools, schedule.each)


def _set_paused(ctx: click.Context, name: str, *, paused: bool, as_json: bool) -> None:
    async def change(schedules: DbosSchedules) -> Schedule:
        await schedules.pause(name, paused=paused)
        return await schedules.find(name)

    data = _schedule_data(_run_with_schedules(ctx, change))
    write_result(f"{name} is paused" if paused else f"{name} continues", data, as_json=as_json)


def _schedule_data(item: Schedule) -> dict[str, Any]:
    return {name: getattr(item, name) for name in SHOWN_SCHEDULE_FIELDS}


def _firing_data(firing: Firing) -> dict[str, Any]:
    return {field.name: getattr(firing, field.name) for field in fields(firing)}


def _task_text(task_id: str, state: TaskState | None) -> str:
    """Return the start of a task's id, with the state if there is one."""
    short_id = task_id.removeprefix("task_")[:7]
    return f"{short_id} {state.value}" if state else short_id


def _firing_line(firing: Firing) -> str:
    at = datetime.fromtimestamp(firing.at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    shown_states: Mapping[str, TaskState] = {}
    if len(firing.task_ids) > 1:  # a single task has the state of the firing, shown anyway
        shown_states = firing.task_states
    tasks = ", ".join(_task_text(task_id, shown_states.get(task_id)) for task_id in firing.task_ids)
    outcome = firing.state.value
    if firing.state is TaskState.DONE and not firing.task_states:
        # Either the tasks were deleted later, or there were no new items and so no tasks.
        outcome = "started" if firing.task_ids else "checked"
    words = [at, f"{outcome:<8}"]
    if firing.test:
        words.append("test")
    if tasks:
        words.append(tasks)
    if firing.note:
        words.append(firing.note)
    return "  ".join(words).rstrip()
