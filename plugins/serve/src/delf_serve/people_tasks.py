"""Budgets and notices of a server's people, for their tasks that run in other processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from delf.environment import using_environ
from delf.events import Event, TaskFinished
from delf.protocols.shared_journal import SharedJournal
from delf_engine.models.money import Ledger
from delf_serve.budgets import Budgets
from delf_serve.channel import EndNotices
from delf_serve.keys import Keys
from delf_serve.settings import NAME, ServeSettings, settings_of

if TYPE_CHECKING:
    from delf_engine.project.any_project import AnyProject

WAIT_FOR_PEOPLE: Final[Mapping[str, Any]] = {
    "approvals": ("web",),
    "approval_timeout": 7 * 86_400.0,
}
"""Default options of agents: people answer requests on the web page, within a week."""


class ServedPeople:
    """The people's budgets, and the notices that they get when their tasks end.

    Implements :class:`delf_cli.people_tasks.PeopleTasks`.

    Args:
        settings: The settings of the server.
        keys: The people and their API keys.
        journal: The journal, which the server uses, too.
    """

    def __init__(self, settings: ServeSettings, keys: Keys, journal: SharedJournal) -> None:
        self._keys = keys
        self._journal = journal
        self._budgets = Budgets(settings.budgets, keys, lambda: journal)
        self.end_notices = EndNotices(settings, keys, lambda: journal)
        """Notifies people when their tasks end."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The default options of agents. The project's settings override them."""
        return WAIT_FOR_PEOPLE

    async def ledger(self, user: str, within: Ledger) -> Ledger | None:
        """Return a ledger that charges a task to its user's budgets.

        Args:
            user: The user of the task.
            within: The ledger of the agent, whose own budget covers all tasks.

        Returns:
            The ledger; None if the user is unknown, or no budget covers the task.
        """
        await self._keys.reload(self._journal)
        caller = self._keys.caller_of(user)
        if caller is None:
            return None
        # The task is already accepted: if a budget is exhausted, the task ends at its next model
        # call.
        return await self._budgets.ledger(caller, within, checked=False)

    def listen(self, event: Event) -> None:
        """Notify the user of a task when the task ends."""
        if isinstance(event, TaskFinished):
            self.end_notices.tell(event)

    async def aclose(self) -> None:
        """Drop unsent notices. Idempotent."""
        await self.end_notices.aclose()


def people_tasks(project: AnyProject, journal: SharedJournal) -> ServedPeople:
    """Return the object that enforces people's budgets and sends notices when their tasks end.

    Other plugins look up this function in their plugin host, by the name ``people_tasks``.
    """
    with using_environ(project.environ):
        settings = settings_of(dict(project.plugin_options.get(NAME, {})))
    return ServedPeople(settings, Keys.of(settings, project.environ), journal)
