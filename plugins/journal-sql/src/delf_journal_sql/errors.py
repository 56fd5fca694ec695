"""Errors of a journal in a database."""

from __future__ import annotations

from delf.errors import DelfError, JournalUnavailableError


class JournalError(DelfError):
    """The journal cannot be read or written."""

    code = "ERR-JOURNAL-001"


class JournalSetupError(JournalError, JournalUnavailableError):
    """The journal cannot be opened where it was configured."""

    code = "ERR-JOURNAL-002"
    default_hint = (
        "DELF_JOURNAL_SQL_URL, or url under [plugins.journal-sql] in delf.toml, names another place"
    )


class JournalConflictError(JournalError):
    """An event does not continue its task: it differs, leaves a gap, or is another process's."""

    code = "ERR-JOURNAL-003"


class DuplicateRowError(Exception):
    """A row with this key already exists. Never leaves the plugin."""


class ConnectionLostError(Exception):
    """The connection broke; whether the transaction was kept is unknown. Never leaves the plugin.

    Args:
        error: How it is told when a new connection is not available.
    """

    def __init__(self, error: JournalError) -> None:
        super().__init__(error.message)
        self.error = error
