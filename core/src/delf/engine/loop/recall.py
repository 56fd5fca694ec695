"""Step 1, recall: the conversation so far, and facts from before that matter for this task."""

from __future__ import annotations

from dataclasses import replace

from delf.engine.loop.conversation import load_conversation
from delf.engine.loop.memory import AgentMemory
from delf.engine.task import TaskState
from delf.errors import MemoryRetrievalError
from delf.events import Warned


async def recall(task: TaskState, seconds: float) -> None:
    """Load the conversation and search the memory store; nothing to do without them.

    A search that fails is a warning: the task can be done without old facts.

    Args:
        task: The task.
        seconds: The most that the memory store may take.

    Raises:
        DelfError: When the conversation cannot be read.
    """
    if task.memory is None and task.request.conversation is None:
        return
    async with task.log.step("recall"):
        await load_conversation(task)
        if task.memory is not None:
            facts = await _facts(task, task.memory, seconds)
            task.context = replace(task.context, facts=facts)


async def _facts(task: TaskState, memory: AgentMemory, seconds: float) -> list[str]:
    safe = task.log.redactor.text
    try:
        return [safe(fact) for fact in await memory.recall(safe(task.request.task), seconds)]
    except MemoryRetrievalError as error:
        await task.log.record(Warned, message=f"nothing was recalled: {safe(error.message)}")
        return []
