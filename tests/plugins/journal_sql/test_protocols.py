"""The journal is one that processes share."""

from pathlib import Path

from delf.plugins.in_process_journal import InProcessJournal
from delf.protocols.conversation import SupportsConversations
from delf.protocols.journal import SharedJournal
from delf_journal_sql import SqlJournal


async def test_processes_share_it_and_it_keeps_conversations(tmp_path: Path) -> None:
    journal = SqlJournal(str(tmp_path / "journal.db"))
    try:
        for kind in (SharedJournal, SupportsConversations):
            assert isinstance(journal, kind)
    finally:
        await journal.aclose()


def test_the_journal_of_one_process_is_not_shared() -> None:
    assert not isinstance(InProcessJournal(), SharedJournal)
