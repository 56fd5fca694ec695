"""Tests that a change whose answer was lost is not repeated without asking."""

from __future__ import annotations

from typing import Any

import pytest

from delf import AlreadyDone, tool
from delf.errors import OutcomeUnknownError


class Bank:
    """A bank whose first answers are lost after it paid."""

    def __init__(self, lost: int = 1) -> None:
        self.paid: list[int] = []
        self.lost = lost

    def tool(self) -> Any:
        @tool(confirm=False, effect="write")
        async def pay(amount: int) -> str:
            """Pay an amount."""
            self.paid.append(amount)
            if len(self.paid) <= self.lost:
                raise OutcomeUnknownError("the answer was lost, so it may have been done")
            return f"paid {amount}"

        return pay


TRYING = """\
for _ in range(2):
    try:
        print(await pay(10))
    except ToolError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("decision", "paid", "message"),
    [
        (True, [10, 10], "paid 10"),
        (False, [10], "pay was rejected"),
        (AlreadyDone(result="it was there"), [10], "it was there"),
    ],
    ids=["again", "rejected", "it happened"],
)
def test_call_repeated_after_a_lost_answer_requires_approval(
    make_agent, scripted_model, decision: Any, paid: list[int], message: str
) -> None:
    bank, asked = Bank(), []

    def on_confirm(request: Any) -> Any:
        asked.append((request.action, request.outcome_unknown, request.reason))
        return decision

    scripted_model.writes(TRYING)
    response = make_agent(bank.tool(), on_confirm=on_confirm).run("Pay.")
    ((action, unknown, reason),) = asked
    assert (action, unknown) == ("pay", True)
    assert "its answer was lost" in reason
    assert bank.paid == paid
    assert message in response.text
    assert "may have been done" in response.text


def test_later_script_repeating_a_lost_call_requires_approval(make_agent, scripted_model) -> None:
    bank, asked = Bank(), []

    def on_confirm(request: Any) -> bool:
        asked.append(request.arguments)
        return True

    scripted_model.writes("print(await pay(10))", "print(await pay(11), await pay(10))")
    response = make_agent(bank.tool(), on_confirm=on_confirm, retry_count=1).run("Pay.")
    assert response.text == "paid 11 paid 10"
    assert asked == [{"amount": 10}]


def test_call_with_a_lost_answer_is_not_repeated_without_asking(make_agent, scripted_model) -> None:
    bank = Bank()
    scripted_model.writes("print(await pay(10))", "print(await pay(10))")
    response = make_agent(bank.tool(), retry_count=1).run("Pay.")
    assert not response.status
    assert bank.paid == [10]


def test_call_with_a_lost_answer_is_reported_as_a_possible_change(
    make_agent, scripted_model
) -> None:
    scripted_model.writes("await pay(10)")
    response = make_agent(Bank().tool(), retry_count=0).run("Pay.")
    assert response.changes == ["pay(amount=10) (begun; may be done or not)"]


def test_read_with_a_lost_answer_is_repeated(make_agent, scripted_model) -> None:
    asked, seen = [], []

    @tool(confirm=False, effect="read")
    async def look(amount: int) -> str:
        """Look."""
        seen.append(amount)
        if len(seen) == 1:
            raise OutcomeUnknownError("no answer")
        return "found"

    scripted_model.writes(TRYING.replace("pay", "look"))
    response = make_agent(look, on_confirm=asked.append).run("Look.")
    assert "found" in response.text
    assert (seen, asked) == ([10, 10], [])
