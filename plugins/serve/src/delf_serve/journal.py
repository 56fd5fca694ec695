"""The journal of the agent that a server runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delf.errors import ConfigurationError
from delf.protocols.shared_journal import SharedJournal

if TYPE_CHECKING:
    from delf import Agent


class ServerJournal:
    """A callable that returns the journal of the server's agent.

    The parts of a server are created before the agent starts and opens the journal. So each part
    gets this object, and calls the object whenever the part needs the journal.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._journal: SharedJournal | None = None

    def __call__(self) -> SharedJournal:
        """Return the journal of the agent's latest start.

        Raises:
            AgentStateError: If the agent has never been started.
            ConfigurationError: If the journal cannot be shared with other processes.
        """
        # Once the agent is stopped, look_up() would fail. Requests that are still in progress use
        # the closed journal instead, and the application answers their errors as a shutdown.
        if self._journal is not None:
            return self._journal
        return self.look_up()

    def look_up(self) -> SharedJournal:
        """Return the started agent's journal, and keep the journal for later calls of this object.

        Called after each start of the agent, because each start makes a new journal.

        Raises:
            AgentStateError: If the agent is not started.
            ConfigurationError: If the journal cannot be shared with other processes.
        """
        journal: Any = self._agent.journal
        if not isinstance(journal, SharedJournal):
            raise ConfigurationError(
                "the agent's journal is not for several processes",
                hint='the setting journal = "sql"',
            )
        self._journal = journal
        return journal
