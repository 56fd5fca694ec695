"""A process that does a task with a child task, or resumes one; its spans go to a collector.

    python -m plugins.otel.traced_worker JOURNAL TASK_ID or new

In a new task, the child's call waits for a line of the standard input, and then kills the process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from delf import Agent, CallContext, tool
from delf.events import Event
from delf.testing import ScriptedModel, TestHost
from delf_devkit.testing.models import script

PARENT = 'print(await stock("lamp"))\nprint(await colleague("Count the desks."))'
CHILD = 'print(await stock("desk"))\nprint(await count("desk"))'


def answer(request: Any) -> str:
    """Return the model's script for a task."""
    return script(CHILD if "Count the desks." in request.messages[-1].text else PARENT)


@tool(effect="read", confirm=False)
def stock(product: str) -> int:
    """Pieces in the warehouse."""
    return {"lamp": 4, "desk": 1}[product]


@tool(effect="read", confirm=False)
def count(product: str) -> int:
    """Count by hand."""
    if sys.argv[2] == "new":
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
    return stock(product)


@tool(effect="read", confirm=False)
async def colleague(task: str, context: CallContext) -> str:
    """Have somebody else do it."""
    return (await context.delegate(task, tools=[stock, count])).text


def print_id(event: Event) -> None:
    print(event.task_id, flush=True)


async def main(journal: str, task: str) -> None:
    os.environ["DELF_JOURNAL_SQL_URL"] = journal
    host = TestHost.discover(environ=os.environ)
    model = ScriptedModel(default=answer)
    host.provide(model.spec, model.factory)
    tools = [stock, count, colleague]
    async with Agent(
        tools=tools, llm="scripted", host=host, journal="sql", observers=["otel"]
    ) as agent:
        if task == "new":
            await agent.arun("Count all.", listeners=[print_id])
        else:
            print((await agent.aresume(task)).text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
