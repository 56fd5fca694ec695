"""The contract of journals."""

import pytest

from delf.testing import JournalContract
from delf_journal_memory import MemoryJournal


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def journal(self):
        return MemoryJournal()
