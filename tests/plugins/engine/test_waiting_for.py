"""Tests that a task which timed out names what had not answered."""

from typing import Any

from delf.events import CallFinished, CallStarted, ModelCalled, ModelFailed
from delf_engine.loop.waiting_for import waiting_for

AT: dict[str, Any] = {"task_id": "t", "at": 0.0}


def called(number: int) -> CallStarted:
    return CallStarted(
        **AT, seq=number, call_id=number, action="look", arguments={}, effect="read", digest="d"
    )


def test_waiting_for_function_returns_the_model_until_the_model_answers():
    asked = ModelCalled(**AT, seq=1, model="gpt", purpose="generate")
    failed = ModelFailed(**AT, seq=2, model="gpt", purpose="generate", error="x", duration_ms=1)
    assert waiting_for([]) is None
    assert waiting_for([asked]) == "an answer of the model gpt"
    assert waiting_for([asked, failed]) is None


def test_waiting_for_function_lists_unfinished_calls():
    events = [called(number) for number in range(1, 7)]
    ended = CallFinished(**AT, seq=7, call_id=2, action="look", status="ok", duration_ms=1)
    assert waiting_for([*events, ended]) == (
        "an answer of look (call 1), look (call 3), look (call 4) and 2 more"
    )
