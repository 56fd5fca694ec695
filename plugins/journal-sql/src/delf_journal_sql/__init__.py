"""The journal of delf in a database. ``SqlJournal`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_journal_sql.journal import SqlJournal

__all__ = ["SqlJournal"]


def __getattr__(name: str) -> Any:
    if name != "SqlJournal":
        raise AttributeError(f"module 'delf_journal_sql' has no attribute {name!r}")
    from delf_journal_sql.journal import SqlJournal

    return SqlJournal
