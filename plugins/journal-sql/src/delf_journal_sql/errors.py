"""Errors of a journal in a database."""

from __future__ import annotations

from delf.errors import DelfError, JournalFailedError, JournalUnavailableError


class JournalError(JournalFailedError):
    """The journal cannot be read or written."""

    code = "ERR-JOURNAL-001"
    default_hint = None


class JournalSetupError(JournalError, JournalUnavailableError):
    """The configured journal cannot be opened."""

    is_outage = False
    code = "ERR-JOURNAL-002"
    default_hint = (
        "DELF_JOURNAL_SQL_URL, or url under [plugins.journal-sql] in delf.toml, names another place"
    )


class JournalConflictError(DelfError):
    """An event does not fit the stored events of its task, or another process owns the task."""

    code = "ERR-JOURNAL-003"


class DuplicateRowError(Exception):
    """A row with the same key exists already. Only used inside the plugin."""


class ConnectionLostError(Exception):
    """The connection broke, so that the outcome of the transaction is unknown.

    Only used inside the plugin.

    Args:
        error: The error to raise if no new connection can be made.
    """

    def __init__(self, error: JournalError) -> None:
        super().__init__(error.message)
        self.error = error
