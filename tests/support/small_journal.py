"""A journal that has only what a shared journal must have; ``PartialJournal`` refuses the rest."""

from __future__ import annotations

from delf.protocols.shared_journal import PartialJournal
from delf_journal_sql import SqlJournal


class SmallJournal(PartialJournal):
    """The journal ``sql`` without backups, search, people, conversations and reopened tasks."""

    def __init__(self, url: str) -> None:
        journal = SqlJournal(url)
        # No ``__getattr__``: from Python 3.12 on, isinstance() with a protocol does not call it.
        for name in dir(journal):
            if not name.startswith("_") and not hasattr(PartialJournal, name):
                setattr(self, name, getattr(journal, name))
