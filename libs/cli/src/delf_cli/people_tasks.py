"""The interface to the budgets and notices of a server's people, for runners of their tasks."""

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
    """The budgets and notices of a server's people, for their tasks in another process.

    A protocol, because runners work without the plugin that brings a server.
    """

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Defaults for settings of the agents that the project does not set."""
        ...

    async def ledger(self, holder: str, within: Ledger) -> Ledger | None:
        """Return the ledger with the budgets of a task's owner; None without a budget.

        Args:
            holder: The owner of the task.
            within: The ledger of the agent that does the task.
        """
        ...

    def listener(self, task: str, holder: str) -> Callable[[Event], None]:
        """Return a listener that notifies a task's owner of its end.

        Args:
            task: The words of the task.
            holder: The owner of the task.
        """
        ...

    async def aclose(self) -> None:
        """Drop unsent notices. Idempotent."""
        ...


PEOPLE_TASKS: Final[Service[Callable[[AnyProject, SharedJournal], PeopleTasks]]] = Service(
    "people_tasks", None, "budgets and notices of people"
)
"""Opens the budgets and notices of a project's people."""
