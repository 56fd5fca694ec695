"""The journal that lives as long as the process. ``MemoryJournal`` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_journal_memory.journal import MemoryJournal

__all__ = ["MemoryJournal"]


def __getattr__(name: str) -> Any:
    if name != "MemoryJournal":
        raise AttributeError(f"module 'delf_journal_memory' has no attribute {name!r}")
    from delf_journal_memory.journal import MemoryJournal

    return MemoryJournal
