"""Tests of traces and snapshots, which are computed from a task's events."""

import dataclasses
import json

import pytest

from delf import events as ev
from delf.messages import Usage
from delf.types import TaskState
from delf_engine.views.snapshot import snapshot
from delf_engine.views.trace import MAX_LINES, Trace


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


def test_trace_lists_every_call_with_its_outcome():
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


def test_timeline_shows_running_steps():
    lines = [(line.label, line.status, line.duration_ms) for line in Trace(story()[:8]).timeline]
    assert lines == [
        ("generate", "success", 10),
        ("look", "running", None),
        ("shop.find", "running", None),
    ]


def test_timeline_closes_running_steps_with_the_task():
    started, end = story()[:2], story()[-1]
    call = story()[6]
    lines = Trace([*started, call, end]).timeline
    assert [(line.label, line.status, line.duration_ms) for line in lines] == [
        ("generate", "error", 15_000),
        ("look", "error", 10_000),
    ]


def test_step_with_a_failed_script_is_an_error():
    common = {"task_id": "t", "at": 1.0}
    events = [
        ev.StepStarted(seq=1, step="execute", **common),
        ev.ScriptFinished(seq=2, status="failed", duration_ms=1.0, **common),
        ev.StepFinished(seq=3, step="execute", duration_ms=1.0, **common),
    ]
    assert [line.status for line in Trace(events).timeline] == ["error"]


def test_printed_pieces_are_joined_into_lines():
    texts = ["a", "b\n", "\nc", "d"]
    events = [ev.Printed(task_id="t", seq=n, at=float(n), text=x) for n, x in enumerate(texts, 1)]
    trace = Trace(events)
    assert trace.utterances == ["ab", "", "cd"]
    assert [line.label for line in trace.timeline] == ["ab", "", "cd"]


def test_trace_keeps_only_the_first_printed_lines():
    texts = ["a\nb", "\n" * 5_000_000, "c\n" * MAX_LINES, "d"]
    events = [ev.Printed(task_id="t", seq=n, at=float(n), text=x) for n, x in enumerate(texts, 1)]
    trace = Trace(events)
    shown = ["a", "b", *[""] * (MAX_LINES - 2)]
    assert trace.utterances == shown
    assert [line.label for line in trace.timeline] == shown
    assert len(trace.to_dict()["timeline"]) == MAX_LINES


def test_usage_is_summed_by_model_step_and_setup():
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


def test_trace_is_equal_for_live_and_stored_events():
    events = story()
    folded = Trace()
    for event in events:
        folded.add(event)
    assert folded.to_dict() == Trace(events).to_dict()
    json.dumps(folded.to_dict())
    restored = [ev.decode(json.loads(json.dumps(ev.encode(event)))) for event in events]
    assert Trace(restored).to_dict() == folded.to_dict()


def test_trace_with_an_unknown_price_has_unknown_cost():
    events = story()
    unknown = dataclasses.replace(events[2], cost_usd=None)
    trace = Trace([*events[:3], unknown, *events[3:]])
    assert trace.total_cost_usd is None


@pytest.mark.parametrize("count", range(1, 18))
def test_snapshot_is_consistent_after_every_event(count):
    taken = snapshot(story()[:count])
    assert taken.state == ("done" if count == 17 else "running")
    assert taken.is_terminal == (count == 17)
    assert taken.output_so_far == ("a\nb\n" if count >= 9 else "")
    assert taken.files == ({"a.txt": "/out/a.txt"} if count >= 13 else {})
    json.dumps(taken.to_dict())


def test_repeated_call_is_traced_with_its_last_outcome():
    at = {"task_id": "task_1", "at": 1.0, "action": "shop.find"}
    call = {"call_id": 1, "arguments": {}, "effect": "read", "digest": "d"}
    ends = [{"status": "cancelled", "duration_ms": 900.0}, {"status": "ok", "duration_ms": 2.0}]
    events = [
        ev.CallStarted(seq=1, **at, **call),
        *(ev.CallFinished(seq=n, call_id=1, **at, **end) for n, end in enumerate(ends, 2)),
    ]
    (line,) = Trace(events).timeline
    assert (line.status, line.duration_ms) == ("success", 2)
    (line,) = Trace(events[:2]).timeline
    assert (line.status, line.duration_ms) == ("error", 900)


def test_snapshot_of_a_failed_task_has_its_error():
    events = story()
    last = dataclasses.replace(events[-1], status=False, error="no")
    taken = snapshot([*events[:-1], last])
    assert (taken.state, taken.result, taken.error) == (TaskState.FAILED, None, "no")


def test_duration_excludes_interruptions():
    at = {"task_id": "t"}
    events = [
        ev.TaskStarted(**at, seq=1, at=100.0, task="count"),
        ev.Printed(**at, seq=2, at=103.0, text="a"),
        ev.TaskResumed(**at, seq=3, at=9000.0),
        ev.TaskFinished(**at, seq=4, at=9002.0, status=True, text="a", duration_ms=2000.0),
        ev.Warned(**at, seq=5, at=9999.0, message="late"),
    ]
    assert snapshot(events[:2], interrupted=True).elapsed_ms == 3000
    assert snapshot(events[:3], interrupted=True).elapsed_ms == 3000
    assert snapshot(events).elapsed_ms == 5000
    assert snapshot(events[:2]).elapsed_ms > 10**9, "what runs goes on"


def asked_and_called(decided):
    """Make the events of an approved call: the request, its decision, and the call."""
    call = {"call_id": 1, "action": "mail.send", "arguments": {"to": "eve"}}
    call |= {"effect": "write", "digest": "d"}
    origins = {"to": {"kind": "task", "trust": "own", "text": "in the task"}}
    at = {"task_id": "t", "at": 1.0}
    asked = ev.ApprovalRequested(**at, seq=1, request_id="r", origins=origins, **call)
    answer = ev.ApprovalDecided(**at, seq=2, request_id="r", by="ann", **decided)
    return [asked, answer, ev.CallStarted(**at, seq=3, **call)]


def test_traced_call_keeps_the_argument_origins_of_its_approval_request():
    [call] = Trace(asked_and_called({"decision": "approved"})).tool_calls
    assert call.origins["to"]["text"] == "in the task"


def test_edited_arguments_have_no_origins():
    edited = {"decision": "edited", "arguments": {"to": "bob"}}
    [call] = Trace(asked_and_called(edited)).tool_calls
    assert call.origins == {}
