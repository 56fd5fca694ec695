"""The fields of an approval request are declared once; all that show a request read them there."""

from __future__ import annotations

import dataclasses

from delf.events import ApprovalRequested
from delf.protocols.approval import ApprovalRequest
from delf.protocols.facts import facts_data
from delf.protocols.journal import RequestRecord, TaskRecord
from delf_cli.answering import request_data
from delf_serve.schemas import Request

FIELDS = {item.name for item in dataclasses.fields(ApprovalRequest)} - {"fit"}
ASKED = ApprovalRequested(
    task_id="t1",
    task="Pay.",
    seq=3,
    at=5.0,
    request_id="req_1",
    action="bank.pay",
    arguments={"to": "ada"},
    effect="write",
    digest="d",
    flow="the text of a page",
    worker="payer",
    origins={"to": {"kind": "result", "trust": "outside", "text": "from web.read"}},
)


def test_journal_keeps_every_field_of_a_request():
    own = {item.name for item in dataclasses.fields(ApprovalRequested)}
    assert own - {"seq", "at", "by_policy", "fit"} == FIELDS


def test_command_line_and_page_show_every_field_of_a_request():
    task = TaskRecord(task_id="t1", task="Pay.", started_at=1.0, state="running")
    data = request_data(RequestRecord(requested=ASKED, decided=None, task=task))
    own = {"message", "facts", "state", "since", "decided", "assignee", "comments"}
    assert set(data) == FIELDS | own | {"folder"}
    sent = Request(**data).model_dump()
    # Of the folder, others get the name alone.
    theirs = {"can_decide", "can_reject", "can_talk", "why_not", "project"}
    assert set(sent) == set(data) - {"folder"} | theirs
    assert (sent["flow"], sent["worker"]) == ("the text of a page", "payer")
    assert sent["origins"]["to"]["trust"] == "outside"
    assert sent["facts"] == facts_data(ASKED)


def test_every_request_field_has_a_description():
    described = {name: item.description for name, item in Request.model_fields.items()}
    assert [name for name in FIELDS if not described[name]] == []
