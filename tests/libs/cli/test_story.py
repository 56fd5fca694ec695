"""Tests of event lines about people: who decided or stopped, where, and why a request ended."""

from __future__ import annotations

import pytest

from delf.events import (
    ApprovalDecided,
    ApprovalVoted,
    TaskFinished,
    TaskPostponed,
    TaskStarted,
    Warned,
)
from delf_cli.story import cut, format_stop, story, tell_of_event
from delf_devkit.testing.events import every_event

PLACE = {"task_id": "t", "seq": 1, "at": 1.0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": "cli"}, "approved by cli"),
        ({"by": "bo", "via": "page, 1.2.3.4"}, "approved by bo (page, 1.2.3.4)"),
        (
            {"by": "bo", "via": "slack", "others": ("cy",)},
            "approved by bo (slack); cy approved it before",
        ),
        (
            {"by": "SandboxDied", "decision": "expired", "source": "sandbox_died"},
            "expired: the sandbox of the script ended before anybody answered",
        ),
        (
            {"by": "clock", "decision": "expired", "source": "timeout"},
            "expired: nobody answered in time",
        ),
    ],
)
def test_line_about_a_decision_names_the_person(given, message):
    fields = {"request_id": "r", "decision": "approved", **PLACE, **given}
    assert story(ApprovalDecided(**fields)) == f"  {message}"


def test_line_about_a_vote_names_its_channel():
    vote = ApprovalVoted(request_id="r", by="ada", via="slack", **PLACE)
    message = "  approved by ada (slack); another person has to approve it, too"
    assert story(vote) == message


def test_message_of_a_stopped_task_names_the_person_and_channel():
    end = {"status": False, "text": "", "duration_ms": 1.0, **PLACE}
    stopped = TaskFinished(code="ERR-AGENT-005", by="bo", via="page, 1.2.3.4", **end)
    assert format_stop(stopped) == " by bo (page, 1.2.3.4)"
    assert format_stop(TaskFinished(code="ERR-SCRIPT-001", by=None, **end)) == ""


def test_line_about_an_event_uses_its_headline():
    shown = [event for event in every_event() if event.headline]
    assert {type(event).__name__ for event in shown} >= {"Noted", "RetryScheduled"}
    assert [story(event) for event in shown] == [f"  {cut(e.headline, 200)}" for e in shown]


def test_event_line_tells_that_a_postponed_task_is_repeated():
    event = TaskPostponed(**PLACE, error="no\nnetwork", code="ERR-1", tries=2, not_before=9.0)
    assert story(event) == "  attempt 2 failed and will be repeated: no network"


@pytest.mark.parametrize(
    "event",
    [
        TaskStarted(**PLACE, task="Read it.\n  → pay · ok"),
        Warned(**PLACE, message="odd\n  → pay · ok"),
    ],
)
def test_text_of_an_event_cannot_look_like_another_event(event, capsys):
    tell_of_event(event)
    first, second = capsys.readouterr().err.splitlines()
    assert second == "      → pay · ok"
    assert first
