"""Step 1, recall: the conversation so far, and facts from before that matter for this task."""

from __future__ import annotations

import logging
from dataclasses import replace

from delf.engine.loop.conversation import load_conversation
from delf.engine.task import TaskRun
from delf.errors import MemoryRetrievalError
from delf.events import Warned
from delf.protocols.memory import MemoryStore

_log = logging.getLogger(__name__)


async def recall(run: TaskRun) -> None:
    """Load the conversation and search the memory store; nothing to do without them.

    A search that fails is a warning: the task can be done without old facts.

    Raises:
        DelfError: When the conversation cannot be read.
    """
    if run.memory is None and run.conversation is None:
        return
    async with run.step("recall"):
        await load_conversation(run)
        if run.memory is not None:
            run.context = replace(run.context, facts=await _facts(run, run.memory))


async def _facts(run: TaskRun, memory: MemoryStore) -> list[str]:
    safe = run.log.redactor.text
    try:
        return [fact.content for fact in await memory.search(safe(run.task))]
    except MemoryRetrievalError as error:
        _log.warning("recall failed: %s", safe(str(error)))
        await run.log.record(Warned, message=f"nothing was recalled: {error.message}")
        return []
