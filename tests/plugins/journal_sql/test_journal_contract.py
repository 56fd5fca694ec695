"""The contracts, on both databases."""

from __future__ import annotations

import pytest

from delf.testing import JournalContract, PluginContract, SharedJournalContract
from delf_journal_sql import SqlJournal


class TestPlugin(PluginContract):
    name = "journal-sql"
    vendors = ("psycopg", "sqlite3")
    offers = {"journal": ["sql"]}


class TestJournal(JournalContract):
    durable = True

    @pytest.fixture
    def journal(self, journal_url):
        return SqlJournal(journal_url)

    @pytest.fixture
    def reopen(self, journal_url):
        return lambda: SqlJournal(journal_url)

    @pytest.fixture
    def failing_journal(self, tmp_path):
        (tmp_path / "file").write_text("no folder")
        return SqlJournal(f"sqlite:///{tmp_path}/file/journal.db")


class TestShared(SharedJournalContract):
    @pytest.fixture
    def reopen(self, journal_url):
        return lambda: SqlJournal(journal_url)
