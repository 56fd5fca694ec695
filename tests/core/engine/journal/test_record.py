"""What is recorded, in which order: log, journal, observers."""

import asyncio
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delf import events as ev
from delf.engine.journal.log import TaskLog
from delf.engine.journal.observers import ObserverFeed
from delf.engine.redact import Redactor
from delf.events import SAFE
from delf.messages import Usage
from delf.plugins.in_process_journal import InProcessJournal
from support.until import until


class Journal(InProcessJournal):
    """Notes what was kept, and lets others run while it keeps."""

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


async def test_an_event_that_is_not_kept_is_not_seen():
    journal, seen = Journal(), []

    async def full(event):
        raise OSError("full")

    log = TaskLog("t", journal, [seen.append])
    journal.append = full
    with pytest.raises(OSError, match="full"):
        await log.record(ev.Warned, message="x")
    assert seen == log.events == []


async def test_a_failing_listener_disturbs_nobody(caplog):
    def broken(event):
        raise ValueError("broken")

    seen = []
    log = TaskLog("t", Journal(), [broken, seen.append])
    await log.record(ev.Warned, message="x")
    assert len(seen) == 1
    assert "a listener failed on Warned" in caplog.text


async def test_prints_keep_their_place_and_are_gathered():
    log = TaskLog("t", Journal(), [])
    log.say("a")
    log.say("b\n")
    await log.record(ev.Warned, message="x")
    log.say("c")
    await until(lambda: len(log.events) >= 3)
    assert [getattr(e, "text", None) or e.message for e in log.events] == ["ab\n", "x", "c"]
    assert [e.seq for e in log.events] == [1, 2, 3]


async def test_an_event_is_kept_although_its_recorder_was_cancelled():
    """Else a call would have a beginning and no end: what happened is told in any case."""
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
    """Whether values of a type are numbers, truths or words of a closed set."""
    if kind in (int, float, bool, type(None), Usage):
        return True
    if typing.get_origin(kind) is typing.Literal:
        return True
    parts = [part for part in typing.get_args(kind) if part is not ...]
    return kind is not dict and bool(parts) and all(map(is_closed, parts))


def test_fields_that_cannot_hold_a_secret_are_left_as_they_are_and_no_others():
    digests = {"digest", "action_digest", "shown_digest"}
    closed, open_ = set(digests), set()
    for cls in typing.get_args(ev.Event):
        for name, kind in typing.get_type_hints(cls).items():
            (closed if is_closed(kind) else open_).add(name)
    assert closed - SAFE == set()
    assert SAFE & open_ == digests


async def test_nothing_is_kept_after_the_end_of_a_task():
    journal = Journal()
    log = TaskLog("t", journal, [])
    await log.record(ev.TaskFinished, status=True, text="", duration_ms=1.0)
    log.say("late")
    await log.record(ev.Warned, message="late")
    assert [type(e) for e in journal.kept] == [ev.TaskFinished]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may be busy
@given(st.lists(st.sampled_from(["say", "record", "yield"]), max_size=30))
def test_no_order_of_saying_and_recording_loses_or_swaps_anything(steps):
    async def play():
        log, expected = TaskLog("t", Journal(), []), ""
        for number, step in enumerate(steps):
            if step == "say":
                log.say(f"s{number} ")
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


async def test_observers_get_everything_in_order_before_they_are_closed():
    observer = Observer()
    feed = ObserverFeed("o", observer, Redactor())
    for n in range(1, 50):
        feed(started("a", seq=n))
    await feed.aclose()
    assert observer.seen == list(range(1, 50))
    assert observer.closed == 1


async def test_an_observer_that_fails_is_left_out(caplog):
    observer = Observer(fails_at=3)
    feed = ObserverFeed("o", observer, Redactor())
    for n in range(1, 10):
        feed(started("a", seq=n))
    await feed.aclose()
    assert observer.seen == [1, 2]
    assert "the observer 'o' failed" in caplog.text
