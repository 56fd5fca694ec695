"""The ways in which a program runs tasks: typed, asynchronous, in the background, as a stream."""

from __future__ import annotations

import asyncio

from orders import MODEL, Count, open_orders

from delf import Agent, ApprovalRequest
from delf.events import CallFinished, TaskFinished

TASK = "How many orders are open?"


def typed() -> int:
    """Return the value of a typed answer."""
    with Agent(MODEL, tools=[open_orders], output=Count) as agent:
        return agent.run(TASK).raise_for_status().value.orders


async def asynchronous() -> list[int]:
    """Run two tasks at the same time with one agent."""
    async with Agent(MODEL, tools=[open_orders], output=Count) as agent:
        responses = await asyncio.gather(agent.arun(TASK), agent.arun(TASK))
        return [response.raise_for_status().value.orders for response in responses]


def background() -> tuple[str, int]:
    """Submit a task, look at its state, and wait for its response."""
    with Agent(MODEL, tools=[open_orders], output=Count) as agent:
        handle = agent.submit(TASK)
        response = handle.result(timeout=30).raise_for_status()
        return handle.snapshot().state, response.value.orders


def approve_reads(request: ApprovalRequest) -> bool | None:
    """Approve calls that only read; None leaves other calls to the next channel."""
    return True if request.effect == "read" else None


async def streaming() -> list[str]:
    """Return the calls and the end of a task as they happen."""
    seen: list[str] = []
    async with Agent(MODEL, tools=[open_orders], on_confirm=approve_reads) as agent:
        async for event in agent.stream(TASK, output=Count):
            if isinstance(event, CallFinished):
                seen.append(event.action)
            elif isinstance(event, TaskFinished):
                seen.append("done" if event.status else "failed")
    return seen


def resuming() -> int:
    """Resume a task by its id with another agent; recorded calls are not made again."""
    with Agent(MODEL, tools=[open_orders], output=Count, journal="sql") as agent:
        task = agent.run(TASK).trace.task_id
    with Agent(MODEL, tools=[open_orders], output=Count, journal="sql") as another:
        return int(another.resume(task).raise_for_status().value["orders"])


def main() -> None:
    """Print the result of each way."""
    print(typed(), asyncio.run(asynchronous()), background())
    print(asyncio.run(streaming()))
    print(resuming())


if __name__ == "__main__":
    main()
