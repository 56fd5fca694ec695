"""One event of every kind, for tests of journals and observers."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from delf import events as ev
from delf.messages import ToolCall, Usage

_CALL = ToolCall(id="c1", name="bank.pay", arguments='{"amount": 5}')

_ARGUMENTS: dict[str, Any] = {
    "to": ["ann@example.org", "Zoë Ωμέγα 🦊"],
    "amount": Decimal("12.50"),
    "due": dt.date(2026, 3, 1),
    "at": dt.datetime(2026, 3, 1, 9, 30, tzinfo=dt.timezone.utc),  # noqa: UP017 - reads plainly
    "raw": b"\x00\xff",
    "nested": {"a": [1, 2.5, None, True], "$t": "no tag"},
}


def _child() -> dict[str, Any]:
    return {"call_id": 1, "child_id": "task_2", "duration_ms": 4.0}


def every_event(task_id: str = "task_1", first: int = 1) -> tuple[ev.Event, ...]:
    """Return one event of every kind, with all fields set and with non-JSON values.

    Args:
        task_id: The task that they belong to.
        first: The first one's sequence number.
    """
    known: list[tuple[type[Any], dict[str, Any]]] = [
        (ev.TaskQueued, {"task": "Pay the bill.\nToday.", "origin": "agent_1", "key": "customer"}),
        (ev.TaskStarted, {"task": "Pay the bill.\nToday.", "origin": "agent_1", "seed": "5eed"}),
        (ev.TaskResumed, {"origin": "agent_2", "setup": {}, "parent": None}),
        (ev.TaskPostponed, {"error": "no", "code": "ERR-1", "tries": 1, "not_before": 9.5}),
        (ev.StepStarted, {"step": "generate", "attempt": 2}),
        (ev.StepFinished, {"step": "generate", "duration_ms": 1.5, "attempt": 2}),
        (ev.ToolsSelected, {"actions": ("bank.pay", "add"), "by": "prefilter"}),
        (
            ev.ModelCalled,
            {
                "model": "m",
                "purpose": "generate",
                "attempt": 1,
                "number": 1,
                "same": 2,
                "prompt": "packed",
                "tools": ("look",),
            },
        ),
        (ev.ModelReplied, _reply()),
        (ev.ModelFailed, {**_model(), "error": "no"}),
        (ev.ModelWrote, {"purpose": "generate", "text": "<execute>", "calls": (_CALL,)}),
        (ev.ScriptGenerated, {"code": "print(1)", "attempt": 1, "confirmed_actions": ("a.b",)}),
        (ev.SandboxOpened, {"backend": "local", "isolation": "process"}),
        (ev.VariablesRestored, {"variables": _ARGUMENTS}),
        (ev.ScriptFinished, {"status": "failed", "duration_ms": 2.0, "error": "no", "line": 3}),
        (ev.CallStarted, {**_call(), "arguments": _ARGUMENTS, **_bound()}),
        (ev.CallFinished, {**_call(), "status": "ok", "duration_ms": 3.0, "result": _ARGUMENTS}),
        (ev.CallPrinted, {"call_id": 1, "text": "é\n\u2028"}),
        (ev.ChildStarted, {"call_id": 1, "child_id": "task_2", "task": "Ask the bank."}),
        (ev.ChildFinished, {**_child(), "status": False, "error": "no", "cost_usd": 0.5}),
        (ev.CallAbandoned, {"call_id": 1, "action": "bank.pay"}),
        (ev.ApprovalRequested, {**_call(), "request_id": "r", "arguments": {}, **_bound()}),
        (ev.ApprovalDecided, {"request_id": "r", "decision": "edited", "by": "ann", **_edit()}),
        (ev.ApprovalVoted, {"request_id": "r", "by": "ann", "via": "page"}),
        (ev.ApprovalRemembered, {"call_id": 1, "action": "bank.pay", **_remembered()}),
        (ev.Printed, {"text": "é\n\u2028 \x1b[31m"}),
        (ev.ClockRead, {"readings": (1_772_000_000_000_000_000,)}),
        (ev.FileWritten, {"label": "a.csv", "path": "/tmp/a.csv", "size": 7}),  # noqa: S108 - a text
        (ev.RerunRequested, {"attempt": 1, "context": "c", "remaining": "r"}),
        (ev.RetryScheduled, {"attempt": 1, "error": "no"}),
        (ev.Warned, {"message": "look"}),
        (ev.Noted, {"topic": "notification", "text": "It is late."}),
        (ev.FactsLearned, {"facts": ("Ann likes tea.",)}),
        (ev.TaskFinished, {"status": True, "text": "paid", "duration_ms": 9.0, "cost_usd": 0.1}),
    ]
    return tuple(
        kind(task_id=task_id, seq=seq, at=1_772_000_000.0 + seq, **fields)
        for seq, (kind, fields) in enumerate(known, first)
    )


def _remembered() -> dict[str, Any]:
    decided = {"by": "ann", "decided_at": 1_771_000_000.5}
    return {**decided, "digest": "ab" * 32, "from_task": "task_0", "from_request": "req_0"}


def _model() -> dict[str, Any]:
    return {"model": "m", "purpose": "generate", "duration_ms": 4.0}


def _reply() -> dict[str, Any]:
    usage = Usage(input_tokens=5, cached_tokens=1, output_tokens=2)
    return {**_model(), "text": "```python\n```", "usage": usage, "cost_usd": None}


def _call() -> dict[str, Any]:
    return {"call_id": 1, "action": "bank.pay", "description": "pays"}


def _bound() -> dict[str, Any]:
    return {"effect": "irreversible", "digest": "ab" * 32}


def _edit() -> dict[str, Any]:
    return {"reason": "less", "arguments": {"amount": Decimal(1)}}
