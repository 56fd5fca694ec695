"""Five tasks with their tools as plain functions, for ``bench_routines.py`` and other frameworks.

Four are the business tasks of a published benchmark of agent frameworks (expenses, return on
investment, headcount, tickets); the fifth asks the tea shop of ``delf demo``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WORDS = {"uber": "travel", "flight": "travel", "lunch": "food", "coffee": "food"}


def categorize_expenses(items: list[dict[str, Any]]) -> dict[str, float]:
    """Add expenses up by category. Each has a description and an amount."""
    totals: dict[str, float] = {}
    for item in items:
        words = str(item["description"]).lower().split()
        kind = next((WORDS[word] for word in words if word in WORDS), "software")
        totals[kind] = totals.get(kind, 0) + item["amount"]
    return totals


def calculate_roi(quarters: list[dict[str, Any]]) -> dict[str, float]:
    """Divide revenue by marketing, for each quarter."""
    return {q["quarter"]: round(q["revenue"] / q["marketing"], 2) for q in quarters}


def summarize(best: str, worst: str) -> str:
    """Write a summary for the board."""
    return f"{best} was the best quarter and {worst} the worst."


def analyze_headcount(departments: dict[str, int]) -> dict[str, Any]:
    """Find the largest department and the number of all people."""
    return {
        "largest": max(departments, key=lambda d: departments[d]),
        "all": sum(departments.values()),
    }


def report_workforce(largest: str, people: int) -> str:
    """Write a report of the workforce."""
    return f"{people} people; the largest department is {largest}."


def sort_tickets(tickets: list[dict[str, Any]]) -> list[str]:
    """Sort tickets by severity, the most urgent first."""
    order = ["critical", "high", "low"]
    return [t["id"] for t in sorted(tickets, key=lambda t: order.index(t["severity"]))]


def plan(ids: list[str]) -> str:
    """Write a plan of action for tickets in order."""
    return "; ".join(f"{number}. {name}" for number, name in enumerate(ids, 1))


def shop_query(statement: str) -> list[dict[str, Any]]:
    """Query the shop: sales(tea, month, cups)."""
    db = sqlite3.connect(":memory:")
    db.row_factory = sqlite3.Row
    db.execute("create table sales (tea text, month text, cups integer)")
    rows = [("Assam", "2026-10", 40), ("Assam", "2026-11", 31), ("Sencha", "2026-10", 55)]
    db.executemany("insert into sales values (?, ?, ?)", rows)
    found = [dict(row) for row in db.execute(statement)]
    db.close()
    return found


@dataclass(frozen=True)
class BenchTask:
    """A task, how a model does it with a script, and how with calls, one after another.

    Args:
        words: The task.
        tools: What it may call.
        script: The script that a model writes for it.
        calls: The calls that a model asks for, one with each answer.
        answer: What the model says at last.
        other: Values in the words, with others for the second time.
    """

    words: str
    tools: Sequence[Callable[..., Any]]
    script: str
    calls: Sequence[tuple[str, Mapping[str, Any]]]
    answer: str
    other: Mapping[Any, Any] = field(default_factory=dict[Any, Any])


EXPENSES = [
    {"description": "Uber to a client", "amount": 67},
    {"description": "AWS hosting", "amount": 299},
    {"description": "Team lunch", "amount": 187},
    {"description": "Flight to NYC", "amount": 420},
]
QUARTERS = [
    {"quarter": "Q1", "revenue": 120, "marketing": 30},
    {"quarter": "Q2", "revenue": 150, "marketing": 50},
]
PEOPLE = {"Engineering": 42, "Sales": 17}
TICKETS = [{"id": "T-1", "severity": "low"}, {"id": "T-2", "severity": "critical"}]
OCTOBER = (
    "select tea, sum(cups) as cups from sales where month = '2026-10' "
    "group by tea order by cups desc"
)

TASKS = {
    "expenses": BenchTask(
        f"Add up these expenses by category, and in all: {json.dumps(EXPENSES)}",
        [categorize_expenses],
        f"totals = await categorize_expenses({EXPENSES!r})\n"
        "for kind, total in totals.items():\n    print(kind, total)\n"
        "print('all', sum(totals.values()))",
        [("categorize_expenses", {"items": EXPENSES})],
        "travel 487, software 299, food 187; all 973",
        {67: 70},
    ),
    "roi": BenchTask(
        f"Tell the board the best and the worst quarter by return: {json.dumps(QUARTERS)}",
        [calculate_roi, summarize],
        f"roi = await calculate_roi({QUARTERS!r})\n"
        "print(await summarize(best=max(roi, key=roi.get), worst=min(roi, key=roi.get)))",
        [("calculate_roi", {"quarters": QUARTERS}), ("summarize", {"best": "Q1", "worst": "Q2"})],
        "Q1 was the best quarter and Q2 the worst.",
        {120: 80},
    ),
    "headcount": BenchTask(
        f"Report on the workforce: {json.dumps(PEOPLE)}",
        [analyze_headcount, report_workforce],
        f"found = await analyze_headcount({PEOPLE!r})\n"
        "print(await report_workforce(largest=found['largest'], people=found['all']))",
        [
            ("analyze_headcount", {"departments": PEOPLE}),
            ("report_workforce", {"largest": "Engineering", "people": 59}),
        ],
        "59 people; the largest department is Engineering.",
        {42: 45},
    ),
    "tickets": BenchTask(
        f"Plan the work on these tickets: {json.dumps(TICKETS)}",
        [sort_tickets, plan],
        f"print(await plan(await sort_tickets({TICKETS!r})))",
        [("sort_tickets", {"tickets": TICKETS}), ("plan", {"ids": ["T-2", "T-1"]})],
        "1. T-2; 2. T-1",
        {"T-1": "T-9"},
    ),
    "tea shop": BenchTask(
        "Which tea sold best in 2026-10, and how many cups were sold in all?",
        [shop_query],
        f'rows = await shop_query("{OCTOBER}")\n'
        "print(rows[0]['tea'], 'sold best;', sum(row['cups'] for row in rows), 'cups in all')",
        [
            ("shop_query", {"statement": OCTOBER}),
            (
                "shop_query",
                {"statement": "select sum(cups) as c from sales where month = '2026-10'"},
            ),
        ],
        "Sencha sold best; 95 cups in all",
        {"2026-10": "2026-11"},
    ),
}
