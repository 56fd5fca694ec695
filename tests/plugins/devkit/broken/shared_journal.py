"""Journals for several processes that break one thing each."""

import asyncio
from dataclasses import replace
from typing import ClassVar

import pytest
from planting import planting

from delf.errors import JournalUnavailableError, UnknownRequestError
from delf.events import TaskPostponed
from delf.testing import SharedJournalContract
from delf.types import TaskState
from delf_journal_sql import SqlJournal


class Suite(SharedJournalContract):
    seconds = 3.0
    kind = SqlJournal

    @pytest.fixture
    def reopen(self, tmp_path):
        return lambda: self.kind(f"sqlite:///{tmp_path}/journal.db")


breaks = planting(Suite)


@breaks("test_journal_satisfies_the_shared_protocol", says="it is not a SharedJournal")
class TestIsForOneProcess(SqlJournal):
    find_requests = None


@breaks("test_process_sees_events_of_another")
class TestTellsOthersNothing(SqlJournal):
    async def subscribe(self, task_id=None):
        await asyncio.Event().wait()
        yield


@breaks("test_find_filters_by_state_text_and_time", says="are searched as text")
class TestFindsBySigns(SqlJournal):
    async def find(self, limit=100, *, text=None, **more):
        found = await super().find(limit, text=None if text == "5%" else text, **more)
        return [each for each in found if text != "5%" or "5" in each.task]


@breaks("test_find_filters_by_fields")
class TestFindsAnyField(SqlJournal):
    async def find(self, limit=100, *, fields=None, **more):
        return await super().find(limit, **more)


@breaks("test_list_continues_after_a_cursor", says="begins again")
class TestBeginsAnew(SqlJournal):
    async def find(self, limit=100, *, after=None, **more):
        found = await super().find(1000, **more)
        places = [each.place for each in found]
        start = places.index(after) + 1 if after in places else 0
        return found[start:][:limit]


@breaks("test_read_all_is_a_snapshot", says="as of one moment")
class TestMovesOnWhileRead(SqlJournal):
    async def read_all(self):
        for each in ("a", "b", "c"):
            yield await self.read(each)


@breaks("test_task_id_can_be_abbreviated")
class TestGuessesIds(SqlJournal):
    async def resolve(self, text, users=None):
        found = [each.task_id for each in await self.find(users=users)]
        return next(name for name in found if name.startswith(text))


@breaks("test_remove_deletes_ended_tasks_and_keeps_running_ones", says="a dry run removes nothing")
class TestPrunesInADryRun(SqlJournal):
    async def prune(self, older_than=None, keep=0, *, dry_run=False):
        return await super().prune(older_than, keep)


@breaks("test_secrets_are_never_shown", secrets=("tok-secret",))
class TestShowsItsPassword(SqlJournal):
    place = "redis://:tok-secret@host"


@breaks("test_closed_journal_owns_no_task", says="release them in `aclose`")
class TestKeepsTasksWhenClosed(SqlJournal):
    async def claim(self, task_id):
        if task_id == "running":
            raise JournalUnavailableError("another process has claimed the task")
        await super().claim(task_id)


@breaks("test_closed_journal_owns_no_task", says="nobody learns that it has to be resumed")
class TestQueuesWhatNoRunnerTakes(SqlJournal):
    async def task(self, task_id):
        record = await super().task(task_id)
        return replace(record, state=TaskState.QUEUED) if record.events == 1 else record


@breaks("test_postponed_task_waits_for_another_attempt", says="nobody would try it again")
class TestForgetsToTryAgain(SqlJournal):
    async def append(self, event):
        if not isinstance(event, TaskPostponed):
            await super().append(event)


@breaks("test_task_has_one_owner", says="claims a task that runs in the first")
class TestTakesFromTheLiving(SqlJournal):
    async def claim(self, task_id):
        await self.task(task_id)


@breaks("test_concurrent_claims_succeed_once", says="would be made twice")
class TestLetsAllClaim(SqlJournal):
    async def claim(self, task_id):
        if (await self.task(task_id)).state != "interrupted":
            await super().claim(task_id)


@breaks("test_notes_reach_another_process_in_order")
class TestDropsNotes(SqlJournal):
    async def notes(self, task_id=None, after=0):
        return (await super().notes(task_id, after))[:1]


@breaks("test_inbox_lists_pending_requests")
class TestAsksForWhatIsOver(SqlJournal):
    async def find_requests(self, start="", *, waiting=False, limit=1000):
        found = await super().find_requests(start, limit=limit)
        return [each for each in found if not (waiting and each.decided)]


@breaks("test_inbox_finds_requests_by_the_start_of_their_id", says="are searched as text")
class TestTakesWildcards(SqlJournal):
    async def find_requests(self, start="", **wanted):
        return await super().find_requests(start.removesuffix("%"), **wanted)


@breaks("test_inbox_is_limited_to_the_newest_requests")
class TestKeepsTheOldest(SqlJournal):
    async def find_requests(self, start="", *, limit=1000, **wanted):
        return (await super().find_requests(start, **wanted))[:limit]


@breaks("test_another_process_can_stop_a_task", says="before the process that works on")
class TestStopsByWord(SqlJournal):
    async def stop(self, task_id, by):
        if (await self.task(task_id)).state == "running":
            return True
        return await super().stop(task_id, by)


@breaks("test_remembered_decisions_last_until_revoked")
class TestRevokesTwice(SqlJournal):
    revoked: ClassVar = {}  # of both journals, so that the fault needs no overlap in time

    async def revoke(self, request_id, by):
        try:
            self.revoked[request_id] = await super().revoke(request_id, by)
        except UnknownRequestError:
            if request_id not in self.revoked:
                raise
        return self.revoked[request_id]


@breaks("test_size_counts_events")
class TestCountsTasksAsEvents(SqlJournal):
    async def size(self):
        size = await super().size()
        return replace(size, events=size.events + 1)


@breaks("test_restore_undoes_changes", says="there is no copy")
class TestCopiesNothing(SqlJournal):
    async def back_up(self, path):
        return None
