"""Step 1, recall: facts from before that matter for this task."""

from __future__ import annotations

import logging
from dataclasses import replace

from delf.engine.task import TaskRun
from delf.errors import MemoryRetrievalError
from delf.events import Warned

_log = logging.getLogger(__name__)


async def recall(run: TaskRun) -> None:
    """Search the memory store; nothing to do without one.

    A search that fails is a warning: the task can be done without old facts.
    """
    if run.memory is None:
        return
    async with run.step("recall"):
        try:
            facts = await run.memory.search(run.task)
        except MemoryRetrievalError as error:
            _log.warning("recall failed: %s", error)
            await run.log.record(Warned, message=f"nothing was recalled: {error.message}")
            return
        run.context = replace(run.context, facts=[fact.content for fact in facts])
