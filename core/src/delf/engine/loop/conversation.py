"""What a task continues: the conversation before it, and its own turn in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from delf.errors import DelfError
from delf.events import Warned
from delf.messages import Message, ModelRequest, user

if TYPE_CHECKING:
    from delf.engine.task import TaskRun
    from delf.llm import LLMConfig

Summarise = Callable[["LLMConfig | None", str], Awaitable[str]]
"""Asks a model, the agent's quick one when None, with its cost counted as the task's."""

Warn = Callable[[str], Awaitable[None]]
"""Records a warning."""

_KEEP_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What a task is shown of the conversation before it.

    Args:
        messages: The newest messages.
        summary: What was said before these.
    """

    messages: tuple[Message, ...] = ()
    summary: str | None = None


class Conversation(Protocol):
    """A conversation that tasks continue, several at once if need be."""

    @property
    def conversation_id(self) -> str:
        """Which one it is."""
        ...

    async def begin(self, summarise: Summarise, warn: Warn) -> History:
        """Load what a task is shown; older messages may be summarised first.

        Raises:
            DelfError: When it cannot be read: the task would not know what was said.
        """
        ...

    async def keep(self, task: str, answer: str, task_id: str, *, again: bool) -> None:
        """Add what was asked and what came of it, next to each other.

        Args:
            task: What was asked.
            answer: What came of it.
            task_id: The task.
            again: Whether the task was resumed, so that it may have been added already.
        """
        ...


async def load_conversation(run: TaskRun) -> None:
    """Put the conversation ahead of the task; nothing to do without one."""
    conversation = run.conversation
    if conversation is None:
        return

    async def summarise(llm: LLMConfig | None, question: str) -> str:
        request = ModelRequest(messages=(user(question),), purpose="summarize")
        return (await run.asker.ask(llm or run.config.quick_llm, request)).text

    async def warn(message: str) -> None:
        await run.log.record(Warned, message=message)

    history = await conversation.begin(summarise, warn)
    run.context = replace(run.context, history=history.messages, summary=history.summary)


async def keep_turn(run: TaskRun, text: str, error: DelfError | None) -> None:
    """Add the task and its answer to the conversation, also when it failed.

    That it cannot be kept is a warning: the task is done.
    """
    if run.conversation is None:
        return
    answer = text if error is None else _failure(text, error)
    safe, again = run.log.redactor.text, bool(run.replay)
    try:
        async with asyncio.timeout(_KEEP_SECONDS):
            await run.conversation.keep(safe(run.task), safe(answer), run.log.task_id, again=again)
    except TimeoutError:
        why = f"its store did not answer within {_KEEP_SECONDS:g} s"
    except Exception as problem:
        why = problem.message if isinstance(problem, DelfError) else repr(problem)
    else:
        return
    await run.log.record(Warned, message=f"the conversation may lack this task: {why}")


def _failure(text: str, error: DelfError) -> str:
    printed = f"{text.rstrip()}\n\n" if text.strip() else ""
    return f"{printed}(This task was not completed: {error.message})"
