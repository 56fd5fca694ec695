"""The journal of the agent that a server runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delf.errors import ConfigurationError
from delf.protocols.shared_journal import SharedJournal

if TYPE_CHECKING:
    from delf import Agent


class ServerJournal:
    """Finds the journal of the server's agent, which opens the journal when it starts.

    The parts of a server are created before the agent starts, so each part calls this object
    whenever the part needs the journal.

    Args:
        agent: The agent.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._journal: SharedJournal | None = None

    def __call__(self) -> SharedJournal:
        """Return the journal.

        Raises:
            AgentStateError: If the agent has never been started.
            ConfigurationError: If the journal cannot be shared with other processes.
        """
        # Kept, because the agent has no journal after its stop. A request that is still in progress
        # then gets the error of a closed journal, which the application answers as a shutdown.
        if self._journal is None:
            self._journal = self._journal_of_agent()
        return self._journal

    def _journal_of_agent(self) -> SharedJournal:
        journal: Any = self._agent.journal
        if isinstance(journal, SharedJournal):
            return journal
        raise ConfigurationError(
            "the agent's journal is not for several processes", hint='the setting journal = "sql"'
        )
