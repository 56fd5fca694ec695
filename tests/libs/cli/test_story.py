"""The story of a task in lines: who decided and stopped, from where, and what made a question void."""

from __future__ import annotations

import pytest

from delf.events import ApprovalDecided, ApprovalVoted, TaskFinished
from delf_cli.story import stopped_words, story

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
def test_decision_says_who_gave_it_or_what_made_its_question_void(given, message):
    fields = {"request_id": "r", "decision": "approved", **PLACE, **given}
    assert story(ApprovalDecided(**fields)) == f"  {message}"


def test_vote_says_from_where_it_came():
    vote = ApprovalVoted(request_id="r", by="ada", via="slack", **PLACE)
    message = "  approved by ada (slack); another person has to approve it, too"
    assert story(vote) == message


def test_stopped_task_says_who_stopped_it_and_from_where():
    end = {"status": False, "text": "", "duration_ms": 1.0, **PLACE}
    stopped = TaskFinished(code="ERR-AGENT-005", by="bo", via="page, 1.2.3.4", **end)
    assert stopped_words(stopped) == " by bo (page, 1.2.3.4)"
    assert stopped_words(TaskFinished(code="ERR-SCRIPT-001", by=None, **end)) == ""
