"""Celery: one agent for each process of the pool, made after the fork."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_process_shutdown
from orders import MODEL, Count, open_orders

from delf import Agent

broker = os.environ.get("CELERY_BROKER", "memory://")
app = Celery("orders", broker=broker, backend=os.environ.get("CELERY_BACKEND", "cache+memory://"))
# The agent starts with its first task, in the process that does the task.
agent = Agent(MODEL, tools=[open_orders], output=Count)


@app.task
def count_orders() -> int:
    """Run a task of delf in a task of Celery."""
    return agent.run("How many orders are open?").raise_for_status().value.orders


@worker_process_shutdown.connect
def stop_agent(**_: object) -> None:
    """Stop the agent with its process."""
    agent.stop()
