"""Tests of a journal that has no optional methods."""

from __future__ import annotations

import pytest

from delf.testing import JournalContract, SharedJournalContract
from support.small_journal import SmallJournal


class TestJournal(JournalContract):
    durable = True
    fails = False

    @pytest.fixture
    def journal(self, journal_url):
        return SmallJournal(journal_url)

    @pytest.fixture
    def reopen(self, journal_url):
        return lambda: SmallJournal(journal_url)


class TestShared(SharedJournalContract):
    upkeep = False

    @pytest.fixture
    def reopen(self, journal_url):
        return lambda: SmallJournal(journal_url)
