"""``delf runner``."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

import click

from delf.errors import ConfigurationError, OptionalDependencyError
from delf.protocols.shared_journal import SharedJournal
from delf_cli.journals import project_journal
from delf_cli.people_tasks import PEOPLE_TASKS, PeopleTasks
from delf_engine.journal.factory import need_durable_journal
from delf_engine.project.any_project import journal_name
from delf_runner_dbos.queue import DbosQueue, check_queue_name
from delf_runner_dbos.schedules import database_url, settings_of
from delf_runner_dbos.settings import RunnerSettings

if TYPE_CHECKING:
    from delf_cli.state import State
    from delf_engine.project.project import Project
    from delf_runner_dbos.runner import RunnerOptions

_DEFAULT: Final = "default"


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

    for name in queues:
        check_queue_name(name)
    state: State = ctx.find_root().obj
    project = state.load_project()
    settings = settings_of(project)
    options = RunnerOptions(
        queues={name: settings.of(name) for name in queues or (_DEFAULT,)},
        concurrency=concurrency,
        lease=settings.lease,
        grace=grace,
        former_folders=project.agent.former_folders,
    )
    asyncio.run(_work(state, project, settings, options))


def _journal(state: State, project: Project, lease: float) -> SharedJournal:
    """Return the project's journal.

    Raises:
        ConfigurationError: If the journal is not shared.
        OptionalDependencyError: If no durable journal is installed.
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


def _open_user_services(
    state: State, project: Project, journal: SharedJournal
) -> PeopleTasks | None:
    """Open the object with the users' budgets and notifications, which the server plugin provides.

    None if no server plugin is installed.
    """
    try:
        open_people_tasks = state.discover(project.environ).service(PEOPLE_TASKS)
    except OptionalDependencyError:
        return None
    return open_people_tasks(project, journal)


async def _work(
    state: State, project: Project, settings: RunnerSettings, options: RunnerOptions
) -> None:
    """Run queued tasks and schedules until a signal ends the runner."""
    from delf_runner_dbos.agents import Agents
    from delf_runner_dbos.engine import Workflows
    from delf_runner_dbos.runner import Runner
    from delf_runner_dbos.watching import WATCHER_OPTIONS

    # Register the closing of each resource as soon as it is open. If a later step fails or is
    # cancelled, all open resources are closed, the last one first. After an orderly end, run() has
    # already closed the agents and DBOS.
    async with AsyncExitStack() as stack:
        journal = _journal(state, project, options.lease)
        stack.push_async_callback(journal.aclose)
        url = database_url(project, settings)
        queue = DbosQueue(url)
        stack.push_async_callback(queue.aclose)
        # The budgets and notifications of users; None if no server plugin is installed.
        user_services = _open_user_services(state, project, journal)
        default_options = dict[str, Any]()
        if user_services is not None:
            stack.push_async_callback(user_services.aclose)
            default_options = user_services.defaults
        name = journal_name(project, state.discover(project.environ))
        fixed_options = {"lease": options.lease, "journal": name, "max_tasks": options.concurrency}
        agents = Agents(state, fixed_options, options.former_folders, default_options)
        # These agents only make the read calls by which schedules look for new items.
        read_only_agents = Agents(state, WATCHER_OPTIONS, options.former_folders)
        task_runner = Runner(journal, queue, agents, read_only_agents, options, user_services)
        # DBOS calls work() for each queued task, and fire() at each time of a schedule.
        workflows = Workflows(url, task_runner.work, task_runner.fire)
        stack.push_async_callback(workflows.stop, 0)
        # Agents are closed before DBOS, whose workflows wait for the tasks of the agents.
        stack.push_async_callback(agents.aclose)
        stack.push_async_callback(read_only_agents.aclose)
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signal_number, task_runner.end)
        queues = ", ".join(options.queues)
        click.echo(f"takes {queues}; up to {options.concurrency} at once", err=True)
        await task_runner.run(workflows)
    click.echo("ended in order", err=True)
