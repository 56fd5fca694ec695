"""The contract of journals."""

import pytest

from delf.testing import JournalContract
from delf_engine.journal.in_process import InProcessJournal


class TestInProcessJournal(JournalContract):
    fails = False  # it keeps what it is given in memory

    @pytest.fixture
    def journal(self):
        return InProcessJournal()
