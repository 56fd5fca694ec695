"""``delf runner`` and ``delf schedule``."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from delf import plugin_context
from delf.errors import ConfigurationError
from delf.protocols.shared_journal import SharedJournal
from delf_cli.as_json import as_json_option, write_result
from delf_cli.journals import project_journal
from delf_cli.lazy import BareGroup
from delf_cli.options import run_options
from delf_cli.session import Options, log_to_stderr
from delf_cli.tables import one_line, table
from delf_engine.journal.factory import need_durable_journal
from delf_engine.project.any_project import journal_name
from delf_runner_dbos.queue import SCHEDULED, DbosQueue, task_queue
from delf_runner_dbos.settings import PLUGIN, RunnerSettings

if TYPE_CHECKING:
    from dbos import DBOSClient

    from delf_cli.state import State
    from delf_engine.project.project import Project
    from delf_runner_dbos.runner import RunnerOptions

__all__ = ["runner", "schedule", "task_queue"]

_DEFAULT: Final = "default"
_SETUP: Final = frozenset({"connections", "tool_files", "strategy"})
"""Options of `delf run` that a schedule keeps: none of them holds a secret."""


@click.command()
@click.option(
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    help="The queue to work on. May be repeated.  [default: default]",
)
@click.option(
    "--concurrency",
    metavar="N",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="The most tasks at the same time.",
)
@click.option(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="The time that running tasks have after SIGTERM or Ctrl-C.",
)
@click.pass_context
def runner(ctx: click.Context, queues: tuple[str, ...], concurrency: int, grace: float) -> None:
    """Do the tasks of a queue, which `delf run --detach` submits.

    Any number of runners may run, on any number of machines that share a journal. If one dies,
    the others continue its tasks.

    \b
    delf runner --queue reports --concurrency 8
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_runner_dbos.runner import RunnerOptions

    state: State = ctx.find_root().obj
    log_to_stderr(state)
    project = state.load_project()
    settings = _settings(project)
    options = RunnerOptions(
        queues={name: settings.of(name) for name in queues or (_DEFAULT,)},
        concurrency=concurrency,
        lease=settings.lease,
        grace=grace,
        former=settings.former_folders,
    )
    asyncio.run(_work(state, project, settings, options))


def _settings(project: Project) -> RunnerSettings:
    given: Mapping[str, Any] = project.plugin_options.get(PLUGIN, {})
    return RunnerSettings.for_instance("runner_dbos", dict(given))


def _url(project: Project, settings: RunnerSettings) -> str:
    return settings.url(plugin_context(project).data_dir, project.root)


def _journal(state: State, project: Project, lease: float) -> SharedJournal:
    """Return the project's journal.

    Raises:
        ConfigurationError: When runners cannot share it.
        OptionalDependencyError: When none is installed that lasts.
    """
    host = state.discover(project.environ)
    need_durable_journal(host, "a runner")
    journal: Any = project_journal(project, host)
    if not isinstance(journal, SharedJournal):
        raise ConfigurationError(
            f"runners cannot share the journal {journal_name(project, host)!r}",
            hint='name one that processes share: journal = "sql"',
        )
    journal.lease(lease)
    return journal


async def _work(
    state: State, project: Project, settings: RunnerSettings, options: RunnerOptions
) -> None:
    from delf_runner_dbos.agents import Agents
    from delf_runner_dbos.engine import Workflows
    from delf_runner_dbos.runner import Runner

    journal = _journal(state, project, options.lease)
    name = journal_name(project, state.discover(project.environ))
    more = {"lease": options.lease, "journal": name, "max_tasks": options.concurrency}
    agents = Agents(state, more, options.former)
    url = _url(project, settings)
    queue = DbosQueue(url)
    work = Runner(journal, queue, agents, options)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.end)
    workflows = Workflows(url, work.work, work.hand_in)
    click.echo(f"takes {', '.join(options.queues)}; up to {options.concurrency} at once", err=True)
    try:
        await work.run(workflows)
    finally:
        await agents.aclose()
        await workflows.stop(0)
        await queue.aclose()
        await journal.aclose()
    click.echo("ended in order", err=True)


@click.group(cls=BareGroup, bare="list")
def schedule() -> None:
    """Let the runners of a queue do a task at set times.

    \b
    delf schedule add morning "0 8 * * 1-5" "Tell what came in overnight."
    delf schedule list
    """  # noqa: D301 - click's mark for lines that stay as they are


@schedule.command("add")
@click.argument("name")
@click.argument("cron")
@click.argument("task")
@click.option(
    "--queue", metavar="NAME", default=_DEFAULT, show_default=True, help="The queue for the task."
)
@click.option(
    "--zone", metavar="NAME", help="The time zone, such as Europe/Vienna; by default UTC."
)
@as_json_option
@click.pass_context
def add(
    ctx: click.Context,
    name: str,
    cron: str,
    task: str,
    queue: str,
    zone: str | None,
    as_json: bool,
    connections: tuple[str, ...],
    tool_files: tuple[str, ...],
    strategy: str | None,
) -> None:
    r"""Do TASK at the times of CRON: minute, hour, day, month, weekday.

    \b
    delf schedule add morning "0 8 * * 1-5" "Tell what came in overnight."
    delf schedule add income "0 7 1 * *" 'revenue(month="2026-11")' --strategy routine
    """
    flags = {"strategy": strategy}
    options = Options(flags=flags, connections=connections, tool_files=tool_files)
    setup = options.to_record(ctx.find_root().obj)
    context: dict[str, Any] = {"task": task, "queue": queue, "setup": setup}
    with _opened(ctx) as opened:
        if opened.call_here(lambda client: client.get_schedule(name)) is not None:
            raise ConfigurationError(
                f"there is a schedule {name!r} already", hint=f"delf schedule remove {name}"
            )

        def create(client: DBOSClient) -> None:
            from dbos import error as dbos_error

            try:
                client.create_schedule(
                    schedule_name=name,
                    workflow_name=SCHEDULED,
                    schedule=cron,
                    context=context,
                    cron_timezone=zone,
                    queue_name=queue,
                )
            except dbos_error.DBOSException as error:
                raise ConfigurationError(
                    f"the schedule {cron!r} cannot be kept: {error}",
                    hint='as "0 8 * * 1-5": workdays at eight',
                ) from None

        opened.call_here(create)
    data = {"name": name, "cron": cron, "zone": zone, "task": task, "queue": queue}
    write_result(f"{name}: {cron}", data, as_json=as_json)


add.params += [o for o in run_options() if o.name in _SETUP]


@schedule.command("list")
@as_json_option
@click.pass_context
def list_schedules(ctx: click.Context, *, as_json: bool) -> None:
    """Show the schedules."""
    with _opened(ctx) as opened:
        found: list[dict[str, Any]] = [
            {
                "name": item["schedule_name"],
                "cron": item["schedule"],
                "zone": item["cron_timezone"],
                "task": item["context"]["task"],
                "queue": item["context"]["queue"],
                "last": item["last_fired_at"],
            }
            for item in opened.call_here(lambda client: client.list_schedules())
        ]
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [
        (item["name"], item["cron"], item["zone"] or "UTC", item["queue"], one_line(item["task"]))
        for item in found
    ]
    for line in table(rows, ("name", "cron", "zone", "queue", "task"), whole=True):
        click.echo(line)
    if not found:
        click.echo("There is no schedule yet: delf schedule add NAME CRON TASK", err=True)


@schedule.command("remove")
@click.argument("name")
@as_json_option
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Remove the schedule NAME."""
    with _opened(ctx) as opened:
        if opened.call_here(lambda client: client.get_schedule(name)) is None:
            raise ConfigurationError(f"there is no schedule {name!r}", hint="delf schedule list")
        opened.call_here(lambda client: client.delete_schedule(name))
    write_result(f"{name} is removed", {"name": name, "removed": True}, as_json=as_json)


@contextmanager
def _opened(ctx: click.Context) -> Generator[DbosQueue]:
    """Open the project's queue."""
    project = ctx.find_root().obj.load_project()
    queue = DbosQueue(_url(project, _settings(project)))
    try:
        yield queue
    finally:
        asyncio.run(queue.aclose())
