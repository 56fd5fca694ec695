"""Step 1, recall: the conversation so far, and facts from before that matter for this task."""

from __future__ import annotations

from dataclasses import replace

from delf.engine.loop.conversation import load_conversation
from delf.engine.loop.memory import AgentMemory
from delf.engine.task import TaskRun
from delf.errors import MemoryRetrievalError
from delf.events import Warned


async def recall(run: TaskRun, seconds: float) -> None:
    """Load the conversation and search the memory store; nothing to do without them.

    A search that fails is a warning: the task can be done without old facts.

    Args:
        run: The task.
        seconds: The most that the memory store may take.

    Raises:
        DelfError: When the conversation cannot be read.
    """
    if run.memory is None and run.conversation is None:
        return
    async with run.step("recall"):
        await load_conversation(run)
        if run.memory is not None:
            facts = await _facts(run, run.memory, seconds)
            run.context = replace(run.context, facts=facts)


async def _facts(run: TaskRun, memory: AgentMemory, seconds: float) -> list[str]:
    safe = run.log.redactor.text
    try:
        return [safe(fact) for fact in await memory.recall(safe(run.task), seconds)]
    except MemoryRetrievalError as error:
        await run.log.record(Warned, message=f"nothing was recalled: {safe(error.message)}")
        return []
