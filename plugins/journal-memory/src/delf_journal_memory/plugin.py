"""What this plugin brings: the journal ``memory``."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import JournalSpec


@hookimpl
def delf_journals() -> Iterable[JournalSpec]:
    yield JournalSpec(
        name="memory",
        summary="Events in memory, gone with the process.",
        factory="delf_journal_memory.journal:MemoryJournal",
    )
