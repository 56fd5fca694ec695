"""The core's own capabilities, offered through the same hooks as anybody's plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import JournalSpec


@hookimpl
def delf_journals() -> Iterable[JournalSpec]:
    """The journal that lives as long as the process."""
    yield JournalSpec(
        name="memory",
        summary="Events in memory, gone with the process.",
        factory="delf.engine.journal.memory:MemoryJournal",
    )
