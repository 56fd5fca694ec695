"""Step 1, recall: load the conversation, and facts from memory that match the task."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from delf.errors import DelfError, MemoryRetrievalError
from delf.events import Step
from delf.llm import LLMConfig
from delf.notes import notes_of_call
from delf_engine.kept_variables import load_variables
from delf_engine.memory import AgentMemory
from delf_engine.task_run import TaskRun


async def recall_context(run: TaskRun, timeout_seconds: float) -> None:
    """Load the conversation and its variables, and search the memory for facts about the task.

    A failed search becomes a warning, because the task can continue without facts.

    Args:
        run: The task.
        timeout_seconds: The timeout of the search.

    Raises:
        DelfError: If the conversation cannot be read.
    """
    async with run.log.step(Step.RECALL):
        await load_conversation(run)
        await load_variables(run)
        if run.memory is not None:
            facts = await _facts(run, run.memory, timeout_seconds)
            run.context = replace(run.context, facts=facts)


async def _facts(run: TaskRun, memory: AgentMemory, timeout_seconds: float) -> list[str]:
    """Return redacted facts that match the task; none if the search fails.

    The failure of the search, and notes of the memory store, become warnings of the task.
    """
    redact = run.log.redactor.redact_text
    with notes_of_call() as notes:
        try:
            facts = await memory.recall(redact(run.request.task), timeout_seconds)
        except MemoryRetrievalError as error:
            await run.warn(f"nothing was recalled: {redact(error.message)}")
            return []
    for message in notes:
        await run.warn(redact(message))
    return [redact(fact) for fact in facts]


# The maximum number of seconds for storing a turn; the task's answer is delayed until then.
_MAX_STORING_SECONDS: Final = 15.0


async def load_conversation(run: TaskRun) -> None:
    """Load the earlier messages of the task's conversation, if there is one."""
    conversation = run.request.conversation
    if conversation is None:
        return

    async def summarise(llm: LLMConfig | None, question: str) -> str:
        return await run.ask("summarize", question, llm)

    history = await conversation.begin(summarise, run.warn)
    run.context = replace(
        run.context,
        history=history.messages,
        summary=history.summary,
        summary_trust=history.summary_trust,
    )


async def keep_turn(run: TaskRun, text: str, error: DelfError | None) -> None:
    """Append the task and its answer to the conversation, even if the task failed.

    If the conversation cannot be stored, the task gets a warning and no error, because the task is
    already done.
    """
    if run.request.conversation is None:
        return
    answer = text if error is None else _failure_text(text, error)
    redact = run.log.redactor.redact_text
    is_resumed = run.replay.resumed
    try:
        async with asyncio.timeout(_MAX_STORING_SECONDS):
            await run.request.conversation.keep(
                redact(run.request.task),
                redact(answer),
                run.request.task_id,
                trust=run.trust,
                is_resumed=is_resumed,
            )
    except TimeoutError:
        reason = f"its store did not answer within {_MAX_STORING_SECONDS:g} s"
    except Exception as problem:
        reason = problem.message if isinstance(problem, DelfError) else repr(problem)
    else:
        return
    await run.warn(f"the conversation may lack this task: {reason}")


def _failure_text(text: str, error: DelfError) -> str:
    printed = f"{text.rstrip()}\n\n" if text.strip() else ""
    return f"{printed}(This task was not completed: {error.message})"
