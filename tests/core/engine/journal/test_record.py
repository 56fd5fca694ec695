"""What is recorded, in which order, and what is folded from it: log, journal, observers, views."""

import asyncio
import dataclasses
import json
import typing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delf import events as ev
from delf.engine.journal.log import SAFE, TaskLog
from delf.engine.journal.observers import ObserverFeed
from delf.engine.secrets.redaction import Redactor
from delf.engine.views.snapshot import snapshot
from delf.engine.views.trace import MAX_LETTERS, MAX_LINES, Trace
from delf.messages import Usage
from delf_journal_memory import MemoryJournal


class Journal(MemoryJournal):
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
    while len(log.events) < 3:
        await asyncio.sleep(0)
    assert [getattr(e, "text", None) or e.message for e in log.events] == ["ab\n", "x", "c"]
    assert [e.seq for e in log.events] == [1, 2, 3]


async def test_what_is_printed_while_the_journal_writes_is_seen_without_another_event():
    journal, begun, go_on, seen = Journal(), asyncio.Event(), asyncio.Event(), asyncio.Queue()
    append = journal.append

    async def slow(event):
        begun.set()
        await go_on.wait()
        await append(event)

    journal.append = slow
    log = TaskLog("t", journal, [seen.put_nowait])
    log.say("one ")
    await begun.wait()
    log.say("two ")
    log.clock_read([7])
    go_on.set()
    async with asyncio.timeout(10):
        shown = [await seen.get() for _ in range(3)]
    assert [getattr(e, "text", None) or e.readings for e in shown] == ["one ", (7,), "two "]


async def test_a_script_that_prints_on_and_on_does_not_keep_other_events_back():
    log = TaskLog("t", Journal(), [lambda event: log.say("more")])
    log.say("more")
    async with asyncio.timeout(10):
        await log.record(ev.Warned, message="x")
        await log.record(ev.TaskFinished, status=True, text="", duration_ms=1.0)
    assert any(isinstance(event, ev.Warned) for event in log.events)


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
    closed, open_ = {"digest"}, set()
    for cls in typing.get_args(ev.Event):
        for name, kind in typing.get_type_hints(cls).items():
            (closed if is_closed(kind) else open_).add(name)
    assert closed - SAFE == set()
    assert SAFE & open_ == {"digest"}


async def test_a_secret_that_equals_a_count_does_not_change_an_event():
    log = TaskLog("t", Journal(), [], Redactor(["204800", "process"]))
    usage = Usage(input_tokens=204800, output_tokens=1)
    common = {"model": "m", "purpose": "generate", "duration_ms": 1.0}
    await log.record(ev.ModelReplied, text="is 204800", usage=usage, cost_usd=0.5, **common)
    await log.record(ev.FileWritten, label="a", path="/a", size=204800)
    await log.record(ev.SandboxOpened, backend="b", isolation="process")
    replied, written, opened = log.events
    assert (replied.usage, replied.text) == (usage, "is [redacted]")
    assert (written.size, opened.isolation) == (204800, "process")
    assert [ev.decode(ev.encode(event)) for event in log.events] == log.events


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


# -- views ----------------------------------------------------------------------------------


def story():
    usage = Usage(input_tokens=100, cached_tokens=40, output_tokens=10)
    common = {"action": "shop.find", "arguments": {"n": 1}, "effect": "read", "digest": "d"}
    fields = [
        (ev.TaskStarted, {"task": "count", "origin": "agent"}),
        (ev.StepStarted, {"step": "generate"}),
        (
            ev.ModelReplied,
            {
                "model": "m",
                "purpose": "generate",
                "text": "x",
                "usage": usage,
                "cost_usd": 0.5,
                "duration_ms": 9.0,
            },
        ),
        (ev.StepFinished, {"step": "generate", "duration_ms": 10.0}),
        (ev.ScriptGenerated, {"code": "print(1)", "attempt": 1}),
        (ev.SandboxOpened, {"backend": "local", "isolation": "process"}),
        (ev.CallStarted, {"call_id": 1, "description": "look", **common}),
        (ev.CallStarted, {"call_id": 2, **common}),
        (ev.Printed, {"text": "a\nb\n"}),
        (
            ev.CallFinished,
            {
                "call_id": 2,
                "action": "shop.find",
                "status": "error",
                "duration_ms": 1.0,
                "error": "bad",
            },
        ),
        (
            ev.CallFinished,
            {
                "call_id": 1,
                "action": "shop.find",
                "status": "ok",
                "duration_ms": 2.0,
                "result": {1, 2},
                "description": "look",
            },
        ),
        (
            ev.CallFinished,
            {
                "call_id": 3,
                "action": "shop.no",
                "status": "refused",
                "duration_ms": 0.0,
                "error": "no",
            },
        ),
        (ev.FileWritten, {"label": "a.txt", "path": "/out/a.txt", "size": 3}),
        (ev.RerunRequested, {"attempt": 1, "context": "c", "remaining": "r"}),
        (ev.RetryScheduled, {"attempt": 2, "error": "failed"}),
        (ev.Warned, {"message": "careful"}),
        (ev.TaskFinished, {"status": True, "text": "a\nb", "duration_ms": 50.0, "cost_usd": 0.5}),
    ]
    return [
        cls(task_id="t", seq=n, at=100.0 + n, **rest) for n, (cls, rest) in enumerate(fields, 1)
    ]


def test_the_trace_holds_every_call_with_its_outcome():
    trace = Trace(story())
    assert [(c.call_id, c.status, c.success, c.error) for c in trace.tool_calls] == [
        (1, "ok", True, None),
        (2, "error", False, "bad"),
        (3, "refused", False, "no"),
    ]
    assert trace.tool_calls[0].result == {1, 2}
    assert (trace.task, trace.sandbox, trace.isolation) == ("count", "local", "process")
    assert (trace.scripts, trace.retries, trace.warnings) == (["print(1)"], ["failed"], ["careful"])
    assert trace.utterances == ["a", "b"]
    assert trace.reruns[0].remaining_task == "r"
    assert (trace.usage.total_tokens, trace.total_cost_usd, trace.duration_ms) == (110, 0.5, 50.0)
    assert [(line.kind, line.label, line.status) for line in trace.timeline] == [
        ("phase", "generate", "success"),
        ("tool", "look", "success"),
        ("tool", "shop.find", "error"),
        ("say", "a", "success"),
        ("say", "b", "success"),
        ("tool", "shop.no", "error"),
    ]
    assert [line.duration_ms for line in trace.timeline] == [10, 2, 1, 0, 0, 0]


def test_the_timeline_shows_what_runs():
    lines = [(line.label, line.status, line.duration_ms) for line in Trace(story()[:8]).timeline]
    assert lines == [
        ("generate", "success", 10),
        ("look", "running", None),
        ("shop.find", "running", None),
    ]


def test_what_runs_when_the_task_ends_was_stopped_with_it():
    started, end = story()[:2], story()[-1]
    call = story()[6]
    lines = Trace([*started, call, end]).timeline
    assert [(line.label, line.status, line.duration_ms) for line in lines] == [
        ("generate", "error", 15_000),
        ("look", "error", 10_000),
    ]


def test_a_step_whose_script_failed_is_no_success():
    common = {"task_id": "t", "at": 1.0}
    events = [
        ev.StepStarted(seq=1, step="execute", **common),
        ev.ScriptFinished(seq=2, status="failed", duration_ms=1.0, **common),
        ev.StepFinished(seq=3, step="execute", duration_ms=1.0, **common),
    ]
    assert [line.status for line in Trace(events).timeline] == ["error"]


def test_a_line_that_comes_in_pieces_is_one_line():
    texts = ["a", "b\n", "\nc", "d"]
    events = [ev.Printed(task_id="t", seq=n, at=float(n), text=x) for n, x in enumerate(texts, 1)]
    trace = Trace(events)
    assert trace.utterances == ["ab", "", "cd"]
    assert [line.label for line in trace.timeline] == ["ab", "", "cd"]


def test_only_the_first_lines_are_kept_one_by_one():
    texts = ["a\nb", "\n" * 5_000_000, "c\n" * MAX_LINES, "d"]
    events = [ev.Printed(task_id="t", seq=n, at=float(n), text=x) for n, x in enumerate(texts, 1)]
    trace = Trace(events)
    told = ["a", "b", *[""] * (MAX_LINES - 2), "… and more: the output has all of it"]
    assert trace.utterances == told
    assert [line.label for line in trace.timeline] == told
    assert len(trace.to_dict()["timeline"]) == MAX_LINES + 1


def test_of_long_lines_only_the_beginning_is_kept():
    texts = ["a" * 9_000_000, "b\n"]
    events = [ev.Printed(task_id="t", seq=n, at=float(n), text=x) for n, x in enumerate(texts, 1)]
    told = "… and more: the output has all of it"
    assert Trace(events).utterances == ["a" * MAX_LETTERS + told]


def test_a_line_that_is_open_when_there_is_no_more_room_is_ended():
    texts = ["a\n" * (MAX_LINES - 1), "b", "c\n", "d", "e\n"]
    events = [ev.Printed(task_id="t", seq=n, at=float(n), text=x) for n, x in enumerate(texts, 1)]
    assert Trace(events).utterances[-2:] == ["bc", "… and more: the output has all of it"]


def test_usage_by_model_and_step_and_setup_apart():
    usage = Usage(input_tokens=10, cached_tokens=4, output_tokens=5)
    head = {"task_id": "t", "at": 1.0}
    reply = {"text": "", "usage": usage, "duration_ms": 2.0, **head}
    events = [
        ev.ModelReplied(seq=1, model="light", purpose="setup", cost_usd=0.25, **reply),
        ev.StepStarted(seq=2, step="generate", **head),
        ev.ModelReplied(seq=3, model="heavy", purpose="generate", cost_usd=0.5, **reply),
        ev.StepFinished(seq=4, step="generate", duration_ms=1.0, **head),
        ev.StepStarted(seq=5, step="execute", **head),
        ev.ModelReplied(seq=6, model="eyes", purpose="call", cost_usd=1.0, **reply),
        ev.ModelReplied(seq=7, model="eyes", purpose="call", cost_usd=None, **reply),
    ]
    trace = Trace(events)
    assert [(c.model, c.step) for c in trace.model_calls] == [
        ("light", ""),
        ("heavy", "generate"),
        ("eyes", "execute"),
        ("eyes", "execute"),
    ]
    assert trace.usage_by_model["eyes"].usage == usage + usage
    assert trace.usage_by_step["execute"].cost_usd is None
    assert trace.usage_by_step["generate"].cost_usd == 0.5
    assert (trace.api_enrichment.calls, trace.api_enrichment.cost_usd) == (1, 0.25)
    assert (Trace(events[:3]).total_cost_usd, trace.usage.input_tokens) == (0.5, 30)
    data = trace.to_dict()
    assert data["api_enrichment"]["usage"]["input_tokens"] == 10
    assert data["usage_by_model"]["eyes"]["calls"] == 2


def test_the_trace_is_a_fold():
    events = story()
    folded = Trace()
    for event in events:
        folded.add(event)
    assert folded.to_dict() == Trace(events).to_dict()
    json.dumps(folded.to_dict())
    restored = [ev.decode(json.loads(json.dumps(ev.encode(event)))) for event in events]
    assert Trace(restored).to_dict() == folded.to_dict()


def test_a_cost_that_is_not_known_is_not_zero():
    events = story()
    unknown = dataclasses.replace(events[2], cost_usd=None)
    trace = Trace([*events[:3], unknown, *events[3:]])
    assert trace.total_cost_usd is None


@pytest.mark.parametrize("count", range(1, 18))
def test_a_snapshot_at_every_moment(count):
    taken = snapshot(story()[:count])
    assert taken.state == ("done" if count == 17 else "running")
    assert taken.is_terminal == (count == 17)
    assert taken.output_so_far == ("a\nb\n" if count >= 9 else "")
    assert taken.files == ({"a.txt": "/out/a.txt"} if count >= 13 else {})
    json.dumps(taken.to_dict())


def test_a_snapshot_of_a_failed_task():
    events = story()
    last = dataclasses.replace(events[-1], status=False, error="no")
    taken = snapshot([*events[:-1], last])
    assert (taken.state, taken.result, taken.error) == ("error", None, "no")


def test_a_call_that_ends_after_its_task_does_not_reopen_it():
    late = ev.CallFinished(
        task_id="t", seq=18, at=1.0, call_id=2, action="a", status="cancelled", duration_ms=1.0
    )
    assert snapshot([*story(), late]).state == "done"
