"""RQ: each job runs in a process that the worker forks; its agent lives as long as the job."""

from __future__ import annotations

from orders import MODEL, Count, open_orders

from delf import Agent


def count_orders() -> int:
    """Run a task in a job, and return what RQ can pickle: a value, and not the response."""
    with Agent(MODEL, tools=[open_orders], output=Count) as agent:
        return agent.run("How many orders are open?").raise_for_status().value.orders
