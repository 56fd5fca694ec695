"""Forms for the client's user: all facts of a request, and an answer that fits the request."""

from __future__ import annotations

import dataclasses

import mcp_types as types
import pytest

from delf.protocols.approval import AlreadyDone, Answered, Approved, Edited, Rejected
from delf.protocols.facts import incomplete_text
from delf.testing import request_for
from delf_devkit.testing.requests import (
    question_for,
    sample_questions,
    sample_requests,
    unseen_facts,
)
from delf_mcp.forms import decision_of, question_of

ASKED = request_for()


def answered(request, **content):
    return decision_of(request, types.ElicitResult(action="accept", content=content))


def fields_of(request):
    return question_of(request).requested_schema["properties"]


@pytest.mark.parametrize(("name", "request_"), sample_requests().items())
def test_form_shows_every_fact_or_offers_no_approval(name, request_):
    form = question_of(request_)
    unseen = unseen_facts(request_, form.message)
    assert not unseen or "approve" not in form.requested_schema["properties"]
    assert not unseen or incomplete_text(request_) in form.message


@pytest.mark.parametrize(("name", "question"), sample_questions().items())
def test_question_form_shows_every_fact_or_offers_no_answer(name, question):
    form = question_of(question)
    unseen = unseen_facts(question, form.message)
    assert not unseen or "answer" not in form.requested_schema["properties"]


@pytest.mark.parametrize(
    ("arguments", "field", "given", "decision"),
    [
        ({"options": ["Ann", "Bob"]}, {"type": "string", "enum": ["Ann", "Bob"]}, "Bob", "Bob"),
        ({"answer": "yes/no"}, {"type": "boolean"}, False, False),
        ({"answer": "number"}, {"type": "number"}, 1.5, 1.5),
        ({}, {"type": "string"}, "Ann", "Ann"),
    ],
)
def test_question_field_has_the_answer_type(arguments, field, given, decision):
    question = question_for(question="Who?", **arguments)
    assert fields_of(question) == {"answer": {"title": "Answer", **field}}
    assert answered(question, answer=given) == Answered(decision)
    assert isinstance(answered(question, answer=["x"]), Rejected)
    assert decision_of(question, types.ElicitResult(action="decline")) == Rejected()


def test_value_in_a_form_cannot_imitate_a_line_of_the_question():
    painted = "ok\n! why approval is needed: it is small\r    to: ann"
    request = dataclasses.replace(
        ASKED, arguments={"note": painted, "to": "\u202emoc.evil\u202c"},
        preview=painted, reason=painted, changes=(painted,), task=painted, description=painted,
    )  # fmt: skip
    lines = question_of(request).message.split("\n")
    assert [line for line in lines if line.startswith("to: ")] == ["to: \\u202emoc.evil\\u202c"]
    assert not any(line.startswith("! why approval is needed: it is small") for line in lines)


def test_oversized_request_cannot_be_approved():
    request = dataclasses.replace(ASKED, arguments={"amount": 1, "body": "x" * 50_000})
    form = question_of(request)
    assert set(form.requested_schema["properties"]) == {"reason"}
    assert f"delf approvals show {request.request_id}" in form.message
    assert incomplete_text(request) in form.message
    assert answered(request, approve=True, amount=2) == Rejected()
    assert answered(request, reason="too long") == Rejected(reason="too long")


def test_form_can_declare_that_a_call_of_unknown_outcome_happened():
    request = dataclasses.replace(ASKED, outcome_unknown=True)
    assert set(fields_of(request)) == {"approve", "it_did_happen", "result", "reason"}
    assert fields_of(request)["approve"]["title"] == "Make it again"
    assert answered(request, approve=False, it_did_happen=True, result='{"n": 1}') == AlreadyDone(
        result={"n": 1}
    )
    assert answered(request, it_did_happen=True, result="paid", reason="the bank says so") == (
        AlreadyDone(result="paid", reason="the bank says so")
    )
    assert answered(request, it_did_happen=True) == AlreadyDone()
    assert answered(request, approve=True) == Approved()
    assert isinstance(answered(request, approve=True, it_did_happen=True), Rejected)
    assert isinstance(answered(ASKED, it_did_happen=True), Rejected)


def test_call_that_needs_two_approvals_cannot_be_edited():
    request = dataclasses.replace(ASKED, rule={"two_of": ["a", "b"]})
    assert set(fields_of(request)) == {"approve", "reason"}
    assert answered(ASKED, approve=True, amount=3) == Edited(arguments={"to": "Ann", "amount": 3})
