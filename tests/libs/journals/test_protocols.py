"""What journals can do is seen by those who use it."""

from pathlib import Path

from delf.protocols.journal import SupportsInbox, SupportsRecords
from delf_journal_memory import MemoryJournal
from delf_journal_sql import SqlJournal
from delf_journals.conversations import SupportsNamespaces, SupportsRetention
from delf_journals.history import SupportsHistory
from delf_journals.queues import SupportsQueues
from delf_journals.requests import SupportsRequests

ALL = (SupportsHistory, SupportsQueues, SupportsRequests, SupportsNamespaces)


async def test_a_journal_that_can_do_all_is_known_by_it(tmp_path: Path) -> None:
    journal = SqlJournal(str(tmp_path / "journal.db"))
    try:
        assert all(isinstance(journal, kind) for kind in ALL)
        assert isinstance(journal.conversations("default"), SupportsRetention)
    finally:
        await journal.aclose()


def test_a_journal_that_only_keeps_events_can_do_none_of_it() -> None:
    assert not any(isinstance(MemoryJournal(), kind) for kind in ALL)


def test_who_is_told_by_notes_need_not_list_requests() -> None:
    class Told(MemoryJournal):
        async def post(self, task_id, kind, data): ...
        def subscribe_notes(self, task_id=None, after=None): ...
        async def notes(self, task_id=None, after=0): ...

    assert isinstance(Told(), SupportsInbox)
    assert not isinstance(Told(), SupportsRequests)
    assert not isinstance(Told(), SupportsRecords)
