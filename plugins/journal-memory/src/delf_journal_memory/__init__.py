"""The journal that lives as long as the process."""

from delf_journal_memory.journal import MemoryJournal

__all__ = ["MemoryJournal"]
