"""Tests of what is recorded and in which order: task log, journal, observers."""

import asyncio
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delf import events as ev
from delf.errors import TaskLeftError
from delf.events import SAFE
from delf.messages import Usage
from delf_engine.journal.in_process import InProcessJournal
from delf_engine.journal.log import TaskLog
from delf_engine.journal.observers import ObserverFeed
from delf_engine.redact import Redactor
from support.busy import on_busy_machines
from support.until import until


class Journal(InProcessJournal):
    """A journal that notes the stored events, and lets other tasks run while it stores one."""

    def __init__(self):
        super().__init__()
        self.kept = []

    async def append(self, event):
        await asyncio.sleep(0)
        await super().append(event)
        self.kept.append(event)


# -- log ------------------------------------------------------------------------------------


async def test_events_are_journalled_before_listeners_see_them():
    journal, seen = Journal(), []

    def listener(event):
        assert journal.kept[-1] is event
        seen.append(event.seq)

    log = TaskLog("t", journal, [listener])
    await asyncio.gather(*(log.record(ev.Warned, message=str(n)) for n in range(10)))
    assert seen == list(range(1, 11))
    assert [e.message for e in log.events] == [str(n) for n in range(10)]


async def test_event_is_hidden_from_listeners_if_not_journalled():
    journal, seen = Journal(), []

    async def full(event):
        raise OSError("full")

    log = TaskLog("t", journal, [seen.append])
    journal.append = full
    with pytest.raises(OSError, match="full"):
        await log.record(ev.Warned, message="x")
    assert seen == log.events == []


async def test_failing_listener_does_not_affect_others(caplog):
    def broken(event):
        raise ValueError("broken")

    seen = []
    log = TaskLog("t", Journal(), [broken, seen.append])
    await log.record(ev.Warned, message="x")
    assert len(seen) == 1
    assert "a listener failed on Warned" in caplog.text


async def test_prints_are_batched_and_keep_their_position():
    log = TaskLog("t", Journal(), [])
    log.buffer_output("a")
    log.buffer_output("b\n")
    await log.record(ev.Warned, message="x")
    log.buffer_output("c")
    await until(lambda: len(log.events) >= 3)
    assert [getattr(e, "text", None) or e.message for e in log.events] == ["ab\n", "x", "c"]
    assert [e.seq for e in log.events] == [1, 2, 3]


async def test_event_is_journalled_although_its_recorder_is_cancelled():
    """Otherwise a call would have a start and no end."""
    journal, go_on = Journal(), asyncio.Event()
    append = journal.append

    async def slow(event):
        await append(event)
        await go_on.wait()

    journal.append = slow
    log = TaskLog("t", journal, [])
    first = asyncio.ensure_future(log.record(ev.Warned, message="1"))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(log.record(ev.Warned, message="2"))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    go_on.set()
    await first
    await log.record(ev.Warned, message="3")
    assert [e.message for e in journal.kept] == ["1", "2", "3"]
    assert [e.seq for e in log.events] == [1, 2, 3]


def is_closed(kind):
    """Return whether all values of a type are numbers, booleans or words from a closed set."""
    if kind in (int, float, bool, type(None), Usage):
        return True
    if typing.get_origin(kind) is typing.Literal:
        return True
    parts = [part for part in typing.get_args(kind) if part is not ...]
    return kind is not dict and bool(parts) and all(map(is_closed, parts))


def test_only_fields_with_fixed_values_are_exempt_from_redaction():
    digests = {"digest", "action_digest", "shown_digest", "files_digest"}
    closed, open_ = set(digests), set()
    for cls in typing.get_args(ev.Event):
        for name, kind in typing.get_type_hints(cls).items():
            (closed if is_closed(kind) else open_).add(name)
    assert closed - SAFE == set()
    assert SAFE & open_ == digests


class Fragile(Journal):
    """A journal that fails, or hangs after it stored an event, as the test says."""

    def __init__(self, keeps: bool = True) -> None:
        super().__init__()
        self._keeps = keeps
        self.hangs: asyncio.Event | None = None
        self.fails = False

    async def append(self, event):
        if self.fails:
            raise OSError("the disk is full")
        if self.hangs is not None and not self._keeps:
            self.hangs.set()
            await asyncio.Event().wait()
        if event not in self.kept:
            await super().append(event)
        if self.hangs is not None:
            self.hangs.set()
            await asyncio.Event().wait()


async def cancelled_midway(log, journal, kind, *, fails=False, **fields):
    """Cancel a record after its event was passed to the journal, which may fail to store it."""
    journal.hangs = asyncio.Event()
    recording = asyncio.ensure_future(log.record(kind, **fields))
    await journal.hangs.wait()
    recording.cancel()
    journal.hangs, journal.fails = None, fails
    with pytest.raises(asyncio.CancelledError):
        await recording


ENDS = {
    "finished": lambda log: log.record(ev.TaskFinished, status=True, text="", duration_ms=1.0),
    "postponed": lambda log: log.record(
        ev.TaskPostponed, error="away", code="X", tries=1, not_before=1.0
    ),
    "closed": lambda log: log.aclose(),
}


@pytest.mark.parametrize("how", list(ENDS))
async def test_record_raises_after_the_end_of_a_task(how):
    journal = Journal()
    log = TaskLog("t", journal, [])
    await ENDS[how](log)
    kept = list(journal.kept)
    log.buffer_output("late")
    log.record_soon(ev.Warned, message="late")
    with pytest.raises(TaskLeftError, match="no Warned is kept"):
        await log.record(ev.Warned, message="late")
    assert journal.kept == kept


@pytest.mark.parametrize("how", list(ENDS))
async def test_queued_record_raises_after_the_task_end(how):
    """A late event is either stored, or its record raises; it is never dropped silently."""
    journal = Journal()
    log = TaskLog("t", journal, [])
    for number in range(3):
        log.buffer_output(f"{number}")
    ending = asyncio.ensure_future(ENDS[how](log))
    await asyncio.sleep(0)
    late = asyncio.ensure_future(log.record(ev.Warned, message="late"))
    await ending
    results = await asyncio.gather(late, return_exceptions=True)
    is_kept = any(isinstance(event, ev.Warned) for event in journal.kept)
    assert isinstance(results[0], TaskLeftError) != is_kept


async def test_abandoned_task_records_only_outcomes_of_calls():
    journal = Journal()
    log = TaskLog("t", journal, [])
    log.buffer_output("before")
    log.accept_only_outcomes()
    log.buffer_output("after")
    with pytest.raises(TaskLeftError):
        await log.record(ev.Warned, message="late")
    fields = {"call_id": 1, "action": "pay", "status": "ok", "duration_ms": 1.0}
    await log.record(ev.CallFinished, is_outcome=True, **fields)
    await log.aclose()
    assert [type(event) for event in journal.kept] == [ev.Printed, ev.CallFinished]
    assert journal.kept[0].text == "before"


@pytest.mark.parametrize("keeps", [True, False])
async def test_event_of_a_cancelled_record_precedes_the_next(keeps):
    """The order holds even if the journal had not started to store the first event."""
    journal = Fragile(keeps)
    log = TaskLog("t", journal, [])
    await cancelled_midway(log, journal, ev.Warned, message="first")
    await log.record(ev.Warned, message="second")
    assert [event.message for event in journal.kept] == ["first", "second"]
    assert [event.seq for event in journal.kept] == [1, 2]
    assert log.events == journal.kept


async def test_record_stops_after_an_unjournalled_event():
    """The cancelled event keeps its number, which no later event may take or skip."""
    journal = Fragile(keeps=False)
    log = TaskLog("t", journal, [])
    await cancelled_midway(log, journal, ev.Warned, fails=True, message="first")
    with pytest.raises(OSError, match="full"):
        await log.record(ev.Warned, message="second")
    assert (journal.kept, log.events) == ([], [])
    journal.fails = False
    await log.record(ev.Warned, message="third")
    assert [event.message for event in journal.kept] == ["first", "third"]


async def test_buffered_output_survives_a_temporary_journal_failure():
    journal = Fragile()
    journal.fails = True
    log = TaskLog("t", journal, [])
    log.buffer_clock_reads([1, 2])
    log.buffer_output("printed ")
    log.record_soon(ev.CallAbandoned, call_id=1, action="pay")
    with pytest.raises(OSError, match="full"):
        await log.record(ev.Warned, message="refused")
    log.buffer_output("later")
    journal.fails = False
    await log.record(ev.Warned, message="end")
    found = [type(event) for event in journal.kept]
    assert found == [ev.ClockRead, ev.Printed, ev.CallAbandoned, ev.Printed, ev.Warned]
    assert journal.kept[0].readings == (1, 2)
    assert "".join(e.text for e in journal.kept if isinstance(e, ev.Printed)) == "printed later"
    assert [event.seq for event in journal.kept] == [1, 2, 3, 4, 5]


@on_busy_machines
@given(st.lists(st.sampled_from(["say", "record", "yield"]), max_size=30))
def test_record_keeps_order_under_any_interleaving(steps):
    async def play():
        log, expected = TaskLog("t", Journal(), []), ""
        for number, step in enumerate(steps):
            if step == "say":
                log.buffer_output(f"s{number} ")
                expected += f"s{number} "
            elif step == "record":
                await log.record(ev.Warned, message=f"r{number} ")
                expected += f"r{number} "
            else:
                await asyncio.sleep(0)
        await log.record(ev.Warned, message="end")
        return log.events, expected + "end"

    events, expected = asyncio.run(play())
    assert "".join(getattr(e, "text", "") or e.message for e in events) == expected


def started(task, seq=1, **fields):
    return ev.TaskStarted(task_id=task, seq=seq, at=1.0, task=f"do {task}", **fields)


# -- observers ------------------------------------------------------------------------------


class Observer:
    def __init__(self, fails_at=None):
        self.seen, self.closed, self.fails_at = [], 0, fails_at

    async def observe(self, event):
        await asyncio.sleep(0)
        if event.seq == self.fails_at:
            raise ValueError("broken")
        self.seen.append(event.seq)

    async def aclose(self):
        self.closed += 1


async def test_observers_receive_all_events_in_order_before_closing():
    observer = Observer()
    feed = ObserverFeed("o", observer, Redactor())
    for n in range(1, 50):
        feed(started("a", seq=n))
    await feed.aclose()
    assert observer.seen == list(range(1, 50))
    assert observer.closed == 1


async def test_failing_observer_is_removed(caplog):
    observer = Observer(fails_at=3)
    feed = ObserverFeed("o", observer, Redactor())
    for n in range(1, 10):
        feed(started("a", seq=n))
    await feed.aclose()
    assert observer.seen == [1, 2]
    assert "the observer 'o' failed" in caplog.text


async def test_hanging_observer_is_left_out_when_too_many_events_wait(
    caplog, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delf_engine.journal.observers.MAX_QUEUED_EVENTS", 10)
    monkeypatch.setattr("delf_engine.journal.observers.CLOSE_SECONDS", 0.1)
    observer = Observer()
    observer.observe = lambda event: asyncio.Event().wait()
    feed = ObserverFeed("o", observer, Redactor())
    for n in range(1, 100):
        feed(started("a", seq=n))
        await asyncio.sleep(0)
    assert caplog.text.count("10 events wait for the observer") == 1
    await feed.aclose()
    assert observer.closed == 1
    assert "did not take its last events" not in caplog.text
