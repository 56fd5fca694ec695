"""A set of tools as a type checker sees it; nothing runs it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Literal, TypedDict, assert_type

from delf import Agent, CallContext, Connection, Tool, ToolException, tool


class Order(TypedDict):
    """An order as a script gets it."""

    id: str
    total: float


@tool("orders", effect="read", confirm=False)
def find_orders(since: date, state: Literal["open", "paid"] = "open") -> list[Order]:
    """Return orders."""
    return [Order(id=state, total=float(since.year))]


@tool("refund", effect="irreversible", handle_error="text")
async def give_back(order: str, amount: float) -> str:
    """Refund an amount."""
    if amount > 100:
        raise ToolException("at most 100")
    return order


@tool(handle_error=lambda error: f"{error} Ask later.")
def ask_a_person(question: str, context: CallContext) -> str:
    """Ask."""
    return f"{context.task_id}: {question}"


def shout(text: str) -> str:
    """Return a text in capitals."""
    return text.upper()


def toolset(connection: Connection) -> Sequence[Tool | Connection]:
    return [find_orders, give_back, ask_a_person, tool("shout", confirm=False)(shout), connection]


def direct_calls() -> None:
    assert_type(find_orders(date(2026, 1, 1)), list[Order])
    agent = Agent("gpt-4o-mini", tools=[find_orders, give_back, shout])
    print(agent.run("Refund A-1.").text)
