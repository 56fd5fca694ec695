"""Tests of facts: a request for approval is worded once, for everything that shows it."""

from __future__ import annotations

import dataclasses
import json
from typing import get_args

import pytest

from delf.events import ApprovalRequested
from delf.protocols.approval import ApprovalRequest
from delf.protocols.connection import Allowed
from delf.protocols.facts import FactKind, as_edited, facts, facts_data, labels, plain_lines
from delf.testing import request_for
from delf.types import EFFECT_WORDS, Effect, can_be_undone, effect_words
from delf_devkit.testing.requests import AFTERWARDS, sample_questions, sample_requests, unseen_facts

ASKED = request_for()
IDENTITY = {
    "request_id",
    "task_id",
    "call_id",
    "digest",
    "action_digest",
    "shown_digest",
    "files_digest",
    "fit",
    "takes_changes",
}
"""Fields that say nothing to a person."""
TOGETHER = {
    "because": {"script": 2},
    "actions": {"code": "f()", "effects": {"bank.pay": "write"}},
    "effects": {"code": "f()", "actions": ("bank.pay",)},
    "shaped_by": {"rule": {"four_eyes": True}},
    "changes_before": {"changes": ("a(1)",)},
}
"""Fields that are a fact only beside others."""
OTHER = {
    "task": "Another one.",
    "action": "bank.close",
    "permission": "all_of_it",
    "effect": "read",
    "arguments": {"to": "Bob"},
    "defaults": {"fee": 3},
    "reason": "it is new",
    "preview": "it pays",
    "outcome_unknown": True,
    "changed": True,
    "is_question": True,
    "code": "pay()",
    "actions": ("bank.close",),
    "effects": {"bank.pay": "read"},
    "script": 3,
    "because": "it failed",
    "changes": ("b(2)",),
    "changes_before": 7,
    "made_before": 4,
    "line": 12,
    "origins": {"to": {"kind": "task", "trust": "own", "text": "from the task"}},
    "asked_by": "ada",
    "shaped_by": ("bo",),
    "rule": {"four_eyes": True},
    "flow": "to: from web.read",
    "files": {"a.pdf": 12},
    "parent": "task_9",
    "expires_after": 60.0,
    **dict.fromkeys(labels(), "something else"),
}


def test_every_request_field_is_a_fact_or_declared_internal():
    fields = {item.name for item in dataclasses.fields(ApprovalRequest)}
    assert fields == {*OTHER, *IDENTITY}, "declare it with request_field(…), or word it in facts"


@pytest.mark.parametrize("field", OTHER)
def test_request_fields_all_appear_in_the_shown_facts(field):
    before = dataclasses.replace(ASKED, **TOGETHER.get(field, {}))
    after = dataclasses.replace(before, **{field: OTHER[field]})
    assert facts(before) != facts(after)


def test_each_kind_of_fact_has_a_sample():
    samples = [*sample_requests().values(), *sample_questions().values()]
    found = {fact.kind for request in samples for fact in facts(request)}
    found |= {fact.kind for fact in facts(ASKED, AFTERWARDS.values())}
    assert found == set(FactKind)


def test_facts_are_the_same_from_a_journal():
    own = {item.name: getattr(ASKED, item.name) for item in dataclasses.fields(ASKED)}
    assert facts(ApprovalRequested(**own, seq=3, at=1.0)) == facts(ASKED)


def test_facts_are_sorted_by_weight():
    kinds = [fact.kind for fact in facts(sample_requests()["everything"])]
    assert kinds[:2] == [FactKind.QUESTION, FactKind.EFFECT]
    assert kinds.index(FactKind.OUTCOME_UNKNOWN) < kinds.index(FactKind.TASK)
    assert kinds.index(FactKind.OTHERS_WORDS) < kinds.index(FactKind.ARGUMENT)


def test_every_argument_is_a_complete_fact_with_its_length():
    request = dataclasses.replace(
        ASKED,
        arguments={
            **{f"a{n:02}": n for n in range(40)},
            "text": "x" * 10_000,
            "raw": b"\x00\x01",
            "rows": [{"id": n} for n in range(50)],
        },
        defaults={"a00": 5, "amount": 9000},
    )
    found = {fact.about: fact for fact in facts(request) if fact.about}
    assert list(found) == [*request.arguments, "amount"]
    assert found["text"].text == "x" * 10_000
    assert found["text"].note == "10,000 characters"
    assert found["raw"].note == "2 bytes"
    assert found["rows"].note == "50 items"
    assert found["a39"].text == "39"
    assert (found["amount"].text, found["amount"].note) == ("9000", "left out by the script")
    assert found["amount"].required


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (60.0, "60 seconds"),
        (300.0, "5 minutes"),
        (5400.0, "90 minutes"),
        (86_400.0, "24 hours"),
        (604_800.0, "7 days"),
    ],
)
def test_expiry_uses_the_largest_readable_unit(seconds, words):
    (found,) = (
        fact
        for fact in facts(dataclasses.replace(ASKED, expires_after=seconds))
        if fact.kind is FactKind.EXPIRY
    )
    assert found.text == f"without an answer within {words} it counts as rejected"


def test_facts_about_foreign_text_name_its_origin():
    source = "from web.read (call 1); others wrote it"
    page = {"kind": "result", "trust": "outside", "text": source}
    message = dataclasses.replace(ASKED, flow=f"to[0]: {source}", origins={"to[0]": page})

    def caution(request):
        fact = next(f for f in facts(request) if f.kind is FactKind.OTHERS_WORDS)
        assert (fact.weight, fact.required) == ("danger", True)
        return f"{fact.label}: {fact.text}"

    assert caution(message) == (
        "careful: a stranger may have chosen to: it is from web.read (call 1), not from the task"
    )
    sends = dataclasses.replace(message, flow="it sends body out: from bank.rows")
    assert caution(sends) == (
        "careful: a stranger may have caused this call: it sends body out: from bank.rows"
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a\u202eb", "U+202E RIGHT-TO-LEFT OVERRIDE"),
        ("a\u200bb", "U+200B ZERO WIDTH SPACE"),
        ("a\x1b[2J", "U+001B"),
        ("see https://\u0440\u0430ypal.com", "letters that look like others"),
        ("\ud800", "U+D800"),
    ],
    ids=ascii,
)
@pytest.mark.parametrize("where", ["to", "task", "preview", "reason", "code", "nested", "name"])
def test_invisible_characters_are_named_in_every_fact(text, named, where):
    request = {
        "to": lambda: dataclasses.replace(ASKED, arguments={"to": text}),
        "nested": lambda: dataclasses.replace(ASKED, arguments={"to": [{"a": (1, text)}]}),
        "name": lambda: dataclasses.replace(ASKED, arguments={text: 1}),
    }.get(where, lambda: dataclasses.replace(ASKED, **{where: text}))()
    (fact,) = [fact for fact in facts(request) if fact.kind is FactKind.HIDDEN]
    assert named in fact.text
    assert (fact.weight, fact.required) == ("danger", True)


@pytest.mark.parametrize("text", ["Grüße\n\tan alle 🦊", "漢字", "a\xa0b", "l\r\nl", "Ω = 3"])
def test_ordinary_text_has_no_invisible_characters(text):
    request = dataclasses.replace(ASKED, arguments={"to": text}, preview=text)
    assert FactKind.HIDDEN not in {fact.kind for fact in facts(request)}


def test_facts_are_safe_to_show_as_they_are():
    for request in sample_requests().values():
        for fact in facts(request):
            shown = f"{fact.label}{fact.text}{fact.note}".replace("\n", "").replace("\t", "")
            assert shown.isprintable()


def test_plain_lines_prevent_text_from_imitating_a_fact():
    painted = "ok\n! effect: only reads\nto: ann"
    request = dataclasses.replace(
        ASKED, arguments={"note": painted, "to": "eve"}, preview=painted, reason=painted,
        task=painted, description=painted, changes=(painted,), flow=painted,
    )  # fmt: skip
    lines = list(plain_lines(facts(request)))
    assert [line for line in lines if line.startswith("to: ")] == ["to: eve"]
    assert not any(line.startswith("! effect") for line in lines)
    assert not unseen_facts(request, "\n".join(lines))


def test_edited_request_drops_facts_about_replaced_values():
    origin = {"kind": "result", "trust": "outside", "text": "from web.read"}
    request = dataclasses.replace(
        ASKED, flow="to: from web.read", origins={"to": origin}, preview="pays Ann",
        made_before=3, defaults={"fee": 9}, reason="it is large",
    )  # fmt: skip
    kinds = {fact.kind for fact in facts(as_edited(request, {"to": "Bob", "amount": 12, "fee": 1}))}
    gone = {FactKind.OTHERS_WORDS, FactKind.PREVIEW, FactKind.MADE_BEFORE, FactKind.DEFAULT}
    assert not kinds & gone
    assert FactKind.WARNING in kinds
    kept = {fact.kind for fact in facts(as_edited(request, {"to": "Ann", "amount": 1}))}
    assert FactKind.OTHERS_WORDS in kept
    assert as_edited(request, request.arguments) is request


@pytest.mark.parametrize("value", [True, 1.0])
def test_facts_of_an_edited_request_show_a_value_whose_type_changed(value):
    request = dataclasses.replace(ASKED, arguments={"copies": 1})
    shown = [fact.text for fact in facts(as_edited(request, {"copies": value}))]
    assert json.dumps(value) in shown


def test_every_effect_has_words_in_one_table():
    assert set(EFFECT_WORDS) == set(get_args(Effect))
    assert effect_words("of a newer version") == ("●", "of a newer version")
    unknown = dataclasses.replace(ASKED, effect="of a newer version")
    assert not can_be_undone(unknown.effect)
    assert [fact.weight for fact in facts(unknown)[:2]] == ["danger", "danger"]


def test_facts_as_data_are_plain():
    for fact in facts_data(sample_requests()["everything"]):
        assert {type(item) for item in fact.values()} <= {str, bool}


def test_digest_of_what_was_shown_ignores_the_order_of_files():
    files = {"a.txt": 1, "b.txt": 2}
    shown = Allowed(preview="sends two files", files=files)
    assert (
        shown.digest
        == Allowed(preview="sends two files", files=dict([*files.items()][::-1])).digest
    )
    assert shown.digest != Allowed(preview="sends two files", files={**files, "b.txt": 3}).digest
    assert shown.digest != Allowed(preview="sends two files", files=files, basis="rev 2").digest
    assert Allowed(preview="").digest not in (None, shown.digest)
    assert Allowed().digest is None
