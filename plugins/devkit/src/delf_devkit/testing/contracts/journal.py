"""Duties of every journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from delf.errors import ConfigurationError, DelfError, TaskStoppedError, UnknownTaskError
from delf.events import (
    CallFinished,
    Event,
    Printed,
    TaskFinished,
    TaskQueued,
    TaskResumed,
    TaskStarted,
)
from delf.protocols.journal import Journal, TaskRecord, fields_of_setup
from delf.protocols.shared_journal import SharedJournal
from delf.protocols.states import state_of
from delf.types import TaskState
from delf_devkit.testing.contracts.base import (
    LOOP_ITERATIONS,
    Contract,
    cancel_after_iterations,
    fail_without,
    needs,
    open_with,
)
from delf_devkit.testing.events import every_event

# The number of events that a slow subscriber lags behind, more than queues usually hold.
_LAGGING_EVENTS = 1_500
_MANY = 500
_AT_ONCE = 8
_INSTANT = 0.05
_MARK = "marmalade-7741"
# Texts that a storage format may change by its handling of lines, quotes or patterns.
_FRAGILE_TEXTS = (
    "a\u2028b\x85c\x0bd\x1ce",
    "one\r\ntwo\rthree\n",
    "nul \x00 end",
    '\\n "quoted" \\u0041 {x} %s',
    " blanks around ",
    "",
)


def started(task_id: str, at: float = 1.0, user: str | None = None) -> TaskStarted:
    """Return the event that starts a task; ``user`` is the user for whom the task runs."""
    task = f"do {task_id}"
    # A journal copies some values of the setup into fields of the task's record: set them all.
    setup = {keys[0]: f"the {field}" for field, keys in fields_of_setup().items()}
    return TaskStarted(
        task_id=task_id, seq=1, at=at, task=task, origin="agent", user=user, setup=setup
    )


def printed(task_id: str, seq: int, text: str = "x") -> Printed:
    """Return the event of a printed text."""
    return Printed(task_id=task_id, seq=seq, at=float(seq), text=text)


def finished(task_id: str, seq: int, *, has_succeeded: bool = True) -> TaskFinished:
    """Return the event that ends a task."""
    return TaskFinished(
        task_id=task_id, seq=seq, at=float(seq), status=has_succeeded, text="", duration_ms=1.0
    )


class JournalContract(Contract):
    """Tests for a journal; needs a fixture ``journal``, a fresh and empty journal.

    The suite closes the journal. ``durable = True`` needs a fixture ``reopen``, a plain or async
    function that opens the same journal again while others are open. ``fails = True`` needs a
    fixture ``failing_journal``, whose disk is full or whose service is down.
    """

    durable: ClassVar[bool] = False
    fails: ClassVar[bool] = True

    @pytest.fixture
    def journal(self) -> Journal:
        """The journal under test."""
        fail_without(self, "a fixture `journal`")

    @pytest.fixture
    def reopen(self) -> Callable[[], Any]:
        """A function that opens the journal under test again."""
        fail_without(self, "a fixture `reopen`, or durable = False")

    @pytest.fixture
    def failing_journal(self) -> Journal:
        """A journal like the one under test, whose appends fail."""
        fail_without(self, "a fixture `failing_journal`, or fails = False")

    async def test_journal_returns_every_event_unchanged(self, journal: Any) -> None:
        events = every_event("task_all")
        for event in events:
            await journal.append(event)
        assert list(await journal.read("task_all")) == list(events)

    async def test_journal_keeps_the_order(self, journal: Any) -> None:
        events = [started("t"), *(printed("t", seq) for seq in range(2, _MANY))]
        for event in events:
            await journal.append(event)
        kept = await journal.read("t")
        assert [event.seq for event in kept] == list(range(1, _MANY))

    async def test_read_after_a_number_returns_later_events(self, journal: Any) -> None:
        with pytest.raises(UnknownTaskError, match="nowhere"):
            await journal.read("nowhere")
        for event in (started("t"), printed("t", 2), printed("t", 3)):
            await journal.append(event)
        earlier_result = await journal.read("t", 1)
        await journal.append(printed("t", 4))
        assert [event.seq for event in earlier_result] == [2, 3], (
            "an event that is appended after read() shows up in its earlier result"
        )
        assert [event.seq for event in await journal.read("t", after=4)] == []
        assert [event.seq for event in await journal.read("t", after=0)] == [1, 2, 3, 4]

    async def test_events_are_ordered_by_number(self, journal: Any) -> None:
        events = [started("t", at=9.0), *(printed("t", seq) for seq in (2, 3))]
        for event in events:
            await journal.append(event)
        assert list(await journal.read("t")) == events, (
            "events are sorted by their times: a clock that is set back changes what happened"
        )

    async def test_journal_separates_tasks(self, journal: Any) -> None:
        async def write(task: str) -> None:
            await journal.append(started(task))
            for seq in range(2, 50):
                await journal.append(printed(task, seq, task))

        names = [f"t{number}" for number in range(5)]
        await asyncio.gather(*(write(name) for name in names))
        for name in names:
            events: Sequence[Event] = await journal.read(name)
            assert [event.seq for event in events] == list(range(1, 50))
            assert {event.task_id for event in events} == {name}

    async def test_subscribers_see_later_appends(self, journal: Any) -> None:
        await journal.append(started("a"))
        one = journal.subscribe("a")
        every = journal.subscribe()
        for event in (printed("a", 2), started("ab"), started("b"), printed("a", 3)):
            await journal.append(event)
        assert await self._take(one, 2) == [("a", 2), ("a", 3)]
        assert await self._take(every, 4) == [("a", 2), ("ab", 1), ("b", 1), ("a", 3)]

    async def test_subscriber_sees_events_once_stored(self, journal: Any) -> None:
        one = journal.subscribe("a")
        every = journal.subscribe()
        waiting = [asyncio.ensure_future(self._take(stream, 1)) for stream in (one, every)]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        await journal.append(started("a"))
        assert await asyncio.gather(*waiting) == [[("a", 1)]] * 2
        assert len(await journal.read("a")) == 1, "subscribers see what is not kept"

    async def test_leaving_subscriber_does_not_affect_others(self, journal: Any) -> None:
        leaving = journal.subscribe()
        staying = journal.subscribe()
        await journal.append(started("a"))
        assert await self._take(leaving, 1) == [("a", 1)]
        if hasattr(leaving, "aclose"):
            await leaving.aclose()
        await journal.append(printed("a", 2))
        assert await self._take(staying, 2) == [("a", 1), ("a", 2)]

    async def test_find_returns_newest_tasks_first(self, journal: Any) -> None:
        assert list(await journal.find()) == []
        for number, name in enumerate(("a", "b", "c"), 1):
            await journal.append(started(name, at=float(number)))
        await journal.append(finished("a", 2))
        await journal.append(finished("b", 2, has_succeeded=False))
        await journal.append(printed("a", 3))  # an event after the end changes no outcome
        records = list(await journal.find())
        assert [(item.task_id, item.task, item.state) for item in records] == [
            ("c", "do c", "running"),
            ("b", "do b", "failed"),
            ("a", "do a", "done"),
        ]
        assert [item.started_at for item in records] == [3.0, 2.0, 1.0]
        assert [item.task_id for item in await journal.find(limit=2)] == ["c", "b"]

    async def test_find_returns_the_end_and_user_of_a_stopped_task(self, journal: Any) -> None:
        await journal.append(started("d", at=4.0, user="ann"))
        await journal.append(
            replace(finished("d", 2, has_succeeded=False), code=TaskStoppedError.code)
        )
        (record,) = await journal.find()
        assert record.state == TaskState.STOPPED, (
            f"a task that was stopped is listed as {record.state!r}: it would count as failed"
        )
        assert record.user == "ann", (
            f"a task of the user 'ann' is listed under the user {record.user!r}: other users "
            "would see the task"
        )
        # A journal takes these fields of the record from the first and the last event.
        first, last = await journal.read("d")
        beginning, changes = TaskRecord.beginning(first), TaskRecord.changes(last)
        for verb, expected in (("began", beginning), ("ended", changes)):
            found = {name: getattr(record, name) for name in expected}
            assert found == expected, (
                f"the list shows {found} of a task that {verb} with {expected}"
            )

    async def test_methods_do_not_block_the_event_loop(self, journal: Any) -> None:
        # check_loop_stays_free() appends several times, each time another event.
        events = iter([started("t"), *(printed("t", seq) for seq in range(2, 9))])
        await self.check_loop_stays_free(lambda: journal.append(next(events)))
        await self.check_loop_stays_free(lambda: journal.read("t"))
        await self.check_loop_stays_free(journal.find)
        await self.check_loop_stays_free(journal.aclose)

    async def test_event_of_a_cancelled_writer_is_kept(self, journal: Any) -> None:
        await journal.append(started("t"))
        await journal.append(started("u"))
        # Leave out 0 iterations, after which the append would not have begun. Count from 2, because
        # the event of started() has the number 1.
        writers = list(enumerate(LOOP_ITERATIONS[1:], 2))
        for seq, iterations in writers:
            # An event of another task is on its way, so that the writer may have to wait.
            other = asyncio.ensure_future(journal.append(printed("u", seq)))
            await cancel_after_iterations(
                lambda seq=seq: journal.append(printed("t", seq)), iterations
            )
            await other
        # This append begins last: when it has ended, the journal has stored all earlier events.
        last_seq = len(writers) + 2
        await journal.append(printed("t", last_seq))
        numbers = [event.seq for event in await journal.read("t")]
        lost = {seq for seq, _ in writers} - {*numbers}
        assert not lost, "an event is lost whose writer was cancelled: shield what writes"
        assert numbers == sorted(numbers), (
            "an append that began earlier is stored after an append that began later"
        )

    async def test_append_of_the_same_event_changes_nothing(self, journal: Any) -> None:
        events = [started("t"), printed("t", 2), printed("t", 3)]
        stream = journal.subscribe("t")
        for event in [*events, events[-1], events[1], printed("t", 4)]:
            await journal.append(event)
        kept = list(await journal.read("t"))
        assert kept[:-1] == events, "an event that is appended again is kept twice, or lost"
        (record,) = await journal.find()
        assert record.events == 4, (
            f"4 events were appended, two of them twice; the record counts {record.events}"
        )
        streamed = [(await self.within(anext(stream), self.seconds)).seq for _ in kept]
        assert streamed == [1, 2, 3, 4], (
            f"subscribers see the events {streamed}: the page of a task would show an event twice"
        )
        await stream.aclose()

    async def test_unusual_names_are_accepted(self, journal: Any) -> None:
        names = ("a", "it's", 'a "b"', "50%_*?", "../up", "a/b", "'; DROP TABLE events; --", "ä 🦊")
        names += ("a_b", "a-b", "a b", "A", "a.b", "ab")  # alike once odd characters are replaced
        for name in names:
            await journal.append(started(name))
        for name in names:
            ids = [event.task_id for event in await journal.read(name)]
            assert ids == [name], f"the task {name!r} has events of {ids!r}"
        assert {item.task_id for item in await journal.find()} == {*names}

    async def test_large_event_is_kept_whole(self, journal: Any) -> None:
        text = "Grüße 🦊 " * 150_000
        await journal.append(started("t"))
        await journal.append(printed("t", 2, text))
        kept = (await journal.read("t"))[-1].text
        assert kept == text, (
            f"of an event with {len(text)} characters {len(kept)} are kept: a resumed task would "
            "go on with half a result; raise an error rather than cut it"
        )
        call = next(event for event in every_event() if isinstance(event, CallFinished))
        result = {"rows": [{"name": f"row {n}", "note": "é" * 500} for n in range(2_000)]}
        await journal.append(replace(call, task_id="t", seq=3, result=result))
        found = (await journal.read("t"))[-1].result
        assert found == result, (
            "the result of a call with 2,000 rows is not what was appended: a resumed task would "
            "go on with another"
        )

    async def test_text_of_any_characters_is_kept(self, journal: Any) -> None:
        await journal.append(started("t"))
        for seq, text in enumerate(_FRAGILE_TEXTS, 2):
            await journal.append(printed("t", seq, text))
        texts_kept = [event.text for event in (await journal.read("t"))[1:]]
        pairs = zip(_FRAGILE_TEXTS, texts_kept, strict=False)
        first_wrong = next((text for text, text_kept in pairs if text != text_kept), "an event")
        assert texts_kept == list(_FRAGILE_TEXTS), (
            f"{first_wrong!r} is not kept as it was: what a task printed or read "
            "would be another text once it is resumed"
        )

    async def test_slow_subscriber_loses_nothing(self, journal: Any) -> None:
        await journal.append(started("t"))
        task_stream = journal.subscribe("t")
        all_stream = journal.subscribe()
        events = [printed("t", seq) for seq in range(2, _LAGGING_EVENTS)]

        async def receive_all(stream: Any, received: list[int]) -> None:
            while len(received) < len(events):
                received.append((await anext(stream)).seq)

        for event in events:
            await self.within(journal.append(event), self.seconds * 10)
        for kind, stream in (("of one task", task_stream), ("of all tasks", all_stream)):
            received: list[int] = []
            receiving = asyncio.ensure_future(receive_all(stream, received))
            await asyncio.wait({receiving}, timeout=self.seconds / 2)
            receiving.cancel()
            await asyncio.wait({receiving})
            assert received == [event.seq for event in events], (
                f"a subscriber {kind} that is slow gets {len(received)} of {len(events)} events: a "
                "page would show a task that never ends"
            )

    async def test_queued_task_is_found_as_queued(self, journal: Any) -> None:
        queued = TaskQueued(task_id="q", seq=1, at=1.0, task="do q", timeout=30)
        await journal.append(queued)
        states = [(record.task, state_of(record)) for record in await journal.find()]
        assert states == [("do q", "queued")], (
            f"a task that waits for a runner is listed as {states!r}: nobody would see it"
        )
        await journal.append(replace(started("q"), seq=2))
        states = [state_of(record) for record in await journal.find()]
        assert states == ["running"], (
            f"a queued task that has begun is listed as {states!r}: give the record the number of "
            "the task's `events`; a task with several events is not queued any more"
        )
        stopped = replace(finished("s", 2, has_succeeded=False), code=TaskStoppedError.code)
        for event in (replace(queued, task_id="s", at=9.0), stopped):
            await journal.append(event)
        states = [state_of(record) for record in await journal.find()]
        assert states == ["stopped", "running"], (
            f"a task that was stopped before it began is listed as {states[0]!r}: a runner would "
            "take it"
        )

    async def test_resumed_task_is_found_as_running(self, journal: Any) -> None:
        for event in (started("r"), finished("r", 2, has_succeeded=False)):
            await journal.append(event)
        if isinstance(journal, SharedJournal):
            try:
                await journal.reopen("r")  # as an agent does before it resumes a task
            except ConfigurationError:
                return  # a journal such as PartialJournal cannot resume a task after its end
        await journal.append(TaskResumed(task_id="r", seq=3, at=3.0))
        (record,) = await journal.find()
        assert (record.state, record.finished_at, record.error) == ("running", None, None), (
            f"a task that was resumed after its end is listed as {record.state!r}: TaskResumed "
            "removes the end from the record"
        )
        await journal.append(finished("r", 4))
        assert [item.state for item in await journal.find()] == ["done"]

    async def test_use_leaves_the_process_unchanged(self, journal: Any) -> None:
        numbers = iter(range(_MANY))

        async def use_journal() -> None:
            task_id = f"{_MARK}-{next(numbers)}"
            events = journal.subscribe(task_id)
            for event in (started(task_id), printed(task_id, 2), finished(task_id, 3)):
                await journal.append(event)
            # Take one event, then leave the subscription.
            taken_ids_and_numbers = await self._take(events, 1)
            assert taken_ids_and_numbers == [(task_id, 1)]
            await journal.read(task_id)
            await journal.find()

        await self.check_nothing_remains(journal, use_journal, forbidden_texts=(_MARK,))

    @needs("durable")
    async def test_journal_works_on_another_event_loop(
        self, journal: Any, reopen: Callable[[], Any]
    ) -> None:
        """Use a second journal on a second event loop, as another agent of the process does."""

        async def use(any_journal: Any, task_prefix: str) -> None:
            task_ids = [f"{task_prefix}-{number}" for number in range(_AT_ONCE)]
            await asyncio.gather(*(any_journal.append(started(task_id)) for task_id in task_ids))
            assert len(await any_journal.read(task_ids[0])) == 1
            await any_journal.aclose()

        async def use_second_journal() -> None:
            await use(await open_with(reopen), "second")

        await journal.append(started("before"))
        try:
            await asyncio.to_thread(asyncio.run, use_second_journal())
            await use(journal, "first")
        except RuntimeError as error:
            pytest.fail(
                f"two journals on the event loops of two agents disturb each other: {error}; make "
                "locks, queues and clients in `__init__`, not in a class or a module, and close "
                "in `aclose` what belongs to this journal"
            )

    async def test_secrets_are_never_shown(self, journal: Any) -> None:
        await self.check_no_secret_is_shown(journal, lambda: journal.append(started("t")))

    @needs("fails", "secrets")
    async def test_failure_shows_no_secret(self, failing_journal: Any) -> None:
        await self.check_no_secret_is_shown(
            failing_journal, lambda: failing_journal.append(started("t"))
        )

    @needs("fails")
    async def test_unstorable_event_raises_an_error_of_delf(self, failing_journal: Any) -> None:
        received = asyncio.ensure_future(anext(failing_journal.subscribe()))
        await asyncio.sleep(0)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever it raises
            await failing_journal.append(started("t"))
        await asyncio.wait({received}, timeout=_INSTANT)
        is_received = received.done() and received.exception() is None
        received.cancel()
        await asyncio.wait({received})
        assert not is_received, (
            "a subscriber got an event that could not be stored: a page would show what the "
            "journal does not know; tell subscribers once the event is stored"
        )
        assert isinstance(caught.value, DelfError), (
            f"it raises {type(caught.value).__name__}: raise JournalUnavailableError from it, so "
            "that the task says what to do"
        )
        assert caught.value.message.strip()

    async def test_close_is_idempotent(self, journal: Any) -> None:
        await journal.append(started("a"))
        for _ in range(2):
            await journal.aclose()

    @needs("durable")
    async def test_data_survives_the_process(self, journal: Any, reopen: Callable[[], Any]) -> None:
        for event in (started("a"), finished("a", 2)):
            await journal.append(event)
        await journal.aclose()
        reopened = await open_with(reopen)
        assert [event.seq for event in await reopened.read("a")] == [1, 2]
        assert [item.state for item in await reopened.find()] == ["done"]
        await reopened.aclose()

    @needs("durable")
    async def test_two_open_instances_lose_nothing(
        self, journal: Any, reopen: Callable[[], Any]
    ) -> None:
        other = await open_with(reopen)

        async def write(into: Any, task: str) -> None:
            await into.append(started(task))
            for seq in range(2, 30):
                await into.append(printed(task, seq))

        await asyncio.gather(write(journal, "a"), write(other, "b"))
        for into in (journal, other):
            for task in ("a", "b"):
                assert [event.seq for event in await into.read(task)] == list(range(1, 30)), task
            assert {item.task_id for item in await into.find()} == {"a", "b"}
        await other.aclose()

    async def _take(self, stream: AsyncIterator[Event], count: int) -> list[tuple[str, int]]:
        """Return the task id and the number of each of the next events of a stream."""
        events = [await anext(stream) for _ in range(count)]
        return [(event.task_id, event.seq) for event in events]
