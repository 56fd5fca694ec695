"""The journal of a project, for commands that search it and send notes through it."""

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
    """Return the journal that is used in a project, not yet open."""
    name = journal_name(project, host)
    return make_journal(host, name, project.plugin_options, project.environ)


def history_journal(ctx: click.Context) -> SharedJournal:
    """Return the journal if it is shared with other processes; raise otherwise.

    Raises:
        ConfigurationError: When they cannot.
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
        journal: Not yet open.
        work: A coroutine function, run in an event loop of its own.
    """

    async def main() -> T:
        async with aclosing(journal):
            return await work(journal)

    return asyncio.run(main())


def ask_journal(ctx: click.Context, work: Callable[[Any], Awaitable[T]]) -> T:
    """Work with the journal of the project that other processes look through, too.

    Raises:
        ConfigurationError: When others cannot look through it.
    """
    return work_with(history_journal(ctx), work)


async def find_id(journal: SharedJournal, text: str) -> str:
    """Return the id of a task.

    Args:
        journal: Where it is looked for.
        text: The id, its beginning, or ``last`` for the newest task.

    Raises:
        DelfError: When there is no such task, or several begin so.
    """
    newest = await journal.find(1) if text == "last" else ()
    return newest[0].task_id if newest else await journal.resolve(text)


def load_task(ctx: click.Context, text: str) -> tuple[TaskRecord, list[Event]]:
    """Return a task and its events.

    Raises:
        DelfError: When there is no such task, or the journal cannot be read.
    """

    async def load(journal: SharedJournal) -> tuple[TaskRecord, list[Event]]:
        name = await find_id(journal, text)
        return await journal.task(name), list(await journal.read(name))

    return ask_journal(ctx, load)
