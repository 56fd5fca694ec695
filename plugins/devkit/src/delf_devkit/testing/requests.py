"""Sample approval requests, and a check that a channel shows all facts of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delf.events import ApprovalAssigned, ApprovalCommented, ApprovalVoted, Event
from delf.protocols.approval import ApprovalRequest
from delf.protocols.facts import FactKind, RequestFact, facts, labels

_LONG_TEXT: Final = " ".join(f"word{n:04}" for n in range(1_112))
_JSON: Final = {"None": "null", "True": "true", "False": "false"}


def _fields_of_script_request(code: str) -> dict[str, Any]:
    return {
        "action": "script",
        "permission": "script",
        "arguments": {},
        "code": code,
        "actions": ("bank.pay", "bank.close_account"),
        "effects": {"bank.pay": "write", "bank.close_account": "irreversible"},
    }


_OUTSIDE_ORIGIN: Final = {
    "kind": "result",
    "trust": "outside",
    "text": "from web.read (call 7); others wrote it",
    "action": "web.read",
    "path": "body",
}
_CODE: Final = "amount = 4711\nbank.pay('landlord', amount)\nprint('both were paid')"
_SAMPLE_FIELDS: Final[Mapping[FactKind, Mapping[str, Any]]] = {
    FactKind.QUESTION: {"action": "treasury.wire_abroad"},
    FactKind.EFFECT: {"effect": "write"},
    FactKind.OUTCOME_UNKNOWN: {"outcome_unknown": True},
    FactKind.CHANGED: {"changed": True},
    FactKind.MADE_BEFORE: {"made_before": 23},
    FactKind.OTHERS_WORDS: {
        "flow": f"to: {_OUTSIDE_ORIGIN['text']}",
        "origins": {"to": _OUTSIDE_ORIGIN},
    },
    FactKind.HIDDEN: {"arguments": {"to": "ann\u202eelgoog@evil.example\u202c", "amount": 1}},
    FactKind.WARNING: {"reason": "no earlier payment went to this receiver"},
    FactKind.TASK: {"task": "Settle every invoice of Quebec.\nDo not forget Yukon."},
    FactKind.ASKER: {"asked_by": "margarethe"},
    FactKind.PARENT: {"parent": "task_0123456789"},
    FactKind.SCRIPT: {"script": 2, "because": "the one before failed: Timeout: bank is down"},
    FactKind.LINE: {"line": 4242},
    FactKind.FIELD: {name: f"sample of {name}" for name in labels()},
    FactKind.PERMISSION: {"permission": "transfers_abroad"},
    FactKind.ACTION: _fields_of_script_request(_CODE),
    FactKind.CODE: _fields_of_script_request(_CODE),
    FactKind.ARGUMENT: {"arguments": {"receiver": "landlord@example.org", "amount": 815}},
    FactKind.DEFAULT: {"defaults": {"currency": "bitcoin", "express_fee": 9000}},
    FactKind.ORIGIN: {"origins": {"to": _OUTSIDE_ORIGIN}},
    FactKind.FILE: {"files": {"salaries.xlsx": 48_213}},
    FactKind.PREVIEW: {"preview": "From: savings\nTo: 12,000 households\nTotal: 1,440,000"},
    FactKind.CHANGES: {"changes": ("bank.open(name='x17')", "bank.limit(9100)")},
    FactKind.RULE: {
        "rule": {"two_of": ["finance", "directors"], "four_eyes": True},
        "shaped_by": ("ottokar",),
    },
    FactKind.EXPIRY: {"expires_after": 2580.0},
}
"""The fields of a request that has a fact, by the kind of the fact."""


def request_for(action: str = "bank.pay", **arguments: Any) -> ApprovalRequest:
    """Return a request like those of the approval gate.

    Args:
        action: ``connection.method``.
        arguments: The arguments of the call.
    """
    return ApprovalRequest(
        request_id=f"req_{action}",
        task_id="task_1",
        task="Pay the bills.",
        action=action,
        permission=action.rpartition(".")[2],
        effect="irreversible",
        arguments=arguments or {"to": "Ann", "amount": 12},
        description="the rent",
        digest="ab" * 32,
    )


def question_for(**arguments: Any) -> ApprovalRequest:
    """Return a question like those of the approval gate.

    Args:
        arguments: The arguments of the action ``ask``. Without arguments, a question with two
            options.
    """
    given: dict[str, Any] = arguments or {"question": "Who is it?", "options": ["Ann", "Bob"]}
    return replace(
        request_for("ask", **given),
        permission="ask",
        effect="read",
        description=None,
        is_question=True,
    )


def sample_questions() -> dict[str, ApprovalRequest]:
    """Return named sample questions, of each kind and with texts that are hard to display."""
    return {
        "a choice": replace(question_for(), origins={"options[1]": _OUTSIDE_ORIGIN}),
        "yes or no": question_for(question="Shall it be sent today?", answer="yes/no"),
        "a number": replace(question_for(question="How many?", answer="number"), line=4242),
        "a text": replace(question_for(question="What is the subject?"), expires_after=2580.0),
        "odd words": question_for(question="a\x1b[2J\u202eb?", options=["<b>&amp;*_`", _LONG_TEXT]),
        "sixty options": question_for(
            question="Which street?", options=[f"street {n * 7919} end" for n in range(60)]
        ),
    }


def sample_requests() -> dict[str, ApprovalRequest]:
    """Return named sample requests with every kind of fact, and with data that is hard to display.

    Votes are no part of a request; :data:`AFTERWARDS` has them.
    """
    request = request_for()
    samples = {kind.value: replace(request, **fields) for kind, fields in _SAMPLE_FIELDS.items()}
    everything: dict[str, Any] = {}
    for kind, fields in _SAMPLE_FIELDS.items():
        is_of_script = kind in (FactKind.CODE, FactKind.ACTION)
        if not is_of_script:  # a request is about a script or a call, and not about both
            everything |= fields
    many = {f"parameter_{n:02}": f"value-{n * 7919}-end" for n in range(30)}
    very_many = {f"parameter_{n:03}": f"value-{n * 7919}-end" for n in range(400)}
    long_code = "\n".join(f"{word} = 1" for word in _LONG_TEXT.split())
    nested = {"to": [{"name": f"n{n}x"} for n in range(90)]}
    odd = {"text": "Grüße\x1b[2J\x00\n\u202eevil", "html": "<b>&amp;*_`", "\u200bname": "zero"}
    return samples | {
        "a plain request": request,
        "thirty arguments": replace(request, arguments=many),
        "four hundred arguments": replace(request, arguments=very_many),
        "a long argument": replace(request, arguments={"body": _LONG_TEXT, "to": "ann"}),
        "a long preview": replace(request, preview=_LONG_TEXT.replace(" ", "\n")),
        "a long script": replace(request, **_fields_of_script_request(long_code)),
        "escapes": replace(request, arguments=odd, preview="one\x1b[2J\u2028two"),
        "nested values": replace(request, arguments=nested),
        "everything": replace(request, **everything),
    }


AFTERWARDS: Final[Mapping[FactKind, Event]] = {
    FactKind.VOTE: ApprovalVoted(
        task_id="task_1", seq=9, at=1.0, request_id="req_bank.pay", by="wilhelmina"
    ),
    FactKind.ASSIGNEE: ApprovalAssigned(
        task_id="task_1", seq=10, at=2.0, request_id="req_bank.pay", by="wilhelmina", to="zacharias"
    ),
    FactKind.COMMENT: ApprovalCommented(
        task_id="task_1",
        seq=11,
        at=3.0,
        request_id="req_bank.pay",
        by="wilhelmina",
        text="is this the account of the customer?",
    ),
}
"""Events that add facts to a pending request of :func:`request_for`."""


def unseen_facts(
    request: ApprovalRequest, text: str, discussion: Sequence[Event] = ()
) -> Sequence[RequestFact]:
    """Return the facts of a request that a text does not contain completely.

    Only letters and digits are compared, so a channel is free to quote, break and indent.

    Args:
        request: The request.
        text: Everything that the channel showed to the person.
        discussion: Events with votes, comments and assignments that the channel must show, too.
    """
    shown_characters = _letters_and_digits(text)
    unseen: list[RequestFact] = []
    for fact in facts(request, discussion):
        is_text_shown = _letters_and_digits(fact.text) in shown_characters
        is_label_shown = _letters_and_digits(fact.label) in shown_characters
        if not (is_text_shown and is_label_shown):
            unseen.append(fact)
    return unseen


def _letters_and_digits(text: str) -> str:
    """Return the letters and digits of a text in lower case, to find a text in any layout.

    ``None``, ``True`` and ``False`` are replaced by the JSON words ``null``, ``true`` and
    ``false``, because a channel may show a value of Python as JSON, or the reverse.
    """
    json = re.sub(r"\b(None|True|False)\b", lambda match: _JSON[match[0]], text)
    return re.sub(r"[\W_]+", "", json).casefold()
