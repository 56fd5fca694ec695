import pytest

from delf_journal_memory import MemoryJournal
from delf.testing import JournalContract


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def journal(self):
        return MemoryJournal()
