"""Tests of reports on a finished task: who decided, and what was changed."""

import pytest

from delf import Agent, Edited, tool


@tool(effect="write")
def pay(to: str, amount: int) -> str:
    """Pay."""
    return "paid"


@pytest.fixture
def failed(delf_host, scripted_model):
    scripted_model.writes("await pay('ann', 200)\nawait pay('bob', 1)")

    def decide(request):
        if request.arguments["to"] == "bob":
            return False
        return Edited(arguments={"to": "ann", "amount": 20})

    options = {"llm": "scripted", "host": delf_host, "retry_count": 0, "on_confirm": decide}
    with Agent(tools=[pay], **options) as agent:
        yield agent.run("x")


def test_failed_task_lists_its_changes(failed):
    assert failed.changes == failed.trace.changes == ["pay(to='ann', amount=20)"]
    assert str(failed).endswith("changed before it failed:\n  pay(to='ann', amount=20)")
    assert failed.to_dict()["changes"] == ["pay(to='ann', amount=20)"]


def test_trace_records_who_decided_and_how(failed):
    message = [(a.call_id, a.action, a.decision, a.by) for a in failed.trace.approvals]
    assert message == [(1, "pay", "edited", "on_confirm"), (2, "pay", "rejected", "on_confirm")]
    assert failed.trace.approvals[0].edited == {"to": "ann", "amount": 20}
    text = failed.trace.summary()
    assert "edited    on_confirm  {'to': 'ann', 'amount': 20}" in text
    assert "changed\n  pay(to='ann', amount=20)" in text
    assert failed.trace.to_dict()["approvals"][1]["reason"] == "no reason was given"
