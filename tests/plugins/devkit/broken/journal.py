"""Journals that break one thing each."""

import asyncio
import contextlib
import dataclasses
import os
import sqlite3
import threading
import time

import pytest
from planting import planting

from delf.errors import JournalUnavailableError
from delf.events import TaskResumed
from delf.testing import JournalContract
from delf_engine.journal.in_process import InProcessJournal


class Suite(JournalContract):
    seconds = 1.0
    fails = False
    kind = InProcessJournal

    @pytest.fixture
    def journal(self):
        return self.kind()


breaks = planting(Suite)


class TestGood(Suite):
    pass


class Durable(InProcessJournal):
    def __init__(self, tasks=None):
        super().__init__()
        if tasks is not None:
            self._tasks = tasks

    @property
    def kept(self):
        return self._tasks


class TestGoodDurable(JournalContract):
    durable = True
    fails = False

    @pytest.fixture
    def journal(self):
        return Durable()

    @pytest.fixture
    def reopen(self, journal):
        async def again():
            return Durable(journal.kept)

        return again


class TestForgetsWhenClosed(TestGoodDurable):
    breaks = ("test_data_survives_the_process",)

    @pytest.fixture
    def reopen(self):
        return Durable


@breaks("test_journal_returns_every_event_unchanged")
class TestRounds(InProcessJournal):
    async def append(self, event):
        await super().append(dataclasses.replace(event, at=float(int(event.at / 10))))


@breaks("test_append_of_the_same_event_changes_nothing")
class TestKeepsTwice(InProcessJournal):
    async def append(self, event):
        if (entry := self._tasks.get(event.task_id)) is None:
            return await super().append(event)
        return entry.events.append(event)


@breaks("test_append_of_the_same_event_changes_nothing", says="would show an event twice")
class TestTellsTwice(InProcessJournal):
    def subscribe(self, task_id=None):
        return self.repeated(super().subscribe(task_id))

    async def repeated(self, stream):
        async for event in stream:
            yield event
            if event.seq == 2:
                yield event


@breaks("test_journal_keeps_the_order", "test_journal_separates_tasks")
class TestShuffles(InProcessJournal):
    async def read(self, task_id, after=0):
        return sorted(await super().read(task_id, after), key=lambda event: str(event.seq))


@breaks("test_read_after_a_number_returns_later_events")
class TestReadsOneTooMany(InProcessJournal):
    async def read(self, task_id, after=0):
        return await super().read(task_id, max(after - 1, 0))


@breaks("test_read_after_a_number_returns_later_events")
class TestGivesItsOwnList(InProcessJournal):
    async def read(self, task_id, after=0):
        await super().read(task_id, after)
        return self._tasks[task_id].events


@breaks("test_read_after_a_number_returns_later_events")
class TestKnowsEveryTask(InProcessJournal):
    async def read(self, task_id, after=0):
        return await super().read(task_id, after) if task_id in self._tasks else ()


@breaks(
    "test_subscribers_see_later_appends",
    "test_leaving_subscriber_does_not_affect_others",
)
class TestSubscribesLate(InProcessJournal):
    async def subscribe(self, task_id=None):
        async for event in super().subscribe(task_id):
            yield event


@breaks("test_subscriber_sees_events_once_stored")
class TestTellsNobody(InProcessJournal):
    async def subscribe(self, task_id=None):
        await asyncio.Event().wait()
        yield


@breaks("test_find_returns_newest_tasks_first")
class TestFindsTheOldestFirst(InProcessJournal):
    async def find(self, limit=100):
        return list(reversed(await super().find(limit)))


@breaks("test_close_is_idempotent")
class TestClosesOnce(InProcessJournal):
    closed = False

    async def aclose(self):
        assert not self.closed
        self.closed = True


class TestGoodFailing(Suite):
    fails = True

    @pytest.fixture
    def failing_journal(self):
        class Failing(InProcessJournal):
            async def append(self, event):
                raise JournalUnavailableError("the disk is full")

        return Failing()


class TestRaisesItsVendorsErrors(TestGoodFailing):
    breaks = ("test_unstorable_event_raises_an_error_of_delf",)
    says = "raise JournalUnavailableError"

    @pytest.fixture
    def failing_journal(self):
        class Failing(InProcessJournal):
            async def append(self, event):
                raise sqlite3.OperationalError("database or disk is full")

        return Failing()


class TestTellsBeforeItStores(TestGoodFailing):
    breaks = ("test_unstorable_event_raises_an_error_of_delf",)
    says = "once the event is stored"

    @pytest.fixture
    def failing_journal(self):
        class Failing(InProcessJournal):
            async def append(self, event):
                await super().append(event)
                await asyncio.sleep(0)
                raise JournalUnavailableError("the disk is full")

        return Failing()


class TestKeepsNothingInSilence(TestGoodFailing):
    breaks = ("test_unstorable_event_raises_an_error_of_delf",)
    says = "DID NOT RAISE"

    @pytest.fixture
    def failing_journal(self):
        class Failing(InProcessJournal):
            async def append(self, event):
                with contextlib.suppress(OSError):
                    raise OSError("the disk is full")

        return Failing()


@breaks("test_methods_do_not_block_the_event_loop", says="time.sleep")
class TestHoldsTheLoop(InProcessJournal):
    async def append(self, event):
        time.sleep(0.01)  # as a sync to the disk
        await super().append(event)


@breaks("test_methods_do_not_block_the_event_loop", says="sqlite3.connect")
class TestOpensSQLiteOnTheLoop(InProcessJournal):
    async def find(self, limit=100):
        sqlite3.connect(":memory:").close()
        return await super().find(limit)


@breaks("test_methods_do_not_block_the_event_loop", says="os.fsync")
class TestSyncsOnTheLoop(InProcessJournal):
    async def append(self, event):
        file = os.memfd_create("events")
        os.fsync(file)
        os.close(file)
        await super().append(event)


@breaks("test_methods_do_not_block_the_event_loop", says="a file that is written")
class TestWritesOnTheLoop(InProcessJournal):
    async def append(self, event):
        with open(os.devnull, "a") as file:
            file.write("x")
        await super().append(event)


@breaks("test_methods_do_not_block_the_event_loop", says="a statement of sqlite3")
class TestAsksSQLiteOnTheLoop(InProcessJournal):
    """The database is opened in a thread, but queried on the event loop."""

    def __init__(self):
        super().__init__()
        self.db = sqlite3.connect(":memory:", check_same_thread=False)

    async def read(self, task_id, after=0):
        self.db.execute("select 1")
        return await super().read(task_id, after)

    async def aclose(self):
        self.db.close()
        await super().aclose()


@breaks("test_event_of_a_cancelled_writer_is_kept", says="shield what writes")
class TestLosesEventsOfCancelledWriters(InProcessJournal):
    async def append(self, event):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await super().append(event)


@breaks("test_event_of_a_cancelled_writer_is_kept", says="shield what writes")
class TestLosesEventsOfWritersThatWait(InProcessJournal):
    def __init__(self):
        super().__init__()
        self.lock = asyncio.Lock()

    async def append(self, event):
        async with self.lock:
            await asyncio.shield(asyncio.ensure_future(self.write(event)))

    async def write(self, event):
        await asyncio.sleep(0)
        await super().append(event)


@breaks("test_unusual_names_are_accepted")
class TestNamesFilesAsTasks(InProcessJournal):
    async def append(self, event):
        assert "/" not in event.task_id
        await super().append(event)


class TestTwoOverwriteEachOther(TestGoodDurable):
    breaks = ("test_two_open_instances_lose_nothing",)

    @pytest.fixture
    def reopen(self, journal):
        return lambda: Durable(dict(journal.kept))


@breaks("test_close_is_idempotent", says="aclose has not ended after 1 s")
class TestNeverEndsClosing(InProcessJournal):
    async def aclose(self):
        await asyncio.Event().wait()


@breaks("test_read_after_a_number_returns_later_events", says="read has not ended after 1 s")
class TestNeverEndsReading(InProcessJournal):
    async def read(self, task_id, after=0):
        await asyncio.Event().wait()


@breaks("test_large_event_is_kept_whole", says="raise an error rather than cut it")
class TestCutsLargeEvents(InProcessJournal):
    async def append(self, event):
        if len(getattr(event, "text", "")) > 65_536:
            event = dataclasses.replace(event, text=event.text[:65_536])
        await super().append(event)


@breaks("test_slow_subscriber_loses_nothing", says="a task that never ends")
class TestDropsWhatASlowReaderMisses(InProcessJournal):
    def subscribe(self, task_id=None):
        return self._bounded(super().subscribe(task_id))

    async def _bounded(self, events):
        async for event in events:
            if event.seq < 1_000:
                yield event


@breaks("test_queued_task_is_found_as_queued", says="nobody would see it")
class TestListsNoQueuedTasks(InProcessJournal):
    async def find(self, limit=100):
        return [task for task in await super().find(limit) if task.events > 1]


@breaks("test_queued_task_is_found_as_queued", says="the number of the task's `events`")
class TestCountsNoEvents(InProcessJournal):
    async def find(self, limit=100):
        return [dataclasses.replace(task, events=0) for task in await super().find(limit)]


@breaks("test_resumed_task_is_found_as_running", says="removes the end from the record")
class TestKeepsTheOldEnd(InProcessJournal):
    async def append(self, event):
        before = self._tasks.get(event.task_id)
        end = dict(before.record) if before else {}
        await super().append(event)
        if isinstance(event, TaskResumed):
            self._tasks[event.task_id].record = end


@breaks("test_events_are_ordered_by_number", says="a clock that is set back")
class TestSortsByTime(InProcessJournal):
    async def read(self, task_id, after=0):
        return sorted(await super().read(task_id, after), key=lambda event: event.at)


@breaks(
    "test_find_returns_the_end_and_user_of_a_stopped_task",
    says="other users would see the task",
)
class TestForgetsWhoseTaskItIs(InProcessJournal):
    async def find(self, limit=100):
        return [dataclasses.replace(task, user=None) for task in await super().find(limit)]


@breaks(
    "test_find_returns_the_end_and_user_of_a_stopped_task",
    says="of a task that ended with",
)
class TestForgetsTheDuration(InProcessJournal):
    async def find(self, limit=100):
        return [dataclasses.replace(task, duration_ms=None) for task in await super().find(limit)]


@breaks(
    "test_find_returns_the_end_and_user_of_a_stopped_task",
    says="of a task that began with",
)
class TestForgetsTheFolder(InProcessJournal):
    async def find(self, limit=100):
        return [dataclasses.replace(task, folder=None) for task in await super().find(limit)]


@breaks("test_use_leaves_the_process_unchanged", says="the thread 'writer'")
class TestLeavesAThread(InProcessJournal):
    async def append(self, event):
        threading.Thread(target=threading.Event().wait, name="writer", daemon=True).start()
        await super().append(event)


class TestIsBoundToOneLoop(TestGoodDurable):
    breaks = ("test_journal_works_on_another_event_loop", "test_use_leaves_the_process_unchanged")
    says = "two agents disturb each other"

    @pytest.fixture
    def journal(self):
        class Bound(Durable):  # in a function, because the suite looks into all classes of a module
            lock = asyncio.Lock()

            async def append(self, event):
                async with self.lock:
                    await asyncio.sleep(0)
                    await super().append(event)

        return Bound()

    @pytest.fixture
    def reopen(self, journal):
        return lambda: type(journal)(journal.kept)


@breaks("test_secrets_are_never_shown", secrets=("tok-secret",))
class TestShowsItsAddress(InProcessJournal):
    def __repr__(self):
        return "Journal('redis://:tok-secret@host')"


class TestShowsItsAddressAsItFails(TestGoodFailing):
    breaks = ("test_failure_shows_no_secret",)
    secrets = ("tok-secret",)

    @pytest.fixture
    def failing_journal(self):
        class Failing(InProcessJournal):
            async def append(self, event):
                raise JournalUnavailableError("redis://:tok-secret@host is away")

        return Failing()


@breaks("test_text_of_any_characters_is_kept", says="is not kept as it was")
class TestStripsTexts(InProcessJournal):
    async def append(self, event):
        text = getattr(event, "text", "")
        changed = dataclasses.replace(event, text=text.rstrip("\n")) if text else event
        await super().append(changed)


@breaks("test_slow_subscriber_loses_nothing", says="a subscriber of all tasks that is slow")
class TestDropsForThoseWhoSeeAll(InProcessJournal):
    def subscribe(self, task_id=None):
        async def early(stream):
            async for event in stream:
                if event.seq < 1_000 or task_id is not None:
                    yield event

        return early(super().subscribe(task_id))
