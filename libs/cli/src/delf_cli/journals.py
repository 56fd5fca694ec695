"""The journal of a project, for commands that search it or send notes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import click

from delf.errors import ConfigurationError
from delf.events import Event
from delf.protocols.connection import SupportsClose
from delf.protocols.shared_journal import SharedJournal
from delf_cli.state import state_of
from delf_engine.journal.factory import make_journal, need_durable_journal
from delf_engine.project.any_project import journal_name

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.protocols.journal import Journal, TaskRecord
    from delf_engine.project.project import Project


T = TypeVar("T")
JournalT = TypeVar("JournalT", bound=SupportsClose)


def project_journal(project: Project, host: PluginHost) -> Journal:
    """Make the journal object of a project, without opening the journal."""
    name = journal_name(project, host)
    return make_journal(host, name, project.plugin_options, project.environ)


def history_journal(ctx: click.Context) -> SharedJournal:
    """Return the project's journal if other processes share it; raise otherwise.

    Raises:
        ConfigurationError: If the journal is not shared.
    """
    state = state_of(ctx)
    project = state.load_project()
    host = state.discover(project.environ)
    journal = project_journal(project, host)
    if isinstance(journal, SharedJournal):
        return journal
    need_durable_journal(host, f"`{ctx.command_path}`")
    raise ConfigurationError(
        f"the journal {journal_name(project, host)!r} is not for several processes",
        hint="take it out of delf.toml, or name another one",
    )


def work_with(journal: JournalT, work: Callable[[JournalT], Awaitable[T]]) -> T:
    """Run work with a journal, then close it.

    Args:
        journal: The journal, not yet open.
        work: An async function, run in a new event loop.
    """

    async def main() -> T:
        async with aclosing(journal):
            return await work(journal)

    return asyncio.run(main())


def ask_journal(ctx: click.Context, work: Callable[[Any], Awaitable[T]]) -> T:
    """Run work with the project's shared journal, then close the journal.

    Raises:
        ConfigurationError: If the journal is not shared.
    """
    return work_with(history_journal(ctx), work)


async def find_id(journal: SharedJournal, text: str) -> str:
    """Return a task's id from a prefix or ``last``.

    Args:
        journal: The journal.
        text: The id, a prefix, or ``last`` for the newest task.

    Raises:
        DelfError: If no task, or more than one, matches.
    """
    if text == "last":
        newest = await journal.find(1)
        if newest:
            return newest[0].task_id
    return await journal.resolve(text)  # raises for "last" if the journal has no task


def load_task(ctx: click.Context, id_prefix: str) -> tuple[TaskRecord, list[Event]]:
    """Load a task and its events from the project's journal.

    Args:
        ctx: The context of the command.
        id_prefix: A prefix of the task's id, or ``last``.

    Raises:
        DelfError: If no task, or more than one, matches, or the journal cannot be read.
    """

    async def load(journal: SharedJournal) -> tuple[TaskRecord, list[Event]]:
        task_id = await find_id(journal, id_prefix)
        return await journal.task(task_id), list(await journal.read(task_id))

    return ask_journal(ctx, load)
