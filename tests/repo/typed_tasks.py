"""Tasks in the background as a type checker sees them; nothing runs them."""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

from pydantic import BaseModel

from delf import (
    Agent,
    ApprovalRequest,
    Chat,
    Response,
    StreamSnapshot,
    TaskHandle,
    TaskTimeoutError,
    UnknownTaskError,
)
from delf.types import TaskState


class Invoice(BaseModel):
    """The answer of a task."""

    total: float


def approve_all(agent: Agent[Any], handle: TaskHandle[Any]) -> list[ApprovalRequest]:
    waiting = list(handle.approvals)
    for request in waiting:
        agent.approve(request.request_id, remember="task")
    return waiting


def finish(agent: Agent[Any], order: str) -> float:
    handle = agent.submit(order, output=Invoice)
    assert_type(handle, TaskHandle[Invoice])
    approve_all(agent, handle)
    snapshot = handle.snapshot()
    assert_type(snapshot, StreamSnapshot)
    if snapshot.state is TaskState.WAITING:
        handle.cancel()
    try:
        return handle.result(timeout=30).raise_for_status().value.total
    except TaskTimeoutError as error:
        print(error.code, error.message, error.hint)
        return 0.0


def later(agent: Agent[Any], task_id: str) -> str:
    try:
        response = agent.wait(task_id, timeout=5)
    except UnknownTaskError:
        return "unknown"
    assert_type(response, Response[Any])
    return response.error or response.text


async def many(orders: list[str]) -> list[float]:
    async with Agent("gpt-4o-mini", tools=[], output=Invoice, chat=Chat(keep=4)) as agent:
        handles = [await agent.asubmit(order) for order in orders]
        assert_type(handles, list[TaskHandle[Invoice]])
        responses = await asyncio.gather(*handles)
        await agent.acancel(handles[0])
        return [response.value.total for response in responses]
