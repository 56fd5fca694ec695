"""Step 1, recall: the conversation so far, and facts from before that matter for this task."""

from __future__ import annotations

import logging
from dataclasses import replace

from delf.engine.loop.conversation import load_conversation
from delf.engine.task import TaskState
from delf.errors import MemoryRetrievalError
from delf.events import Warned
from delf.protocols.memory import MemoryStore

_log = logging.getLogger(__name__)


async def recall(task: TaskState) -> None:
    """Load the conversation and search the memory store; nothing to do without them.

    A search that fails is a warning: the task can be done without old facts.

    Raises:
        DelfError: When the conversation cannot be read.
    """
    if task.memory is None and task.request.conversation is None:
        return
    async with task.log.step("recall"):
        await load_conversation(task)
        if task.memory is not None:
            task.context = replace(task.context, facts=await _facts(task, task.memory))


async def _facts(task: TaskState, memory: MemoryStore) -> list[str]:
    safe = task.log.redactor.text
    try:
        return [fact.content for fact in await memory.search(safe(task.request.task))]
    except MemoryRetrievalError as error:
        _log.warning("recall failed: %s", safe(str(error)))
        await task.log.record(Warned, message=f"nothing was recalled: {error.message}")
        return []
