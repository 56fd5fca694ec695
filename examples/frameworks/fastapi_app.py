"""FastAPI: one agent for each process, started and stopped by the application's lifespan."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from orders import MODEL, Count, open_orders

from delf import Agent

agent = Agent(MODEL, tools=[open_orders], output=Count)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    """Start the agent on the server's event loop, and stop it there."""
    async with agent:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/orders")
async def orders() -> Count:
    """Run a task for a request; if the client leaves, its task is stopped."""
    response = await agent.arun("How many orders are open?")
    return response.raise_for_status().value


@app.post("/orders/later")
async def later() -> dict[str, str]:
    """Hand in a task, which goes on after the answer of this request."""
    return {"task_id": await agent.asubmit("How many orders are open?")}


@app.get("/tasks/{task_id}")
async def task(task_id: str) -> dict[str, str | None]:
    """Return the state of a task."""
    snapshot = await agent.apoll(task_id)
    return {"state": snapshot.state, "error": snapshot.error}
