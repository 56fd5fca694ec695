"""Step 1, recall: the conversation so far, and facts from before that matter for this task."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from delf.engine.memory import AgentMemory
from delf.engine.task import TaskState
from delf.errors import DelfError, MemoryRetrievalError
from delf.events import Step
from delf.llm import LLMConfig
from delf.notes import notes_of_call


async def recall(task: TaskState, seconds: float) -> None:
    """Load the conversation, and search the memory store for at most that many seconds.

    A search that fails is a warning: the task can be done without old facts.

    Raises:
        DelfError: When the conversation cannot be read.
    """
    async with task.log.step(Step.RECALL):
        await load_conversation(task)
        if task.memory is not None:
            facts = await _facts(task, task.memory, seconds)
            task.context = replace(task.context, facts=facts)


async def _facts(task: TaskState, memory: AgentMemory, seconds: float) -> list[str]:
    safe = task.log.redactor.text
    with notes_of_call() as notes:
        try:
            found = await memory.recall(safe(task.request.task), seconds)
        except MemoryRetrievalError as error:
            await task.warn(f"nothing was recalled: {safe(error.message)}")
            return []
    for told in notes:
        await task.warn(safe(told))
    return [safe(fact) for fact in found]


_KEEP_SECONDS: Final = 15.0


async def load_conversation(task: TaskState) -> None:
    """Put the conversation ahead of the task; nothing to do without one."""
    conversation = task.request.conversation
    if conversation is None:
        return

    async def summarise(llm: LLMConfig | None, question: str) -> str:
        return await task.ask("summarize", question, llm)

    history = await conversation.begin(summarise, task.warn)
    task.context = replace(task.context, history=history.messages, summary=history.summary)


async def keep_turn(task: TaskState, text: str, error: DelfError | None) -> None:
    """Add the task and its answer to the conversation, also when it failed.

    That it cannot be kept is a warning: the task is done.
    """
    if task.request.conversation is None:
        return
    answer = text if error is None else _failure(text, error)
    safe, again = task.log.redactor.text, task.replay.resumed
    try:
        async with asyncio.timeout(_KEEP_SECONDS):
            words, task_id = safe(task.request.task), task.request.task_id
            await task.request.conversation.keep(words, safe(answer), task_id, again=again)
    except TimeoutError:
        why = f"its store did not answer within {_KEEP_SECONDS:g} s"
    except Exception as problem:
        why = problem.message if isinstance(problem, DelfError) else repr(problem)
    else:
        return
    await task.warn(f"the conversation may lack this task: {why}")


def _failure(text: str, error: DelfError) -> str:
    printed = f"{text.rstrip()}\n\n" if text.strip() else ""
    return f"{printed}(This task was not completed: {error.message})"
