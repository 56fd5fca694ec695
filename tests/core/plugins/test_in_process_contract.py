"""The contract of journals."""

import pytest

from delf.plugins.in_process_journal import InProcessJournal
from delf.testing import JournalContract


class TestInProcessJournal(JournalContract):
    fails = False  # it keeps what it is given in memory

    @pytest.fixture
    def journal(self):
        return InProcessJournal()
