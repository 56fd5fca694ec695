"""What a task continues: it is shown the conversation before it, and its own turn is kept there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from delf.engine.task import TaskState
from delf.errors import DelfError
from delf.events import Warned
from delf.llm import LLMConfig
from delf.messages import ModelRequest, user

_KEEP_SECONDS: Final = 15.0


async def load_conversation(task: TaskState) -> None:
    """Put the conversation ahead of the task; nothing to do without one."""
    conversation = task.request.conversation
    if conversation is None:
        return

    async def summarise(llm: LLMConfig | None, question: str) -> str:
        request = ModelRequest(messages=(user(question),), purpose="summarize")
        return (await task.models.ask(llm or task.config.quick_llm, request)).text

    async def warn(message: str) -> None:
        await task.log.record(Warned, message=message)

    history = await conversation.begin(summarise, warn)
    task.context = replace(task.context, history=history.messages, summary=history.summary)


async def keep_turn(task: TaskState, text: str, error: DelfError | None) -> None:
    """Add the task and its answer to the conversation, also when it failed.

    That it cannot be kept is a warning: the task is done.
    """
    if task.request.conversation is None:
        return
    answer = text if error is None else _failure(text, error)
    safe, again = task.log.redactor.text, bool(task.replay)
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
    await task.log.record(Warned, message=f"the conversation may lack this task: {why}")


def _failure(text: str, error: DelfError) -> str:
    printed = f"{text.rstrip()}\n\n" if text.strip() else ""
    return f"{printed}(This task was not completed: {error.message})"
