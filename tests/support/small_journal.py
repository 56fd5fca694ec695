"""A journal that has only what a shared journal must have; ``PartialJournal`` refuses the rest."""

from __future__ import annotations

from typing import Any

from delf.protocols.shared_journal import PartialJournal
from delf_journal_sql import SqlJournal


class SmallJournal(PartialJournal):
    """The journal ``sql`` without backups, search, people, conversations and reopened tasks."""

    def __init__(self, url: str) -> None:
        self._journal = SqlJournal(url)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)
