"""The journal of a project, for commands that search it or send notes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import click

from delf.errors import ConfigurationError, UnknownTaskError
from delf.events import Event
from delf.machine.folders import expand_home
from delf.protocols.connection import SupportsClose
from delf.protocols.shared_journal import SharedJournal
from delf.records import dataclass
from delf.trust.folders import CONFIG_FILE, is_file, project_folder
from delf_cli.state import State, state_of
from delf_engine.journal.factory import make_journal, need_durable_journal
from delf_engine.project.any_project import journal_name

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.protocols.journal import Journal, TaskRecord
    from delf_engine.project.project import Project


# The number of tasks that are read at a time in the search for the newest task of a project.
_PAGE: Final = 100
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
    need_durable_journal(host, f"`{ctx.command_path}`")  # raises if none is installed
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


@dataclass(frozen=True, kw_only=True)
class CurrentProject:
    """The project of the current folder, to tell its tasks from those of other projects.

    Args:
        root: The folder of the ``delf.toml`` that applies; None outside of a project.
        folder: The current folder. With ``--config`` it need not be within the project.
    """

    root: Path | None
    folder: Path

    @classmethod
    def of(cls, state: State) -> Self:
        """Find the project of the current folder, or of the file that ``--config`` names."""
        folder = Path.cwd()
        if state.config is not None:
            return cls(root=expand_home(state.config).resolve().parent, folder=folder)
        root = project_folder(folder)
        return cls(root=root if is_file(root / CONFIG_FILE) else None, folder=folder)

    def owns(self, task_folder: str | None) -> bool:
        """Return True if a task ran in the project, or if the current folder is in no project.

        Args:
            task_folder: The absolute path of the folder in which the task ran. None or a relative
                path means that the folder is unknown: the task then belongs to no project.
        """
        if self.root is None:
            return True
        if task_folder is None or not Path(task_folder).is_absolute():
            return False
        path = Path(task_folder)
        # With ``--config``, tasks of the project run in the current folder, wherever it is.
        return path in (self.root, self.folder) or project_folder(path) == self.root


async def find_id(journal: SharedJournal, text: str, project: CurrentProject) -> str:
    """Return a task's id from a prefix or ``last``.

    Args:
        journal: The journal.
        text: The id or a prefix, of a task of any project; or ``last`` for the newest task of
            the current project.
        project: The current project.

    Raises:
        DelfError: If no task, or more than one, matches.
    """
    if text != "last":
        return await journal.resolve(text)
    page = await journal.find(_PAGE)
    while page:
        # Test each folder once, because owns() looks for delf.toml in the folder and its parents.
        folders = {task.folder for task in page}
        own_folders = set(filter(project.owns, folders))
        for task in page:
            if task.folder in own_folders:
                return task.task_id
        page = await journal.find(_PAGE, after=page[-1].place)
    where = "there is no task yet"
    if project.root is not None:
        where = f"the project {project.root} has no task yet"
    raise UnknownTaskError(
        f"{where} in {journal.place}",
        hint="delf runs list shows the tasks of all projects: give the id of one instead of last",
    )


def load_task(ctx: click.Context, id_prefix: str) -> tuple[TaskRecord, list[Event]]:
    """Load a task and its events from the project's journal.

    Args:
        ctx: The context of the command.
        id_prefix: A prefix of the task's id, or ``last`` for the project's newest task.

    Raises:
        DelfError: If no task, or more than one, matches, or the journal cannot be read.
    """
    project = CurrentProject.of(state_of(ctx))

    async def load(journal: SharedJournal) -> tuple[TaskRecord, list[Event]]:
        task_id = await find_id(journal, id_prefix, project)
        return await journal.task(task_id), list(await journal.read(task_id))

    return ask_journal(ctx, load)
