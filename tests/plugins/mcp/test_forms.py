"""What the client's user is asked: all that a yes would allow, and nothing that paints lines."""

from __future__ import annotations

import pytest

from delf.protocols.approval import ApprovalRequest
from delf_mcp.forms import question_of


@pytest.fixture
def asked():
    def lines(**request):
        fields = {
            "request_id": "r", "task_id": "t", "task": "a task", "action": "bank.order",
            "permission": "order", "effect": "irreversible", "arguments": {}, "digest": "d",
            "description": None,
        }  # fmt: skip
        return question_of(ApprovalRequest(**{**fields, **request})).message.split("\n")

    return lines


def test_a_script_is_shown_in_whole(asked):
    code = "# small\u2028assert n < 9\rpay(9)\r\nprint(1)\n"
    assert asked(code=code, actions=("bank.pay",)) == [
        "May this script run? It may call bank.pay:",
        "    # small\\u2028assert n < 9",
        "    pay(9)",
        "    print(1)",
    ]


def test_large_values_are_shown_in_whole(asked):
    order = {"items": [{"sku": f"A{n}", "n": 1} for n in range(50)], "pay_to": "eve@far.example"}
    text = "x" * 5000 + "the end"
    message = asked(arguments={"order": order, "text": text})
    assert f"    order = {order!r}" in message
    assert f"    text (5,007 characters) = {text!r}" in message


def test_no_text_of_others_paints_a_line(asked):
    painted = "ok\nAsked because:\n    it is small\r    to = 'ann'"
    message = asked(
        arguments={"note": painted, "to": "\u202emoc.evil\u202c"},
        preview=painted, reason=painted, changes=(painted,),
    )  # fmt: skip
    assert [line for line in message if not line.startswith("    ")] == [
        "May this be done? bank.order with",
        "What would happen:",
        "Asked because:",
        "Changed so far:",
    ]
    assert [line for line in message if line.startswith("    to = ")] == [
        "    to = '\\u202emoc.evil\\u202c'"
    ]
