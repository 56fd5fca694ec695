"""The interface through which runners apply the users' budgets and send users notifications."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from delf.events import Event
from delf.protocols.services import Service
from delf.protocols.shared_journal import SharedJournal

if TYPE_CHECKING:
    from delf_engine.models.money import Ledger
    from delf_engine.project.any_project import AnyProject


class PeopleTasks(Protocol):
    """The budgets and notifications of a server's users, for tasks that a runner does.

    The plugin ``serve`` implements this protocol. A runner works without the plugin.
    """

    @property
    def defaults(self) -> Mapping[str, Any]:
        """A mapping from agent setting to the value that applies if the project sets none."""
        ...

    async def ledger(self, user: str, within: Ledger) -> Ledger | None:
        """Return a ledger that also applies the budgets of a task's user.

        Args:
            user: The user of the task.
            within: The ledger of the agent that does the task.

        Returns:
            The ledger; None if the user has no budget.
        """
        ...

    def listen(self, event: Event) -> None:
        """Listen to the events of a task, to notify the task's user of the end."""
        ...

    async def aclose(self) -> None:
        """Drop unsent notifications. Idempotent."""
        ...


PEOPLE_TASKS: Final[Service[Callable[[AnyProject, SharedJournal], PeopleTasks]]] = Service(
    "people_tasks", None, "budgets and notices of people"
)
"""A plugin's function that returns the users' budgets and notifications for a project."""
