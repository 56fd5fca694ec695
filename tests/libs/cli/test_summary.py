"""Tests of a trace's summary as tables."""

import pytest

from delf import events as ev
from delf.errors import OptionalDependencyError
from delf.messages import Usage
from delf_cli.summary import summary_of
from delf_engine.views.trace import Trace

HEAD = {"task_id": "t", "at": 1.0}
USAGE = Usage(input_tokens=100, cached_tokens=40, output_tokens=10)


def replied(seq, cost=0.5, model="m", purpose="generate"):
    return ev.ModelReplied(
        seq=seq, model=model, purpose=purpose, cost_usd=cost,
        text="x", usage=USAGE, duration_ms=9.0, **HEAD,
    )  # fmt: skip


def story(cost=0.5):
    end = {"action": "shop.find", "duration_ms": 2.0, **HEAD}
    begun = {"action": "shop.find", "arguments": {}, "effect": "read", "digest": "d", **HEAD}
    return [
        ev.TaskStarted(seq=1, task="count", origin="agent", **HEAD),
        replied(2, cost),
        ev.CallStarted(seq=3, call_id=1, **begun),
        ev.CallFinished(seq=4, call_id=1, status="ok", **end),
        ev.CallStarted(seq=5, call_id=2, **begun),
        ev.CallFinished(seq=6, call_id=2, status="error", error="bad", **end),
        ev.CallFinished(seq=7, call_id=3, status="refused", error="no", **end),
    ]


def test_summary_counts_calls_tokens_and_cost():
    text = Trace(story()).summary()
    assert "1 ok, 1 error, 1 refused" in text
    assert "100 tokens in (40 cached), 10 out" in text
    assert "$0.500000" in text
    assert "shop.find  error" in text
    assert "shop.find  error" not in summary_of(Trace(story()), calls=False)
    assert "calls     none" in summary_of(Trace(story()[:2]))


def test_summary_shows_unknown_cost_as_unknown():
    assert "cost      unknown" in summary_of(Trace(story(cost=None)))


def test_summary_lists_models_by_purpose():
    events = [
        replied(1, 0.25, "light", "setup"),
        replied(2, 0.5, "heavy"),
        replied(3, 1.0, "eyes", "call"),
        replied(4, None, "eyes", "call"),
    ]
    text = summary_of(Trace(events))
    rows = text.splitlines()[-4:]
    assert [row.split()[:6] for row in rows] == [
        ["light", "setup", "1", "100", "40", "10"],
        ["heavy", "generate", "1", "100", "40", "10"],
        ["eyes", "call", "2", "200", "80", "20"],
        ["all", "4", "400", "160", "40", "36"],
    ]
    assert "set-up    $0.250000" in text


def test_summary_names_the_package_of_a_missing_plugin(monkeypatch):
    monkeypatch.setenv("DELF_DISABLE_PLUGINS", "console")
    with pytest.raises(OptionalDependencyError, match="delf-plugin-console") as caught:
        Trace([]).summary()
    assert caught.value.package == "delf-plugin-console"
